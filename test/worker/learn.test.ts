/** Costs of jobs are learned from the settlements of earlier ones. */
import fc from 'fast-check'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { storeOn } from '../../src/db/store.ts'
import { type Clock, systemClock } from '../../src/core/clock.ts'
import type { Db, Queryable } from '../../src/db/db.ts'
import { admit } from '../../src/tasks/admit.ts'
import { Estimates } from '../../src/tasks/estimate.ts'
import { placementOf } from '../../src/tasks/placement.ts'
import { Rulebook } from '../../src/tasks/rule.ts'
import { task } from '../../src/tasks/task.ts'
import { capacityOf, costOf } from '../../src/limits/cost.ts'
import { limit } from '../../src/limits/limit.ts'
import { Sluice } from '../../src/sluice.ts'
import { mainEngines } from '../claim/engine.ts'
import { forAll } from '../for-all.ts'

const input = z.object({
  max: z.number(),
  used: z.number(),
  model: z.string().optional(),
  calls: z.number().optional(),
})
const tpm = limit('tpm', { window: '100000000/min' })
const log = { debug() {}, info() {}, warn() {}, error() {} }
let names = 0
/** A task without learned costs. */
const newTask = () =>
  task(`ask${++names}`, {
    input,
    limits: [{ limit: tpm, cost: 'max', learn: { by: 'model' } }],
    run: async ({ used }, { settle }) => {
      await settle({ tpm: used })
      // This has no effect: it was settled already.
      await settle(1)
    },
  })
const [own] = newTask().limits as [never]
/** Ratios around two fifths. */
const jobs = (count: number, more: object = {}) =>
  Array.from({ length: count }, (_, i) => ({ max: 1_000, used: 380 + (i % 5) * 10, ...more }))

