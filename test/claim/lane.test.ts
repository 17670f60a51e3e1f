import { afterEach, beforeAll, describe, expect, it } from 'vitest'
import { limit } from '../../src/limits/limit.ts'
import {
  claim,
  claimAll,
  count,
  done,
  emptied,
  type Engine,
  mainEngines,
  finish,
  ownClock,
  perTenant,
  quietTask,
} from './engine.ts'
import { createClasses } from './engine-parts.ts'
import { jobsLeft } from '../store/engine.ts'

const startMs = 1_800_000_000_000

/** An empty store for each test, with a clock that the test controls. */
function store(engine: Engine) {
  const at = Object.assign(emptied(engine), { clock: {} as Awaited<ReturnType<typeof ownClock>> })
  beforeAll(async () => void (at.clock = await ownClock(at.db, startMs)))
  afterEach(() => at.clock.set(startMs))
  return at
}

const ns = (jobs: readonly { input: unknown }[]) => jobs.map(({ input }) => (input as { n: number }).n)
const tenants = (jobs: readonly { input: unknown }[]) => jobs.map(({ input }) => (input as { tenant: string }).tenant)
const rows = (from: number, n: number, tenant?: string) =>
  Array.from({ length: n }, (_, i) => ({ n: from + i, ...(tenant && { tenant }) }))

