import { describe, expect, it } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import { freshDatabase } from '../servers/database.ts'
import { startPostgres } from '../servers/postgres.ts'
import { isLong } from '../long.ts'
import { copies, numbered } from '../rows.ts'
import { until } from '../until.ts'
import { count, workerIds } from '../claim/engine.ts'
import { checkOnce, fleet, note, paced } from '../claim/fleet.ts'
import { beats, workersSeen } from './engine.ts'

describe.concurrent('a worker process', () => {
  it('that is killed loses its jobs to another worker within 15 s, as ambiguous ones', async (context) => {
    const { sluice, runs, start } = await fleet((await freshDatabase()).url, context)
    const victim = await start()
    await sluice.sendMany(note, copies(20, { hangs: true }))
    await until(() => runs.length === 20, 'all begun')
    await start()
    const before = await beats(sluice.db)
    const killedMs = systemClock.monotonicMs()
    victim.kill('SIGKILL')
    await until(async () => (await sluice.jobs.status()).done === 20, 'all done elsewhere')
    // Time by the survivor's heartbeat, which is slow on a busy machine too: every 2 s, and once more where a round is late.
    expect((await beats(sluice.db)) - before).toBeLessThanOrEqual(12)
    if (isLong) expect(systemClock.monotonicMs() - killedMs).toBeLessThan(15_000)
    expect(runs).toHaveLength(40)
    checkOnce(runs)
    expect(await count(sluice.db, 'sluice.done where crashes = 1 and attempt = 2 and ambiguous')).toBe(20)
    expect((await sluice.jobs.status()).workers).toBe(1)
  })

  it('that is killed leaves no doubt about jobs that were granted ahead of time and not about to begin', async (context) => {
    const { sluice, runs, start } = await fleet((await freshDatabase()).url, context)
    const victims = await Promise.all(Array.from({ length: isLong ? 8 : 2 }, () => start()))
    const jobs = 3_000
    await sluice.sendMany(paced, copies(jobs))
    /** The jobs in hand that have not begun. */
    const waiting = async () =>
      await sluice.db.query<{ id: string }>(
        `select j.id from sluice.claim c cross join unnest(c.lanes, c.seqs, c.instants) h (lane, seq, at)
         join sluice.job j on j.lane = h.lane and j.seq = h.seq and j.claim = c.id
         where h.at > c.at + 100000 and h.seq <> all (coalesce(c.begun, '{}'))`,
      )
    await until(async () => {
      for (const victim of victims) victim.kill('SIGSTOP')
      if (runs.length > 300 && (await waiting()).length > 5) return true
      for (const victim of victims) victim.kill('SIGCONT')
      return false
    }, 'jobs are granted ahead of time')
    for (const victim of victims) victim.kill('SIGKILL')
    // By then all that they sent is recorded.
    const sessions = `pg_stat_activity where datname = current_database() and application_name = 'member'`
    await until(async () => (await count(sluice.db, sessions)) === 0, 'their sessions have ended')
    const left = (await waiting()).map(({ id }) => id)
    expect(left.length).toBeGreaterThan(0)
    await start()
    await until(async () => (await sluice.jobs.status()).done === jobs, 'all done elsewhere')
    checkOnce(runs)
    expect(new Set(runs.map(({ id }) => id)).size).toBe(jobs)
    const doubtful = await sluice.db.query<{ id: string }>('select id from sluice.done where ambiguous or crashes > 0')
    expect(doubtful.filter(({ id }) => left.includes(id))).toEqual([])
    expect(await sluice.verify()).toMatchObject({ isProved: true, exceeded: [] })
  })

  it('that is stopped for long does nothing twice when it goes on, and registers again', async (context) => {
    const { sluice, runs, start } = await fleet((await freshDatabase()).url, context)
    const sleeper = await start()
    await sluice.sendMany(note, copies(5, { hangs: true }))
    await until(() => runs.length === 5, 'all begun')
    const watcher = await start()
    await sluice.sendMany(note, numbered(400))
    sleeper.kill('SIGSTOP')
    await until(async () => (await sluice.jobs.status()).done === 405, 'all done elsewhere')
    const before = runs.filter(({ pid }) => pid === sleeper.pid).length
    sleeper.kill('SIGCONT')
    await until(async () => (await sluice.jobs.status()).workers === 2, 'it registers anew')
    watcher.kill('SIGSTOP')
    await sluice.sendMany(note, numbered(5))
    await until(async () => (await sluice.jobs.status()).done === 410, 'it works again')
    expect(runs.filter(({ pid }) => pid === sleeper.pid).length).toBeGreaterThanOrEqual(before + 5)
    checkOnce(runs)
    expect(new Set(runs.map(({ id }) => id)).size).toBe(410)
  })

  it('is not given up while the server is away, runs nothing twice, and goes on', async (context) => {
    const server = await startPostgres()
    context.onTestFinished(() => server.close())
    const { sluice, runs, start } = await fleet(server.url, context)
    await Promise.all([start(), start()])
    await until(async () => (await sluice.jobs.status()).workers === 2, 'both are registered')
    const workers = await workerIds(sluice.db)
    let sent = 0
    await sluice.sendMany(
      note,
      Array.from({ length: 500 }, () => ({ n: sent++ })),
    )
    await server.stop('immediate')
    const stoppedMs = systemClock.monotonicMs()
    await until(() => systemClock.monotonicMs() - stoppedMs > 10_000, 'ten seconds')
    await server.start()
    const backMs = systemClock.monotonicMs()
    await sluice.sendMany(
      note,
      Array.from({ length: 100 }, () => ({ n: sent++ })),
    )
    await until(async () => (await sluice.jobs.status()).done === sent, 'all done')
    if (isLong) expect(systemClock.monotonicMs() - backMs).toBeLessThan(5_000)
    // No worker is doubted later on either: all heartbeats are seen to move.
    await until(async () => (await workersSeen(sluice.db, 3_000_000)) === 2, 'no doubts')
    expect(await workerIds(sluice.db)).toEqual(workers)
    expect(await count(sluice.db, 'sluice.done where crashes > 0 or ambiguous')).toBe(0)
    checkOnce(runs)
    expect(runs).toHaveLength(sent)
    await sluice.close()
  })
})
