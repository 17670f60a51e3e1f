import fc from 'fast-check'
import { expect, it } from 'vitest'
import { delayMs, type RetryOptions, retryPolicy } from '../../src/core/retry.ts'

const code = (options: RetryOptions): unknown => {
  try {
    return retryPolicy(options)
  } catch (error) {
    return (error as { code?: string }).code
  }
}
const almostOne = 1 - Number.EPSILON / 2

it('a retry policy has the defaults that the docs state', () => {
  expect(retryPolicy()).toEqual({ attempts: 5, baseMs: 1_000, maxMs: 3_600_000 })
  expect(retryPolicy({ attempts: 1, base: '2s', max: '1min' })).toEqual({ attempts: 1, baseMs: 2_000, maxMs: 60_000 })
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
])('retry %i waits less than %d ms by default, and up to nearly that long', (failed, most) => {
  expect(delayMs(failed, retryPolicy(), almostOne)).toBe(most - 1)
  expect(delayMs(failed, retryPolicy(), 0)).toBe(0)
})

it('a delay is a whole number between 0 and the bound, distributed uniformly', () => {
  const span = fc.integer({ min: 0, max: 366 * 86_400_000 })
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 1_000 }),
      span,
      span,
      fc.double({ min: 0, max: almostOne, noNaN: true }),
      (failed, base, max, random) => {
        const policy = retryPolicy({ base, max })
        const wait = delayMs(failed, policy, random)
        const most = Math.min(max, base * 2 ** Math.min(failed - 1, 40))
        expect(Number.isSafeInteger(wait) && wait >= 0 && wait <= most).toBe(true)
        expect(Math.abs(wait - random * most)).toBeLessThanOrEqual(1)
      },
    ),
  )
})
