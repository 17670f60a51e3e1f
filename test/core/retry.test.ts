import fc from 'fast-check'
import { expect, it } from 'vitest'
import { retryPauseMs, delayMs, type RetryOptions, type RetryPolicy, retryPolicy } from '../../src/core/retry.ts'
import { forAll } from '../for-all.ts'

const code = (options: RetryOptions): unknown => {
  try {
    return retryPolicy(options)
  } catch (error) {
    return (error as { code?: string }).code
  }
}
const almostOne = 1 - Number.EPSILON / 2
const random = fc.double({ min: 0, max: almostOne, noNaN: true })
const span = fc.integer({ min: 0, max: 366 * 86_400_000 })
const failures = fc.integer({ min: 1, max: 1_000 })

it('a retry policy has the defaults that it documents', () => {
  expect(retryPolicy()).toEqual({ attempts: 24, maxThrottled: 1_000, baseMs: 1_000, maxMs: 3_600_000 })
  expect(retryPolicy({ attempts: 1, base: '2s', max: '1min' })).toMatchObject({
    attempts: 1,
    baseMs: 2_000,
    maxMs: 60_000,
  })
})

it.each([0, -1, 1.5, 1_000_001, NaN, '3' as never])('a retry policy refuses %s throttled attempts', (maxThrottled) => {
  expect(code({ maxThrottled })).toBe('SLUICE_BAD_RETRY')
})

it.each([0, -1, 1.5, 1_001, NaN, Infinity, '3' as never])('a retry policy refuses %s attempts', (attempts) => {
  expect(code({ attempts })).toBe('SLUICE_BAD_RETRY')
})

it.each([
  [{ base: '367d' }, 'SLUICE_BAD_RETRY'],
  [{ max: 1e300 }, 'SLUICE_BAD_RETRY'],
  [{ base: -1 }, 'SLUICE_BAD_DURATION'],
  [{ max: 'long' as never }, 'SLUICE_BAD_DURATION'],
] satisfies [RetryOptions, string][])('a retry policy refuses %j', (options, expected) =>
  expect(code(options)).toBe(expected),
)

it.each([
  [1, 1_000],
  [2, 2_000],
  [3, 4_000],
  [8, 128_000],
  [12, 2_048_000],
  [13, 3_600_000],
  [1_000, 3_600_000],
])('retry %i waits at most %d ms by default, and at least half of it', (failed, most) => {
  expect(delayMs(failed, retryPolicy(), almostOne)).toBe(most)
  expect(delayMs(failed, retryPolicy(), 0)).toBe(most / 2)
})

it('a retry policy waits for most of a step where little jitter is wanted', () => {
  const policy = { ...retryPolicy({ max: '3s' }), jitter: 0.1 }
  expect([1, 2, 3, 9].map((failed) => delayMs(failed, policy, almostOne))).toEqual([1_000, 2_000, 3_000, 3_000])
  expect([1, 2, 3, 9].map((failed) => delayMs(failed, policy, 0))).toEqual([900, 1_800, 2_700, 2_700])
})

/** Sum of the waits after each of the first `attempts - 1` failures. */
const sumMs = (policy: RetryPolicy, random: () => number, attempts = policy.attempts) =>
  Array.from({ length: attempts - 1 }, (_, i) => delayMs(i + 1, policy, random())).reduce((sum, ms) => sum + ms, 0)

it('a retry policy survives an outage of six hours by default, whatever the jitter, with no more attempts than that takes', () => {
  const policy = retryPolicy()
  const hours = 3_600_000
  expect(policy.attempts).toBeGreaterThanOrEqual(12)
  expect(sumMs(policy, () => 0)).toBeGreaterThanOrEqual(6 * hours)
  expect(sumMs(policy, () => 0, policy.attempts - 1)).toBeLessThan(6 * hours)
  const randoms = fc.array(random, { minLength: policy.attempts, maxLength: policy.attempts })
  forAll(randoms, (given) => {
    const left = [...given]
    const sum = sumMs(policy, () => left.pop() as number)
    expect(sum >= 6 * hours && sum <= 12.2 * hours).toBe(true)
  })
})

it('a retry delay is a whole number from half of the bound to the bound, uniformly in `random`', () => {
  forAll(failures, span, span, random, (failed, base, max, part) => {
    const wait = delayMs(failed, retryPolicy({ base, max }), part)
    const most = Math.min(max, base * 2 ** Math.min(failed - 1, 40))
    expect(Number.isSafeInteger(wait) && wait >= most / 2 && wait <= most).toBe(true)
    expect(Math.abs(wait - (most / 2) * (1 + part))).toBeLessThanOrEqual(1)
  })
})

it('a retry policy never waits less after one more failure, by the shortest wait and by the longest', () => {
  forAll(failures, span, span, fc.constantFrom(0, almostOne), (failed, base, max, part) => {
    const policy = retryPolicy({ base, max })
    expect(delayMs(failed + 1, policy, part)).toBeGreaterThanOrEqual(delayMs(failed, policy, part))
  })
})

it('a client repeats an unanswered request after half of a wait at least, and a second at most', () => {
  forAll(fc.nat(2_000), random, (tries, part) => {
    const most = Math.min(1_000, 20 * 2 ** tries)
    const wait = retryPauseMs(tries, part)
    expect(wait >= most / 2 && wait <= most).toBe(true)
  })
})
