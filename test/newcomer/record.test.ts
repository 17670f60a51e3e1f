// What a job's record shows of its attempts (docs/record.md).
import { hostname } from 'node:os'
import { describe, expect, it } from 'vitest'
import { fail, limit, snooze, task } from '../../src/index.ts'
import { claimAll, count, emptied, finish, mainEngines, ownClock, quietTask, tenantInput } from '../claim/engine.ts'
import { until } from '../until.ts'
import { unhurried } from '../worker/patience.ts'
import { rescue } from '../fleet/engine.ts'

/** Fails `n` times, as the input has it, and then succeeds. */
function flaky(name: string, attempts: number, error: (n: number) => unknown, limits = [] as never[]) {
  let calls = 0
  return task(name, {
    input: tenantInput,
    limits,
    retry: { attempts, base: '1ms', max: '1ms' },
    run({ n = 0 }) {
      if (++calls <= n) throw error(calls)
      return { calls }
    },
  })
}

const failure = (n: number) =>
  Object.assign(new Error(`no answer ${n}`), { code: 'E_VENDOR', cause: new Error('socket hang up') })

for (const engine of mainEngines) {
  describe(`the record of a job on ${engine.name}`, () => {
    const at = emptied(engine, unhurried())

    /** Runs what is there until the job has ended. */
    async function ended(of: Parameters<typeof at.sluice.dispatchOnce>[0], id: string) {
      await until(async () => {
        await at.sluice.dispatchOnce(of)
        return !['scheduled', 'waiting'].includes((await at.sluice.jobs.get(id))?.state ?? '')
      }, 'the job to end')
      const job = await at.sluice.jobs.get(id)
      if (job === undefined) throw new Error('the job is gone')
      return job
    }

    it('shows each attempt: when, where, how it ended, and the error with its stack and cause', async () => {
      const of = flaky('flaky', 5, failure)
      const job = await ended([of], await at.sluice.send(of, { n: 2 }))
      expect(job.attempts.map(({ attempt, outcome }) => [attempt, outcome])).toEqual([
        [1, 'retried'],
        [2, 'retried'],
        [3, 'done'],
      ])
      const [first, second, last] = job.attempts
      expect(first).toMatchObject({
        host: hostname().slice(0, 63),
        worker: expect.stringMatching(/^\d+$/),
        version: expect.stringMatching(/^\d+\.\d+/),
        retryInMs: expect.any(Number),
        waitedMs: expect.any(Number),
        error: { message: 'no answer 1', code: 'E_VENDOR', cause: { message: 'socket hang up' } },
      })
      expect(first?.error?.stack).toContain('record.test.ts')
      expect(last?.error).toBeNull()
      const times = job.attempts.flatMap(({ startedAt, endedAt }) => [startedAt.getTime(), endedAt?.getTime() ?? 0])
      expect(times).toEqual(times.toSorted((a, b) => a - b))
      expect(job.startedAt?.getTime()).toBeGreaterThanOrEqual(second?.endedAt?.getTime() ?? Infinity)
    })

    it('counts the wait before a retry from the end of the attempt before it', async () => {
      const of = flaky('waits', 5, failure)
      const id = await at.sluice.send(of, { n: 2 })
      const { createdAt } = (await at.sluice.jobs.get(id)) ?? { createdAt: new Date() }
      await until(() => Date.now() - createdAt.getTime() > 100, 'the job to have waited')
      const { attempts } = await ended([of], id)
      expect(attempts[0]?.waitedMs).toBeGreaterThan(50)
      const { length } = attempts
      expect(length).toBe(3)
      for (const [i, { startedAt, waitedMs }] of attempts.entries()) {
        const sinceMs = (attempts[i - 1]?.endedAt ?? createdAt).getTime()
        expect(waitedMs).toBeLessThanOrEqual(startedAt.getTime() - sinceMs + 2) // each time is a whole number of ms
      }
    })

    it('adds nothing to a job that succeeds at first try, and still shows its attempt', async () => {
      const of = flaky('fine', 5, failure)
      const job = await ended([of], await at.sluice.send(of, { n: 0 }))
      expect(await at.db.query('select attempts, notes from sluice.done')).toEqual([{ attempts: null, notes: null }])
      expect(job.attempts).toMatchObject([{ attempt: 1, outcome: 'done', error: null, retryInMs: null }])
      expect(job.attempts[0]?.startedAt).toEqual(job.startedAt)
    })

    it('takes at most 150 bytes for an attempt, beside its error', async () => {
      const of = flaky('cheap', 30, () => 'x')
      await ended([of], await at.sluice.send(of, { n: 25 }))
      const rows = await at.db.query<{ bytes: number; n: number }>(
        `select pg_column_size((select array_agg(a::text) from unnest(attempts) a)) as bytes, cardinality(attempts) as n,
           (select sum(length((a ->> 'error'))) from unnest(attempts) a) as errors from sluice.done`,
      )
      const [{ bytes, n, errors } = { bytes: 0, n: 0, errors: 0 }] = rows as {
        bytes: number
        n: number
        errors: number
      }[]
      expect(n).toBe(26)
      expect((Number(bytes) - Number(errors)) / n).toBeLessThanOrEqual(150)
    })

    it('keeps the first and the last 20 attempts', async () => {
      const of = flaky('stubborn', 100, failure)
      const { attempts, attempt } = await ended([of], await at.sluice.send(of, { n: 50 }))
      expect(attempt).toBe(51)
      const first = Array.from({ length: 20 }, (_, i) => i + 1)
      expect(attempts.map((each) => each.attempt)).toEqual([...first, ...first.map((n) => n + 31)])
      expect(attempts.at(-1)?.outcome).toBe('done')
    })

    it('keeps the last of several snoozes', async () => {
      let calls = 0
      const of = task('sleepy', {
        input: tenantInput,
        run() {
          calls++
          if (calls === 1 || calls > 4) throw calls === 1 ? new Error('once') : fail('enough')
          throw snooze('1ms')
        },
        retry: { base: '1ms' },
      })
      const job = await ended([of], await at.sluice.send(of, {}))
      expect(job.attempts.map(({ outcome }) => outcome)).toEqual(['retried', 'snoozed', 'failed'])
    })

    it('shows the attempt that succeeds after a snooze', async () => {
      let calls = 0
      const of = task('awake', {
        input: tenantInput,
        run() {
          if (++calls === 1) throw snooze('1ms')
        },
      })
      const { attempts, startedAt, finishedAt } = await ended([of], await at.sluice.send(of, {}))
      const done = { attempt: 1, outcome: 'done', startedAt, endedAt: finishedAt, waitedMs: expect.any(Number) }
      expect(attempts).toMatchObject([{ attempt: 1, outcome: 'snoozed' }, done])
      expect(attempts[1]?.waitedMs).toBeGreaterThanOrEqual(0)
      expect(Number.isInteger(attempts[1]?.waitedMs)).toBe(true)
    })

    it('shows what an attempt was charged and settled, and which limit it waited for', async () => {
      const few = limit('few', { concurrency: 1, by: 'tenant' })
      const tokens = limit('tokens', { window: '1000/h', cost: 'n' })
      const waiting = "sluice.lane where list = sluice.hash64('few:a')"
      let calls = 0
      const of = task('charged', {
        input: tenantInput,
        limits: [few, tokens] as never[],
        retry: { attempts: 2, base: '1ms' },
        async run(_, { settle }) {
          if (calls === 0) await until(async () => (await count(at.db, waiting)) > 0, 'the other to wait for it')
          await settle({ tokens: 7 })
          if (++calls > 1) throw new Error('after it')
        },
      })
      const ids = [
        await at.sluice.send(of, { tenant: 'a', n: 10 }),
        await at.sluice.send(of, { tenant: 'a', n: 20 }),
      ] as const
      const first = await ended([of], ids[0])
      const { attempts } = await ended([of], ids[1])
      expect(first.attempts[0]?.units).toEqual([
        { limit: 'few:a', charged: 1, settled: null },
        { limit: 'tokens', charged: 10, settled: 7 },
      ])
      expect(attempts.map(({ units }) => units[1])).toEqual([
        { limit: 'tokens', charged: 20, settled: 7 },
        { limit: 'tokens', charged: 20, settled: 7 },
      ])
      expect(attempts[0]?.waitedFor).toBe('few:a')
    })

    it('shows since when and where a job runs, and what became of it when it was cancelled or its worker was lost', async () => {
      const quiet = quietTask('quiet')
      const [one, other] = [await at.sluice.send(quiet, {}), await at.sluice.send(quiet, {})]
      await claimAll(at.db, at.worker, ['quiet'], 2)
      const running = await at.sluice.jobs.get(one)
      expect(running).toMatchObject({ state: 'running', worker: { id: at.worker, host: 'test', pid: 1, version: '0' } })
      expect(running?.attempts).toMatchObject([{ attempt: 1, outcome: 'running', endedAt: null, host: 'test' }])
      expect(running?.startedAt).toEqual(running?.dispatchedAt)
      await at.sluice.jobs.cancel(one)
      await rescue(at.db, at.worker)
      expect((await at.sluice.jobs.get(one))?.attempts).toMatchObject([{ outcome: 'cancelled', worker: at.worker }])
      const lost = await at.sluice.jobs.get(other)
      expect(lost).toMatchObject({ worker: null, crashes: 1 })
      expect(lost?.attempts).toMatchObject([
        { outcome: 'lost', worker: at.worker, host: 'test', version: '0', error: { code: 'SLUICE_WORKER_LOST' } },
      ])
    })

    it('goes on with the attempts of a failed job that is retried', async () => {
      const of = flaky('given-up', 1, failure)
      const id = await at.sluice.send(of, { n: 1 })
      expect((await ended([of], id)).state).toBe('failed')
      await at.sluice.jobs.retry(id)
      expect((await ended([of], id)).attempts.map(({ outcome }) => outcome)).toEqual(['failed', 'done'])
    })
  })
}

describe('the begin of an attempt', () => {
  const at = emptied(mainEngines[0])

  it('is what it was, however late the store records the end', async () => {
    const quiet = quietTask('quiet')
    const startMs = Date.parse('2030-01-01T00:00:00Z')
    const clock = await ownClock(at.db, startMs)
    await at.sluice.send(quiet, {})
    const [job] = await claimAll(at.db, at.worker, ['quiet'], 1)
    if (job === undefined) throw new Error('nothing was claimed')
    await clock.set(startMs + 60_000)
    await finish(at.db, [{ job, outcome: 'done', beganUs: 25_000 }])
    expect(await at.sluice.jobs.get(job.id)).toMatchObject({
      startedAt: new Date(startMs + 25),
      finishedAt: new Date(startMs + 60_000),
    })
    expect(await finish(at.db, [])).toEqual([])
  })
})
