/** Workers that wait for one limit are told times at which, together, they take all that it gives, and hardly ever nothing. */
import { beforeAll, describe, expect, it } from 'vitest'
import { newId } from '../../src/core/hash.ts'
import { guaranteeOf } from '../../src/limits/exposure.ts'
import { limit } from '../../src/limits/limit.ts'
import { claim, done, emptied, enter, mainEngines, ownClock, quietTask } from './engine.ts'

const startMs = Date.parse('2025-07-01T10:00:00Z')

describe.each(mainEngines)('on $name', (engine) => {
  const at = Object.assign(emptied(engine), { clock: {} as Awaited<ReturnType<typeof ownClock>> })
  beforeAll(async () => void (at.clock = await ownClock(at.db, startMs)))

  /** Lets workers wake as they are told, up to `lateMs` late (the same on each run), for `seconds` of the store's clock. */
  async function live(name: string, workers: number, seconds: number, lateMs: number) {
    const wakes = await Promise.all(Array.from({ length: workers }, async () => ({ id: await enter(at.db), atMs: 0 })))
    let [ran, calls, turn] = [0, 0, 0]
    for (;;) {
      const next = wakes.reduce((a, b) => (b.atMs < a.atMs ? b : a))
      if (next.atMs > seconds * 1000) return { ran, calls }
      turn += 1
      const nowMs = next.atMs + (turn * 0.618 - Math.floor(turn * 0.618)) * lateMs
      await at.clock.set(startMs + nowMs)
      const { jobs, again, wakeUs } = await claim(at.db, next.id, [name], 10, newId(), true)
      await done(at.db, jobs)
      // What they find first, when all look at once, is not what is asked.
      if (turn > workers) [ran, calls] = [ran + jobs.length, calls + 1]
      next.atMs = again || jobs.length === 10 ? nowMs + 1 : nowMs + (wakeUs ?? Number.NaN) / 1000
    }
  }

  it.each([
    { rate: '20/s', workers: 8, atMost: 1.05 },
    { rate: '20/s', workers: 50, atMost: 1.05 },
    { rate: '200/s', workers: 8, atMost: 0.25 },
  ] as const)('$workers workers at $rate make at most $atMost claims a job', async ({ rate, workers, atMost }) => {
    const vendor = limit(`vendor-${workers}-${Number.parseInt(rate)}`, { rate })
    const call = quietTask(`call-${workers}-${Number.parseInt(rate)}`, [vendor])
    const seconds = rate === '20/s' ? 20 : 5
    await at.sluice.sendMany(
      call,
      Array.from({ length: seconds * 200 }, () => ({})),
    )
    const { ran, calls } = await live(call.name, workers, seconds, 6)
    const { perSecond } = guaranteeOf(vendor).rules[0] as { perSecond: number }
    expect(ran / (seconds * perSecond)).toBeGreaterThan(0.98)
    expect(calls / ran).toBeLessThanOrEqual(atMost)
  })
})
