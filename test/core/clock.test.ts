import fc from 'fast-check'
import { afterEach, expect, test, vi } from 'vitest'
import {
  bootClock,
  caughtUpMs,
  leastUs,
  readMoment,
  stepForward,
  StoreClock,
  systemClock,
} from '../../src/core/clock.ts'
import { forAll } from '../for-all.ts'
import { until } from '../until.ts'

afterEach(() => vi.useRealTimers())

test('a wait longer than a timer of the runtime can last does not end at once', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  const longMs = 2 ** 32
  const told: string[] = []
  const { sleep, after } = systemClock
  const slept = sleep(longMs).then(() => told.push('slept'))
  after(longMs, () => told.push('after'))
  after(longMs, () => told.push('called off'))()
  // Nothing is awaited while the timers are faked: in 50 days, what another file left here would fire some billion timers.
  vi.advanceTimersByTime(longMs - 1)
  expect(told).toEqual([])
  expect(vi.getTimerCount()).toBe(2)
  vi.advanceTimersByTime(1)
  expect(vi.getTimerCount()).toBe(0)
  vi.useRealTimers()
  await slept
  expect(told).toEqual(['after', 'slept'])
})

test('the upper bound of the store clock grows as the monotonic clock plus a second, however often it is read', () => {
  const clock = new StoreClock()
  clock.recordReading(0, [0, 0])
  // A store whose clock has stepped by an hour returns times up to the bound that it is given.
  for (let ms = 0; ms < 10_000; ms += 10)
    clock.recordReading(Math.min(3_600_000_000 + ms * 1_000, clock.cap(ms) ?? 0), [ms, ms + 1])
  expect(clock.cap(10_000)).toBeLessThan(11_020_000)
  // A store clock that was set back changes nothing; a time that is declared right does.
  clock.recordReading(-3_600_000_000, [10_000, 10_000])
  expect(clock.cap(10_000)).toBeGreaterThan(10_000_000)
  clock.forget()
  clock.recordReading(3_610_000_000, [10_000, 10_000])
  expect(clock.cap(10_000)).toBe(3_611_000_000)
})

test('a quick reply narrows when the store decided in slow ones, and never leaves out when it did', () => {
  const span = (max: number) => fc.integer({ min: 0, max })
  const replies = fc.array(fc.record({ pause: span(5_000), there: span(300), back: span(300) }), { minLength: 2 })
  forAll(replies, fc.integer({ min: -1_000, max: 1_000 }), (all, ppm) => {
    const clock = new StoreClock()
    let nowMs = 1_000
    for (const { pause, there, back } of all) {
      const sentMs = nowMs + pause
      const decidedMs = sentMs + there
      nowMs = decidedMs + back
      // The store's clock runs wrong by up to a thousandth.
      const storeUs = Math.round(decidedMs * (1_000 + ppm / 1_000))
      const [earliestMs, latestMs] = clock.recordReading(storeUs, [sentMs, nowMs])
      // It is read in whole microseconds.
      expect(earliestMs).toBeLessThanOrEqual(decidedMs + 0.001)
      expect(latestMs).toBeGreaterThanOrEqual(decidedMs - 0.001)
      expect(latestMs - earliestMs).toBeLessThanOrEqual(there + back)
    }
  })
})

test('after a step of a clock the time of a decision is what its own reply shows', () => {
  const clock = new StoreClock()
  clock.recordReading(5_000_000, [0, 1])
  expect(clock.recordReading(5_100_000, [70, 170])).toEqual([99.9, 101.1])
  // Of 500 ms the store's clock shows 400: it was set back.
  expect(clock.recordReading(5_500_000, [600, 640])).toEqual([600, 640])
  expect(clock.recordReading(5_510_000, [605, 660])).toEqual([609.99, 650.01])
  // After 2 s it is forgotten, so that a step that was too short to be noticed does not last.
  expect(clock.recordReading(7_490_000, [2_500, 2_700])[0]).toBeCloseTo(2_588.01)
  expect(clock.recordReading(7_590_000, [2_650, 2_750])).toEqual([2_650, 2_750])
})

