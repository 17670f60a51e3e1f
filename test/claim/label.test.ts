/** Limits by labels of workers: those of one host share a bucket, and machines multiply the limit. */
import { describe, expect, it } from 'vitest'
import { watch } from '../../src/core/test-points.ts'
import { limit } from '../../src/limits/limit.ts'
import { label } from '../../src/limits/pool.ts'
import { Sluice } from '../../src/sluice.ts'
import { task } from '../../src/tasks/task.ts'
import { freshDatabase } from '../servers/database.ts'
import { copies } from '../rows.ts'
import { until } from '../until.ts'
import { hasty } from '../worker/patience.ts'
import { rescue, wakeForMissedWork } from '../fleet/engine.ts'
import { unitsUsed } from '../limits/engine.ts'
import {
  type Answer,
  claim,
  claimAll,
  count,
  done,
  emptied,
  enter,
  finish,
  mainEngines,
  ownClock,
  perTenant,
  quietTask,
  tenantInput,
} from './engine.ts'
import { classesWithoutRoom, retireBuckets } from './engine-parts.ts'
import { idleWorkers, registerIdle } from '../store/engine.ts'

const rows = (n: number) => copies(n, { tenant: 'a' })
const perHost = quietTask('hosted', [limit('ip', { window: '3/h', by: label('host') })])
const placed = quietTask('placed', [limit('seat', { concurrency: 2, by: label('host') })])
const both = quietTask('both', [
  limit('all', { window: '5/h' }),
  limit('each', { window: '3/h', by: label('host') }),
  limit('own', { window: '4/h', by: label('egress') }),
])
const plain = quietTask('plain')

