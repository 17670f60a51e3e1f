import { describe, expect, it, onTestFinished } from 'vitest'
import { z } from 'zod'
import { systemClock } from '../../src/core/clock.ts'
import { type Log, Sluice, task } from '../../src/index.ts'
import { Throttle } from '../../src/claim/throttle.ts'
import { copies } from '../rows.ts'
import { until } from '../until.ts'
import { freshDatabase } from '../servers/database.ts'

function lines() {
  const warned: string[] = []
  const log: Log = { debug() {}, info() {}, warn: (line) => warned.push(line), error() {} }
  return { warned, log }
}

describe("a worker's own rate", () => {
  const at = (ms: number) => {
    const { warned, log } = lines()
    const clock = {
      ...systemClock,
      nowMs: ms,
      monotonicMs: () => clock.nowMs,
      after: (ms: number, then: () => void) => (afters.push([ms, then]), () => {}),
    }
    const afters: [number, () => void][] = []
    return { warned, afters, clock, throttle: new Throttle('20/s', clock, log) }
  }

  it('never lets more attempts begin in any window than it allows', () => {
    const { clock, throttle } = at(1_000)
    const begun: number[] = []
    for (; clock.nowMs < 6_000; clock.nowMs += 7) {
      const many = throttle.countAllowed()
      throttle.chargeStarts(many, false)
      for (let n = 0; n < many; n++) begun.push(clock.nowMs)
    }
    const worst = Math.max(...begun.map((from) => begun.filter((one) => one >= from && one < from + 1_000).length))
    expect(worst).toBeLessThanOrEqual(20)
    expect(begun.length).toBeGreaterThan(5 * 16)
  })

  it('returns when the next attempt may begin, and warns once a minute while it limits the worker', () => {
    const { clock, throttle, warned, afters } = at(5)
    throttle.chargeStarts(throttle.countAllowed(), true)
    throttle.callWhenAllowed(() => {})
    const [wait] = afters[0] ?? []
    clock.nowMs += (wait ?? 0) - 0.01
    expect(throttle.countAllowed()).toBe(0)
    clock.nowMs += 0.02
    expect(throttle.countAllowed()).toBe(1)
    // A worker that had no warning a moment ago gets one all the same.
    throttle.callWhenAllowed(() => {})
    expect(afters.at(-1)?.[0]).toBe(1)
    throttle.chargeStarts(1, true)
    expect(warned).toHaveLength(1)
    clock.nowMs += 60_000
    throttle.chargeStarts(1, false)
    expect(warned).toHaveLength(1)
    throttle.chargeStarts(1, true)
    expect(warned).toHaveLength(2)
  })
})

it('a worker claims no more jobs than its own rate lets begin, and logs that', async () => {
  const { warned, log } = lines()
  const sluice = await Sluice.open({ store: (await freshDatabase()).url, log })
  onTestFinished(() => sluice.close())
  const begun: number[] = []
  const work = task('work', { input: z.object({}), run: () => void begun.push(performance.now()) })
  await sluice.sendMany(work, copies(30))
  const since = performance.now()
  const worker = await sluice.work([work], { rate: '20/s', concurrency: 30 })
  await until(() => begun.length === 30, 'all have run')
  await worker.stop()
  // 2 at once, and then 17.3 a second.
  expect((begun.at(-1) ?? 0) - since).toBeGreaterThan((28 / 17.5) * 1_000)
  expect(warned.filter((line) => line.includes('`rate`'))).toHaveLength(1)
  await expect(sluice.work([work], { rate: 'often' as never })).rejects.toMatchObject({ code: 'SLUICE_BAD_RATE' })
  await sluice.sendMany(work, [{}, {}, {}])
  expect(await sluice.dispatchOnce([work], { rate: '20/s' })).toBe(3)
})
