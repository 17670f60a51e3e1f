/** Shares: part of a limit is kept for some jobs, and lent to others while those are idle. */
import { describe, expect, it } from 'vitest'
import { sqlOn } from '../../src/db/store.ts'
import { defineShareBuckets, defineLimit } from '../../src/claim/definitions/define.ts'
import { task } from '../../src/tasks/task.ts'
import { limit, type LimitOptions } from '../../src/limits/limit.ts'
import { limiterNow } from '../limits/engine.ts'
import {
  claimAll,
  type Claimed,
  done,
  emptied,
  type Engine,
  finish,
  mainEngines,
  ownClock,
  settle,
  tenantInput,
} from './engine.ts'
import { copies } from '../rows.ts'

const startMs = 1_800_000_000_000
const minuteMs = 60_000
const rows = (n: number, tenant = 'a') => copies(n, { tenant })

/** A task with a limit of which 30 % are kept for interactive jobs. */
const shared = (name: string, options: LimitOptions & { lendAfter?: `${number}${'s' | 'min'}` }, cost = 1) =>
  task(name, {
    input: tenantInput,
    limits: [
      limit(name, {
        by: (input: { tenant?: string | undefined }) => input.tenant ?? '',
        shares: { interactive: 0.3 },
        cost,
        ...options,
      }),
    ],
    run: () => undefined,
  })

function store(engine: Engine) {
  const at = Object.assign(emptied(engine), { ms: startMs })
  let clock: Awaited<ReturnType<typeof ownClock>> | undefined
  const set = async (ms: number) => {
    clock ??= await ownClock(at.db, startMs)
    await clock.set(startMs + ms)
  }
  /** Claims until there is no more room; returns the number of jobs of the share and of others. */
  const more = async (of: string, want = 500) => {
    const jobs = await claimAll(at.db, at.worker, [of], want)
    const found = await at.db.query<{ buckets: string[] }>('select buckets from sluice.job where id = any ($1)', [
      jobs.map(({ id }) => id),
    ])
    const own = found.filter(({ buckets }) => buckets.some((bucket) => bucket.includes('/interactive'))).length
    return { jobs, own, others: jobs.length - own }
  }
  return Object.assign(at, { set, more })
}

const interactive = { share: 'interactive' }

