import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { storeOn } from '../../src/db/store.ts'
import { StoreError } from '../../src/core/errors.ts'
import { newId } from '../../src/core/hash.ts'
import { Claims } from '../../src/claim/claim.ts'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import { Finisher } from '../../src/claim/finish/finish.ts'
import type { Db } from '../../src/db/db.ts'
import { task } from '../../src/tasks/task.ts'
import { limit } from '../../src/limits/limit.ts'
import { numbered } from '../rows.ts'
import { until } from '../until.ts'
import {
  attemptCalls,
  claim,
  claimAll,
  type Claimed,
  claimsInHand,
  count,
  done,
  emptied,
  endOverdue,
  enter,
  finish,
  mainEngines,
  quietTask,
  settle,
} from './engine.ts'
import { further } from '../takes/engine.ts'
import { rescue } from '../fleet/engine.ts'
import { unitsUsed } from '../limits/engine.ts'
import { jobsLeft } from '../store/engine.ts'

const quiet = quietTask('quiet', [limit('wide', { rate: '1000000/s', burst: 1_000_000 })])
const ids = (jobs: readonly { id: string }[]) => jobs.map(({ id }) => id).toSorted()

for (const engine of mainEngines) {
  describe(`on ${engine.name}`, () => {
    const at = emptied(engine)

    it('a repeated claim hands out the same jobs, however often it is repeated, and charges once', async () => {
      await at.sluice.sendMany(quiet, numbered(10))
      const id = newId()
      const first = await claim(at.db, at.worker, ['quiet'], 4, id)
      const second = await claim(at.db, at.worker, ['quiet'], 4, id)
      expect(first.jobs).toHaveLength(4)
      expect(ids(second.jobs)).toEqual(ids(first.jobs))
      expect(second).toMatchObject({ again: true, isRepeated: true })
      expect(await count(at.db, 'sluice.job where claim is not null')).toBe(4)
      expect(await unitsUsed(at.db)).toEqual({ wide: 4 })
      await finish(at.db, [{ job: first.jobs[0] as Claimed, outcome: 'done' }], [])
      expect(ids((await claim(at.db, at.worker, ['quiet'], 4, id)).jobs)).toEqual(ids(first.jobs.slice(1)))
    })

    it('a claim that has ended meanwhile is not created again by a worker that adopts it', async () => {
      await at.sluice.sendMany(quiet, numbered(3))
      const { jobs } = await claim(at.db, at.worker, ['quiet'], 2)
      const [first, second] = jobs as [Claimed, Claimed]
      const claims = new Claims(storeOn(at.db))
      await finish(at.db, [{ job: first, outcome: 'done' }], [])
      expect(await claims.adopt(first.claim)).toMatchObject([{ id: second.id, input: second.input }])
      await done(at.db, [second])
      expect(await claims.adopt(first.claim)).toEqual([])
      expect(await claimsInHand(at.db)).toBe(0)
    })

    it('a repeated finish changes nothing, whatever the outcome was', async () => {
      await at.sluice.sendMany(quiet, numbered(3))
      const jobs = await claimAll(at.db, at.worker, ['quiet'], 3)
      const endings = jobs.map((job, i) => ({ job, outcome: ['done', 'retry', 'return'][i] ?? '' }))
      expect(await finish(at.db, endings)).toEqual([])
      const before = await at.db.query('select id, attempt, failed from sluice.job order by id')
      expect(await finish(at.db, endings)).toEqual(jobs.map(({ seq }) => seq))
      expect(await at.db.query('select id, attempt, failed from sluice.job order by id')).toEqual(before)
      expect(await count(at.db, 'sluice.done')).toBe(1)
    })

    it('a grant that a running attempt gives back lets waiting lanes be claimed at once', async () => {
      const one = quietTask('one', [limit('hourly', { rate: '1/h' })])
      await at.sluice.sendMany(one, numbered(2))
      const { jobs } = await claim(at.db, at.worker, ['one'], 2)
      const [job] = jobs as [Claimed]
      expect(await claimAll(at.db, at.worker, ['one'], 1)).toEqual([])
      await further(at.db, job, ['hourly'], { grant: job.claim, back: job.claim })
      expect(await claimAll(at.db, at.worker, ['one'], 1)).toHaveLength(1)
    })

    it('a running attempt that settles for less lets waiting lanes be claimed at once', async () => {
      const one = quietTask('one', [limit('metered', { window: '1/h' })])
      await at.sluice.sendMany(one, numbered(2))
      const [job] = (await claim(at.db, at.worker, ['one'], 2)).jobs as [Claimed]
      expect(await claimAll(at.db, at.worker, ['one'], 1)).toEqual([])
      expect(await settle(at.db, job, 'metered', 0)).toBe(false)
      expect(await claimAll(at.db, at.worker, ['one'], 1)).toHaveLength(1)
    })

    it('a rescued worker can neither claim nor finish, and its jobs go to another worker as ambiguous', async () => {
      await at.sluice.sendMany(quiet, numbered(3))
      const id = newId()
      const { jobs } = await claim(at.db, at.worker, ['quiet'], 2, id)
      await rescue(at.db, at.worker)
      await expect(claim(at.db, at.worker, ['quiet'], 2, id)).rejects.toMatchObject({ code: 'SLW01' })
      await expect(claim(at.db, at.worker, ['quiet'], 2)).rejects.toMatchObject({ code: 'SLW01' })
      const other = await enter(at.db)
      const again = await claimAll(at.db, other, ['quiet'], 3)
      const doubtful = again.filter(({ ambiguous }) => ambiguous)
      expect(ids(doubtful)).toEqual(ids(jobs))
      expect(doubtful.every(({ attempt, crashes }) => attempt === 2 && crashes === 1)).toBe(true)
      expect(await done(at.db, jobs)).toEqual(jobs.map(({ seq }) => seq))
      expect(await count(at.db, 'sluice.done')).toBe(0)
      expect(await done(at.db, again)).toEqual([])
      expect(await count(at.db, 'sluice.done')).toBe(3)
    })

    it.each(['failed', 'discard', 'retry', 'interrupt'])(
      'a lost worker’s late %s does not end the attempt of another',
      async (outcome) => {
        const id = await at.sluice.send(quiet, {})
        const lost = await claimAll(at.db, at.worker, ['quiet'], 1)
        await rescue(at.db, at.worker)
        const own = await claimAll(at.db, await enter(at.db), ['quiet'], 1)
        expect(ids(own)).toEqual([id])
        const late = lost.map((job) => ({ job, outcome }))
        expect(await finish(at.db, late)).toEqual(lost.map(({ seq }) => seq))
        expect(await at.sluice.jobs.get(id)).toMatchObject({ state: 'running', attempt: 2, failed: 0 })
        expect(await done(at.db, own)).toEqual([])
        expect(await at.sluice.jobs.get(id)).toMatchObject({ state: 'done' })
      },
    )

    it("the rescue of a job's former worker leaves the retried job to its new worker", async () => {
      await at.sluice.sendMany(quiet, numbered(2))
      const [first, second] = (await claim(at.db, at.worker, ['quiet'], 2)).jobs as [Claimed, Claimed]
      // The claim still exists, because its second job is in hand.
      await finish(at.db, [{ job: first, outcome: 'retry' }], [])
      const own = await claimAll(at.db, await enter(at.db), ['quiet'], 1)
      expect(ids(own)).toEqual([first.id])
      await rescue(at.db, at.worker)
      expect(await at.sluice.jobs.get(first.id)).toMatchObject({ state: 'running', crashes: 0, ambiguous: false })
      expect(await done(at.db, own)).toEqual([])
      const again = await claimAll(at.db, await enter(at.db), ['quiet'], 2)
      expect(again).toMatchObject([{ id: second.id, crashes: 1, ambiguous: true }])
    })

    it('an ambiguous attempt stays on record, whatever comes after it', async () => {
      const id = await at.sluice.send(quiet, {})
      for (const outcome of ['interrupt', 'retry', 'return', 'unused', 'done']) {
        // One claim promotes the jobs that are due, and the next one absorbs them.
        await claimAll(at.db, at.worker, ['nobody'], 1)
        const [job] = await claimAll(at.db, at.worker, ['quiet'], 1)
        expect(job?.ambiguous).toBe(outcome !== 'interrupt')
        await finish(at.db, [{ job: job as Claimed, outcome }])
      }
      expect(await at.sluice.jobs.get(id)).toMatchObject({ state: 'done', ambiguous: true })
    })

    it('a job that three lost workers had has failed, with the cause', async () => {
      const id = await at.sluice.send(quiet, {})
      for (let i = 0; i < 3; i++) {
        const worker = await enter(at.db)
        expect(await claimAll(at.db, worker, ['quiet'], 1)).toMatchObject([
          { attempt: i + 1, crashes: i, ambiguous: i > 0 },
        ])
        await rescue(at.db, worker)
      }
      expect(await at.sluice.jobs.get(id)).toMatchObject({
        state: 'failed',
        reason: 'crashed',
        crashes: 3,
        ambiguous: true,
        error: { code: 'SLUICE_WORKER_LOST' },
      })
      expect(await jobsLeft(at.db)).toBe(0)
      expect(await claimsInHand(at.db)).toBe(0)
    })

    it('a job that is cancelled while it runs stays cancelled', async () => {
      const id = await at.sluice.send(quiet, {})
      const jobs = await claimAll(at.db, at.worker, ['quiet'], 1)
      expect(await at.sluice.jobs.cancel(id)).toBe(true)
      expect(await done(at.db, jobs)).toEqual([jobs[0]?.seq])
      expect(await at.sluice.jobs.get(id)).toMatchObject({ state: 'cancelled', ambiguous: true })
    })

    it('a job that is cancelled before its large input was read does not run, and its claim ends', async () => {
      let runs = 0
      const large = task('large', { input: z.unknown(), run: () => void runs++ })
      const id = await at.sluice.send(large, { text: 'x'.repeat(100_000) })
      const { call } = at.db
      let cancelled: boolean | undefined
      at.db.call = async (name, sql, params) => {
        if (/select j\.seq, j\.input/.test(sql)) cancelled ??= await at.sluice.jobs.cancel(id)
        return call.call(at.db, name, sql, params) as never
      }
      const worker = await at.sluice.work([large])
      try {
        await until(async () => cancelled === true && (await claimsInHand(at.db)) === 0)
      } finally {
        at.db.call = call
        await worker.stop()
      }
      expect(runs).toBe(0)
      expect(await at.sluice.jobs.get(id)).toMatchObject({ state: 'cancelled' })
    })

    it('a worker that signs off returns its jobs uncalled', async () => {
      await at.sluice.send(quiet, {})
      await claimAll(at.db, at.worker, ['quiet'], 1)
      await rescue(at.db, at.worker, 'shutdown')
      expect(await claimAll(at.db, await enter(at.db), ['quiet'], 1)).toMatchObject([
        { attempt: 1, crashes: 0, ambiguous: false },
      ])
    })

    it('a job whose earlier attempt is in doubt stays ambiguous when its worker signs off', async () => {
      const id = await at.sluice.send(quiet, {})
      const [interrupted] = (await claimAll(at.db, at.worker, ['quiet'], 1)) as [Claimed]
      await finish(at.db, [{ job: interrupted, outcome: 'interrupt' }])
      await claimAll(at.db, at.worker, ['nobody'], 1)
      expect(await claimAll(at.db, at.worker, ['quiet'], 1)).toMatchObject([{ id, ambiguous: true }])
      await rescue(at.db, at.worker, 'shutdown')
      const other = await enter(at.db)
      await claimAll(at.db, other, ['nobody'], 1)
      expect(await claimAll(at.db, other, ['quiet'], 1)).toMatchObject([{ id, crashes: 0, ambiguous: true }])
    })

    it('one finish ends jobs of several claims, each in its own way', async () => {
      await at.sluice.sendMany(quiet, numbered(3))
      const jobs: Claimed[] = []
      for (let i = 0; i < 3; i++) jobs.push(...(await claim(at.db, at.worker, ['quiet'], 1)).jobs)
      const outcomes = ['retry', 'failed', 'interrupt']
      expect(
        await finish(
          at.db,
          jobs.map((job, i) => ({ job, outcome: outcomes[i] ?? '' })),
        ),
      ).toEqual([])
      const ended = await Promise.all(jobs.map(({ id }) => at.sluice.jobs.get(id)))
      expect(ended.map((job) => [job?.failed, job?.ambiguous, job?.state === 'failed'])).toEqual([
        [1, false, false],
        [1, false, true],
        [0, true, false],
      ])
    })

    it('the error of an attempt stays on record when the next attempt is returned', async () => {
      const id = await at.sluice.send(quiet, {})
      for (const [outcome, error] of [
        ['retry', '{"name": "Error", "message": "no luck"}'],
        ['return', null],
      ] as const) {
        await claimAll(at.db, at.worker, ['nobody'], 1)
        const [job] = (await claimAll(at.db, at.worker, ['quiet'], 1)) as [Claimed]
        await finish(at.db, [{ job, outcome, error, delayUs: 0 }])
        expect(await at.sluice.jobs.get(id)).toMatchObject({ error: { message: 'no luck' } })
      }
    })

    // The embedded engine has one session, so nothing else can hold a row there.
    it.runIf(engine.name === 'PostgreSQL')('a claim waits for no row of a class that is announced again', async () => {
      await at.sluice.send(quiet, {})
      await claimAll(at.db, at.worker, ['quiet'], 1)
      const other = quietTask('other')
      await at.sluice.send(other, {})
      await at.db.query(
        `insert into sluice.arrival (xid, class, lane, pos, n)
         select pg_current_xact_id(), 0, lane, seq, 1 from sluice.job where task = 'quiet'`,
      )
      await at.db.transaction(async (tx) => {
        await tx.query('select from sluice.class for update')
        expect(await claimAll(at.db, at.worker, ['other'], 1)).toHaveLength(1)
      })
    })

    it('a claim passes over jobs that it finds too late to begin, and the next round ends them', async () => {
      const late = [1, 2, 3].map(() => at.sluice.send(quiet, {}, { maxWait: '1h' }))
      const [id = ''] = await Promise.all(late)
      await at.db.query('update sluice.job set expires_at = sluice.now()')
      const next = await at.sluice.send(quiet, {})
      expect((await claimAll(at.db, at.worker, ['quiet'], 1)).map((job) => job.id)).toEqual([next])
      expect(await at.sluice.jobs.get(id)).toMatchObject({ state: 'waiting', reason: null, attempt: 0 })
      expect(await at.sluice.why(id)).toMatchObject({
        reasons: [{ kind: 'expired', text: expect.stringContaining('fails within 2 s') }],
      })
      expect(await storeOn(at.db).run('operations/find_broken_lanes')).toEqual([])
      expect(await endOverdue(at.db)).toBe(3)
      expect(await at.sluice.jobs.get(id)).toMatchObject({ state: 'failed', reason: 'expired', attempt: 0 })
    })

    it('a job that a claim passed over ends even if the clock is set back', async () => {
      const id = await at.sluice.send(quiet, {}, { maxWait: '1h' })
      const move = (by: string) => at.db.query(`update sluice.job set expires_at = sluice.now() + interval '${by}'`)
      await move('0')
      expect(await claimAll(at.db, at.worker, ['quiet'], 1)).toEqual([])
      await move('1h')
      expect(await claimAll(at.db, at.worker, ['quiet'], 1)).toEqual([])
      await endOverdue(at.db)
      expect(await at.sluice.jobs.get(id)).toMatchObject({ state: 'failed', reason: 'expired' })
    })

    it('a claim states when each of its jobs was sent', async () => {
      await at.sluice.sendMany(quiet, numbered(3))
      const { jobs } = await claim(at.db, at.worker, ['quiet'], 3)
      expect(jobs).toHaveLength(3)
      const created = await Promise.all(jobs.map(async ({ id }) => (await at.sluice.jobs.get(id))?.createdAt.getTime()))
      expect((jobs as (Claimed & { createdMs: number })[]).map(({ createdMs }) => createdMs)).toEqual(created)
    })

    it('a bad result fails alone, and a rescue finds its claim as long as jobs of it are in hand', async () => {
      await at.sluice.sendMany(quiet, numbered(4))
      const jobs = (await claimAll(at.db, at.worker, ['quiet'], 4)) as unknown as ClaimedJob[]
      const finisher = new Finisher(storeOn(at.db))
      finisher.registerJobs(jobs)
      const end = (job: ClaimedJob, result: string) => finisher.end(job, { kind: 'done', result, tookMs: 1 })
      expect(
        await Promise.all([
          end(jobs[0] as ClaimedJob, '1'),
          end(jobs[1] as ClaimedJob, '"\\u0000"'),
          end(jobs[2] as ClaimedJob, '3'),
        ]),
      ).toEqual([true, true, true])
      expect(await count(at.db, 'sluice.done')).toBe(2)
      expect(await count(at.db, `sluice.failed where reason = 'refused'`)).toBe(1)
      expect(await claimsInHand(at.db)).toBe(1)
      expect(await end(jobs[3] as ClaimedJob, '4')).toBe(true)
      expect(await claimsInHand(at.db)).toBe(0)
    })

    /** A store that fails the next finishes with these SQLSTATEs. */
    const failing = (codes: string[]): Db =>
      Object.assign(Object.create(at.db) as Db, {
        call: async (name: string, sql: string, params: unknown[]) => {
          const code = name === attemptCalls.finish ? codes.shift() : undefined
          if (code !== undefined)
            await at.db.query(`do $$ begin raise exception 'as if' using errcode = '${code}', table = 'job'; end $$`)
          return at.db.query(sql, params)
        },
      })
    /** Ends a new job as done, on a store that fails with these SQLSTATEs. */
    const endOn = async (codes: string[]) => {
      const id = await at.sluice.send(quiet, {})
      const [job] = (await claimAll(at.db, at.worker, ['quiet'], 1)) as unknown as ClaimedJob[]
      const finisher = new Finisher(storeOn(failing(codes)))
      finisher.registerJobs([job as ClaimedJob])
      expect(await finisher.end(job as ClaimedJob, { kind: 'done', result: '1', tookMs: 1 })).toBe(true)
      return at.sluice.jobs.get(id)
    }

    it('an ending that the store refuses for a reason of its own is repeated unchanged', async () => {
      const codes = ['40P01', '25006', '26000', '42501', '42883', '42P05', '23505']
      expect(await endOn(codes)).toMatchObject({ state: 'done', result: 1 })
    })

    it('endings that are given up one by one leave their claim, by which a rescue finds their jobs', async () => {
      await at.sluice.sendMany(quiet, numbered(2))
      const jobs = (await claimAll(at.db, at.worker, ['quiet'], 2)) as unknown as ClaimedJob[]
      const store = failing(['22021'])
      const whole = store.call.bind(store)
      // The store is away while the endings are written one by one.
      store.call = async (name, sql, params) => {
        if (!(params as string[])[3]?.includes(',')) throw new StoreError('SLUICE_STORE_UNREACHABLE', 'away')
        return whole(name, sql, params)
      }
      const finisher = new Finisher(storeOn(store))
      finisher.waitAtMost(0)
      finisher.registerJobs(jobs)
      const ends = jobs.map((job) => finisher.end(job, { kind: 'done', result: '1', tookMs: 1 }))
      expect(await Promise.all(ends)).toEqual([false, false])
      expect(await claimsInHand(at.db)).toBeGreaterThan(0)
    })

    it('an ending that the store refuses twice is recorded as a bare failure', async () => {
      expect(await endOn(['22021', '54000'])).toMatchObject({
        state: 'failed',
        reason: 'refused',
        error: { message: 'the store refused the result' },
      })
    })
  })
}
