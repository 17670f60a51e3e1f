/** Numbers of a limit for one key: they hold for that key alone, from the next decision on, and no key exceeds its own. */
import fc from 'fast-check'
import { beforeAll, afterAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { defineLimit } from '../../src/claim/definitions/define.ts'
import { sqlOn } from '../../src/db/store.ts'
import { label, limit, type Limit, type LimitOptions, type Rate, Sluice, task } from '../../src/index.ts'
import { promised } from '../../src/limits/proof.ts'
import type { LimitNumbers } from '../../src/limits/numbers.ts'
import { type Arrival, prove } from '../../src/testing/proof.ts'
import { vendor } from '../../src/testing/vendor.ts'
import type { AnyTask } from '../../src/tasks/task.ts'
import { claimAll, done, enter, mainEngines } from '../claim/engine.ts'
import { forAllInTime } from '../for-all.ts'
import { addBucket } from '../limits/engine.ts'
import { type Grant, minute, second, worst } from '../limits/oracle.ts'
import { cases } from '../long.ts'
import { until } from '../until.ts'
import { ledgerOn } from './ledger-stage.ts'

const why = { reason: 'a contract' }
const keys = ['a', 'b', 'late'] as const
type Key = (typeof keys)[number]
type Source = 'set' | 'pin'

/** One kind of rule; the other two are removed. */
type Numbers = { [Field in 'rate' | 'window' | 'concurrency']: LimitNumbers[Field] | null }

const anyNumbers: fc.Arbitrary<Numbers> = fc
  .tuple(fc.constantFrom('rate', 'window'), fc.integer({ min: 1, max: 40 }), fc.constantFrom('s', '5s', 'min'))
  .map(([kind, units, every]) => ({ rate: null, window: null, concurrency: null, [kind]: `${units}/${every}` }))

const anyOne = fc.constantFrom<Key | undefined>(undefined, ...keys)
const anyAct = fc.oneof(
  { weight: 6, arbitrary: fc.record({ take: fc.integer({ min: 1, max: 60 }), of: fc.constantFrom(...keys) }) },
  { weight: 3, arbitrary: fc.record({ passUs: fc.integer({ min: 1, max: 20 * second }) }) },
  { weight: 2, arbitrary: fc.record({ put: fc.constantFrom<Source>('set', 'pin'), key: anyOne, numbers: anyNumbers }) },
  { weight: 1, arbitrary: fc.record({ drop: fc.constantFrom<Source>('set', 'pin'), key: anyOne }) },
  { weight: 1, arbitrary: fc.record({ code: anyNumbers }) },
)

const optionsOf = (numbers: Numbers) =>
  Object.fromEntries(Object.entries(numbers).filter(([, value]) => value !== null)) as unknown as LimitOptions

describe.each(mainEngines)('numbers of a limit for one key, on $name', ({ store }) => {
  const ledger = ledgerOn(store)
  const { at, define, take, query } = ledger
  const limits = () => ledger.sluice.limits
  const redefine = (options: LimitOptions) => defineLimit(sqlOn(ledger.sluice.db), limit('crm', options), 'code')
  const versionOf = async (key: string) =>
    (
      await query(
        `select l.version from sluice.ledger l join sluice.bucket b on b.id = l.bucket where b.key = $1
                  order by l.at desc, l.n desc limit 1`,
        [key],
      )
    )[0]?.['version']

  it('hold for it alone, also before it was ever used, and what it was granted before counts', async () => {
    await define({ window: '3/min', by: 'k' } as LimitOptions, ['a', 'b'])
    expect([await take(9, 'a'), await take(9, 'b')]).toEqual([3, 3])
    await limits().set('crm', { window: '5/min' }, { ...why, key: 'a' })
    await limits().set('crm', { window: '7/min' }, { ...why, key: 'late' })
    await at(second)
    expect([await take(9, 'a'), await take(9, 'b'), await take(9, 'late')]).toEqual([2, 0, 7])
    await limits().set('crm', { window: '1/min' }, { ...why, key: 'b' })
    await at(2 * minute)
    expect([await take(9, 'a'), await take(9, 'b'), await take(9, 'late')]).toEqual([5, 1, 7])
    expect(await ledger.sluice.verify()).toMatchObject({ isProved: true, grants: 28 })
  })

  it('come before those of all keys, but pinned ones of all keys before stored ones of one', async () => {
    await define({ window: '3/min', by: 'k' } as LimitOptions)
    const now = async (key?: string) => {
      const { source, numbers } = await limits().show('crm', { key })
      return `${source} ${String(numbers.window)}`
    }
    await limits().set('crm', { window: '4/min' }, why)
    await limits().set('crm', { window: '5/min' }, { ...why, key: 'a' })
    expect([await now(), await now('a'), await now('b')]).toEqual(['stored 4/min', 'stored 5/min', 'stored 4/min'])
    await limits().pin('crm', { window: '1/min' }, why)
    expect([await now(), await now('a')]).toEqual(['pinned 1/min', 'pinned 1/min'])
    await limits().pin('crm', { window: '9/min' }, { ...why, key: 'a' })
    expect([await now(), await now('a'), await now('b')]).toEqual(['pinned 1/min', 'pinned 9/min', 'pinned 1/min'])
    expect(await limits().unpin('crm')).toBe(true)
    expect(await limits().unpin('crm', { key: 'a' })).toBe(true)
    expect([await now(), await now('a')]).toEqual(['stored 4/min', 'stored 5/min'])
    expect(await limits().unset('crm', { key: 'b' })).toBe(false)
    expect(await limits().unset('crm', { key: 'a' })).toBe(true)
    expect([await now('a'), await limits().unset('crm', { key: 'a' })]).toEqual(['stored 4/min', false])
    await limits().unset('crm')
    expect(await now('a')).toBe('code 3/min')
    await redefine({ window: '2/min', by: 'k' } as LimitOptions)
    expect([await now(), await now('a')]).toEqual(['code 2/min', 'code 2/min'])
  })

  it('are listed with the limit, and have a history and a guarantee of their own', async () => {
    await define({ window: '3/min', by: 'k' } as LimitOptions)
    await limits().set('crm', { window: '5/min' }, { reason: 'bought', key: 'b' })
    await limits().set('crm', { window: '6/min' }, { reason: 'a trial', key: 'a' })
    const line = await limits().show('crm')
    expect(line).toMatchObject({ numbers: { window: '3/min' }, key: undefined })
    expect(line.keyNumbers).toMatchObject([
      { key: 'a', source: 'stored', numbers: { window: '6/min' }, reason: 'a trial' },
      { key: 'b', source: 'stored', numbers: { window: '5/min' }, reason: 'bought' },
    ])
    expect((await limits().list())[0]?.keyNumbers).toHaveLength(2)
    expect(await limits().show('crm', { key: 'a' })).toMatchObject({ key: 'a', guarantee: { rules: [{ worst: 6 }] } })
    await limits().unset('crm', { key: 'a', reason: 'it is over' })
    expect((await limits().show('crm')).keyNumbers).toMatchObject([{ key: 'b' }])
    expect(await limits().history('crm', { key: 'a' })).toMatchObject([
      { source: 'code', numbers: { window: '3/min' }, reason: 'it is over' },
      { source: 'stored', numbers: { window: '6/min' }, reason: 'a trial' },
    ])
    expect(await limits().history('crm')).toMatchObject([{ version: 1, source: 'code' }])
    expect(await limits().history('crm', { key: 'c' })).toEqual([])
  })

  it('keep everything else from the code: a change of it reaches them, and their buckets stay', async () => {
    await define({ window: '3/min', by: 'k' } as LimitOptions)
    await limits().set('crm', { window: '5/min' }, { ...why, key: 'a' })
    expect(await take(1, 'a')).toBe(1)
    const before = await versionOf('a')
    await redefine({ window: '3/min', by: 'k', refund: 'full' } as LimitOptions)
    await at(second)
    expect(await take(9, 'a')).toBe(4)
    expect(Number(await versionOf('a'))).toBeGreaterThan(Number(before))
    const [row] = await query(`select spec ->> 'refund' as refund from sluice.limit_def where key = 'a'
                               order by version desc limit 1`)
    expect(row).toEqual({ refund: 'full' })
  })

  it('are refused where a key has no bucket of its own', async () => {
    await define({ window: '3/min' })
    const set = (key: string) => limits().set('crm', { window: '5/min' }, { ...why, key })
    await expect(set('a')).rejects.toMatchObject({
      code: 'SLUICE_BAD_LIMIT',
      message: expect.stringContaining('no keys'),
    })
    await redefine({ window: '3/min', pool: ['a', 'b'] } as LimitOptions)
    await expect(set('a')).rejects.toMatchObject({ message: expect.stringContaining('members of a pool') })
    await redefine({ window: '3/min', by: 'k', published: true } as LimitOptions)
    await expect(set('a')).rejects.toMatchObject({ message: expect.stringContaining('published in Redis') })
    await redefine({ window: '3/min', by: label('ip') } as unknown as LimitOptions)
    await expect(set('')).rejects.toMatchObject({ code: 'SLUICE_BAD_KEY' })
    expect(await set('10.0.0.1')).toMatchObject({ key: '10.0.0.1', numbers: { window: '5/min' } })
  })

  it('hold in each random history of two operators: each window is within the key’s rule, and the ledger proves it', async () => {
    let [judged, changed] = [0, 0]
    await forAllInTime(cases(48), fc.array(anyAct, { minLength: 8, maxLength: 40 }), async (acts) => {
      await query('truncate sluice.limit_def, sluice.limit_source, sluice.bucket, sluice.ledger')
      await define({ window: '10/min', by: 'k' } as LimitOptions, ['a', 'b'])
      let code: LimitOptions = { window: '10/min' }
      const put = new Map<string, Numbers>()
      const inForce = (key: Key): Limit => {
        const found = [`pin ${key}`, 'pin undefined', `set ${key}`, 'set undefined'].find((one) => put.has(one))
        return limit('crm', found === undefined ? code : optionsOf(put.get(found) as Numbers))
      }
      const granted = new Map<Key, Grant[]>(keys.map((key) => [key, []]))
      let nowUs = 0
      for (const act of acts) {
        const isChange = !('passUs' in act || 'take' in act)
        if ('passUs' in act) await at((nowUs += act.passUs))
        else if ('put' in act) {
          await limits()[act.put]('crm', act.numbers as never, { ...why, key: act.key })
          put.set(`${act.put} ${String(act.key)}`, act.numbers)
          changed++
        } else if ('drop' in act) {
          const isGone = await limits()[act.drop === 'set' ? 'unset' : 'unpin']('crm', { key: act.key })
          expect(isGone).toBe(put.delete(`${act.drop} ${String(act.key)}`))
        } else if ('code' in act) {
          code = optionsOf(act.code)
          await redefine({ ...code, by: 'k' } as never)
        } else {
          await addBucket(ledger.sluice.db, 'crm', act.of)
          const units = await take(act.take, act.of)
          const all = granted.get(act.of) ?? []
          if (units === 0) continue
          all.push([nowUs, units])
          const made = inForce(act.of)
          for (const rule of made.rules.filter(({ kind }) => kind !== 'pace')) {
            const { spanUs, most } = promised(rule, made)
            expect(worst(all, spanUs, 'half-open', all.length - 1)).toBeLessThanOrEqual(most)
            judged++
          }
        }
        for (const key of isChange ? keys : []) {
          const { numbers } = await limits().show('crm', { key })
          expect(numbers).toEqual(inForce(key).numbers)
        }
      }
      expect(await ledger.sluice.verify()).toMatchObject({ isProved: true, exceeded: [], missing: [] })
    })
    expect(judged).toBeGreaterThan(0)
    expect(changed).toBeGreaterThan(0)
  }, 300_000)

  it('are judged by verify: a key that was granted what only the other may have is found', async () => {
    await define({ window: '3/min', by: 'k' } as LimitOptions, ['a', 'b'])
    await limits().set('crm', { window: '9/min' }, { ...why, key: 'a' })
    await limits().set('crm', { window: '4/min' }, { ...why, key: 'b' })
    expect([await take(9, 'a'), await take(9, 'b')]).toEqual([9, 4])
    expect(await ledger.sluice.verify()).toMatchObject({ isProved: true })
    await query(
      `update sluice.ledger set units = 9 where n = 4 and bucket = (select id from sluice.bucket where key = 'b')`,
    )
    expect(await ledger.sluice.verify()).toMatchObject({ isProved: false, exceeded: [{ key: 'b', most: 4 }] })
  })
})

describe.each(mainEngines)('jobs of a key with numbers of its own, on $name', (engine) => {
  let sluice: Sluice
  let names = 0
  beforeAll(async () => void (sluice = await Sluice.open({ store: await engine.store(), allowPrivate: ['127.0.0.1'] })))
  afterAll(() => sluice.close())
  const input = z.object({ k: z.string() })
  const keyed = (name: string, options: LimitOptions): AnyTask =>
    task(name, { input, limits: [limit(name, { ...options, by: 'k' } as never)], run: () => undefined }) as never
  const send = (to: AnyTask, k: string, many: number) =>
    sluice.sendMany(
      to,
      Array.from({ length: many }, () => ({ k })),
    )

  it('start as many as its places allow, also while some run, and why and status show its numbers', async () => {
    const name = `places${++names}`
    const call = keyed(name, { concurrency: 1 })
    await send(call, 'a', 5)
    await send(call, 'b', 5)
    const worker = await enter(sluice.db, [name])
    const of = async () =>
      (await claimAll(sluice.db, worker, [name], 99)).map((job) => ({ ...job, k: (job.input as { k: string }).k }))
    const first = await of()
    expect(first.map(({ k }) => k).toSorted()).toEqual(['a', 'b'])
    await sluice.limits.set(name, { concurrency: 3 }, { ...why, key: 'a' })
    expect((await of()).map(({ k }) => k)).toEqual(['a', 'a'])
    await sluice.limits.unset(name, { key: 'a' })
    await done(sluice.db, first)
    expect((await of()).map(({ k }) => k)).toEqual(['b'])
    const [waiting] = (await sluice.list({ state: 'waiting' })).filter(({ task: its }) => its === name)
    expect((await sluice.why(waiting?.id ?? ''))?.reasons).toMatchObject([
      { kind: 'concurrency', key: 'b' },
      { kind: 'order' },
    ])
  })

  it('wait under its number, and why names it', async () => {
    const name = `named${++names}`
    const call = keyed(name, { rate: '100/min' })
    await sluice.define([call as never])
    await sluice.limits.set(name, { rate: '1/h' }, { ...why, key: 'a' })
    await send(call, 'a', 2)
    await send(call, 'b', 2)
    const worker = await enter(sluice.db, [name])
    expect(await claimAll(sluice.db, worker, [name], 99)).toHaveLength(3)
    const [waiting] = (await sluice.list({ state: 'waiting' })).filter(({ task: of }) => of === name)
    const [reason] = (await sluice.why(waiting?.id ?? ''))?.reasons ?? []
    expect(reason).toMatchObject({ kind: 'limit', limit: name, key: 'a', text: expect.stringContaining('(1/h for a)') })
  })

  it('take of its share, too', async () => {
    const name = `shared${++names}`
    const call = keyed(name, { window: '10/min', shares: { first: 0.5 } })
    await sluice.define([call as never])
    await sluice.limits.set(name, { window: '4/min' }, { ...why, key: 'a' })
    await send(call, 'a', 9)
    await send(call, 'b', 9)
    const worker = await enter(sluice.db, [name])
    const all = (await claimAll(sluice.db, worker, [name], 99)).map((job) => (job.input as { k: string }).k)
    // The share was never used: its part is lent.
    expect([all.filter((k) => k === 'a').length, all.filter((k) => k === 'b').length]).toEqual([4, 9])
    expect(await sluice.limits.show(name, { key: 'a' })).toMatchObject({
      share: { part: 0.5 },
      numbers: { window: '4/min' },
    })
    expect(await sluice.verify({ limit: name })).toMatchObject({ isProved: true })
  })

  it('reach the vendor within the numbers of their time while these change under load', async (context) => {
    const windowMs = 1_000
    const seen = vendor({ rules: [{ algorithm: 'sliding log', limit: 1_000, windowMs, key: 'header:x-key' }] })
    const url = await seen.listen()
    context.onTestFinished(() => seen.close())
    const name = `live${++names}`
    const call = task(name, {
      input,
      limits: [limit(name, { window: '4/s', by: 'k' })],
      run: async ({ k }, ctx) => void (await ctx.fetch(url, { headers: { 'x-key': k } })),
    })
    await send(call as never, 'a', 400)
    await send(call as never, 'b', 400)
    const working = await sluice.work([call], { concurrency: 8 })
    context.onTestFinished(() => working.stop())
    const arrivals = (k: string) => seen.arrivals().filter(({ keys: [of] }) => of === k)
    const more = async (k: string, many: number) => {
      const least = arrivals(k).length + many
      await until(() => arrivals(k).length >= least, `${many} more of ${k}`)
    }
    const most = (some: readonly Arrival[]) => prove(some, [{ name: '', limit: 0, windowMs }]).rules[0]?.worst ?? 0
    const set = (rate: Rate) => sluice.limits.set(name, { window: rate }, { ...why, key: 'a' })
    await more('a', 4)
    await set('16/s')
    await more('a', 12)
    const high = arrivals('a').length
    await set('2/s')
    const low = arrivals('a').length
    await more('a', 4)
    const end = arrivals('a').length
    await sluice.limits.unset(name, { key: 'a' })
    await more('a', 4)
    expect(most(arrivals('a').slice(0, low))).toBeLessThanOrEqual(16)
    // A window and the margin after the change only the new number holds.
    const [changed] = arrivals('a').slice(high)
    const since = arrivals('a')
      .slice(low, end)
      .filter(({ atNs }) => atNs > (changed?.atNs ?? 0) + 1.5e9)
    expect(most(since)).toBeLessThanOrEqual(2)
    expect(most(arrivals('a').slice(end))).toBeLessThanOrEqual(4)
    expect(most(arrivals('b'))).toBeLessThanOrEqual(4)
    expect(await sluice.verify({ limit: name })).toMatchObject({ isProved: true })
  }, 120_000)
})