for (const engine of mainEngines) {
  describe(`on ${engine.name}`, () => {
    const at = emptied(engine)
    const host = (name: string) => enter(at.db, [], { host: name })
    /** Claims until a claim finds nothing, and returns that last result. */
    const last = async (worker: string, tasks: readonly string[]): Promise<Answer> => {
      for (;;) {
        const answer = await claim(at.db, worker, tasks, 10, undefined, { idle: true })
        if (!answer.again) return answer
      }
    }

    it('a worker whose label had no room has what a raised limit allows', async () => {
      const raised = quietTask('raised', [limit('raised', { window: '3/h', by: label('host') })])
      await at.sluice.sendMany(raised, rows(20))
      const one = await host('a')
      expect(await claimAll(at.db, one, ['raised'], 10)).toHaveLength(3)
      await at.sluice.limits.set('raised', { window: '5/h' }, { reason: 'test' })
      expect(await claimAll(at.db, one, ['raised'], 10)).toHaveLength(2)
      await at.sluice.limits.unset('raised')
    })

    it('what a tenant with few jobs leaves of a label’s room, others have at once', async () => {
      const limits = [limit('lent', { window: '10/h', by: label('host') }), perTenant('tenants', '1000/s', 100)]
      await at.sluice.sendMany(quietTask('lent', limits), [
        ...copies(2, { tenant: 'a' }),
        ...copies(20, { tenant: 'b' }),
      ])
      const worker = await host('a')
      let got = 0
      for (let again = true; again;) {
        const answer = await claim(at.db, worker, ['lent'], 20 - got)
        got += answer.jobs.length
        again = answer.again
      }
      expect(got).toBe(10)
    })

    it('workers of one host share its bucket, and each host has the whole limit', async () => {
      await at.sluice.sendMany(perHost, rows(20))
      const [one, two, other] = [await host('a'), await host('a'), await host('b')]
      expect(await claimAll(at.db, one, ['hosted'], 2)).toHaveLength(2)
      expect(await claimAll(at.db, two, ['hosted'], 10)).toHaveLength(1)
      expect(await claimAll(at.db, one, ['hosted'], 10)).toEqual([])
      expect(await claimAll(at.db, other, ['hosted'], 10)).toHaveLength(3)
      expect(await claimAll(at.db, other, ['hosted'], 10)).toEqual([])
      expect(await unitsUsed(at.db)).toEqual({ 'ip:a': 3, 'ip:b': 3 })
      const [job] = await at.db.query(
        `select buckets, charged_buckets from sluice.job where claim is not null order by seq desc limit 1`,
      )
      expect(job).toEqual({ buckets: ['ip@host'], charged_buckets: ['ip:b'] })
    })

    it('a worker whose label has no room sleeps until it has, and the jobs stay visible to other hosts', async () => {
      const worker = await enter(at.db, ['hosted'], { host: 'a' })
      await at.sluice.sendMany(perHost, rows(20))
      await claimAll(at.db, worker, ['hosted'], 10)
      for (let looks = 0; looks < 3; looks++) {
        const answer = await claim(at.db, worker, ['hosted'], 10, undefined, { idle: true })
        expect(answer).toMatchObject({ jobs: [], again: false })
        // The window is an hour; what was taken in this second leaves it in parts of a minute.
        expect(answer.wakeUs).toBeGreaterThan(1_000_000_000)
      }
      // Nobody wakes it for these jobs; a worker of another host is woken.
      const other = await enter(at.db, ['hosted'], { host: 'b' })
      await registerIdle(at.db, other)
      await wakeForMissedWork(at.db)
      expect(await idleWorkers(at.db)).toEqual([worker])
      expect(await claimAll(at.db, other, ['hosted'], 10)).toHaveLength(3)
    })

    it('a label without room blocks no other task', async () => {
      const worker = await host('a')
      await at.sluice.sendMany(perHost, rows(20))
      await claimAll(at.db, worker, ['hosted', 'plain'], 10)
      await at.sluice.sendMany(plain, rows(4))
      expect(await claimAll(at.db, worker, ['hosted', 'plain'], 10)).toHaveLength(4)
      expect(await last(worker, ['hosted', 'plain'])).toMatchObject({ jobs: [] })
    })

    it("a label's jobs go on when its bucket has room again", async () => {
      const time = await ownClock(at.db, 1_800_000_000_000)
      const worker = await host('a')
      await at.sluice.sendMany(perHost, rows(5))
      await claimAll(at.db, worker, ['hosted'], 10)
      const { wakeUs, nowUs } = await last(worker, ['hosted'])
      await time.set(nowUs / 1_000 + (wakeUs ?? 0) / 1_000 - 1_000)
      expect(await claimAll(at.db, worker, ['hosted'], 10)).toEqual([])
      await time.set(nowUs / 1_000 + (wakeUs ?? 0) / 1_000)
      expect(await claimAll(at.db, worker, ['hosted'], 10)).toHaveLength(2)
      await at.db.query(
        `create or replace function sluice.now() returns timestamptz language sql volatile as 'select clock_timestamp()'`,
      )
      await at.db.query('drop table sluice.test_clock')
    })

    it('all limits of a job hold together, with labels and without', async () => {
      await at.sluice.sendMany(both, rows(20))
      const one = await enter(at.db, [], { host: 'a', egress: 'x' })
      const two = await enter(at.db, [], { host: 'b', egress: 'x' })
      expect(await claimAll(at.db, one, ['both'], 10)).toHaveLength(3)
      expect(await claimAll(at.db, two, ['both'], 10)).toHaveLength(1)
      const three = await enter(at.db, [], { host: 'b', egress: 'y' })
      expect(await claimAll(at.db, three, ['both'], 10)).toHaveLength(1)
      expect(await claimAll(at.db, three, ['both'], 10)).toEqual([])
      const [lane] = await at.db.query<{ name: string }>(
        `select b.name from sluice.lane l join sluice.bucket b on b.id = l.list`,
      )
      expect(lane).toEqual({ name: 'all' })
    })

    it('a job that costs more than the limit of a host is left to other hosts, and the worker does not retry in a rush', async () => {
      const heavy = quietTask('heavy', [
        limit('load', {
          window: '10/h',
          by: label('host'),
          cost: (input: { n?: number | undefined }) => input.n ?? 1,
        }),
      ] as never)
      await at.sluice.sendMany(
        heavy,
        [6, 6, 6].map((n) => ({ n })),
      )
      const worker = await host('a')
      expect(await claimAll(at.db, worker, ['heavy'], 10)).toHaveLength(1)
      for (let looks = 0; looks < 3; looks++)
        expect(await claim(at.db, worker, ['heavy'], 1, undefined, { idle: true })).toMatchObject({
          jobs: [],
          again: false,
        })
      expect(await claimAll(at.db, await host('b'), ['heavy'], 10)).toHaveLength(1)
      expect((await unitsUsed(at.db))['load:a']).toBe(6)
    })

    it('a job that costs more than a host has left is claimed when the host has that much, and not before', async () => {
      const time = await ownClock(at.db, 1_800_000_000_000)
      const dear = quietTask('dear', [
        limit('watt', {
          rate: '60/min',
          burst: 10,
          by: label('host'),
          cost: (input: { n?: number | undefined }) => input.n ?? 1,
        }),
      ] as never)
      const cheap = quietTask('cheap', [limit('watt', { rate: '60/min', burst: 10, by: label('host') })])
      const worker = await enter(at.db, ['dear', 'cheap'], { host: 'a' })
      await at.sluice.sendMany(
        dear,
        [8, 8, 10].map((n) => ({ n })),
      )
      expect(await claimAll(at.db, worker, ['dear'], 10)).toHaveLength(1)
      // Up to 50 ms later, so that several units free together.
      expect((await last(worker, ['dear'])).wakeUs).toBe(6_050_000)
      await wakeForMissedWork(at.db)
      expect(await idleWorkers(at.db)).toEqual([worker])
      const barred = () => classesWithoutRoom(at.db, { host: 'a' }, 1_800_000_000_000_000)
      expect(await barred()).toEqual({ n: 1, due: true })
      // Where others would take the remaining units, fair turns decide, in the claim.
      await at.sluice.sendMany(cheap, rows(2))
      expect(await claimAll(at.db, worker, ['cheap'], 1)).toHaveLength(1)
      expect(await barred()).toEqual({ n: 0, due: true })
      expect(await claimAll(at.db, worker, ['cheap'], 1)).toHaveLength(1)
      expect(await barred()).toEqual({ n: 2, due: true })
      await time.set(1_800_000_000_000 + 7_999)
      expect(await last(worker, ['dear'])).toMatchObject({ jobs: [], wakeUs: 51_000 })
      await time.set(1_800_000_000_000 + 8_000)
      expect(await claimAll(at.db, worker, ['dear'], 10)).toHaveLength(1)
      // A full bucket loses units at once.
      expect(await last(worker, ['dear'])).toMatchObject({ jobs: [], wakeUs: 10_000_000 })
      await at.db.query(
        `create or replace function sluice.now() returns timestamptz language sql volatile as 'select clock_timestamp()'`,
      )
      await at.db.query('drop table sluice.test_clock')
    })

    it('a worker without the label gets no such job, and the explanation names the missing label', async () => {
      await at.sluice.sendMany(both, rows(1))
      const worker = await enter(at.db, ['both'], { host: 'a' })
      expect(await last(worker, ['both'])).toMatchObject({ jobs: [] })
      const [waiting] = await at.sluice.list({ state: 'waiting' })
      const said = await at.sluice.why(waiting?.id ?? '')
      expect(said?.reasons).toEqual([
        {
          kind: 'no-worker',
          text: 'no worker that knows task both serves queue default and has the label host, egress',
          notBefore: undefined,
          acts: 'worker',
          todo: expect.any(String),
        },
      ])
      await enter(at.db, ['both'], { host: 'a', egress: 'x' })
      expect((await at.sluice.why(waiting?.id ?? ''))?.reasons).toMatchObject([{ kind: 'slots' }])
    })

    it('the explanation names the host that has room first', async () => {
      await at.sluice.sendMany(perHost, rows(20))
      const one = await enter(at.db, ['hosted'], { host: 'a' })
      await claimAll(at.db, one, ['hosted'], 10)
      const [waiting] = await at.sluice.list({ state: 'waiting', max: 1 })
      const why = async () => (await at.sluice.why(waiting?.id ?? ''))?.reasons.filter(({ kind }) => kind === 'limit')
      expect(await why()).toMatchObject([{ limit: 'ip', key: 'a', notBefore: expect.any(Date) }])
      await enter(at.db, ['hosted'], { host: 'b' })
      expect((await why())?.map(({ key }) => key)).toEqual(['b'])
    })

    it.each(['done', 'retry', 'unused', 'lost', 'cancelled'])(
      'an attempt that ends as %s frees a place of its host',
      async (end) => {
        await at.sluice.sendMany(placed, rows(10))
        const [a, b] = [await host('a'), await host('b')]
        const [job] = await claimAll(at.db, a, ['placed'], 10)
        await claimAll(at.db, b, ['placed'], 10)
        if (job === undefined) throw new Error('nothing was claimed')
        if (end === 'lost') await rescue(at.db, a)
        else if (end === 'cancelled') await at.sluice.jobs.cancel(job.id)
        else await finish(at.db, [{ job, outcome: end, delayUs: 3_600_000_000 }], [])
        expect(await claimAll(at.db, b, ['placed'], 10)).toEqual([])
        const again = end === 'lost' ? await host('a') : a
        expect(await claimAll(at.db, again, ['placed'], 10)).toHaveLength(end === 'lost' ? 2 : 1)
      },
    )

    it('a retry on another host is charged to that host', async () => {
      await at.sluice.sendMany(placed, rows(1))
      const [a, b] = [await host('a'), await host('b')]
      const [job] = await claimAll(at.db, a, ['placed'], 10)
      if (job === undefined) throw new Error('nothing was claimed')
      await finish(at.db, [{ job, outcome: 'retry' }])
      let again = await claimAll(at.db, b, ['placed'], 1)
      await until(async () => again.length > 0 || (again = await claimAll(at.db, b, ['placed'], 1)).length > 0)
      const inUse = () =>
        at.db.query(
          `select b.key, (select debt[1]::int from sluice.ledger where bucket = b.id order by at desc, n desc limit 1) as used
           from sluice.bucket b where b.name = 'seat' order by 1`,
        )
      expect(await inUse()).toEqual([
        { key: 'a', used: 0 },
        { key: 'b', used: 1 },
      ])
      await done(at.db, again)
      expect(await inUse()).toContainEqual({ key: 'b', used: 0 })
    })

    it('a free place notifies an idle worker of this host, and none of another', async () => {
      const tasks = ['placed']
      const [a, b] = [await host('a'), await host('b')]
      const idle = await Promise.all(['a', 'b', 'b', 'b'].map((name) => enter(at.db, tasks, { host: name })))
      await at.sluice.sendMany(placed, rows(10))
      const [job] = await claimAll(at.db, a, tasks, 10)
      await claimAll(at.db, b, tasks, 10)
      for (const worker of idle) expect(await last(worker, tasks)).toMatchObject({ jobs: [] })
      if (job === undefined) throw new Error('nothing was claimed')
      await finish(at.db, [{ job, outcome: 'done' }], [])
      expect(await idleWorkers(at.db)).toEqual(idle.slice(1).toSorted((one, other) => Number(one) - Number(other)))
    })

    it.each([true, false])(
      'a job that another limit holds leaves what its label lacks to others, label first: %s',
      async (isFirst) => {
        const name = `order.${isFirst}`
        const ip = limit(`${name}.ip`, { window: '6/h', by: label('host') })
        const costed = { limit: ip, cost: ({ n }: { n?: number | undefined }) => n ?? 1 }
        const own = perTenant(`${name}.own`, '1/h', 1)
        const limits = isFirst ? [costed, own] : [own, costed]
        const mixed = task(name, { input: tenantInput, limits: limits as never, run: () => undefined })
        const worker = await host('a')
        await at.sluice.send(mixed, { tenant: 'a', n: 4 })
        expect(await claimAll(at.db, worker, [name], 1)).toHaveLength(1)
        // Its tenant has no room, and the host has two units of three.
        await at.sluice.send(mixed, { tenant: 'a', n: 3 })
        expect(await last(worker, [name])).toMatchObject({ jobs: [] })
        await at.sluice.send(mixed, { tenant: 'b', n: 1 })
        expect(await claimAll(at.db, worker, [name], 1)).toHaveLength(1)
      },
    )

    it.each(['a', 'b'])(
      'a worker sleeps until its label has the units that are kept for the first job, of %s, of two tenants',
      async (first) => {
        const name = `first.${first}`
        const ip = limit(`${name}.ip`, { window: '10/h', by: label('host') })
        const limits = [{ limit: ip, cost: ({ n = 1 }: { n?: number | undefined }) => n }, perTenant('equal', '100/s')]
        const mixed = task(name, { input: tenantInput, limits: limits as never, run: () => undefined })
        const worker = await host('a')
        await at.sluice.send(mixed, { tenant: 'c', n: 8 })
        expect(await claimAll(at.db, worker, [name], 1)).toHaveLength(1)
        await at.sluice.send(mixed, { tenant: first, n: 3 }, { priority: 1 })
        await at.sluice.send(mixed, { tenant: first === 'a' ? 'b' : 'a', n: 1 })
        const { jobs, wakeUs } = await last(worker, [name])
        expect(jobs).toEqual([])
        expect(wakeUs).toBeGreaterThan(1_000_000)
      },
    )

    it('room in another limit notifies a worker that has room under its own label', async () => {
      const mixed = quietTask('mixed', [
        limit('shared', { concurrency: 1 }),
        limit('mine', { window: '1/h', by: label('host') }),
      ])
      const [a, b] = [await enter(at.db, ['mixed'], { host: 'a' }), await enter(at.db, ['mixed'], { host: 'b' })]
      await at.sluice.sendMany(mixed, rows(5))
      const jobs = await claimAll(at.db, a, ['mixed'], 5)
      expect(jobs).toHaveLength(1)
      expect(await last(b, ['mixed'])).toMatchObject({ jobs: [] })
      expect(await last(a, ['mixed'])).toMatchObject({ jobs: [] })
      await done(at.db, jobs)
      expect(await idleWorkers(at.db)).toEqual([a])
      expect(await claimAll(at.db, b, ['mixed'], 5)).toHaveLength(1)
    })

    it('the bucket of a host that is gone is retired, and is created again when needed', async () => {
      const worker = await host('a')
      await at.sluice.sendMany(placed, rows(3))
      await done(at.db, await claimAll(at.db, worker, ['placed'], 1))
      await at.db.query(
        `update sluice.ledger set at = at - 100 * 86400000000::bigint where n = (select max(n) from sluice.ledger)`,
      )
      await at.db.query('delete from sluice.ledger where n < (select max(n) from sluice.ledger)')
      await retireBuckets(at.db, 7 * 86_400_000_000)
      expect(await count(at.db, `sluice.bucket where name = 'seat'`)).toBe(0)
      expect(await claimAll(at.db, worker, ['placed'], 5)).toHaveLength(2)
    })
  })
}

describe('workers', () => {
  it('whose label has no room claim now and then, not over and over', async () => {
    let [claims, idles] = [0, 0]
    watch((point) => {
      if (point === 'claim.sent') claims++
      else if (point === 'idle') idles++
    })
    // A sleep takes up to 20 s otherwise.
    const sluice = await Sluice.open({ store: (await freshDatabase()).url, clock: hasty() })
    try {
      await sluice.sendMany(perHost, rows(20))
      const worker = await sluice.work([perHost], { labels: { host: 'a' } })
      await until(async () => (await sluice.jobs.status()).done === 3, 'those that may have run')
      const since = { claims, idles }
      await until(() => idles >= since.idles + 4, 'it has slept four times')
      // Twice: a send, or a job that has just ended, may notify the worker in between.
      expect(claims - since.claims).toBeLessThanOrEqual(2 * (idles - since.idles) + 2)
      const other = await sluice.work([perHost], { labels: { host: 'b' } })
      await until(async () => (await sluice.jobs.status()).done === 6, 'another host has as much')
      await Promise.all([worker.stop(), other.stop()])
      expect((await sluice.jobs.status()).done).toBe(6)
    } finally {
      watch(undefined)
      await sluice.close()
    }
  })
})
