/** What jobs cost is learned from what earlier ones settled for. */
import fc from 'fast-check'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { type Clock, systemClock } from '../../src/core/clock.ts'
import type { Db } from '../../src/db/db.ts'
import { Estimates } from '../../src/dispatch/estimate.ts'
import { task } from '../../src/dispatch/task.ts'
import { capacityOf, costOf } from '../../src/limits/cost.ts'
import { limit } from '../../src/limits/limit.ts'
import { Sluice } from '../../src/sluice.ts'
import { engines } from '../dispatch/engine.ts'

const input = z.object({
  max: z.number(),
  used: z.number(),
  model: z.string().optional(),
  calls: z.number().optional(),
})
const tpm = limit('tpm', { window: '100000000/min' })
const log = { debug() {}, info() {}, warn() {}, error() {} }
const ask = task('ask', {
  input,
  limits: [{ limit: tpm, cost: 'max', learn: { by: 'model' } }],
  run: async ({ used }, { settle }) => {
    await settle({ tpm: used })
    // Of no account: it was said already.
    await settle(1)
  },
})
/** Ratios around two fifths. */
const jobs = (count: number, more: object = {}) =>
  Array.from({ length: count }, (_, i) => ({ max: 1_000, used: 380 + (i % 5) * 10, ...more }))

