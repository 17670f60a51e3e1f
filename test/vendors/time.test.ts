import fc from 'fast-check'
import { expect, test } from 'vitest'
import { defaultCapMs, minWaitMs, momentOf, readMs, readReset, readRetryAfter } from '../../src/vendors/time.ts'
import { forAll } from '../for-all.ts'
import { cases } from '../long.ts'

const httpDate = (ms: number) => new Date(ms).toUTCString()
const unknown = momentOf(null)

test('seconds in Retry-After are whole or fractional, and rounded up to a ms', () => {
  expect(readRetryAfter('30', unknown)).toBe(30_000)
  expect(readRetryAfter(' 0 ', unknown)).toBe(0)
  expect(readRetryAfter('64.57', unknown)).toBe(64_570)
  expect(readRetryAfter('0.0001', unknown)).toBe(1)
})

test('a date in Retry-After counts from the Date of the answer, not from any clock', () => {
  const until = 'Sat, 21 Nov 2026 00:00:30 GMT'
  const date = 'Sat, 21 Nov 2026 00:00:00 GMT'
  expect(readRetryAfter(until, momentOf(date))).toBe(30_000)
  expect(readRetryAfter(until, momentOf(date, { wallMs: 0 }))).toBe(30_000)
  expect(readRetryAfter(until, momentOf(null, { wallMs: Date.UTC(2026, 10, 21, 0, 0, 29, 999) + 0.5 }))).toBe(1)
  expect(readRetryAfter(until, unknown)).toBeUndefined()
})

test('the two old forms of a date are read as well', () => {
  const at = momentOf('Sun, 06 Nov 1994 08:49:30 GMT')
  expect(readRetryAfter('Sunday, 06-Nov-94 08:49:37 GMT', at)).toBe(7_000)
  expect(readRetryAfter('Sun Nov  6 08:49:37 1994', at)).toBe(7_000)
})

test('a value of Retry-After that is neither seconds nor a date is unreadable', () => {
  const at = momentOf(httpDate(0), { wallMs: 0 })
  for (const text of ['', '-5', '+5', '1e3', 'NaN', 'Infinity', 'soon', ',', 'soon, -5', '2026-11-21T00:00:00Z', '5s'])
    expect(readRetryAfter(text, at), text).toBeUndefined()
})

test('a number in Retry-After that would be a span of decades is an instant', () => {
  const seconds = 1_790_000_000
  const at = momentOf(httpDate(seconds * 1_000))
  for (const [number, ms] of [
    [seconds + 30, 30_000],
    [(seconds + 30) * 1_000, 30_000],
    [seconds - 30, 0],
    // Microseconds.
    [seconds * 1e6, undefined],
  ] as const)
    expect(readRetryAfter(`${number}`, at), `${number}`).toBe(ms)
  expect(readRetryAfter(`${seconds}`, unknown)).toBeUndefined()
})

test('of a Retry-After that was sent twice, by a vendor and its proxy, the latest counts', () => {
  const [date, until, later] = [0, 30, 45].map((s) => new Date(Date.UTC(2026, 10, 21, 0, 0, s)).toUTCString())
  const at = momentOf(date ?? null)
  expect(readRetryAfter('5, 10', at)).toBe(10_000)
  expect(readRetryAfter('120,soon', at)).toBe(120_000)
  expect(readRetryAfter(`${until}, ${later}`, at)).toBe(45_000)
  expect(readRetryAfter(`${later}, 7`, at)).toBe(45_000)
  expect(readRetryAfter('Saturday, 21-Nov-26 00:00:20 GMT, 7', at)).toBe(20_000)
})

test('the time of a new count is read in every form that vendors use', () => {
  const date = 'Sat, 21 Nov 2026 00:00:00 GMT'
  const at = momentOf(date, { capMs: 86_400_000 })
  const seconds = Date.parse(date) / 1_000
  const cases: Record<string, number | undefined> = {
    '7': 7_000,
    '64.57': 64_570,
    [`${seconds + 90}`]: 90_000,
    [`${seconds + 90.25}`]: 90_250,
    [`${seconds - 90}`]: 0,
    [`${(seconds + 90) * 1_000}`]: 90_000,
    '12ms': 12,
    '1.5s': 1_500,
    '6m0s': 360_000,
    '1h2m3.5s': 3_723_500,
    '1d': 86_400_000,
    '250us': 1,
    '250µs': 1,
    '2026-11-21T00:01:30Z': 90_000,
    '2026-11-21T01:01:30.5+01:00': 90_500,
    'Sat, 21 Nov 2026 00:01:30 GMT': 90_000,
    '7, 9': 9_000,
    'Sat, 21 Nov 2026 00:01:30 GMT, 7': 90_000,
    // Microseconds since 1970, a month that does not exist, a unit that is none.
    '1795219290000000': undefined,
    '2026-13-21T00:00:00Z': undefined,
    '6x': undefined,
    '-1': undefined,
    '': undefined,
    'tomorrow, maybe': undefined,
  }
  for (const [text, ms] of Object.entries(cases)) expect(readReset(text, at), text).toBe(ms)
  expect(readMs('1500', at)).toBe(1_500)
  expect(readMs('1s', at)).toBeUndefined()
})

test('any text gives a whole number of ms between 0 and the cap, or nothing', () => {
  const anyValue = fc.oneof(
    fc.string(),
    fc.integer().map(String),
    fc.double().map(String),
    fc.stringMatching(/^\d{1,400}$/),
    fc.stringMatching(/^(\d{1,20}(\.\d{1,5})?(ms|s|m|h|d)){1,4}$/),
    fc.date({ noInvalidDate: true }).map((date) => date.toUTCString()),
    fc.date({ noInvalidDate: true }).map((date) => date.toISOString()),
    fc.stringMatching(/^[A-Z][a-z]{2}, \d\d (Jan|Feb|Nov) \d{4} \d\d:\d\d:\d\d GMT$/),
  )
  forAll(
    cases(1_000),
    anyValue,
    fc.option(anyValue),
    fc.integer({ min: 1, max: 10_000_000 }),
    fc.double(),
    (value, date, capMs, wallMs) => {
      const at = momentOf(date, { capMs, wallMs })
      for (const read of [readRetryAfter, readReset, readMs]) {
        const ms = read(value, at)
        if (ms === undefined) continue
        expect(Number.isInteger(ms)).toBe(true)
        expect(ms).toBeGreaterThanOrEqual(0)
        expect(ms).toBeLessThanOrEqual(Math.max(capMs, minWaitMs))
      }
    },
  )
})

test('the wait is never shorter than demanded, unless the cap cuts it', () => {
  forAll(fc.double({ min: 0, max: 3_600, noNaN: true }), (seconds) => {
    const text = seconds.toFixed(6)
    expect(readRetryAfter(text, unknown)).toBeGreaterThanOrEqual(Number(text) * 1_000)
    expect(readReset(text, unknown)).toBeGreaterThanOrEqual(Number(text) * 1_000)
  })
  forAll(fc.integer({ min: 0, max: 3_600 }), fc.integer({ min: 0, max: 4_000_000_000 }), (seconds, from) => {
    const at = momentOf(httpDate(from * 1_000))
    expect(readRetryAfter(httpDate((from + seconds) * 1_000), at)).toBe(seconds * 1_000)
  })
  expect(readRetryAfter('999999999', unknown)).toBe(defaultCapMs)
})