describe.each(mainEngines)('learned costs on $name', ({ store }) => {
  let sluice: Sluice
  let laterMs = 0
  let ask: ReturnType<typeof newTask>
  /** The machine's clock, but cached values expire when a test lets them. */
  const clock: Clock = { ...systemClock, monotonicMs: () => systemClock.monotonicMs() + laterMs }
  beforeAll(async () => void (sluice = await Sluice.open({ store: await store(), clock })))
  beforeEach(() => void (ask = newTask()))
  afterAll(() => sluice.close())
  const run = async (all: ReturnType<typeof jobs>) => {
    await sluice.sendMany(ask, all)
    expect(await sluice.dispatchOnce([ask])).toBe(all.length)
  }
  /** The cost of a job that is sent now, by a process with all learned costs. */
  const costOfNext = async (more: object = {}) => {
    laterMs += 5_000
    return sluice.transaction(async (tx) => {
      const from = new Estimates(storeOn({ ...sluice.db, kind: 'pglite' }, { clock, log }))
      const job = await admit(ask, { max: 1_000, used: 0, ...more }, { tx }, clock, new Rulebook([], {}, from))
      return job.costs?.[0]
    })
  }
  const samples = async () => {
    const rows = await sluice.db.query<{ value: string; ratios: number[] }>(
      'select value, ratios from sluice.learned where task = $1',
      [ask.name],
    )
    return Object.fromEntries(rows.map(({ value, ratios }) => [value, ratios]))
  }

  it('are the declared cost until 20 jobs have settled, then that of nine in ten, for each model', async () => {
    await run(jobs(19, { model: 'a' }))
    expect((await samples())['a']).toHaveLength(19)
    expect(await costOfNext({ model: 'a' })).toBe(1_000)
    await run(jobs(1, { model: 'a', used: 420 }))
    expect(await costOfNext({ model: 'a' })).toBe(420)
    expect(await costOfNext({ model: 'a', max: 1 })).toBe(1)
    expect(await costOfNext({ model: 'a', max: 0 })).toBe(0)
    expect(await costOfNext({ model: 'a', max: 11 })).toBe(5)
    expect(await costOfNext({ model: 'b' })).toBe(1_000)
    expect(await costOfNext()).toBe(1_000)
  })

  it('reach senders: single, in bulk, in a transaction of the caller, and by SQL', async () => {
    await run(jobs(40))
    laterMs += 5_000
    const sent = (used: number) => ({ max: 1_000, used })
    const costs = async (from: Queryable, used: number) => {
      const sql = `select costs[1] as c from sluice.job where task = $1 and input ->> 'used' = $2::text`
      return (await from.query<{ c: number }>(sql, [ask.name, String(used)])).map(({ c }) => c)
    }
    await sluice.transaction(async (tx) => {
      await sluice.send(ask, sent(1), { tx })
      await sluice.sendMany(ask, [sent(1), sent(1)], { tx })
      // No look-up happens in the caller's transaction: there the cached values hold until the reply has come.
      if (sluice.db.kind === 'pglite') expect(await costs(tx, 1)).toEqual([420, 420, 420])
    })
    await expect
      .poll(async () => {
        await sluice.send(ask, sent(2))
        return costs(sluice.db, 2)
      })
      .toContain(420)
    await sluice.sendMany(ask, [sent(3), sent(3)])
    expect(await costs(sluice.db, 3)).toEqual([420, 420])
    await sluice.db.query(`select sluice.send($1::text, '{"max": 1000, "used": 4}')`, [ask.name])
    await sluice.dispatchOnce([ask])
    const sql = `select costs[1] as c from sluice.done where task = $1 and input ->> 'used' = '4'`
    expect(await sluice.db.query(sql, [ask.name])).toEqual([{ c: 420 }])
  })

  it('ignore a few outliers, follow many, never exceed the declared cost, and ignore attempts that used nothing', async () => {
    await run([...jobs(46), ...jobs(4, { used: 5_000 }), ...jobs(50, { used: 0 })])
    expect((await samples())['']).toHaveLength(50)
    expect(await costOfNext()).toBe(420)
    await run(jobs(10, { used: 5_000 }))
    expect(await costOfNext()).toBe(1_000)
    await run(jobs(120, { used: 100 }))
    expect((await samples())['']).toHaveLength(128)
    expect(await costOfNext()).toBe(100)
  })

  it('of two workers that write at one time are merged without loss', async () => {
    const workers = Array.from({ length: 10 }, () => new Estimates(storeOn(sluice.db, { clock, log })))
    for (let round = 0; round < 3; round++) {
      for (const [i, worker] of workers.entries())
        for (const model of ['a', 'b', 'c'].toSorted(() => (i % 2) - 0.5))
          worker.recordUse(ask.name, own, { max: 1_000, model }, 400)
      await Promise.all(workers.map((worker) => worker.write()))
    }
    const all = await samples()
    expect(Object.keys(all).toSorted()).toEqual(['a', 'b', 'c'])
    for (const ratios of Object.values(all)) expect(ratios).toEqual(Array.from({ length: 30 }, () => 400))
  })

  it('cover at most 1,000 values a task, and values not used for 30 days are deleted', async () => {
    await sluice.db.query(
      `insert into sluice.learned select $1, 'tpm', 'v' || n, '{1}', sluice.now() - interval '29 days' from generate_series(1, 1000) n`,
      [ask.name],
    )
    const estimates = new Estimates(storeOn(sluice.db, { clock, log }))
    const saw = (model: string) => estimates.recordUse(ask.name, own, { max: 10, model }, 5)
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

describe('the store of learned costs', () => {
  const ask = newTask()
  const some = (answer: () => Promise<unknown[]>, clock: Clock = systemClock) =>
    new Estimates(storeOn({ kind: 'pg', call: answer } as unknown as Db, { clock, log }))
  const known = async (estimates: Estimates) => (await estimates.of(ask))?.(own, { max: 1 })

  it('delays no send when it fails or is silent, and known costs are kept', async () => {
    expect(await known(some(() => Promise.reject(new Error('away'))))).toBeUndefined()
    let waits = 0
    let laterMs = 0
    const clock: Clock = {
      ...systemClock,
      monotonicMs: () => laterMs,
      sleep: async () => void waits++,
    }
    const silent = some(() => new Promise(() => {}), clock)
    for (let i = 0; i < 100; i++) {
      expect(await known(silent)).toBeUndefined()
      laterMs += 1_000
    }
    expect(waits).toBe(1)
    let isAway = false
    const answer = async () => {
      if (isAway) throw new Error('away')
      return [{ lim: 'tpm', value: '', share: 500 }]
    }
    const estimates = some(answer, { ...systemClock, monotonicMs: () => laterMs })
    expect(await known(estimates)).toBe(500)
    isAway = true
    laterMs += 60_000
    expect(await known(estimates)).toBe(500)
    expect(await known(estimates)).toBe(500)
  })

  it('gets samples that could not be written with the next write', async () => {
    const written: { ratios: number[] }[][] = []
    let fails = 1
    const db = {
      call: async (_: string, __: string, [text]: [string]) => {
        if (fails-- > 0) throw new Error('away')
        written.push(JSON.parse(text) as never)
        return []
      },
    }
    const estimates = new Estimates(storeOn(db as unknown as Db, { log }))
    const saw = (used: number) => estimates.recordUse(ask.name, own, { max: 100 }, used)
    saw(10)
    await estimates.write()
    saw(20)
    await estimates.write()
    await estimates.write()
    expect(written.map(([one]) => one?.ratios)).toEqual([[200, 100]])
  })

  it('returns costs of at least 1, and never above the declared cost or the capacity', () => {
    const numbers = fc.record({ declared: fc.nat(2 ** 31 - 1), share: fc.integer({ min: 0, max: 1_000 }) })
    forAll(numbers, fc.integer({ min: 1, max: 2 ** 31 - 1 }), ({ declared, share }, room) => {
      const [mine] = task('own', {
        input,
        limits: [{ limit: limit('own', { window: `${room}/min` }), cost: 'max', learn: true }],
        run() {},
      }).limits
      let cost: number
      try {
        cost = costOf(mine as never, { max: declared }, () => share)
      } catch (error) {
        expect(error).toMatchObject({ code: 'SLUICE_COST_ABOVE_CAPACITY' })
        expect(declared * share).toBeGreaterThan(room * 1_000 - 1_000)
        return
      }
      expect(cost).toBeLessThanOrEqual(Math.min(declared, capacityOf(mine as never)))
      expect(cost * 1_000).toBeGreaterThanOrEqual(declared * share)
      expect(cost).toBeGreaterThanOrEqual(Math.min(1, declared))
      expect(cost - (declared * share) / 1_000).toBeLessThanOrEqual(1)
    })
  })

  it('leaves a job the cost that it was recorded with, wherever it has to wait', () => {
    const place = (known: object) => placementOf(ask, { max: 1_000 }, 'other', 5, ['tpm'], known).costs
    expect(place({ buckets: ['tpm'], costs: [420, 1] })).toEqual([420, 1])
    expect(place({ buckets: ['tpm'], costs: [420, 1], expect: () => 700 })).toEqual([420, 1])
    expect(place({ buckets: ['rpm'], costs: [3, 1], expect: () => 700 })).toEqual([700, 1])
    expect(place({})).toEqual([1_000, 1])
  })

  it('refuses invalid options where they are defined', () => {
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
