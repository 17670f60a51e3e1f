/** Generators for random histories: the limits of a small world, its tasks, and the events there. */
import fc from 'fast-check'
import { type AnyTask, task } from '../../src/tasks/task.ts'
import { type Limit, limit, type LimitOptions } from '../../src/limits/limit.ts'
import { label } from '../../src/limits/pool.ts'
import { tenantInput } from './engine.ts'

/** The kinds of events. */
export const kinds = [
  'send',
  'claim',
  'end',
  'settle',
  'kill',
  'hold',
  'redefine',
  'pause',
  'resume',
  'take',
  'yield',
  'replay',
  'cancel',
  'pass',
  'back',
] as const
/** One event; `which` and `how` choose among the things that exist at that time. */
export interface Act {
  kind: (typeof kinds)[number]
  which: number
  how: number
  us: number
  numbers: LimitOptions
}

/** The rules of a history's limits, and the limits of each task. */
export interface Setting {
  numbers: LimitOptions[]
  lendS: number
  /** The share and the keyed limits use the tenant as their key. */
  isShareKeyed: boolean
  tasks: { limits: number[]; isCosted: boolean }[]
  acts: Act[]
}

/** A job in a worker's hands. */
export interface Held {
  id: string
  seq: number
  claim: string
  worker: string
  holds: string[]
  costs: number[] | null
  settled: Set<string>
}

/** Labels of the workers. */
export const hosts = ['one', 'one', 'two']
/** Tenants, which are the keys of keyed limits. */
export const tenants = ['a', 'b']
const members = ['x', 'y', 'z']
/** The number of the limit that has a share. */
const shared = 2
const names = ['ip', 'sender', 'crm', 'tenant', 'all']

/** The limit `at` of a history, with these numbers; `size`: members of the pool. */
export function limitAt(
  run: number,
  at: number,
  numbers: LimitOptions,
  { lendS, isShareKeyed }: Setting,
  size = 3,
): Limit {
  const by = (input: { tenant?: string | undefined }) => input.tenant ?? ''
  const kept = { shares: { interactive: 0.4 }, lendAfter: `${lendS}s`, ...(isShareKeyed ? { by } : {}) }
  const kind = [{ by: label('host') }, { pool: members.slice(0, size) }, kept, { by }, {}][at]
  return limit(`${names[at]}${run}`, { ...numbers, ...kind } as LimitOptions) as Limit
}

/** One of the buckets that a limit has. */
export function bucketOf({ name, pool, keyed, label: by }: Limit, which: number): string {
  const keys = pool?.map(({ key }) => key) ?? keysOf({ keyed, label: by })
  return keys.length === 0 ? name : `${name}:${keys[which % keys.length]}`
}

/** The keys of a limit that can have numbers of their own. */
export function keysOf({
  pool,
  keyed,
  label: by,
}: Pick<Limit, 'keyed' | 'label'> & Partial<Pick<Limit, 'pool'>>): string[] {
  return pool !== undefined ? [] : by === undefined ? (keyed ? tenants : []) : hosts
}

/** Tasks under these limits. */
export function tasksOf(run: number, setting: Setting, limits: readonly Limit[]): AnyTask[] {
  return setting.tasks.map(({ limits: own, isCosted }, i) =>
    task(`t${run}.${i}`, {
      input: tenantInput,
      limits: own.map((at) => {
        const of = limits[at] as Limit
        const cost = (input: { n?: number | undefined }) => input.n ?? 1
        return isCosted && of.rules.some(({ kind }) => kind !== 'concurrency') ? { limit: of, cost } : of
      }) as never,
      run: () => undefined,
    }),
  )
}

/** The jobs that an act sends to a task with these limits; some of them expire. */
export function rowsOf({ how, us }: Act, limits: readonly number[]) {
  const isShare = limits.includes(shared) && us % 2 === 0
  const n = us % 7 === 0 && !isShare ? 0 : 1 + (us % 3)
  const rows = Array.from({ length: 1 + (how % 5) }, (_, i) => ({
    tenant: tenants[(how + (i % 3 === 2 ? 1 : 0)) % 2],
    n,
  }))
  const wait = how % 6 === 1 ? { maxWait: 1 + (Math.trunc(us / 1_000) % 9_000) } : {}
  return { rows, isShare, options: { ...(isShare ? { share: 'interactive' } : {}), ...wait } }
}

const count = (min: number, max: number) => fc.integer({ min, max })
const rate = fc.tuple(count(3, 30), count(1, 20)).map(([n, s]) => `${n}/${s}s` as const)
const anyRate = fc.record({ rate, burst: count(3, 8) })
const anyWindow = fc.record({ window: rate })
const anyQuota = fc.record({ quota: count(4, 12).map((n) => `${n}/minute` as const) })
const anyPlaces = fc.record({ concurrency: count(1, 5) })
const merged = (list: object[]) => Object.assign({}, ...list) as LimitOptions
/** Numbers of a limit: rules of one kind, or of several. All allow at least three units, the highest cost of a job. */
const anyNumbers: fc.Arbitrary<LimitOptions> = fc.oneof(
  anyRate,
  anyWindow,
  anyPlaces,
  anyQuota,
  fc.tuple(anyWindow, anyPlaces).map(merged),
  fc.tuple(anyRate, anyQuota, anyPlaces).map(merged),
  fc.tuple(anyRate, anyWindow).map(merged),
) as fc.Arbitrary<LimitOptions>
/** Adds places, because a share of a single place would leave none to others. */
const sharedNumbers = anyNumbers.map((numbers) =>
  'concurrency' in numbers ? { ...numbers, concurrency: 3 + (numbers.concurrency ?? 0) } : numbers,
)

const anyPass = fc.oneof(
  { weight: 6, arbitrary: count(0, 2_000_000) },
  { weight: 3, arbitrary: count(0, 12_000_000) },
  { weight: 1, arbitrary: count(0, 70_000_000) },
)
const often: Partial<Record<Act['kind'], number>> = {
  send: 10,
  claim: 16,
  end: 10,
  pass: 10,
  settle: 3,
  redefine: 3,
  take: 4,
  yield: 2,
  replay: 2,
}
const anyAct: fc.Arbitrary<Act> = fc.record({
  kind: fc.oneof(...kinds.map((kind) => ({ weight: often[kind] ?? 1, arbitrary: fc.constant(kind) }))),
  which: fc.nat(10_000),
  how: fc.nat(10_000),
  us: anyPass,
  numbers: sharedNumbers,
})

/** Histories of this number of acts. */
export const anySetting = (length: number): fc.Arbitrary<Setting> =>
  fc.record({
    numbers: fc.tuple(anyNumbers, anyNumbers, sharedNumbers, anyNumbers, anyNumbers),
    lendS: count(2, 15),
    isShareKeyed: fc.boolean(),
    tasks: fc
      .array(
        fc.record({
          limits: fc.uniqueArray(fc.nat(names.length - 1), { minLength: 1, maxLength: 3 }),
          isCosted: fc.boolean(),
        }),
        { minLength: 2, maxLength: 3 },
      )
      .chain((some) => fc.boolean().map((isCosted) => [...some, { limits: [shared], isCosted }])),
    acts: fc.array(anyAct, { minLength: length, maxLength: length }),
  })
