import fc from 'fast-check'
import { expect, test } from 'vitest'
import { defaultCapMs, defaultHoldMs, limitedBy, note, parseRetryAfter, rateLimited } from '../../src/http/feedback.ts'

const response = (status: number, headers: Record<string, string> = {}) => ({ status, headers: new Headers(headers) })
const httpDate = (ms: number) => new Date(ms).toUTCString()

test('seconds in Retry-After are whole or fractional, and rounded up to a ms', () => {
  expect(parseRetryAfter('30', null)).toBe(30_000)
  expect(parseRetryAfter(' 0 ', null)).toBe(0)
  expect(parseRetryAfter('64.57', null)).toBe(64_570)
  expect(parseRetryAfter('0.0001', null)).toBe(1)
})

test('a date in Retry-After counts from the Date of the response, not from any clock', () => {
  const until = 'Sat, 21 Nov 2026 00:00:30 GMT'
  expect(parseRetryAfter(until, 'Sat, 21 Nov 2026 00:00:00 GMT')).toBe(30_000)
  expect(parseRetryAfter(until, 'Sat, 21 Nov 2026 00:00:00 GMT', { wallMs: 0 })).toBe(30_000)
  expect(parseRetryAfter(until, null, { wallMs: Date.UTC(2026, 10, 21, 0, 0, 29, 999) + 0.5 })).toBe(1)
  expect(parseRetryAfter(until, null)).toBeUndefined()
})

test('the two old forms of a date are read as well', () => {
  const date = 'Sun, 06 Nov 1994 08:49:30 GMT'
  expect(parseRetryAfter('Sunday, 06-Nov-94 08:49:37 GMT', date)).toBe(7_000)
  expect(parseRetryAfter('Sun Nov  6 08:49:37 1994', date)).toBe(7_000)
})

test('a value that is neither seconds nor a date is unreadable', () => {
  for (const text of ['', '-5', '+5', '1e3', 'NaN', 'Infinity', 'soon', '5, 10', '2026-11-21T00:00:00Z', '5s']) {
    expect(parseRetryAfter(text, httpDate(0), { wallMs: 0 }), text).toBeUndefined()
  }
})

test('any header gives a whole number of ms between 0 and the cap, or nothing', () => {
  const anyValue = fc.oneof(
    fc.string(),
    fc.integer().map(String),
    fc.double().map(String),
    fc.stringMatching(/^\d{1,400}$/),
    fc.date({ noInvalidDate: true }).map((date) => date.toUTCString()),
    fc.stringMatching(/^[A-Z][a-z]{2}, \d\d (Jan|Feb|Nov) \d{4} \d\d:\d\d:\d\d GMT$/),
  )
  fc.assert(
    fc.property(
      anyValue,
      fc.option(anyValue),
      fc.integer({ min: 1, max: 10_000_000 }),
      fc.double(),
      (value, date, capMs, wallMs) => {
        const ms = parseRetryAfter(value, date, { capMs, wallMs })
        if (ms === undefined) return
        expect(Number.isInteger(ms)).toBe(true)
        expect(ms).toBeGreaterThanOrEqual(0)
        expect(ms).toBeLessThanOrEqual(Math.max(capMs, defaultHoldMs))
      },
    ),
  )
})

test('the silence is never shorter than demanded, unless the cap cuts it', () => {
  fc.assert(
    fc.property(fc.double({ min: 0, max: 3_600, noNaN: true }), (seconds) => {
      const text = seconds.toFixed(6)
      expect(parseRetryAfter(text, null)).toBeGreaterThanOrEqual(Number(text) * 1_000)
    }),
  )
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 3_600 }), fc.integer({ min: 0, max: 4_000_000_000 }), (seconds, from) => {
      const date = httpDate(from * 1_000)
      expect(parseRetryAfter(httpDate((from + seconds) * 1_000), date)).toBe(seconds * 1_000)
    }),
  )
  expect(parseRetryAfter('999999999999999999999999', null)).toBe(defaultCapMs)
})

test('a 429 always demands silence, of at least a second, and a 503 only when it names a time', () => {
  expect(limitedBy(response(429, { 'retry-after': '7' }))).toEqual({ retryAfterMs: 7_000 })
  expect(limitedBy(response(429))).toEqual({ retryAfterMs: undefined })
  expect(limitedBy(response(429, { 'retry-after': 'soon' }))).toEqual({ retryAfterMs: undefined })
  expect(limitedBy(response(429, { 'retry-after': '0' }))).toEqual({ retryAfterMs: 1_000 })
  expect(limitedBy(response(503, { 'retry-after': '2' }))).toEqual({ retryAfterMs: 2_000 })
  expect(limitedBy(response(503))).toBeUndefined()
  expect(limitedBy(response(503, { 'retry-after': 'soon' }))).toBeUndefined()
  expect(limitedBy(response(200, { 'retry-after': '2' }))).toBeUndefined()
})

test('feedback that was read on arrival is remembered', () => {
  const limited = response(429, { 'retry-after': '7200' })
  note(limited, { retryAfterMs: 60_000 })
  expect(limitedBy(limited)).toEqual({ retryAfterMs: 60_000 })
  expect(rateLimited(limited)).toMatchObject({ code: 'SLUICE_VENDOR_LIMITED', retryable: true, retryAfterMs: 60_000 })
})

test('an error for a response without a time leaves the delay to the retry policy', () => {
  expect(rateLimited(response(503))).toMatchObject({
    code: 'SLUICE_VENDOR_LIMITED',
    retryable: true,
    retryAfterMs: undefined,
  })
})
