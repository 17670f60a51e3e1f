/** Workers that wait for one limit get wake-up times by which, together, they use all of the limit, with few empty claims. */
import { beforeAll, describe, expect, it } from 'vitest'
import { newId } from '../../src/core/hash.ts'
import { isLong } from '../long.ts'
import { guaranteeOf } from '../../src/limits/exposure.ts'
import { limit } from '../../src/limits/limit.ts'
import { claim, done, emptied, enter, mainEngines, ownClock, quietTask } from './engine.ts'

const startMs = Date.parse('2025-07-01T10:00:00Z')

/** How many jobs each worker runs at a time. */
const slots = 10

let names = 0

describe.each(mainEngines)('on $name', (engine) => {
  const at = Object.assign(emptied(engine), { clock: {} as Awaited<ReturnType<typeof ownClock>> })
  beforeAll(async () => void (at.clock = await ownClock(at.db, startMs)))

  /** Lets workers wake at their times, up to `lateMs` late (the same on each run), for `seconds` of the store's clock. */
  async function live(name: string, workers: number, seconds: number, lateMs: number, warmS: number) {
    const wakes = await Promise.all(
      Array.from({ length: workers }, async () => ({ id: await enter(at.db, [], {}, slots), atMs: 0 })),
    )
    let [ran, calls, turn, fromMs] = [0, 0, 0, 0]
    for (;;) {
      const next = wakes.reduce((a, b) => (b.atMs < a.atMs ? b : a))
      if (next.atMs > seconds * 1000) return { ran, calls, tookS: seconds - fromMs / 1000 }
      turn += 1
      const nowMs = next.atMs + (turn * 0.618 - Math.floor(turn * 0.618)) * lateMs
      await at.clock.set(startMs + nowMs)
      const { jobs, again, wakeUs } = await claim(at.db, next.id, [name], slots, newId(), {
        idle: true,
        ahead: 3 * slots,
      })
      await done(at.db, jobs)
      // The first claims, when all workers begin at once, and a rate's first window, with its burst, are not measured.
      if (turn <= workers || nowMs <= warmS * 1000) fromMs = nowMs
      else [ran, calls] = [ran + jobs.length, calls + 1]
      next.atMs =
        again || (jobs.length === slots && wakeUs === undefined) ? nowMs + 1 : nowMs + (wakeUs ?? Number.NaN) / 1000
    }
  }

  it.each([
    { rate: '20/s', workers: 8, atMost: 0.8, atLeast: 0.98 },
    { rate: '20/s', workers: 50, atMost: 0.9, atLeast: 0.98 },
    // Its pace forgives 25 ms.
    { rate: '200/s', workers: 8, atMost: 0.05, atLeast: 0.98 },
    // A bucket of one unit has no room for a unit that waits for a worker.
    { rate: '1/s', burst: 1, workers: 8, atMost: 1.05, atLeast: 0.97 },
    { rate: '5/s', burst: 1, workers: 4, atMost: 1.05, atLeast: 0.95 },
    { rate: '2/s', burst: 1, workers: 3, atMost: 1.05, atLeast: 0.95 },
    { rate: '10/min', workers: 8, atMost: 1.05, atLeast: 0.93 },
  ] as const)(
    '$workers workers at $rate (burst $burst) use $atLeast of it, with at most $atMost claims a job',
    async ({ workers, atMost, atLeast, ...numbers }) => {
      names += 1
      const vendor = limit(`vendor-${names}`, numbers)
      const call = quietTask(`call-${names}`, [vendor])
      const { perSecond } = guaranteeOf(vendor).rules[0] as { perSecond: number }
      const warmS = vendor.rules.some(({ kind }) => kind === 'pace') ? 1.5 : 0
      // A claim gets ten jobs of a fast limit.
      const jobs = (isLong ? 300 : 150) * (perSecond > 20 ? 12 : 1)
      const seconds = jobs / perSecond + warmS
      await at.sluice.sendMany(
        call,
        Array.from({ length: 2500 }, () => ({})),
      )
      const { ran, calls, tookS } = await live(call.name, workers, seconds, 6, warmS)
      expect(ran / (tookS * perSecond)).toBeGreaterThan(atLeast)
      expect(calls / ran).toBeLessThanOrEqual(atMost)
    },
  )
})
