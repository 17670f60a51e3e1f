import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { newId } from '../../src/core/hash.ts'
import { openPg } from '../../src/db/pg.ts'
import { type Job, type JobFilter, Sluice, systemClock, task } from '../../src/index.ts'
import {
  claim,
  claimAll,
  count,
  done,
  emptied,
  mainEngines,
  enter,
  finish,
  perTenant,
  quietTask,
  tenantInput,
} from '../claim/engine.ts'
import { freshDatabase } from '../servers/database.ts'
import { forAllInTime } from '../for-all.ts'
import { numbered } from '../rows.ts'
import { until } from '../until.ts'
import { unitsUsed } from '../limits/engine.ts'
import { Bulk } from '../../src/operations/bulk.ts'
import { sqlOn } from '../../src/db/store.ts'
import { operationCalls, reprioritise } from './engine.ts'
import { jobsLeft } from '../store/engine.ts'

const quiet = quietTask('quiet')
const wide = perTenant('wide', '1000000/s')
const limited = task('limited', {
  input: tenantInput,
  limits: [wide],
  run: () => undefined,
})

for (const engine of mainEngines) {
  describe(`many jobs on ${engine.name}`, () => {
    const at = emptied(engine)

    /** Ends these jobs as failed with this message. */
    async function fail(ids: readonly string[], message: string, reason = 'exhausted'): Promise<void> {
      const jobs = (await claimAll(at.db, at.worker, ['quiet', 'limited'], ids.length)).filter(({ id }) =>
        ids.includes(id),
      )
      expect(jobs).toHaveLength(ids.length)
      await finish(
        at.db,
        jobs.map((job) => ({ job, outcome: 'failed' })),
      )
      await at.db.query('update sluice.failed set reason = $2, error = $3 where id = any ($1)', [
        ids,
        reason,
        { message },
      ])
    }

    it('are found, counted and streamed exactly as the filter matches', async () => {
      const queues = ['default', 'bulk']
      const tags = [[], ['x'], ['x', 'y']]
      for (let n = 0; n < 36; n++)
        await at.sluice.send(
          n % 2 === 0 ? quiet : limited,
          { n, tenant: `t${n % 3}` },
          { queue: queues[n % 2] ?? '', tags: tags[n % 3] ?? [], ...(n % 4 === 0 ? { delay: '1h' } : {}) },
        )
      const all: Job[] = []
      for await (const job of at.sluice.jobs.stream()) all.push(job)
      expect(all.map(({ id }) => id)).toEqual(all.map(({ id }) => id).sort())
      expect(all).toHaveLength(36)
      const filters = fc
        .record(
          {
            state: fc.constantFrom('waiting', 'scheduled', 'running', 'failed'),
            task: fc.constantFrom('quiet', 'limited', 'none'),
            queue: fc.constantFrom(...queues),
            tag: fc.constantFrom('x', 'y', 'z'),
            on: fc.constantFrom({ limit: 'wide', key: 't1' }, { limit: 'wide' }, { limit: 'nosuch' }),
            since: fc.constantFrom('1h', all[9]?.createdAt as Date),
            until: fc.constantFrom('1h', all[30]?.createdAt as Date),
            input: fc.constantFrom({ n: 3 }, { tenant: 't1' }, { tenant: 't1', n: '7' }, { 'n.deeper': 1 }),
          },
          { requiredKeys: [] },
        )
        .map(({ on, ...rest }) => ({ ...rest, ...on })) as fc.Arbitrary<JobFilter>
      const fits = (
        job: Job,
        { state, task: name, queue, tag, limit: lim, key, since, until: to, input = {} }: JobFilter,
      ) =>
        (state === undefined || job.state === state) &&
        (name === undefined || job.task === name) &&
        (queue === undefined || job.queue === queue) &&
        (tag === undefined || job.tags.includes(tag)) &&
        (lim === undefined ||
          job.limits.some((one) => (key === undefined ? one.split(':')[0] === lim : one === `${lim}:${key}`))) &&
        // The store keeps microseconds: only by those are the borders among the jobs.
        (!(since instanceof Date) || job.createdAt >= since) &&
        (to === undefined || (to instanceof Date && job.createdAt < to)) &&
        Object.entries(input).every(
          ([path, value]) => String((job.input as Record<string, unknown>)[path]) === String(value),
        )
      await forAllInTime(20, filters, async (filter) => {
        const ids = all.filter((job) => fits(job, filter)).map(({ id }) => id)
        const streamed: string[] = []
        for await (const { id } of at.sluice.jobs.stream(filter)) streamed.push(id)
        expect(streamed).toEqual(ids)
        expect(await at.sluice.jobs.count(filter)).toEqual({ count: ids.length, isExact: true })
        const [first, second] = [ids.slice(-2), ids.slice(0, -2)]
        expect((await at.sluice.list({ ...filter, max: 2 })).map(({ id }) => id)).toEqual(first.reverse())
        if (first.length === 2)
          expect((await at.sluice.list({ ...filter, before: first[1] ?? '' })).map(({ id }) => id)).toEqual(
            second.reverse(),
          )
      })
    })

    it('are found, if failed, by reason, by a part of their error in any case, and by the time of failure', async () => {
      const ids = await Promise.all([1, 2, 3].map((n) => at.sluice.send(quiet, { n })))
      await fail(ids.slice(0, 2), 'The Vendor said 500')
      await fail(ids.slice(2), 'no such contact 5%_', 'refused')
      const found = async (filter: JobFilter) => (await at.sluice.jobs.count({ state: 'failed', ...filter })).count
      expect(await found({ error: 'vendor SAID' })).toBe(2)
      expect(await found({ error: '5%_' })).toBe(1)
      expect(await found({ error: '5__' })).toBe(0)
      expect(await found({ reason: 'refused' })).toBe(1)
      await at.db.query(`update sluice.failed set finished_at = finished_at - interval '3 h' where id = $1`, [ids[0]])
      expect(await found({ since: '2h' })).toBe(2)
      expect(await found({ until: '2h' })).toBe(1)
    })

    it('are not touched by a filter that is less specific than it looks: it is refused beforehand', async () => {
      await at.sluice.send(quiet, { n: 1 })
      const { jobs } = at.sluice
      const refused: [() => Promise<unknown>, string][] = [
        [() => jobs.cancelMany({}), 'SLUICE_EMPTY_FILTER'],
        [() => jobs.cancelMany({ input: {} }), 'SLUICE_EMPTY_FILTER'],
        [() => jobs.retryMany({ state: 'failed' }), 'SLUICE_EMPTY_FILTER'],
        [() => jobs.reprioritise({}, 5), 'SLUICE_EMPTY_FILTER'],
        [() => jobs.cancelMany({ tasks: 'quiet' } as never), 'SLUICE_BAD_FILTER'],
        [() => jobs.cancelMany({ task: undefined } as never), 'SLUICE_BAD_FILTER'],
        [() => jobs.cancelMany({ task: '' }), 'SLUICE_BAD_FILTER'],
        [() => jobs.cancelMany({ task: 'quiet', state: 'done' }), 'SLUICE_BAD_FILTER'],
        [() => jobs.cancelMany({ task: 'quiet', state: 'constructor' as never }), 'SLUICE_BAD_FILTER'],
        [() => jobs.retryMany({ task: 'quiet', state: 'waiting' }), 'SLUICE_BAD_FILTER'],
        [() => jobs.retryMany({ task: 'quiet', state: ['failed', 'scheduled'] }), 'SLUICE_BAD_FILTER'],
        [() => jobs.reprioritise({ task: 'quiet', state: 'running' }, 5), 'SLUICE_BAD_FILTER'],
        [() => jobs.cancelMany({ since: 'yesterday' as never }), 'SLUICE_BAD_DURATION'],
        [() => jobs.cancelMany({ since: new Date('never') }), 'SLUICE_BAD_FILTER'],
        [() => jobs.cancelMany({ input: { n: [1] } } as never), 'SLUICE_BAD_FILTER'],
        [() => jobs.cancelMany({ task: 'quiet' }, { reason: 'a\u0000b' }), 'SLUICE_BAD_OPTION'],
        [() => jobs.cancel(newId(), null as never), 'SLUICE_BAD_OPTION'],
        [() => jobs.discardMany({ task: 'quiet' }, { reason: 'a'.repeat(501) }), 'SLUICE_BAD_OPTION'],
        [() => jobs.discard(newId(), ' '), 'SLUICE_BAD_OPTION'],
        [() => jobs.reprioritise({ task: 'quiet' }, 1.5), 'SLUICE_BAD_OPTION'],
        [() => jobs.reprioritise('x', 1), 'SLUICE_BAD_ID'],
      ]
      for (const [call, code] of refused) await expect(call(), String(call)).rejects.toMatchObject({ code })
      expect(await jobs.count()).toEqual({ count: 1, isExact: true })
      expect(await jobs.cancelMany({}, { all: true })).toBe(1)
    })

    it('are matched as of the start, so that later jobs and later ends do not count', async () => {
      const { jobs, db } = at.sluice
      const waits = () => at.sluice.send(quiet, { n: 1 }, { delay: '1h' })
      const [old, failed] = [await waits(), await at.sluice.send(limited, { tenant: 'a' })]
      const all = await jobs.asOfNow({ since: '1h' })
      expect(all.since).toBeInstanceOf(Date)
      const past = await jobs.asOfNow({ until: '1h' })
      expect(Number(all.until) - Number(past.until)).toBeGreaterThan(3_000_000)
      const isOver = `select sluice.now() >= $1::text::timestamptz as yes`
      const over = async () => (await db.query(isOver, [(all.until as Date).toISOString()]))[0]?.['yes'] === true
      await until(over, 'the next ms')
      const late = await waits()
      await fail([failed], 'down')
      expect(await jobs.retryMany({ ...all, state: 'failed' })).toBe(0)
      expect(await jobs.cancelMany(past)).toBe(0)
      expect(await jobs.cancelMany(all)).toBe(1)
      expect(await jobs.get(old)).toMatchObject({ state: 'cancelled' })
      expect(await jobs.get(late)).toMatchObject({ state: 'scheduled', reason: 'delay' })
      await expect(jobs.asOfNow({ until: 'soon' as never })).rejects.toMatchObject({ code: 'SLUICE_BAD_DURATION' })
    })

    it('are cancelled in the states of the filter, not in those to which they have gone back meanwhile', async () => {
      const id = await at.sluice.send(quiet, {})
      const [job] = await claimAll(at.db, at.worker, ['quiet'], 1)
      const sql = sqlOn(at.db)
      const call: typeof sql.call = async (name, args) => {
        if (name === operationCalls.cancel) await finish(at.db, [{ job: job!, outcome: 'return' }])
        return sql.call(name, args)
      }
      expect(await new Bulk({ ...sql, call }).cancel({ task: 'quiet', state: 'running' }, 'test', {})).toBe(0)
      expect(await at.sluice.jobs.get(id)).toMatchObject({ state: 'waiting' })
    })

    it('are counted exactly up to 10,000', async () => {
      await at.sluice.sendMany(quiet, numbered(10_000))
      expect(await at.sluice.jobs.count({ task: 'quiet' })).toEqual({ count: 10_000, isExact: true })
      await at.sluice.send(quiet, {})
      expect(await at.sluice.jobs.count({ task: 'quiet' })).toEqual({ count: 10_000, isExact: false })
    })

    it('are cancelled in portions, with progress reports, and a stop between portions', async () => {
      await at.sluice.sendMany(quiet, numbered(1_200))
      const kept = await at.sluice.send(limited, { tenant: 'a' })
      const stop = new AbortController()
      const seen: number[] = []
      const onProgress = (progress: { done: number }) => {
        seen.push(progress.done)
        if (progress.done >= 500) stop.abort()
      }
      expect(await at.sluice.jobs.cancelMany({ task: 'quiet' }, { onProgress, signal: stop.signal })).toBe(500)
      expect(seen).toEqual([500])
      // Running ones too, whose places are freed.
      const running = await claimAll(at.db, at.worker, ['quiet'], 2)
      expect(await at.sluice.jobs.cancelMany({ task: 'quiet' }, { reason: 'wrong file' })).toBe(700)
      expect(await done(at.db, running)).toHaveLength(2)
      expect((await at.sluice.list()).map(({ id }) => id)).toEqual([kept])
      expect((await at.sluice.jobs.count({ state: 'cancelled', reason: 'wrong file' })).count).toBe(700)
    })

    it('are changed at a rate: it waits before the next one, and not after the last', async () => {
      for (let n = 0; n < 3; n++) await at.sluice.send(quiet, { n })
      const stop = new AbortController()
      const onProgress = () => stop.abort()
      const { jobs } = at.sluice
      expect(await jobs.cancelMany({ task: 'quiet' }, { rate: '1/h', signal: stop.signal, onProgress })).toBe(1)
      expect(await jobs.cancelMany({ input: { n: 2 } }, { rate: '1/h' })).toBe(1)
      expect((await jobs.count()).count).toBe(1)
    })

    it('are retried in portions, in order, in turns with waiting jobs', async () => {
      const sent = await Promise.all(Array.from({ length: 600 }, (_, n) => at.sluice.send(quiet, { n })))
      await fail(sent, 'down')
      const first = await at.sluice.send(quiet, { n: -1 })
      expect(await at.sluice.jobs.retryMany({ error: 'DOWN' })).toBe(600)
      expect(await count(at.db, 'sluice.failed')).toBe(0)
      const order = (await claimAll(at.db, at.worker, ['quiet'], 601)).map(({ id }) => id)
      expect(order.filter((id) => id !== first)).toEqual(sent.toSorted())
      expect(order).toContain(first)
    })

    it('begin another attempt now, on request, if they wait for one; a delayed job keeps its delay', async () => {
      const { jobs } = at.sluice
      const sent = await Promise.all([1, 2, 3].map((n) => at.sluice.send(quiet, { n })))
      const delayed = await at.sluice.send(quiet, { n: 4 }, { delay: '1h' })
      const claimed = await claimAll(at.db, at.worker, ['quiet'], 3)
      await finish(
        at.db,
        claimed.map((job) => ({ job, outcome: 'retry', delayUs: 3_600_000_000 })),
      )
      expect(await jobs.get(sent[0] ?? '')).toMatchObject({ state: 'scheduled', attempt: 1 })
      expect(await jobs.retry(delayed)).toBe(false)
      await expect(jobs.retryMany({ state: 'scheduled' })).rejects.toMatchObject({ code: 'SLUICE_EMPTY_FILTER' })
      expect(await jobs.retry(sent[0] ?? '')).toBe(true)
      expect(await jobs.retryMany({ task: 'quiet', state: 'scheduled' })).toBe(2)
      expect((await claimAll(at.db, at.worker, ['quiet'], 3)).map(({ id }) => id).toSorted()).toEqual(sent.toSorted())
      expect(await jobs.get(sent[0] ?? '')).toMatchObject({ state: 'running', attempt: 2 })
      expect(await jobs.get(delayed)).toMatchObject({ state: 'scheduled' })
    })

    it('get a new priority at once, waiting or scheduled, and keep their order in time', async () => {
      const ids = await Promise.all([0, 1, 2, 3, 4].map((n) => at.sluice.send(limited, { n, tenant: 'a' })))
      const due = await at.sluice.send(limited, { n: 9, tenant: 'a' }, { delay: '1h' })
      // A claim has seen the job, and counts it in its old lane.
      const [running] = await claimAll(at.db, at.worker, ['limited'], 1)
      expect(running?.id).toBe(ids[0])
      expect(await at.sluice.jobs.reprioritise({ input: { n: 3 } }, 7)).toBe(1)
      expect(await at.sluice.jobs.reprioritise({ state: 'scheduled', task: 'limited' }, 9)).toBe(1)
      expect(await at.sluice.jobs.reprioritise(ids[2] ?? '', 7)).toBe(1)
      expect(await at.sluice.jobs.reprioritise(ids[0] ?? '', 7)).toBe(0)
      expect(await at.sluice.jobs.reprioritise(newId(), 7)).toBe(0)
      expect(await at.sluice.jobs.get(due)).toMatchObject({ state: 'scheduled', priority: 9 })
      expect((await claimAll(at.db, at.worker, ['limited'], 4)).map(({ id }) => id)).toEqual([
        ids[2],
        ids[3],
        ids[1],
        ids[4],
      ])
      // The same lane as a job that is sent with that priority.
      await at.sluice.send(limited, { n: 10, tenant: 'a' }, { priority: 9, delay: '1h' })
      expect(await count(at.db, '(select distinct lane from sluice.job where priority = 9) l')).toBe(1)
    })

    it('end exactly once each while workers claim', async () => {
      const ran: string[] = []
      const busy = task('busy', {
        input: tenantInput,
        limits: [wide],
        run: (_, { job }) => void ran.push(job.id),
      })
      const input = (n: number) => ({ n, tenant: `t${n % 3}` })
      await at.sluice.sendMany(
        busy,
        Array.from({ length: 300 }, (_, n) => input(n)),
      )
      const worker = await at.sluice.work([busy], { concurrency: 5 })
      let cancelled = 0
      for (let round = 1; (await at.sluice.jobs.count({ task: 'busy' })).count > 0; round++) {
        await at.sluice.jobs.reprioritise({ task: 'busy', limit: 'wide', key: `t${round % 3}` }, (round % 5) - 2)
        if (round % 2 === 0)
          cancelled += await at.sluice.jobs.cancelMany({ state: 'waiting', task: 'busy', input: { n: round } })
        if (round < 4)
          await at.sluice.sendMany(
            busy,
            Array.from({ length: 50 }, (_, n) => input(n + 1_000)),
          )
      }
      await worker.stop()
      expect(new Set(ran).size).toBe(ran.length)
      expect(ran.length + cancelled).toBe(450)
      expect(await count(at.db, `sluice.done where state = 'done'`)).toBe(ran.length)
      expect(await count(at.db, `sluice.done where state = 'cancelled'`)).toBe(cancelled)
      // Each grant was charged to its bucket.
      expect(await jobsLeft(at.db)).toBe(0)
      const charged = Object.values(await unitsUsed(at.db))
      expect(charged.reduce((sum, units) => sum + units, 0)).toBe(ran.length)
    })
  })
}

describe('a claim that meets a job whose priority has changed', () => {
  it('leaves the job, and charges nothing for it', async () => {
    const { url } = await freshDatabase()
    const sluice = await Sluice.open({ store: url })
    const other = openPg({ url, connections: 2, clock: systemClock })
    const worker = await enter(sluice.db)
    const [first, second] = [await sluice.send(limited, { tenant: 'a' }), await sluice.send(limited, { tenant: 'a' })]
    const claimed = await sluice.transaction(async (tx) => {
      await reprioritise(tx, [first], 5)
      return claim(other, worker, ['limited'], 2)
    })
    expect(claimed.jobs.map(({ id }) => id)).toEqual([second])
    expect((await claimAll(sluice.db, worker, ['limited'], 1)).map(({ id }) => id)).toEqual([first])
    expect(
      (await sluice.db.query('select units from sluice.ledger order by n')).map((row) => Number(row['units'])),
    ).toEqual([1, 1])
    await other.close()
    await sluice.close()
  })
})
