/** A machine that sleeps, is paused, or is restored from a snapshot: its monotonic clock stands still, the vendor's does not. */
import { expect, test } from 'vitest'
import { type Clock, type Moment, readMoment, systemClock } from '../../src/core/clock.ts'
import { limit, Sluice, task } from '../../src/index.ts'
import { httpServer } from '../http/bench.ts'
import { claimsInHand, engines, ownClock } from '../claim/engine.ts'
import { numbered } from '../rows.ts'
import { until } from '../until.ts'
import { z } from 'zod'
import { takeCalls } from '../takes/engine.ts'
import { unitsUsed } from '../limits/engine.ts'
import { jobsLeft } from '../store/engine.ts'

const hourMs = 3_600_000

/** The machine's clocks, which stand still from `stop` on, except for the jumps that a test gives them. */
function sleeping() {
  let stood: Moment | undefined
  const jumped = { wallMs: 0, bootMs: 0 }
  const shown = () => stood ?? readMoment(systemClock)
  const clock: Clock = {
    ...systemClock,
    monotonicMs: () => shown().monotonicMs,
    wallMs: () => shown().wallMs + jumped.wallMs,
    bootMs: () => shown().bootMs + jumped.bootMs,
  }
  return { clock, jumped, stop: () => void (stood = readMoment(systemClock)) }
}

/** The clocks that show it: the boot clock of a machine that slept, the wall clock of one that was paused or restored. */
const tells = { 'boot clock': { wallMs: -hourMs, bootMs: hourMs }, 'wall clock': { wallMs: hourMs, bootMs: 0 } }
const told = Object.keys(tells) as (keyof typeof tells)[]

test.each(told)(
  '100 jobs that begin after a sleep of the machine, shown by the %s, add nothing to a full window',
  async (by) => {
    const { clock, jumped, stop } = sleeping()
    const seen: unknown[] = []
    const url = await httpServer((request, response) => {
      seen.push(request.url)
      response.end()
    })
    const running = new Set<string>()
    let wake: (() => void) | undefined
    const woken = new Promise<void>((resolve) => (wake = resolve))
    const calls = limit('calls', { window: '100/min' })
    const calling = task('calling', {
      input: z.object({ n: z.number() }),
      limits: [calls],
      run: async (_, { fetch, job }) => {
        running.add(job.id)
        await woken
        await fetch(url)
      },
    })
    const store = await engines[0].store()
    const sluice = await Sluice.open({ store, clock, allowPrivate: ['127.0.0.1'] })
    const other = await Sluice.open({ store })
    const storeClock = await ownClock(sluice.db, systemClock.wallMs())
    stop()
    await sluice.sendMany(calling, numbered(100))
    const worker = await sluice.work([calling], { concurrency: 100 })
    await until(() => running.size === 100, 'all of them run')
    Object.assign(jumped, tells[by])
    await storeClock.set(systemClock.wallMs() + hourMs)
    await other.takes.take(calls, { cost: 100 })
    wake?.()
    await until(async () => (await claimsInHand(sluice.db)) === 0, 'no job is in hand any more')
    expect(seen).toEqual([])
    expect(await jobsLeft(sluice.db)).toBe(100)
    await worker.stop()
    await Promise.all([sluice.close(), other.close()])
  },
)

test.each(told)(
  'units taken outside of jobs before a sleep of the machine, shown by the %s, are not used after it',
  async (by) => {
    const { clock, jumped, stop } = sleeping()
    const sluice = await Sluice.open({ store: await engines[0].store(), clock, allowPrivate: ['127.0.0.1'] })
    const calls = limit('calls', { window: '2/h' })
    const seats = limit('seats', { concurrency: 1 })
    stop()
    const lease = await sluice.takes.take(calls)
    const place = await sluice.takes.take(seats)
    expect(lease.freshForMs).toBeGreaterThan(0)
    expect(place.freshForMs).toBe(Infinity)
    Object.assign(jumped, tells[by])
    expect(lease.freshForMs).toBe(0)
    // Its places are given to others after 15 s, and the timer for that stood still.
    expect(place.freshForMs).toBe(0)

    // The machine sleeps between the store's decision and the reply: the grant is refunded.
    const call = sluice.db.call.bind(sluice.db)
    const during = async (name: string, sql: string, params: readonly unknown[]) => {
      const rows = await call(name, sql, params)
      if (name === takeCalls.acquire)
        for (const which of ['wallMs', 'bootMs'] as const) jumped[which] += tells[by][which]
      return rows
    }
    sluice.db.call = during as typeof sluice.db.call
    expect(await sluice.takes.tryTake(calls)).toMatchObject({ granted: false })
    sluice.db.call = call as typeof sluice.db.call
    expect((await unitsUsed(sluice.db))['calls']).toBe(1)
    await place.release()
    await sluice.close()
  },
)