test('a step of the clock is found where there is one, and nowhere else, however long replies took', () => {
  const span = (max: number) => fc.integer({ min: 0, max })
  forAll(
    fc.record({ away: span(4_000), wait: span(3_600_000), there: span(4_000), back: span(4_000), home: span(4_000) }),
    fc.integer({ min: -500, max: 500 }),
    fc.integer({ min: -7_200_000, max: 7_200_000 }),
    span(3_600_000),
    ({ away, wait, there, back, home }, slew, stepMs, sleptMs) => {
      // Sent, decided, received, twice: in ms of a true clock. The store's clock runs slightly wrong, and steps.
      const decided = [away, away + back + wait + there] as const
      const seen = { us: away * 1_000, sentMs: 0, receivedMs: away + back, bootMs: away + back }
      const passedUs = (decided[1] - decided[0]) * (1_000 + slew / 1_000) + stepMs * 1_000
      const sentMs = seen.receivedMs + wait
      const next = { us: seen.us + passedUs, sentMs, receivedMs: decided[1] + home, bootMs: decided[1] + home }
      const { byUs } = stepForward(seen, next)
      const slackMs = away + back + there + home + (decided[1] - decided[0]) / 500 + 2_001
      if (stepMs <= 2_000) expect(byUs).toBe(0)
      if (stepMs > slackMs) expect(Math.abs(byUs / 1_000 - stepMs)).toBeLessThan(slackMs)
      if (stepMs >= 0) expect(leastUs(seen, sentMs)).toBeLessThanOrEqual(next.us)
      else if (-stepMs > slackMs) expect(leastUs(seen, sentMs)).toBeGreaterThan(next.us)
      // This process stood still meanwhile, which looks like a step; its machine knows that it slept.
      const late = { ...next, us: next.us - stepMs * 1_000 + sleptMs * 1_000, bootMs: next.bootMs + sleptMs }
      expect(stepForward(seen, late).isOwn).toBe(true)
    },
  )
})

test('the clock that advanced most measures how much time has passed, and a clock that was set back is ignored', () => {
  const span = fc.integer({ min: 0, max: 1e9 })
  const jump = fc.integer({ min: -1e9, max: 1e9 })
  forAll(span, span, jump, span, (beginMs, passedMs, wallMs, bootMs) => {
    const shown = { monotonicMs: beginMs, wallMs: 1e12, bootMs: 7_000 }
    const clock = {
      ...systemClock,
      monotonicMs: () => shown.monotonicMs,
      wallMs: () => shown.wallMs,
      bootMs: () => shown.bootMs,
    }
    const since = readMoment(clock)
    shown.monotonicMs += passedMs
    shown.wallMs += wallMs
    shown.bootMs += bootMs
    // The boot clock is a second wrong at most.
    expect(caughtUpMs(clock, since)).toBe(beginMs + Math.max(passedMs, wallMs, bootMs - 1_000))
    expect(caughtUpMs(clock, undefined)).toBe(beginMs + passedMs)
  })
})

test('the clocks of this machine advance together', async () => {
  const since = readMoment(systemClock)
  // Read anew, though for a second it is computed from the others.
  await until(() => systemClock.bootMs() - since.bootMs > 1_100, 'a second has passed')
  expect(caughtUpMs(systemClock, since) - systemClock.monotonicMs()).toBeLessThan(50)
})

test('the boot clock is read once a second, and at once after a sleep, which shows in the wall clock', () => {
  let [bootMs, nowMs, wallMs, reads] = [1e6, 0, 1e12, 0]
  const clock = bootClock(
    () => (reads++, bootMs),
    () => nowMs,
    () => wallMs,
  )
  const pass = (ms: number, asleepMs = 0) => {
    nowMs += ms
    bootMs += ms + asleepMs
    wallMs += ms + asleepMs
  }
  for (let n = 0; n < 100; n++) {
    expect(clock()).toBe(bootMs)
    pass(6)
  }
  expect(reads).toBe(1)
  pass(1, 5_000)
  expect(clock()).toBe(bootMs)
  expect(reads).toBe(2)
  // Somebody set the wall clock back by as much: then the next reading shows it.
  pass(1, 5_000)
  wallMs -= 5_000
  pass(1_000)
  expect(clock()).toBe(bootMs)
  expect(reads).toBe(3)
})