for (const engine of mainEngines) {
  describe(`on ${engine.name}`, () => {
    const at = store(engine)

    it('a share gets its part while both sides wait, others get the rest, and together they never exceed the limit', async () => {
      await at.set(0)
      const crm = shared('crm', { window: '100/min' })
      await at.sluice.sendMany(crm, rows(10), interactive)
      expect(await at.more('crm')).toMatchObject({ own: 10, others: 0 })
      await at.sluice.sendMany(crm, rows(300))
      expect(await at.more('crm')).toMatchObject({ own: 0, others: 70 })
      await at.sluice.sendMany(crm, rows(300), interactive)
      expect(await at.more('crm')).toMatchObject({ own: 20, others: 0 })
      expect(await at.more('crm')).toMatchObject({ own: 0, others: 0 })
      for (let minute = 1; minute < 4; minute++) {
        await at.set(minute * 1.1 * minuteMs)
        const { own, others } = await at.more('crm')
        expect(own + others).toBe(100)
        expect(own).toBeGreaterThanOrEqual(30)
      }
    })

    it('an idle share is lent, and has its part again within a window of its next request', async () => {
      await at.set(0)
      const idle = shared('idle', { window: '100/min' })
      await at.sluice.sendMany(idle, rows(600))
      // This share was never used.
      expect(await at.more('idle')).toMatchObject({ others: 100 })
      await at.sluice.sendMany(idle, rows(50), interactive)
      expect(await at.more('idle')).toMatchObject({ own: 0, others: 0 })
      const [lane] = await at.db.query(
        `select count(*)::int as n from sluice.ledger l join sluice.bucket b on b.id = l.bucket where b.name = 'idle/interactive' and units = 0`,
      )
      expect(lane).toEqual({ n: 1 })
      await at.set(1.1 * minuteMs)
      const { own, others } = await at.more('idle')
      expect(own + others).toBe(100)
      expect(own).toBeGreaterThanOrEqual(30)
      // The share takes the rest of its part, and then has no more jobs.
      for (let minute = 2.3, left = 50 - own; left > 0; minute += 1.2) {
        await at.set(minute * minuteMs)
        const got = await at.more('idle')
        left -= got.own
        expect(got.own).toBeGreaterThanOrEqual(Math.min(30, left))
        expect(got.own + got.others).toBeLessThanOrEqual(100)
        expect(got.others).toBe(70)
      }
      await at.set(20 * minuteMs)
      expect(await at.more('idle')).toMatchObject({ own: 0, others: 100 })
    })

    it('jobs that wait for the units outside a share are claimed again when the share is lent', async () => {
      await at.set(0)
      const wakes = shared('wakes', { window: '100/h', lendAfter: '10s' })
      await at.sluice.sendMany(wakes, rows(1), interactive)
      await at.more('wakes')
      await at.sluice.sendMany(wakes, rows(200))
      expect(await at.more('wakes')).toMatchObject({ others: 70 })
      const due = await at.db.query<{ left: number }>(
        `select (due - ${limiterNow()})::float8 as left from sluice.list where id <> 0`,
      )
      expect(due.map(({ left }) => left)).toEqual([10_000_000])
      await at.set(9_999)
      expect(await at.more('wakes')).toMatchObject({ others: 0 })
      await at.set(10_000)
      expect(await at.more('wakes')).toMatchObject({ others: 29 })
    })

    it('a share holds for places, which return to the side that they are reserved for', async () => {
      await at.set(0)
      const seats = shared('seats', { concurrency: 10 })
      await at.sluice.sendMany(seats, rows(1), interactive)
      const first = await at.more('seats')
      await at.sluice.sendMany(seats, rows(50))
      const second = await at.more('seats')
      expect(second).toMatchObject({ others: 7 })
      await at.sluice.sendMany(seats, rows(50), interactive)
      const third = await at.more('seats')
      expect(third).toMatchObject({ own: 2, others: 0 })
      await done(at.db, second.jobs.slice(0, 4))
      const fourth = await at.more('seats')
      expect(fourth.own + fourth.others).toBe(4)
      await done(at.db, [...first.jobs, ...third.jobs])
      expect((await at.more('seats')).own).toBe(3)
    })

    it('a share holds for rates, in the long run too, and borrowed units are no debt', async () => {
      await at.set(0)
      const rate = shared('rate', { rate: '600/min', burst: 10 })
      await at.sluice.sendMany(rate, rows(2_000))
      let others = (await at.more('rate')).others
      expect(others).toBe(10)
      for (let s = 1; s <= 30; s++) {
        await at.set(s * 1_000)
        others += (await at.more('rate')).others
      }
      expect(others).toBe(310)
      await at.sluice.sendMany(rate, rows(2_000), interactive)
      let own = (await at.more('rate')).own
      others = 0
      let soon = 0
      for (let s = 31; s <= 60; s++) {
        await at.set(s * 1_000)
        const got = await at.more('rate')
        own += got.own
        others += got.others
        if (s === 35) soon = others
      }
      // They had borrowed 90 units, which drain in 13 s: others do not wait for that.
      expect(soon).toBeGreaterThanOrEqual(15)
      expect(own + others).toBe(300)
      expect(own).toBeGreaterThanOrEqual(90)
    })

    it('a share holds for quotas and costs, and a job of others that costs more than their part can ever be fails', async () => {
      await at.set(0)
      const tokens = task('tokens', {
        input: tenantInput,
        limits: [limit('tokens', { quota: '100/hour', cost: 'n' as never, shares: { interactive: 0.3 } }) as never],
        run: () => undefined,
      })
      const cost = (n: number, count: number) => copies(count, { n })
      await at.sluice.sendMany(tokens, cost(5, 1), interactive)
      await at.more('tokens')
      await at.sluice.sendMany(tokens, cost(20, 10))
      // Three jobs of 20 units, of 70 units.
      expect(await at.more('tokens')).toMatchObject({ others: 3 })
      await at.sluice.sendMany(tokens, cost(35, 2), interactive)
      expect(await at.more('tokens')).toMatchObject({ own: 1, others: 0 })
      await expect(at.sluice.send(tokens, { n: 71 })).rejects.toMatchObject({ code: 'SLUICE_COST_ABOVE_CAPACITY' })
      await at.sluice.send(tokens, { n: 71 }, interactive)
    })

    it('a share that has used the whole limit keeps its part of the next room', async () => {
      await at.set(0)
      const alone = shared('alone', { window: '10/h', lendAfter: '10s' })
      await at.sluice.sendMany(alone, rows(30), interactive)
      expect(await at.more('alone')).toMatchObject({ own: 10, others: 0 })
      await at.sluice.sendMany(alone, rows(30))
      expect(await at.more('alone')).toMatchObject({ own: 0, others: 0 })
      const [room] = await at.db.query<{ ms: number }>(
        `select (max(due) / 1000 - ${startMs} + 1)::float8 as ms from sluice.list where id <> 0`,
      )
      await at.set(room?.ms ?? 0)
      const { own, others } = await at.more('alone')
      expect(own + others).toBe(10)
      expect(own).toBeGreaterThanOrEqual(3)
    })

    it('a share whose jobs wait is not lent because an earlier one has used more than it was granted', async () => {
      await at.set(0)
      const over = shared('over', { window: '10/h', lendAfter: '10s' })
      await at.sluice.sendMany(over, rows(30), interactive)
      const { jobs } = await at.more('over')
      expect(jobs).toHaveLength(10)
      expect(await settle(at.db, jobs[0] as Claimed, 'over', 2)).toBe(false)
      await at.sluice.sendMany(over, rows(30), { priority: 5 })
      const [room] = await at.db.query<{ ms: number }>(
        `select (max(due) / 1000 - ${startMs} + 1)::float8 as ms from sluice.list where id <> 0`,
      )
      await at.set(room?.ms ?? 0)
      expect(await at.more('over')).toMatchObject({ own: 3, others: 7 })
    })

    it('a share whose jobs waited keeps its part, also after a claim that serves others alone', async () => {
      await at.set(0)
      const first = shared('first', { window: '10/h', lendAfter: '10s' })
      await at.sluice.sendMany(first, rows(30), interactive)
      expect(await at.more('first')).toMatchObject({ own: 10, others: 0 })
      await at.sluice.sendMany(first, rows(30), { priority: 5 })
      const [room] = await at.db.query<{ ms: number }>(
        `select (max(due) / 1000 - ${startMs} + 1)::float8 as ms from sluice.list where id <> 0`,
      )
      await at.set(room?.ms ?? 0)
      expect(await at.more('first', 1)).toMatchObject({ own: 0, others: 1 })
      expect(await at.more('first')).toMatchObject({ own: 3, others: 6 })
    })

    it('a share that was used recently is not lent, however many of its jobs have ended since', async () => {
      await at.set(0)
      const ends = shared('ends', { window: '1000/h', concurrency: 1000 })
      await at.sluice.sendMany(ends, rows(150), interactive)
      const { jobs } = await at.more('ends')
      for (const job of jobs) await done(at.db, [job])
      await at.sluice.sendMany(ends, rows(1_000))
      expect((await at.more('ends', 1_000)).others).toBe(700)
    })

    it('other jobs are notified when a share that was denied becomes idle', async () => {
      // The part of others has room first here: a job that lacks both waits for that part.
      await at.set(0)
      const rooms = shared('desks', { concurrency: 10, lendAfter: '5s' })
      await at.sluice.sendMany(rooms, rows(2), interactive)
      const { jobs } = await at.more('desks')
      await at.sluice.sendMany(rooms, rows(20))
      expect(await at.more('desks')).toMatchObject({ own: 0, others: 7 })
      await at.sluice.sendMany(rooms, rows(2), interactive)
      const third = await at.more('desks')
      expect(third).toMatchObject({ own: 1, others: 0 })
      await at.set(5_000)
      expect(await at.more('desks')).toMatchObject({ own: 0, others: 0 })
      await done(at.db, [...jobs, ...third.jobs])
      const fourth = await at.more('desks')
      expect(fourth).toMatchObject({ own: 1, others: 0 })
      await done(at.db, fourth.jobs)
      let others = 0
      for (let ms = 6_000; ms <= 16_000; ms += 1_000) {
        await at.set(ms)
        others += (await at.more('desks')).others
      }
      expect(others).toBe(3)
    })

    it('jobs with a deadline are not given up because of units that a share keeps', async () => {
      await at.set(0)
      const kept = shared('kept', { window: '30/h', concurrency: 4, lendAfter: '2s' })
      await at.sluice.sendMany(kept, rows(1), interactive)
      await done(at.db, (await at.more('kept')).jobs)
      await at.sluice.sendMany(kept, rows(21))
      for (let n = 0; n < 7; n++) await done(at.db, (await at.more('kept')).jobs)
      await at.sluice.sendMany(kept, rows(5), interactive)
      const { jobs } = await at.more('kept')
      expect(jobs).toHaveLength(4)
      await at.sluice.send(kept, { tenant: 'a' }, { maxWait: '1min' })
      expect(await at.more('kept')).toMatchObject({ own: 0, others: 0 })
      await done(at.db, jobs)
      await done(at.db, (await at.more('kept')).jobs)
      let others = 0
      for (let ms = 1_000; ms <= 5_000; ms += 1_000) {
        await at.set(ms)
        others += (await at.more('kept')).others
      }
      expect(others).toBe(1)
    })

    it('a refunded grant is refunded to the part outside the share, too', async () => {
      await at.set(0)
      const back = shared('back', { window: '100/h' })
      await at.sluice.sendMany(back, rows(1), interactive)
      await at.more('back')
      await at.sluice.sendMany(back, rows(200))
      const { jobs } = await at.more('back')
      await finish(
        at.db,
        jobs.slice(0, 5).map((job) => ({ job, outcome: 'unused', delayUs: 3_600_000_000 })),
        [],
      )
      expect(await at.more('back')).toMatchObject({ others: 5 })
    })

    it('numbers that an operator sets keep the share from the code', async () => {
      await at.set(0)
      const told = shared('told', { window: '100/h' })
      await at.sluice.sendMany(told, rows(1), interactive)
      await at.more('told')
      await at.sluice.limits.set('told', { window: '50/h' }, { reason: 'test' })
      expect(await at.sluice.limits.show('told')).toMatchObject({
        share: { name: 'interactive', part: 0.3, lendAfterMs: 3_600_000 },
      })
      expect((await at.sluice.limits.list()).map(({ name }) => name).filter((name) => name.includes('/'))).toEqual([])
      await at.sluice.sendMany(told, rows(200))
      expect(await at.more('told')).toMatchObject({ others: 35 })
      const beyond = { rate: '999983/day', burst: 5_000 } as const
      await expect(at.sluice.limits.set('told', beyond, { reason: 'test' })).rejects.toMatchObject({
        code: 'SLUICE_BAD_LIMIT',
      })
      expect((await at.sluice.limits.show('told')).numbers).not.toHaveProperty('rate')
      await at.sluice.limits.unset('told')
      expect(await at.more('told')).toMatchObject({ others: 35 })
      // The code has no share any more: nothing is reserved, not even from jobs that were sent before.
      await defineLimit(
        sqlOn(at.db),
        limit('told', { window: '100/h', by: (input: { tenant?: string | undefined }) => input.tenant ?? '' }),
      )
      await at.db.query(`update sluice.limit_source set gone_at = seen_at where spec -> 'share' is not null`)
      await defineShareBuckets(sqlOn(at.db), 'told')
      expect(await at.more('told')).toMatchObject({ others: 29 })
    })

    it('the explanation shows the part that is kept for a share, and a rekeyed job waits for it under its new key', async () => {
      await at.set(0)
      const asked = shared('asked', { window: '10/h' })
      await at.sluice.sendMany(asked, rows(1), interactive)
      await at.more('asked')
      await at.sluice.sendMany(asked, rows(7))
      await at.more('asked')
      const id = await at.sluice.send(asked, { tenant: 'a' })
      await at.more('asked')
      expect((await at.sluice.why(id))?.reasons).toContainEqual(
        expect.objectContaining({
          limit: 'asked',
          text: expect.stringMatching(/^asked, the part for jobs outside of its share \(.* for a\) is used up$/),
        }),
      )
      await at.sluice.limits.rekey('asked', { from: 'a', to: 'b' })
      const [job] = await at.db.query('select buckets from sluice.job where id = $1', [id])
      expect(job).toEqual({ buckets: ['asked:b', 'asked/:b'] })
    })
  })
}