describe.each(engines)('learned costs on $name', ({ store }) => {
  let sluice: Sluice
  let laterMs: number
  /** The machine's, but what was looked up grows old when a test says so. */
  const clock: Clock = { ...systemClock, monotonicMs: () => systemClock.monotonicMs() + laterMs }
  beforeEach(async () => {
    laterMs = 0
    sluice = await Sluice.open({ store: await store(), clock })
  })
  afterEach(() => sluice.close())
  /** Has so many jobs run, and lets what senders know grow old. */
  const run = async (all: object[], what = ask) => {
    await sluice.sendMany(what, all as never)
    expect(await sluice.dispatchOnce([what])).toBe(all.length)
    laterMs += 5_000
    // A refresh is not waited for; this send is what asks for it.
    await costOfNext({ model: (all[0] as { model?: string }).model ?? 'a' }, what)
  }
  const costOfId = async (id: string) =>
    (await sluice.db.query<{ costs: number[] }>('select costs from sluice.job where id = $1', [id]))[0]?.costs[0]
  /** What a job costs that is sent now; it goes again. */
  const costOfNext = async (more: object = {}, what = ask, options = {}) => {
    const id = await sluice.send(what, { max: 1_000, used: 400, ...more }, options)
    const cost = await costOfId(id)
    await sluice.jobs.cancel(id)
    return cost
  }
  /** The same as soon as what was asked for has been heard. */
  const settled = async (expected: (cost: number) => boolean, more: object, what = ask) => {
    await expect.poll(async () => expected((await costOfNext(more, what)) ?? -1), { timeout: 30_000 }).toBe(true)
    return costOfNext(more, what)
  }
  const samples = async () =>
    Object.fromEntries(
      (await sluice.db.query<{ value: string; ratios: number[] }>('select value, ratios from sluice.learned')).map(
        ({ value, ratios }) => [value, ratios],
      ),
    )

  it('the declared until 20 have settled, then what nine of ten have really used; each model apart', async () => {
    await run(jobs(19, { model: 'a' }))
    expect((await samples())['a']).toHaveLength(19)
    expect(await costOfNext({ model: 'a' })).toBe(1_000)
    await run(jobs(1, { model: 'a' }))
    expect(await settled((cost) => cost < 1_000, { model: 'a' })).toBe(420)
    expect(await costOfNext({ model: 'a', max: 1 })).toBe(1)
    expect(await costOfNext({ model: 'a', max: 0 })).toBe(0)
    expect(await costOfNext({ model: 'a', max: 11 })).toBe(5)
    expect(await costOfNext({ model: 'b' })).toBe(1_000)
    expect(await costOfNext()).toBe(1_000)
    await sluice.transaction(async (tx) => {
      const id = await sluice.send(ask, { max: 1_000, used: 400, model: 'a' }, { tx })
      const rows = await tx.query<{ costs: number[] }>('select costs from sluice.job where id = $1', [id])
      expect(rows[0]?.costs[0]).toBe(420)
    })
  })

  it('a process whose first send is in a transaction of the caller knows it too, also many at once', async () => {
    await run(jobs(40))
    laterMs += 5_000
    const costs = await sluice.transaction(async (tx) => {
      await sluice.sendMany(ask, jobs(3, { used: 399 }), { tx })
      return tx.query<{ c: number }>(`select costs[1] as c from sluice.job where input ->> 'used' = '399'`)
    })
    if (sluice.db.kind === 'pglite') expect(costs.map(({ c }) => c)).toEqual([420, 420, 420])
    expect(costs).toHaveLength(3)
  })

  it('what was sent by SQL costs the same, from its admission on', async () => {
    await run(jobs(20, { model: 'a' }))
    await settled((cost) => cost === 420, { model: 'a' })
    await sluice.db.query(`select sluice.send('ask', '{"max": 1000, "used": 400, "model": "a"}')`)
    await sluice.dispatchOnce([ask])
    const [done] = await sluice.db.query<{ costs: number[] }>(
      `select costs from sluice.done order by finished_at desc limit 1`,
    )
    expect(done?.costs[0]).toBe(420)
  })

  it('few outliers change nothing; many do, and never beyond the declared; attempts that used nothing teach nothing', async () => {
    await run([...jobs(46), ...jobs(4, { used: 5_000 }), ...jobs(50, { used: 0 })])
    expect((await samples())['']).toHaveLength(50)
    expect(await settled((cost) => cost < 1_000, {})).toBe(420)
    await run(jobs(10, { used: 5_000 }))
    expect(await settled((cost) => cost !== 420, {})).toBe(1_000)
    await run(jobs(120, { used: 100 }))
    expect((await samples())['']).toHaveLength(128)
    expect(await settled((cost) => cost < 1_000, {})).toBe(100)
  })

  it('of two workers that write at one time neither loses what the other has', async () => {
    const workers = Array.from({ length: 10 }, () => new Estimates(sluice.db, clock, (sql) => sql, log))
    for (let round = 0; round < 3; round++) {
      for (const worker of workers)
        for (const model of ['a', 'b', 'c'])
          for (const used of [300, 400])
            worker.saw('ask', ask.limits[0] as never, { max: 1_000, model: `${model}${used}` }, used)
      await Promise.all(workers.map((worker) => worker.write()))
    }
    const all = Object.entries(await samples()).map(([, ratios]) => ratios.length)
    expect(all).toEqual(Array.from({ length: 6 }, () => 30))
  })

  it('a task has 1,000 values at most, and what nobody used for 30 days is forgotten', async () => {
    await sluice.db.query(
      `insert into sluice.learned select 'ask', 'tpm', 'v' || n, '{1}', sluice.now() - interval '29 days' from generate_series(1, 1000) n`,
    )
    const estimates = new Estimates(sluice.db, clock, (sql) => sql, log)
    const saw = (model: string) => estimates.saw('ask', ask.limits[0] as never, { max: 10, model }, 5)
    for (const model of ['new', 'v7', 'v7']) saw(model)
    await estimates.write()
    expect(await samples()).toMatchObject({ v7: [500, 500, 1] })
    expect(await samples()).not.toHaveProperty('new')
    await sluice.db.query(`update sluice.learned set seen_at = seen_at - interval '2 days'`)
    await sluice.prune()
    expect(Object.keys(await samples())).toEqual(['v7'])
    saw('new')
    await estimates.write()
    expect(await samples()).toHaveProperty('new')
  })
})

