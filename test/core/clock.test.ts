import { afterEach, expect, test, vi } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'

afterEach(() => vi.useRealTimers())

test('a time further away than the runtime has timers for does not come at once', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  const longMs = 2 ** 32
  const told: string[] = []
  const { sleep, after } = systemClock
  void sleep(longMs).then(() => told.push('slept'))
  after(longMs, () => told.push('after'))
  after(longMs, () => told.push('called off'))()
  await vi.advanceTimersByTimeAsync(longMs - 1)
  expect(told).toEqual([])
  await vi.advanceTimersByTimeAsync(1)
  expect(told.toSorted()).toEqual(['after', 'slept'])
})
