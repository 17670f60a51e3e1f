/** Handlers that go on after their attempt ended. */
import { expect, test, vi } from 'vitest'
import { z } from 'zod'
import { checks } from '../../src/cli/checks.ts'
import { systemClock } from '../../src/core/clock.ts'
import { type Log, Sluice, task } from '../../src/index.ts'
import { StuckHandlers } from '../../src/worker/stuck.ts'
import { engines } from '../claim/engine.ts'
import { copies } from '../rows.ts'
import { until } from '../until.ts'
import { hasty } from './patience.ts'
import { freshDatabase } from '../servers/database.ts'
import { beats } from '../fleet/engine.ts'

const logs = () => ({
  debug: vi.fn<Log['debug']>(),
  info: vi.fn<Log['info']>(),
  warn: vi.fn<Log['warn']>(),
  error: vi.fn<Log['error']>(),
})
/** The logged lines: each line's text with its details. */
const said = (calls: unknown[][], text: string) => calls.filter(([line]) => String(line).includes(text))
/** A clock on which a second and more, of sleep or grace, pass quickly. */
const quick = () => ({
  ...hasty(),
  after: (ms: number, then: () => void) => systemClock.after(ms > 1_000 ? 20 : ms, then),
})
const timedOut = new Error('timed out')
const input = z.object({})

test('handlers that outlast their grace are counted, logged once, and reported when there are too many and when no longer', async () => {
  let nowMs = 0
  const timers = new Set<{ atMs: number; fire(): void }>()
  const clock = {
    ...systemClock,
    monotonicMs: () => nowMs,
    after: (ms: number, then: () => void) => {
      const timer = { atMs: nowMs + ms, fire: then }
      timers.add(timer)
      return () => void timers.delete(timer)
    },
  }
  const pass = (ms: number) => {
    nowMs += ms
    for (const timer of timers) if (timer.atMs <= nowMs && timers.delete(timer)) timer.fire()
  }
  const [log, changed] = [logs(), vi.fn<(isTooMany: boolean) => void>()]
  const stuck = new StuckHandlers({ clock, log, most: 2, changed })
  const ends = ['a', 'b', 'c'].map((id) => {
    let end: (() => void) | undefined
    stuck.watch({ id, task: 'deaf' }, timedOut, new Promise<void>((resolve) => (end = resolve)))
    return () => end?.()
  })
  const failing = Promise.reject(new Error('it heard'))
  stuck.watch({ id: 'd', task: 'tidy' }, timedOut, failing)
  ends[0]?.()
  await Promise.resolve().then(() => Promise.resolve())
  pass(4_999)
  expect(stuck.count).toBe(0)
  pass(1)
  expect([stuck.count, stuck.isTooMany]).toEqual([2, true])
  pass(60_000)
  expect(said(log.warn.mock.calls, 'is stuck')).toEqual(
    ['b', 'c'].map((job) => [expect.any(String), { task: 'deaf', job, forMs: 5_000, ended: 'timed out' }]),
  )
  expect(log.error).toHaveBeenCalledOnce()
  ends[1]?.()
  await Promise.resolve().then(() => Promise.resolve())
  expect([stuck.count, stuck.isTooMany]).toEqual([1, false])
  expect(said(log.info.mock.calls, 'a stuck handler has ended')).toEqual([
    [expect.any(String), { task: 'deaf', job: 'b', forMs: 65_000 }],
  ])
  expect(changed.mock.calls).toEqual([[true], [false]])
})

test.each(engines)(
  '$name: a worker with as many stuck handlers as slots claims nothing until one ends, and reports it',
  async ({ store }) => {
    const log = logs()
    const sluice = await Sluice.open({ store: await store(), log, clock: quick() })
    let end: (() => void) | undefined
    const deaf = task('deaf', {
      input,
      timeout: 300,
      retry: { attempts: 1 },
      run: () => new Promise<void>((resolve) => (end = resolve)),
    })
    const next = task('next', { input, run: () => 'ran' })
    const worker = await sluice.work([deaf, next], { concurrency: 1 })
    expect(await sluice.waitFor(await sluice.send(deaf, {}))).toMatchObject({ error: { code: 'SLUICE_TIMEOUT' } })
    await until(async () => (await sluice.jobs.status()).stuck === 1, 'status says so')
    expect(worker.stuck).toBe(1)
    const at = { db: sluice.db, url: undefined, directUrl: undefined, owner: false, embedded: false }
    const doctor = async () => (await checks['handlers']?.({ store: at, schema: 'sluice' }))?.status
    expect(await doctor()).toBe('warn')

    const id = await sluice.send(next, {})
    const before = await beats(sluice.db)
    await until(async () => (await beats(sluice.db)) > before + 3, 'it lives')
    expect((await sluice.jobs.get(id))?.state).toBe('waiting')
    end?.()
    expect(await sluice.waitFor(id)).toMatchObject({ state: 'done' })
    await until(async () => (await sluice.jobs.status()).stuck === 0, 'status says that it is over')
    expect(await doctor()).toBe('ok')
    expect(said(log.warn.mock.calls, 'is stuck')).toHaveLength(1)
    await sluice.close()
  },
)

test('a worker that is one-shot or is stopping, with as many stuck handlers as slots, takes no more jobs, and ends', async () => {
  const sluice = await Sluice.open({ store: (await freshDatabase()).url, clock: quick() })
  let runs = 0
  const deaf = task('deaf', {
    input,
    timeout: 100,
    retry: { attempts: 1 },
    run: () => new Promise<void>(() => runs++),
  })
  const most = 100
  await sluice.sendMany(deaf, copies(most))
  expect(await sluice.dispatchOnce([deaf], { concurrency: 2 })).toBe(runs)
  expect(runs).toBeLessThan(most)
  const worker = await sluice.work([deaf], { concurrency: 1 })
  await until(() => worker.stuck >= 1)
  await sluice.close()
  expect(worker.running).toBe(0)
})
