/** A worker that is stopped before it is well under way. */
import { afterEach, beforeEach, expect, test } from 'vitest'
import { z } from 'zod'
import { type Clock, systemClock } from '../../src/core/clock.ts'
import { watch } from '../../src/core/test-points.ts'
import { storeOn } from '../../src/db/store.ts'
import { Sluice, task } from '../../src/index.ts'
import type { AnyTask } from '../../src/tasks/task.ts'
import { freshDatabase } from '../servers/database.ts'
import { claim, count, workerIds } from '../claim/engine.ts'
import { startProxy } from '../servers/proxy.ts'
import { later, until } from '../until.ts'
import { beats, rescue, rescueAll } from '../fleet/engine.ts'
import { makeWorker } from './made.ts'
import { hasty } from './patience.ts'

const quiet = task('quiet', { input: z.object({}), run: () => undefined })
let url: string

// Each test has a store of its own: a worker that a failed test left goes on.
beforeEach(async () => {
  url = (await freshDatabase()).url
})
afterEach(() => watch(undefined))

/** Runs `before`, and stops everything, at the n-th claim, which is slow. */
function stopAtClaim(nth: number, before: () => Promise<unknown>, stop: () => void): void {
  let claims = 0
  watch(async (point) => {
    if (point !== 'claim.sent' || ++claims !== nth) return
    await before()
    stop()
  })
}

const cases = ['work', 'dispatchOnce'].flatMap((way) =>
  [1, 3].flatMap((nth) => [false, true].map((isLost) => ({ way, nth, isLost }))),
)

test.each(cases)(
  'a worker by $way that is stopped at claim $nth, given up as lost before: $isLost, ends and leaves no job behind',
  async ({ way, nth, isLost }) => {
    const watcher = await Sluice.open({ store: url })
    const sluice = await Sluice.open({ store: url })
    let closing: Promise<void> | undefined
    // So slow that a starting worker does not trust the machine yet, and claims once more for nothing.
    const slowly = async () => {
      const given = await watcher.db.query<{ id: string }>('select id, pg_sleep(0.1) from sluice.worker')
      if (isLost) for (const { id } of given) await rescue(watcher.db, id)
    }
    stopAtClaim(nth, slowly, () => (closing = later(sluice.close())))
    // A one-shot needs something to claim.
    await sluice.sendMany(quiet, [{}, {}, {}])
    await expect(way === 'work' ? sluice.work([quiet]) : sluice.dispatchOnce([quiet])).resolves.toBeDefined()
    await expect.poll(() => closing !== undefined).toBe(true)
    await closing
    expect((await watcher.jobs.status()).workers).toBe(0)
    expect((await watcher.jobs.status()).running).toBe(0)
    await watcher.close()
  },
)

test.each(['work', 'dispatchOnce'] as const)(
  '%s that is called before a close, and not ready at it, rejects and leaves nothing behind',
  async (way) => {
    const watcher = await Sluice.open({ store: url })
    const sluice = await Sluice.open({ store: url })
    let closing: Promise<void> | undefined
    const labels = {
      // Read after all that a worker's tasks need in the store, and before the worker is made.
      get here() {
        closing ??= later(sluice.close())
        return 'yes'
      },
    }
    // The close waits for this send, so that the store stays open for a while.
    let release = () => {}
    const released = new Promise<void>((resolve) => (release = resolve))
    watch((point) => (point === 'send.flush' ? released : undefined))
    const sending = sluice.send(quiet, {})
    await expect(sluice[way]([quiet], { labels })).rejects.toMatchObject({ code: 'SLUICE_CLOSED' })
    release()
    await Promise.all([sending, closing])
    expect((await watcher.jobs.status()).workers).toBe(0)
    await watcher.close()
  },
)

test('a worker that is stopped while it starts claims nothing any more', async () => {
  const sluice = await Sluice.open({ store: url })
  const store = storeOn(sluice.db, { clock: systemClock })
  const nothing = async () => {}
  // The time in which it connects to a broker, for example.
  const start = async () => {
    for (let n = 0; n < 10; n++) await sluice.db.query('select')
  }
  const worker = makeWorker({
    store,
    tasks: [quiet as unknown as AnyTask],
    companion: { start, stop: nothing, abort: nothing },
  })
  let claims = 0
  let stopping: Promise<void> | undefined
  watch((point) => {
    if (point !== 'claim.sent') return
    claims++
    stopping ??= later(worker.stop())
  })
  await worker.start()
  await stopping
  expect(claims).toBe(1)
  await sluice.close()
})

test('a start that fails leaves nothing behind', async () => {
  const sluice = await Sluice.open({ store: url })
  let isFirst = true
  watch((point) => {
    if (point !== 'claim.sent' || !isFirst) return
    isFirst = false
    throw new Error('as it should not happen')
  })
  await expect(sluice.work([quiet])).rejects.toThrow('as it should not happen')
  expect((await sluice.jobs.status()).workers).toBe(0)
  await sluice.close()
})

test('a worker that is stopped at once while it claims runs none of the claimed jobs, and none becomes ambiguous', async () => {
  const sluice = await Sluice.open({ store: url })
  const worker = await sluice.work([quiet])
  let aborting: Promise<void> | undefined
  watch((point, detail) => {
    if (point === 'claim.received' && (detail as { jobs: unknown[] }).jobs.length > 0)
      aborting ??= later(worker.abort())
  })
  await sluice.sendMany(quiet, [{}, {}, {}, {}])
  await expect.poll(() => aborting !== undefined).toBe(true)
  await aborting
  expect(await count(sluice.db, 'sluice.job where attempt > 0 or ambiguous')).toBe(0)
  expect((await sluice.jobs.status()).workers).toBe(0)
  await sluice.close()
})

