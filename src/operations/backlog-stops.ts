/** What keeps waiting jobs from starting: limits whose buckets grant nothing, summed up by limit and kind. */
import { limitOf } from '../core/bucket.ts'
import { many } from '../core/figures.ts'
import type { Sql } from '../db/store.ts'
import type { Cause } from '../limits/circuit.ts'
import type { Pausing } from './explanation.ts'

/** Something that keeps jobs from starting. */
export interface Stop {
  kind:
    | 'paused'
    | 'closed'
    | 'no-task'
    | 'no-queue'
    | 'no-worker'
    | 'no-label'
    | 'undefined-limit'
    | 'held'
    | 'used-up'
    | 'concurrency'
  /** For people. */
  text: string
  /** Jobs that it stops, about. */
  jobs: number
  /** When it ends by time alone; undefined: when somebody acts, or jobs end. */
  until?: Date
  /** In how many ms the rate of a limit lets all of the jobs start; undefined: not known (a window, a quota, jobs with costs). */
  emptyMs?: number
}

/** Waiting jobs of a task in a queue that need the same buckets. */
export interface Group {
  task: string
  queue: string
  buckets: string[] | null
  n: number
  has_costs: boolean
  oldest_ms: number
}

interface BucketStop {
  way: string
  defined: boolean
  paused: Pausing | null
  parked: boolean
  held_ms: number | null
  cause: Cause | null
  full: boolean
  crowded: boolean
  free_in_ms: number
  per_minute: number | null
}

const bucketsMax = 300

/** Reads why the buckets that most jobs wait for grant nothing. `scale`: how many jobs each one of the groups stands for. */
export async function stopsOf(sql: Sql, groups: readonly Group[], scale: number): Promise<Map<string, Stop>> {
  const waiting = new Map<string, number>()
  const costly = new Set<string>()
  for (const { buckets, n, has_costs: hasCosts } of groups)
    for (const bucket of buckets ?? []) {
      if (bucket.includes('@')) continue
      waiting.set(bucket, (waiting.get(bucket) ?? 0) + n * scale)
      if (hasCosts) costly.add(bucket)
    }
  const ways = [...waiting].sort(([, a], [, b]) => b - a).slice(0, bucketsMax)
  if (ways.length === 0) return new Map()
  const rows = await sql.run<BucketStop>('operations/read_bucket_stops', [ways.map(([way]) => way)])
  return new Map(
    rows.flatMap((row): [string, Stop][] => {
      const n = waiting.get(row.way) ?? 0
      const stop = stopOf(row, Math.round(n))
      if (stop === undefined) return []
      const unitMs =
        stop.kind === 'used-up' && !costly.has(row.way) && row.per_minute !== null && 60_000 / row.per_minute
      return [[row.way, unitMs === false ? stop : { ...stop, emptyMs: row.free_in_ms + (n - 1) * unitMs }]]
    }),
  )
}

const holds = {
  refused: 'held: the vendor refused a request',
  credential: 'held: the vendor rejects the credential',
  down: 'held: the vendor is down',
} as const

function stopOf(
  { defined, paused, parked, held_ms: heldMs, cause, full, crowded }: BucketStop,
  jobs: number,
): Stop | undefined {
  if (!defined) return { kind: 'undefined-limit', text: 'not defined in the database', jobs }
  if (paused !== null) return { kind: 'paused', text: `paused by ${paused.by}: ${paused.reason}`, jobs }
  if (parked) return { kind: 'held', text: 'parked', jobs }
  if (heldMs !== null)
    return { kind: 'held', text: cause === null ? 'held' : holds[cause], jobs, until: new Date(heldMs) }
  if (crowded) return { kind: 'concurrency', text: 'all places taken', jobs }
  return full ? { kind: 'used-up', text: 'used up', jobs } : undefined
}

/** Sums up, for jobs of a task, what their limits do: one entry for each limit and kind of stop. */
export function limitStops(groups: readonly Group[], stops: ReadonlyMap<string, Stop>, scale: number): Stop[] {
  return sumStops(stopsOfGroups(groups, stops, scale)).map(({ limit, stop }) => ({
    ...stop,
    text: `${limit} ${stop.text}`,
  }))
}

/** Returns what stops each group of jobs, by key of a limit: once for each kind, also where a limit with a share has two buckets. */
export function stopsOfGroups(groups: readonly Group[], stops: ReadonlyMap<string, Stop>, scale: number): Found[] {
  return groups.flatMap(({ buckets, n }) => {
    const found = new Map<string, Found>()
    for (const bucket of buckets ?? []) {
      const stop = stops.get(bucket)
      const way = bucket.replace(/^([^:/]+)\/[^:]*/, '$1')
      if (stop === undefined) continue
      const kind = `${stop.kind} ${way}`
      const one = { ...stop, way, jobs: n * scale }
      found.set(kind, emptyLast(one, found.get(kind) ?? one))
    }
    return [...found.values()]
  })
}

/** Returns a stop, with when the last of two buckets is empty, which empty side by side; if one is not known, the last is not. */
function emptyLast<T extends Stop>({ emptyMs: ms, ...stop }: T, { emptyMs: otherMs }: Stop): T {
  const emptyMs = ms === undefined || otherMs === undefined ? undefined : Math.max(ms, otherMs)
  return (emptyMs === undefined ? stop : { ...stop, emptyMs }) as T
}

interface Found extends Stop {
  way: string
}

/** Sums up stops: one for each limit and kind, and for each text of a pause or hold. */
export function sumStops(found: readonly Found[]): { limit: string; stop: Stop }[] {
  const byKind = new Map<string, { limit: string; stop: Stop; keys: Set<string> }>()
  for (const { way, ...stop } of found) {
    const limit = limitOf(way)
    const key = `${limit} ${stop.kind} ${stop.kind === 'paused' || stop.kind === 'held' ? stop.text : ''}`
    const known = byKind.get(key) ?? { limit, stop: { ...stop, jobs: 0 }, keys: new Set() }
    known.stop = emptyLast(known.stop, stop)
    known.stop.jobs += stop.jobs
    known.keys.add(way)
    const untilMs = Math.max(known.stop.until?.getTime() ?? 0, stop.until?.getTime() ?? 0)
    if (untilMs > 0) known.stop.until = new Date(untilMs)
    byKind.set(key, known)
  }
  return [...byKind.values()].map(({ limit, stop, keys }) => {
    return { limit, stop: { ...stop, jobs: Math.round(stop.jobs), text: insertKeys(stop.text, whoseOf(stop, keys)) } }
  })
}

/** Names the keys of a stop; none if the limit's definition is missing, because it is missing for all of them. */
function whoseOf({ kind }: Stop, keys: ReadonlySet<string>): string {
  const [only = ''] = keys
  if (kind === 'undefined-limit') return ''
  if (keys.size > 1) return ` for ${many(keys.size, 'key')}`
  return only.includes(':') ? ` for ${keyOf(only)}` : ''
}

/** Puts the keys before the colon of a reason. */
function insertKeys(text: string, whose: string): string {
  const at = text.indexOf(' by ')
  return at < 0 ? `${text}${whose}` : `${text.slice(0, at)}${whose}${text.slice(at)}`
}

/** Returns the key in a bucket's name. */
export function keyOf(bucket: string): string {
  return bucket.slice(bucket.indexOf(':') + 1)
}
