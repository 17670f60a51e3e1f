/** The watch of workers without a store over the epoch of the limits, without any Redis. */
import { expect, it } from 'vitest'
import { type Clock, systemClock } from '../../src/core/clock.ts'
import { silent } from '../../src/core/log.ts'
import { EpochWatch } from '../../src/direct/epoch.ts'

/** A watch that has looked once, and what its clocks, and Redis, show. */
async function stage() {
  const at = { monotonicMs: 1_000, bootMs: 1_000, redisUs: 5e15, id: 'first', begun: 0 }
  const clock: Clock = { ...systemClock, monotonicMs: () => at.monotonicMs, bootMs: () => at.bootMs }
  const watch = new EpochWatch({
    limiter: {
      readEpoch: async () => ({ id: at.id, isWhole: true, owner: 'direct', mine: at.id, stores: 1, nowUs: at.redisUs }),
      begin: async ({ epoch }: { epoch: string }) => {
        at.begun++
        at.id = epoch
        return { isDecided: true, atUs: at.redisUs }
      },
    } as never,
    redis: { reset() {} } as never,
    definitions: { define: async () => {}, restore: async () => {}, refresh: async () => {} } as never,
    clock,
    log: silent,
    onBack() {},
    onReading() {},
  })
  await watch.look()
  expect(watch.current).toBe('first')
  /** Lets so many ms pass by each clock, and looks again. */
  const pass = async (ms: { monotonic: number; boot: number; redis: number }) => {
    at.monotonicMs += ms.monotonic
    at.bootMs += ms.boot
    at.redisUs += ms.redis * 1_000
    await watch.look()
    expect(watch.current).toBe(at.id)
  }
  return { at, pass }
}

it('goes on when time passes, and when its own machine has slept', async () => {
  const { at, pass } = await stage()
  await pass({ monotonic: 5_000, boot: 5_000, redis: 5_000 })
  await pass({ monotonic: 1_000, boot: 61_000, redis: 61_000 })
  expect(at.begun).toBe(0)
})

it.each([
  ['forward', 65_000],
  ['back', -60_000],
])('begins anew when the clock of Redis was set %s, once', async (_, redis) => {
  const { at, pass } = await stage()
  await pass({ monotonic: 5_000, boot: 5_000, redis })
  expect(at.begun).toBe(1)
  await pass({ monotonic: 5_000, boot: 5_000, redis: 5_000 })
  expect(at.begun).toBe(1)
})

it('leaves the epoch alone that another worker has begun after the same step', async () => {
  const { at, pass } = await stage()
  at.id = 'second'
  await pass({ monotonic: 5_000, boot: 5_000, redis: 65_000 })
  expect(at).toMatchObject({ begun: 0, id: 'second' })
})
