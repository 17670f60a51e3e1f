/** Jobs that cost more than one unit: recorded, granted in order, kept from starving, refunded. */
import { beforeEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { task } from '../../src/tasks/task.ts'
import { type Cost, limit, type LimitOptions } from '../../src/limits/limit.ts'
import {
  claim,
  claimAll,
  type Claimed,
  count,
  done,
  emptied,
  endOverdue,
  enter,
  finish,
  mainEngines,
  ownClock,
} from './engine.ts'
import { markJob } from './engine-parts.ts'
import { copies } from '../rows.ts'

const input = z.object({ tenant: z.string(), n: z.number() })
type Input = z.input<typeof input>
let names = 0
/** A task whose only limit is new. */
const costed = (options: LimitOptions, cost: Cost<Input> = 'n', isFair = false) => {
  const name = `t${++names}`
  return task(name, {
    input,
    limits: [limit(name, { transit: 0, ...options, cost } as LimitOptions & { cost: number })],
    ...(isFair ? { fair: 'tenant' as const } : {}),
    run: () => undefined,
  })
}
const startMs = 1_800_000_000_000
const costs = (jobs: readonly Claimed[]) => jobs.map((job) => (job.input as Input).n)

for (const engine of mainEngines) {
  describe(`costs on ${engine.name}`, () => {
    const at = emptied(engine)
    let clock: { set(ms: number): Promise<void> }
    beforeEach(async () => {
      clock = await ownClock(at.db, startMs)
      await clock.set(startMs)
      at.worker = await enter(at.db)
    })
    const send = async (what: ReturnType<typeof costed>, list: readonly (number | Input)[]) => {
      await at.sluice.sendMany(
        what,
        list.map((one) => (typeof one === 'number' ? { tenant: 'a', n: one } : one)),
      )
    }
    const take = async (what: { name: string }, want = 10) => costs(await claimAll(at.db, at.worker, [what.name], want))
    it('jobs whose costs have no room hide no job of another task from a worker that wants only one', async () => {
      // Which lanes are read first depends on their names.
      for (let round = 0; round < 12; round++) {
        const dear = costed({ window: '2/1h', by: 'tenant' } as LimitOptions)
        const free = costed({ rate: '1000/s', burst: 100 })
        const tenants = ['a', 'b', 'c', 'd', 'e', 'f'].map((tenant) => ({ tenant, n: 2 }))
        for (const one of tenants) await send(dear, [one])
        expect(await take(dear)).toHaveLength(6)
        await send(free, [1])
        expect(await take(free)).toEqual([1])
        await send(dear, tenants)
        await send(free, [1])
        const got: Claimed[] = []
        for (let looks = 0, more = true; more; looks++) {
          expect(looks).toBeLessThan(20)
          const { jobs, again } = await claim(at.db, at.worker, [dear.name, free.name], 1)
          got.push(...jobs)
          more = again || jobs.length > 0
        }
        expect(costs(got), `round ${round}`).toEqual([1])
      }
    })

    /** Claims at each moment that a claim names, until nothing is left; what came when, in seconds. */
    const drain = async (what: readonly { name: string }[], untilMs = 600_000) => {
      const came: [number, number][] = []
      const tasks = what.map(({ name }) => name)
      for (let nowMs = 0, looks = 0; nowMs < untilMs; looks++) {
        expect(looks).toBeLessThan(1_000)
        await clock.set(startMs + nowMs)
        const { jobs, again, wakeUs } = await claim(at.db, at.worker, tasks, 10)
        came.push(...costs(jobs).map((n): [number, number] => [Math.floor(nowMs / 1_000), n]))
        if (again || jobs.length > 0) continue
        if (wakeUs === undefined) break
        nowMs += Math.max(1, Math.ceil(wakeUs / 1_000))
      }
      return came
    }

    it('a claim takes the longest prefix of jobs that fits, in order, and the next job once all its units are free', async () => {
      const tpm = costed({ window: '10/min' })
      await send(tpm, [3, 4, 5, 1])
      const came = await drain([tpm])
      expect(came.map(([, n]) => n)).toEqual([3, 4, 5, 1])
      const [, , [later] = [0]] = came
      expect(came.map(([second]) => second)).toEqual([0, 0, later, later])
      expect(later).toBeGreaterThanOrEqual(60)
      expect(later).toBeLessThanOrEqual(62)
    })

    it('a worker wakes up for the job that its claim looks at first, whichever lane has the smaller id', async () => {
      for (const [dear, cheap] of ['ab', 'ba', 'de', 'ed', 'fg', 'gf']) {
        const tpm = costed({ rate: '10/10s', burst: 10 }, 'n', true)
        await send(tpm, [{ tenant: 'c', n: 8 }])
        expect(await take(tpm)).toEqual([8])
        await at.sluice.sendMany(tpm, [{ tenant: cheap as string, n: 1 }])
        await at.sluice.sendMany(tpm, [{ tenant: dear as string, n: 5 }], { priority: 9 })
        // Two units are free; the job of five, which goes first, fits in 3 s.
        const { jobs, wakeUs } = await claim(at.db, at.worker, [tpm.name], 10)
        expect(jobs).toEqual([])
        expect(wakeUs).toBeGreaterThanOrEqual(3_000_000)
      }
    })

    it('a rate gives each job its cost as the level drains', async () => {
      const tpm = costed({ rate: '10/10s', burst: 10 })
      await send(tpm, [8, 8, 8])
      expect(await drain([tpm])).toEqual([
        [0, 8],
        [6, 8],
        [14, 8],
      ])
    })

    it('one claim takes jobs with costs and jobs without, whichever were sent first', async () => {
      const [first, last] = [costed({ window: '10/min' }), costed({ window: '10/min' })]
      const plain = costed({ window: '10/min' }, 1)
      await send(first, [3, 4])
      await send(plain, [1, 1])
      await send(last, [5, 6])
      const tasks = [first.name, plain.name, last.name]
      const { jobs } = await claim(at.db, at.worker, tasks, 10)
      expect(costs(jobs).toSorted((a, b) => a - b)).toEqual([1, 1, 3, 4, 5])
    })

    it('a job that was put off after a claim had read it is left', async () => {
      const tpm = costed({ window: '10/min' })
      await send(tpm, [9, 3])
      expect(await take(tpm)).toEqual([9])
      const mark = () => markJob(at.db, at.worker)
      const putOff = (until: string) => at.db.query(`update sluice.job set due_at = ${until} where claim is null`)
      await putOff(`sluice.now() + interval '1 hour'`)
      expect(await mark()).toBe(0)
      await putOff('null')
      expect(await mark()).toBe(1)
    })

    it('several limits count their own units each, and concurrency counts jobs', async () => {
      const rpm = limit('rpm', { window: '60/min', concurrency: 3, cost: 1 })
      const tpm = limit('tpm', { window: '30000/min', concurrency: 3 })
      const both = task('both', { input, limits: [rpm, { limit: tpm, cost: ({ n }) => n }], run: () => undefined })
      await at.sluice.sendMany(both, copies(5, { tenant: 'a', n: 1_200 }))
      const first = await claimAll(at.db, at.worker, ['both'], 10)
      expect(first).toHaveLength(3)
      const used = await at.db.query(
        `select name, units, debt from sluice.ledger join sluice.bucket on id = bucket order by 1`,
      )
      expect(used).toEqual([
        { name: 'rpm', units: '3', debt: ['3', '3'] },
        { name: 'tpm', units: '3600', debt: ['3600', '3'] },
      ])
      await done(at.db, first)
      expect(await claimAll(at.db, at.worker, ['both'], 10)).toHaveLength(2)
    })

    it('a job that was never called gives back its units, and its place once', async () => {
      const tpm = costed({ window: '10/min', concurrency: 2 })
      await send(tpm, [4, 6, 4])
      const [four, six] = (await claimAll(at.db, at.worker, [tpm.name], 10)) as [Claimed, Claimed]
      await finish(at.db, [
        { job: six, outcome: 'unused', delayUs: 3_600_000_000 },
        { job: four, outcome: 'done' },
      ])
      expect(await take(tpm)).toEqual([4])
      const [row] = await at.db.query(`select sum(units)::int as units from sluice.ledger where claim is not null`)
      expect(row).toEqual({ units: 8 })
    })

    it('an expensive job is not starved by a stream of cheap ones, nor they by it', async () => {
      const tpm = costed({ rate: '10/10s', burst: 10 }, 'n', true)
      await send(tpm, [10, 10, 10])
      const came: number[][] = []
      for (let second = 0; second < 60; second++) {
        await clock.set(startMs + second * 1_000)
        await send(tpm, [
          { tenant: 'a', n: 1 },
          { tenant: 'b', n: 1 },
        ])
        came.push(await take(tpm))
      }
      const big = came.flatMap((list, second) => (list.includes(10) ? [second] : []))
      const small = came.flat().filter((n) => n === 1).length
      // 10 units at once and 1 a second; each of the three has a third.
      expect(big.length).toBeGreaterThanOrEqual(2)
      expect(big[1]).toBeLessThan(45)
      expect(small).toBeGreaterThanOrEqual(35)
    })

    it('an expensive job is not starved by the cheap jobs of another task, nor do they wait for a task that no worker serves', async () => {
      const shared = limit(`shared${++names}`, { rate: '10/10s', burst: 10, transit: 0 })
      const cheap = task(`cheap${names}`, { input, limits: [shared], run: () => undefined })
      const dear = task(`dear${names}`, { input, limits: [{ limit: shared, cost: 10 }], run: () => undefined })
      const rows = (length: number) => Array.from({ length }, () => ({ tenant: 'a', n: 1 }))
      await at.sluice.sendMany(cheap, rows(100))
      expect(await take(cheap, 5)).toHaveLength(5)
      await at.sluice.send(dear, { tenant: 'a', n: 10 })
      expect(await take(dear)).toEqual([])
      await clock.set(startMs + 4_000)
      // The expensive job needs one more second: nothing is left for the others meanwhile.
      expect(await take(cheap)).toEqual([])
      await clock.set(startMs + 5_000)
      expect(await take(cheap)).toEqual([])
      expect(await take(dear)).toEqual([10])
      await clock.set(startMs + 7_000)
      expect(await take(cheap)).toEqual([1, 1])
      await at.sluice.send(dear, { tenant: 'a', n: 10 })
      expect(await take(dear)).toEqual([])
      // Due at 17 s; a worker that does not come within a second has lost its turn.
      await clock.set(startMs + 17_500)
      expect(await take(cheap)).toEqual([])
      await clock.set(startMs + 18_100)
      expect((await take(cheap, 20)).length).toBeGreaterThanOrEqual(10)
    })

    it('one of two tasks that began to wait in the same claim goes first, whichever task a worker claims for', async () => {
      const all = limit('tied', { window: '4/min', cost: 'n' })
      const [one, two] = ['tied1', 'tied2'].map((name) => task(name, { input, limits: [all], run: () => undefined }))
      if (one === undefined || two === undefined) throw new Error('no tasks')
      await send(one, [2, 3])
      expect(await take(one)).toEqual([2])
      await send(two, [3])
      await claimAll(at.db, at.worker, ['tied1', 'tied2'], 10)
      const looks: number[][] = []
      for (let ms = 59_000; ms < 64_000; ms += 500) {
        await clock.set(startMs + ms)
        for (const which of [one, two]) looks.push(await take(which))
      }
      expect(looks.flat()).toEqual([3])
    })

    it('fair keys take turns by the costs of their jobs', async () => {
      const tpm = costed({ rate: '100/100s', burst: 100 }, 'n', true)
      await send(tpm, copies(40, { tenant: 'dear', n: 10 }))
      await send(tpm, copies(400, { tenant: 'cheap', n: 1 }))
      const came = await take(tpm, 400)
      expect(came.filter((n) => n === 10)).toHaveLength(5)
      expect(came.filter((n) => n === 1)).toHaveLength(50)
    })

    it('a job that a lowered limit can never grant fails in the next round, and the jobs behind it go on', async () => {
      const was = limit('shrunk', { window: '100/min', cost: 'n' })
      const jobs = (one: typeof was) =>
        task('shrunk', { input, limits: [one], onFailed: () => undefined, run: () => undefined })
      await at.sluice.sendMany(
        jobs(was),
        [60, 60, 5].map((n) => ({ tenant: 'a', n })),
      )
      expect(await claimAll(at.db, at.worker, ['shrunk'], 1)).toHaveLength(1)
      expect(await claimAll(at.db, at.worker, ['shrunk'], 1)).toEqual([])
      await at.db.query(
        `insert into sluice.limit_def select name, version + 1, spec, kind, drain, weight, '{50}', part_us, span, grant_us, created_at
         from sluice.limit_def where name = 'shrunk'`,
      )
      await at.db.query(`update sluice.list set due = 0 where id <> 0`)
      await clock.set(startMs + 62_000)
      expect(costs(await claimAll(at.db, at.worker, ['shrunk'], 10))).toEqual([5])
      const [{ id } = { id: '' }] = await at.sluice.list({ state: 'waiting' })
      expect((await at.sluice.why(id))?.reasons).toMatchObject([
        { kind: 'limit', text: expect.stringMatching(/costs more than a limit/) },
      ])
      expect(await endOverdue(at.db)).toBe(1)
      const [failed] = await at.sluice.list({ state: 'failed' })
      expect(failed).toMatchObject({
        reason: 'impossible',
        error: {
          code: 'SLUICE_COST_ABOVE_CAPACITY',
          message: expect.stringContaining('costs 60 in limit "shrunk", which holds 50'),
        },
      })
      expect(await count(at.db, `sluice.job where task = 'shrunk:failed'`)).toBe(1)
    })

    it('a job that costs more than its key allows fails, also where another key with an "@" allows as much', async () => {
      const dear = costed({ window: '100/min', by: 'tenant' } as LimitOptions)
      await send(
        dear,
        ['a@b', 'c@d'].map((tenant) => ({ tenant, n: 60 })),
      )
      const why = { reason: 'a contract' }
      await at.sluice.limits.set(dear.name, { window: '50/min' }, why)
      await at.sluice.limits.set(dear.name, { window: '100/min' }, { ...why, key: 'c@d' })
      expect(await take(dear)).toEqual([60])
      expect(await endOverdue(at.db)).toBe(1)
      const [failed] = await at.sluice.list({ state: 'failed' })
      expect(failed).toMatchObject({ reason: 'impossible' })
      expect(await at.sluice.jobs.get(failed?.id ?? '')).toMatchObject({ input: { tenant: 'a@b' } })
    })

    it('costs stay with a job through failure and retry, a new priority, and replacement', async () => {
      const tpm = costed({ window: '10/min' })
      await send(tpm, [7])
      const [job] = (await claimAll(at.db, at.worker, [tpm.name], 1)) as [Claimed]
      await finish(at.db, [{ job, outcome: 'failed' }])
      expect(await count(at.db, `sluice.failed where costs = '{7,7}'`)).toBe(1)
      expect(await at.sluice.jobs.retry(job.id)).toBe(true)
      await at.sluice.jobs.reprioritise(job.id, 5)
      expect(await take(tpm)).toEqual([])
      await clock.set(startMs + 62_000)
      expect(await take(tpm)).toEqual([7])
      const options = { idempotencyKey: 'k', replace: true }
      await at.sluice.send(tpm, { tenant: 'a', n: 3 }, options)
      await at.sluice.send(tpm, { tenant: 'a', n: 4 }, options)
      expect(await count(at.db, `sluice.job where claim is null and costs = '{4,4}'`)).toBe(1)
      expect(await take(tpm)).toEqual([])
      await clock.set(startMs + 124_000)
      expect(await take(tpm)).toEqual([4])
    })

    it('a lane whose jobs were cancelled counts as empty, and a lane that has more jobs is claimed again', async () => {
      const tpm = costed({ window: '1000/min' })
      await send(tpm, [1, 2, 3, 4, 5, 6, 7, 8])
      const last = await at.db.query<{ id: string }>(`select id from sluice.job where (input ->> 'n')::int > 5`)
      for (const { id } of last) await at.sluice.jobs.cancel(id)
      expect(await take(tpm, 3)).toEqual([1, 2, 3])
      expect(await take(tpm, 10)).toEqual([4, 5])
      expect(await count(at.db, `sluice.lane where list is not null`)).toBe(0)
    })
  })
}
