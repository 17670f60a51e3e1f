import { expect, test } from 'vitest'
import { limitedBy, note, pauseMaxMs, rateLimited, refusalIn } from '../../src/http/feedback.ts'
import { limit, money } from '../../src/index.ts'

const response = (status: number, headers: Record<string, string> = {}) => ({ status, headers: new Headers(headers) })

test('a 429 always demands silence, of at least a second, and a 503 only when it names a time', () => {
  expect(limitedBy(response(429, { 'retry-after': '7' }))).toMatchObject({ retryAfterMs: 7_000 })
  expect(limitedBy(response(429))).toMatchObject({ retryAfterMs: undefined })
  expect(limitedBy(response(429, { 'retry-after': 'soon' }))).toMatchObject({ retryAfterMs: undefined })
  expect(limitedBy(response(429, { 'retry-after': '0' }))).toMatchObject({ retryAfterMs: 1_000 })
  expect(limitedBy(response(503, { 'retry-after': '2' }))).toMatchObject({ retryAfterMs: 2_000 })
  expect(limitedBy(response(503))).toBeUndefined()
  expect(limitedBy(response(503, { 'retry-after': 'soon' }))).toBeUndefined()
  expect(limitedBy(response(200, { 'retry-after': '2' }))).toBeUndefined()
})

test('feedback that was read on arrival is remembered', () => {
  const limited = response(429, { 'retry-after': '7200' })
  note(limited, { retryAfterMs: 60_000, reason: '429' })
  expect(limitedBy(limited)).toMatchObject({ retryAfterMs: 60_000 })
  expect(rateLimited(limited)).toMatchObject({ code: 'SLUICE_VENDOR_LIMITED', retryable: true, retryAfterMs: 60_000 })
})

test('an error for a response without a time leaves the delay to the retry policy', () => {
  expect(rateLimited(response(503))).toMatchObject({
    code: 'SLUICE_VENDOR_LIMITED',
    retryable: true,
    retryAfterMs: undefined,
  })
})

test('a pause is given in ms, or as text, as durations are elsewhere', () => {
  expect(rateLimited(5_000)).toMatchObject({ retryAfterMs: 5_000 })
  expect(rateLimited('5s')).toMatchObject({ retryAfterMs: 5_000, message: expect.stringContaining('a pause of 5 s') })
  expect(rateLimited(NaN)).toMatchObject({ retryAfterMs: undefined })
})

test('a response that was not sent through us is read by the profile that is named', () => {
  const headers = { 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': '90' }
  expect(limitedBy(response(403, headers))).toBeUndefined()
  expect(limitedBy(response(403, headers), { vendor: 'github' })).toMatchObject({ retryAfterMs: 90_000 })
  expect(limitedBy(response(403, headers), { vendor: 'github', capMs: 60_000 })).toMatchObject({ retryAfterMs: 60_000 })
  const body = { error: { errors: [{ reason: 'userRateLimitExceeded' }] } }
  expect(limitedBy(response(403), { vendor: 'google' })).toBeUndefined()
  expect(rateLimited(response(403), { vendor: 'google', body })).toMatchObject({
    code: 'SLUICE_VENDOR_LIMITED',
    retryAfterMs: undefined,
  })
})

test('a header that a client gives as a list of values counts by the latest', () => {
  expect(rateLimited({ status: 429, headers: { 'Retry-After': ['7', '9'] } })).toMatchObject({ retryAfterMs: 9_000 })
})

test('a vendor may demand a pause as long as the longest window of the limits: an hour at least, at most a day', () => {
  const hour = 3_600_000
  const rate = limit('a', { rate: '100/min' })
  // The least that a calendar's day may have, in any zone.
  const daily = [rate, limit('b', { quota: '1000/day' })]
  expect(pauseMaxMs([rate])).toBe(hour)
  expect(pauseMaxMs(daily)).toBe(22 * hour)
  expect(pauseMaxMs([limit('a', { window: '1000/6h' })])).toBe(6 * hour)
  expect(pauseMaxMs([limit('a', { quota: '1000/month' })])).toBe(24 * hour)
  expect(pauseMaxMs([rate, limit('budget', { quota: '5 USD/day', cost: money(0.01) })])).toBe(hour)
  for (const refused of [response(429, { 'retry-after': '9999999' }), rateLimited(9_999_999_000)])
    expect(refusalIn(refused, daily)).toMatchObject({ retryAfterMs: 22 * hour })
})