for (const engine of mainEngines) {
  describe(`a lane on ${engine.name}`, () => {
    const at = store(engine)
    const quiet = quietTask('quiet')

    it('is first in, first out, and returned jobs keep their places', async () => {
      const { db } = at
      await at.sluice.sendMany(quiet, rows(1, 6))
      const first = await claimAll(db, at.worker, ['quiet'], 3)
      expect(ns(first)).toEqual([1, 2, 3])
      const outcomes = ['return', 'done', 'return']
      expect(
        await finish(
          db,
          first.map((job, i) => ({ job, outcome: outcomes[i] ?? '' })),
        ),
      ).toEqual([])
      expect(ns((await claim(db, at.worker, ['quiet'], 10)).jobs)).toEqual([1, 3, 4, 5, 6])
    })

    it('is of one key, whatever characters the key has', async () => {
      const { db, sluice } = at
      const by = ({ tenant }: { tenant?: string | undefined }) => tenant ?? ''
      const one = limit('one-at-once', { concurrency: 1, by, weights: { a: 3 } })
      // The second one ends like the weight of the first one.
      const keys = ['a', 'a\u001e3']
      await sluice.sendMany(
        quietTask('one', [one]),
        [...keys, ...keys].map((tenant) => ({ tenant })),
      )
      for (let round = 0; round < 2; round++) {
        const running = await claimAll(db, at.worker, ['one'], 4)
        expect(tenants(running).toSorted()).toEqual(keys)
        await done(db, running)
      }
      expect(await jobsLeft(db)).toBe(0)
    })

    it('is the one of a job that was sent with the priority that another one got later', async () => {
      const { db, sluice } = at
      const by = ({ tenant }: { tenant?: string | undefined }) => tenant ?? ''
      const cost = ({ n }: { n?: number | undefined }) => n ?? 1
      const kinds = [
        quietTask('plain'),
        quietTask('keyed', [perTenant('keyed', '100/s')]),
        quietTask('weighed', [limit('weighed', { rate: '100/s', by, weights: { a: 3 } })]),
        quietTask('costed', [
          limit('costed', { window: '100/s', by, weights: { a: 3 }, cost }),
          limit('other', { window: '100/s', cost }),
        ]),
      ]
      for (const kind of kinds) {
        const id = await sluice.send(kind, { tenant: 'a', n: 2 })
        await sluice.send(kind, { tenant: 'a', n: 2 }, { priority: 4 })
        await sluice.jobs.reprioritise(id, 4)
      }
      expect(await count(db, '(select 1 from sluice.job group by task, lane) l')).toBe(kinds.length)
    })

    it('ages a scheduled job from when it was due, also if its priority was changed before a claim saw that', async () => {
      const ids = await Promise.all([1, 2].map((n) => at.sluice.send(quiet, { n }, { delay: '1h' })))
      await at.clock.set(startMs + 36_000_000)
      expect(await at.sluice.jobs.reprioritise(ids[1] ?? '', 1)).toBe(1)
      await createClasses(at.db)
      await claim(at.db, at.worker, ['quiet'], 1)
      expect(
        await at.db.query(`select distinct extract(epoch from since)::float8 * 1000 as ms from sluice.job`),
      ).toEqual([{ ms: startMs + 3_600_000 }])
    })

    it('takes turns with the lane of its retries, which is first in, first out, too', async () => {
      const { db } = at
      await at.sluice.sendMany(quiet, rows(1, 6))
      const first = await claimAll(db, at.worker, ['quiet'], 3)
      await finish(
        db,
        first.map((job) => ({ job, outcome: 'retry' })),
      )
      await claimAll(db, at.worker, ['nobody'], 1)
      const got: number[] = []
      for (let i = 0; i < 6; i++) got.push(...ns(await claimAll(db, at.worker, ['quiet'], 1)))
      expect(got).toEqual([4, 1, 5, 2, 6, 3])
    })

    it('whose jobs were cancelled takes nothing from other lanes of the claim', async () => {
      const { db } = at
      const ids = await Promise.all(rows(1, 5).map((row) => at.sluice.send(quiet, row, { priority: 1 })))
      await at.sluice.sendMany(quiet, rows(6, 5))
      expect(await claimAll(db, at.worker, ['nobody'], 1)).toEqual([])
      for (const id of ids) await at.sluice.jobs.cancel(id)
      expect(ns(await claimAll(db, at.worker, ['quiet'], 5))).toEqual([6, 7, 8, 9, 10])
      expect(await claim(db, at.worker, ['quiet'], 5)).toMatchObject({ jobs: [], again: false })
    })

    it('whose jobs have all expired makes no worker overlook the lanes behind it', async () => {
      const { db, sluice, clock } = at
      const stale = quietTask('stale', [perTenant('stale', '100/s', 9)])
      for (const tenant of ['a', 'b']) {
        await sluice.send(stale, { tenant }, { priority: 1, maxWait: '1s' })
        await sluice.send(stale, { tenant })
      }
      await clock.set(startMs + 2_000)
      // A claim of two considers one lane of each tenant.
      expect(tenants(await claimAll(db, at.worker, ['stale'], 2)).toSorted()).toEqual(['a', 'b'])
    })

    it('goes on while a job of its own waits for its retry', async () => {
      const { db } = at
      await at.sluice.sendMany(quiet, rows(1, 3))
      const [job] = await claimAll(db, at.worker, ['quiet'], 1)
      if (job === undefined) throw new Error('nothing was claimed')
      await finish(db, [{ job, outcome: 'retry', delayUs: 60_000_000 }])
      expect(ns(await claimAll(db, at.worker, ['quiet'], 10))).toEqual([2, 3])
      await at.clock.set(startMs + 59_999)
      expect(await claimAll(db, at.worker, ['quiet'], 10)).toEqual([])
      await at.clock.set(startMs + 60_000)
      const back = await claimAll(db, at.worker, ['quiet'], 10)
      expect(back.map(({ id, attempt, failed }) => ({ id, attempt, failed }))).toEqual([
        { id: job.id, attempt: 2, failed: 1 },
      ])
    })

    it('takes scheduled jobs when they are due, neither before nor much later', async () => {
      const { db } = at
      await at.sluice.send(quiet, { n: 1 }, { delay: '10s' })
      await at.sluice.send(quiet, { n: 2 }, { at: new Date(startMs + 5_000) })
      const before = await claim(db, at.worker, ['quiet'], 10)
      expect(before).toMatchObject({ jobs: [], again: false, wakeUs: 5_000_000 })
      await at.clock.set(startMs + 5_000)
      expect(ns(await claimAll(db, at.worker, ['quiet'], 10))).toEqual([2])
      await at.clock.set(startMs + 10_000)
      expect(ns(await claimAll(db, at.worker, ['quiet'], 10))).toEqual([1])
    })

    it('takes jobs that were due when they were sent at once', async () => {
      const { db } = at
      await at.sluice.send(quiet, { n: 1 }, { at: new Date(startMs - 60_000) })
      expect(await count(db, 'sluice.job where due_at is not null')).toBe(0)
      expect(ns(await claimAll(db, at.worker, ['quiet'], 1))).toEqual([1])
    })

    it('serves priorities within a fair key, and skips cancelled jobs', async () => {
      const { db } = at
      const ids: string[] = []
      for (const [n, priority] of [
        [1, 0],
        [2, 5],
        [3, -5],
        [4, 5],
      ] as const)
        ids.push(await at.sluice.send(quiet, { n }, { priority }))
      await at.sluice.jobs.cancel(ids[3] ?? '')
      const order: number[] = []
      for (let i = 0; i < 3; i++) order.push(...ns(await claimAll(db, at.worker, ['quiet'], 1)))
      expect(order[0]).toBe(2)
      expect(order.toSorted((a, b) => a - b)).toEqual([1, 2, 3])
      expect(await claimAll(db, at.worker, ['quiet'], 10)).toEqual([])
      expect(await count(db, 'sluice.lane where list is not null')).toBe(0)
    })

    it('of a task that no present worker knows waits for a worker that does, and blocks no other lane of its bucket', async () => {
      const { db } = at
      const shared = limit('shared', { rate: '60/min', burst: 10 })
      const unknown = quietTask('unknown', [shared])
      const known = quietTask('known', [shared])
      await at.sluice.sendMany(unknown, rows(1, 100))
      await at.sluice.sendMany(known, rows(1, 30))
      expect(ns(await claimAll(db, at.worker, ['known'], 50))).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
      await at.clock.set(startMs + 5_000)
      expect(ns(await claimAll(db, at.worker, ['known'], 50))).toEqual([11, 12, 13, 14, 15])
      await at.clock.set(startMs + 15_000)
      expect(ns(await claimAll(db, at.worker, ['unknown'], 50))).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    })
  })

  describe(`lanes in turn on ${engine.name}`, () => {
    const at = store(engine)

    it.each([1, 2, 10])(
      "a backlog delays another's first job by no more than its turn, with claims of %i",
      async (want) => {
        const { db } = at
        const own = quietTask('own', [perTenant('free', '1000000/s', 1_000_000)])
        await at.sluice.sendMany(own, rows(1, 500, 'big'))
        await done(db, await claimAll(db, at.worker, ['own'], 3 * want))
        for (let i = 0; i < 20; i++) await at.sluice.sendMany(own, rows(1, 3, `small-${i}`))
        const order: string[] = []
        for (let i = 0; i < 90 / want; i++) order.push(...tenants(await claimAll(db, at.worker, ['own'], want)))
        for (let i = 0; i < 20; i++) expect(order.slice(0, 21 + want)).toContain(`small-${i}`)
        expect(order.filter((tenant) => tenant === 'big').length).toBeGreaterThan(2)
        expect(order.filter((tenant) => tenant !== 'big')).toHaveLength(60)
      },
    )

    it('lanes that begin to wait together differ by no more than 64 turns', async () => {
      const { db } = at
      const own = quietTask('own', [perTenant('free', '1000000/s', 1_000_000)])
      // Two tenants that were served much, in competition, and then were idle.
      await at.sluice.sendMany(own, rows(1, 500, 'old'))
      await at.sluice.sendMany(own, rows(1, 500, 'older'))
      await done(db, await claimAll(db, at.worker, ['own'], 1_000))
      await at.sluice.sendMany(own, rows(1, 500, 'new'))
      await at.sluice.sendMany(own, rows(1, 500, 'old'))
      expect(
        tenants(await claimAll(db, at.worker, ['own'], 1)).concat(tenants(await claimAll(db, at.worker, ['own'], 1))),
      ).toContain('new')
      const next: string[] = []
      for (let i = 0; i < 70; i++) next.push(...tenants(await claimAll(db, at.worker, ['own'], 1)))
      expect(next).toContain('old')
    })

    it('a tenant whose own limit blocks it for an hour leaves the shared rate to the others', async () => {
      const { db } = at
      const both = quietTask('both', [limit('all', { rate: '10/s', burst: 1 }), perTenant('hourly', '1/h', 1)])
      for (let i = 0; i < 30; i++) await at.sluice.sendMany(both, rows(1, 20, `blocked-${i}`))
      let nowMs = startMs
      const turn = async () => {
        nowMs += 100
        await at.clock.set(nowMs)
        return tenants(await claimAll(db, at.worker, ['both'], 10))
      }
      for (let i = 0; i < 30; i++) expect(await turn()).toHaveLength(1)
      expect(await turn()).toEqual([])
      for (let i = 0; i < 40; i++) await at.sluice.sendMany(both, rows(1, 1, `free-${i}`))
      const served: string[] = []
      for (let i = 0; i < 40; i++) served.push(...(await turn()))
      expect(new Set(served).size).toBe(40)
      expect(served.every((tenant) => tenant.startsWith('free'))).toBe(true)
      // And the blocked lanes are claimed when their own hour is over.
      await at.clock.set(startMs + 3_700_000)
      expect((await claimAll(db, at.worker, ['both'], 1))[0]).toMatchObject({ input: { n: 2 } })
    })
  })
}