test('a worker that is stopped during an attempt adopts nothing, and returns jobs of unknown claims uncalled', async () => {
  const sluice = await Sluice.open({ store: url, clock: hasty() })
  const watcher = await Sluice.open({ store: url })
  let open: (() => void) | undefined
  const runs: string[] = []
  const gate = task('gate', {
    input: z.object({}),
    run: async (_, { job }) => {
      runs.push(job.id)
      await new Promise<void>((resolve) => (open = resolve))
    },
  })
  const worker = await sluice.work([gate])
  const first = await watcher.send(gate, {})
  await expect.poll(() => runs).toEqual([first])
  // When the worker is about to sleep, so that no claim of its own is under way when it is stopped.
  let stopping: Promise<void> | undefined
  watch((point) => {
    if (point === 'idle') stopping ??= later(worker.stop())
  })
  await expect.poll(() => stopping !== undefined).toBe(true)
  await watcher.send(gate, {})
  const [id = ''] = await workerIds(watcher.db)
  const beat = await beats(watcher.db)
  const claimed = async () => (await claim(watcher.db, id, ['gate'], 1)).jobs.length === 1
  await until(claimed, 'a job in its name that it does not know of')
  await watcher.db.query('update sluice.claim set at = 0')
  await until(async () => (await beats(watcher.db)) > beat + 5, 'some rounds')
  expect(runs).toEqual([first])
  open?.()
  await stopping
  expect(await count(watcher.db, `sluice.job where task = 'gate' and claim is null and attempt = 0`)).toBe(1)
  await sluice.close()
  await watcher.close()
})

test.each(['work', 'dispatchOnce'])(
  '%s whose store goes away for good during an attempt ends, and leaves its job to a rescue',
  async (way) => {
    const proxy = await startProxy({ port: Number(new URL(url).port) })
    const watcher = await Sluice.open({ store: url })
    // From then on time runs 20 times as fast.
    let goneMs = Infinity
    const now = () => systemClock.monotonicMs()
    const clock = { ...systemClock, monotonicMs: () => now() + Math.max(0, now() - goneMs) * 20 }
    const sluice = await Sluice.open({ store: proxy.url(url), clock })
    const cutting = task('cutting', {
      input: z.object({}),
      run: async () => {
        await proxy.refuse()
        proxy.reset()
        goneMs = now()
      },
    })
    await watcher.send(cutting, {})
    if (way === 'work') {
      await sluice.work([cutting])
      await expect.poll(() => goneMs).toBeLessThan(Infinity)
    } else await expect(sluice.dispatchOnce([cutting])).rejects.toMatchObject({ code: 'SLUICE_STORE_UNREACHABLE' })
    await sluice.close()
    await rescueAll(watcher.db)
    expect(await watcher.db.query('select attempt, ambiguous from sluice.job')).toEqual([
      { attempt: 1, ambiguous: true },
    ])
    await proxy.close()
    await watcher.close()
  },
)

test('a handler that ends while its Sluice closes can still send', async () => {
  const sluice = await Sluice.open({ store: url })
  let open: (() => void) | undefined
  const last = task('last', {
    input: z.object({}),
    run: async () => {
      await new Promise<void>((resolve) => (open = resolve))
      return sluice.send(quiet, {})
    },
  })
  const id = await sluice.send(last, {})
  await sluice.work([last])
  await expect.poll(() => open).toBeDefined()
  const closing = later(sluice.close())
  await expect(sluice.work([quiet])).rejects.toMatchObject({ code: 'SLUICE_CLOSED' })
  open?.()
  await closing
  await expect(sluice.send(quiet, {})).rejects.toMatchObject({ code: 'SLUICE_CLOSED', retryable: true })
  const watcher = await Sluice.open({ store: url })
  expect(await watcher.jobs.get(id)).toMatchObject({ state: 'done' })
  await watcher.close()
})

test('attempts that go on when the grace is over are given back, by default after 25 s', async () => {
  const spans: number[] = []
  const after: Clock['after'] = (ms, then) => {
    if (ms === 25_000) spans.push(ms)
    return systemClock.after(ms === 25_000 ? 0 : ms, then)
  }
  const sluice = await Sluice.open({ store: url, clock: { ...systemClock, after } })
  const watcher = await Sluice.open({ store: url })
  const begun: string[] = []
  let open: (() => void) | undefined
  const deaf = task('deaf', {
    input: z.object({}),
    run: async (_, { job }) => {
      begun.push(job.id)
      await new Promise<void>((resolve) => (open = resolve))
    },
  })
  for (const options of [{}, { grace: 1 }, { grace: '10min' }] as const) {
    const worker = await sluice.work([deaf], options)
    const id = await watcher.send(deaf, {})
    await expect.poll(() => begun.pop()).toBe(id)
    const stopping = later(worker.stop())
    if (options.grace === '10min') open?.()
    await stopping
    const state = options.grace === '10min' ? 'done' : expect.stringMatching(/waiting|scheduled/)
    expect(await watcher.jobs.get(id)).toMatchObject({ state })
    await watcher.jobs.cancel(id)
  }
  expect(spans).toEqual([25_000])
  await expect(sluice.work([deaf], { grace: 'soon' as '1s' })).rejects.toMatchObject({ code: 'SLUICE_BAD_DURATION' })
  await sluice.close()
  await watcher.close()
})