describe('what is learned', () => {
  const some = (answer: () => Promise<unknown[]>) =>
    new Estimates({ kind: 'pg', query: answer, call: answer } as unknown as Db, systemClock, (sql) => sql, log)
  const known = async (estimates: Estimates) => (await estimates.of(ask))?.(ask.limits[0] as never, { max: 1 })

  it('a store that fails or is silent holds up no send, and costs nobody what is known', async () => {
    expect(await known(some(() => Promise.reject(new Error('away'))))).toBeUndefined()
    const silent = some(() => new Promise(() => {}))
    expect(await known(silent)).toBeUndefined()
    // Nobody waits a second time.
    const begunMs = systemClock.monotonicMs()
    await Promise.all(Array.from({ length: 1_000 }, () => known(silent)))
    for (let i = 0; i < 100; i++) await known(silent)
    expect(systemClock.monotonicMs() - begunMs).toBeLessThan(10_000 / 2)
    let isAway = false
    let laterMs = 0
    const answer = async () => {
      if (isAway) throw new Error('away')
      return [{ lim: 'tpm', value: '', share: 500 }]
    }
    const clock = { ...systemClock, monotonicMs: () => systemClock.monotonicMs() + laterMs }
    const estimates = new Estimates({ kind: 'pg', query: answer } as unknown as Db, clock, (sql) => sql, log)
    expect(await known(estimates)).toBe(500)
    isAway = true
    laterMs = 60_000
    expect(await known(estimates)).toBe(500)
    expect(await known(estimates)).toBe(500)
  })

  it('what could not be written is written with the next', async () => {
    const written: { ratios: number[] }[][] = []
    let fails = 1
    const db = {
      call: async (_: string, __: string, [text]: [string]) => {
        if (fails-- > 0) throw new Error('away')
        written.push(JSON.parse(text) as never)
        return []
      },
    }
    const estimates = new Estimates(db as unknown as Db, systemClock, (sql) => sql, log)
    const saw = (used: number) => estimates.saw('ask', ask.limits[0] as never, { max: 100 }, used)
    saw(10)
    await estimates.write()
    saw(20)
    await estimates.write()
    await estimates.write()
    expect(written.map(([one]) => one?.ratios)).toEqual([[200, 100]])
  })

  it('is never above the declared, nor the capacity, and at least 1', () => {
    const numbers = fc.record({ declared: fc.nat(2 ** 31 - 1), share: fc.integer({ min: 0, max: 1_000 }) })
    fc.assert(
      fc.property(numbers, fc.integer({ min: 1, max: 2 ** 31 - 1 }), ({ declared, share }, room) => {
        const [own] = task('own', {
          input,
          limits: [{ limit: limit('own', { window: `${room}/min` }), cost: 'max', learn: true }],
          run() {},
        }).limits
        let cost: number
        try {
          cost = costOf(own as never, { max: declared }, () => share)
        } catch (error) {
          expect(error).toMatchObject({ code: 'SLUICE_COST_ABOVE_CAPACITY' })
          expect(declared * share).toBeGreaterThan(room * 1_000 - 1_000)
          return
        }
        expect(cost).toBeLessThanOrEqual(Math.min(declared, capacityOf(own as never)))
        expect(cost * 1_000).toBeGreaterThanOrEqual(declared * share)
        expect(cost).toBeGreaterThanOrEqual(Math.min(1, declared))
        expect(cost - (declared * share) / 1_000).toBeLessThanOrEqual(1)
      }),
    )
  })

  it('what makes no sense is refused where it is defined', () => {
    const bad = expect.objectContaining({ code: 'SLUICE_BAD_COST' })
    const made = (learn: unknown, cost: unknown = 'max') =>
      task('odd', { input, limits: [{ limit: tpm, cost, learn } as never], run() {} })
    for (const learn of [
      'yes',
      null,
      1,
      { quantile: 0 },
      { quantile: 1.1 },
      { quantile: '0.9' },
      { by: '' },
      { by: 3 },
    ])
      expect(() => made(learn), JSON.stringify(learn)).toThrow(bad)
    expect(() => made({ quantil: 0.5 })).toThrow(bad)
    expect(() => made(true, 1)).toThrow(bad)
    expect(() => made(true, 0)).toThrow(bad)
    expect(made(false).limits[0]?.learn).toBeUndefined()
    expect(made({ quantile: 1 }, 500).limits[0]?.learn).toEqual({ quantile: 1, by: undefined })
    // @ts-expect-error there is no such field
    task('typed', { input, limits: [{ limit: tpm, cost: 'max', learn: { by: 'mode' } }], run() {} })
  })
})
