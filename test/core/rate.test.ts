import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type Duration, durationMs, parseRate } from '../../src/core/rate.ts'
import { forAll } from '../for-all.ts'
import { cases } from '../long.ts'

const code = (body: () => unknown): unknown => {
  try {
    return body()
  } catch (error) {
    return (error as { code?: string }).code
  }
}

describe('parseRate', () => {
  it.each([
    ['100/min', 100, 60_000_000],
    ['100/m', 100, 60_000_000],
    ['5/s', 5, 1_000_000],
    ['5/sec', 5, 1_000_000],
    ['100/10s', 100, 10_000_000],
    ['7/13s', 7, 13_000_000],
    ['1/ms', 1, 1_000],
    ['2/hour', 2, 3_600_000_000],
    ['999983/day', 999_983, 86_400_000_000],
    ['1/366d', 1, 366 * 86_400_000_000],
  ])('reads %s', (rate, units, windowUs) => expect(parseRate(rate)).toEqual({ units, windowUs }))

  it.each([
    '',
    '100',
    '/min',
    '100/',
    '0/s',
    '-1/s',
    '1.5/s',
    '1e3/s',
    '0x10/s',
    '+5/s',
    ' 5/s',
    '5/s ',
    '5/s\n',
    '5 /s',
    '5/ s',
    '5//s',
    '5/0s',
    '5/-1s',
    '5/1.5s',
    '5/S',
    '5/Min',
    '5/week',
    '5/367d',
    '5/99999999h',
    '1000000000000000/s',
    '٥/s',
    '100/min/h',
    'NaN/s',
    'Infinity/s',
  ])('refuses %j', (rate) => expect(code(() => parseRate(rate))).toBe('SLUICE_BAD_RATE'))

  it.each([
    ['100 per minute', '100/minute'],
    ['100 / min', '100/min'],
    ['5/S', '5/s'],
    ['20 requests per 10 seconds', '20/10second'],
    ['1 an hour', '1/hour'],
  ])('refuses %j, and says that it is written %j', (rate, meant) => {
    expect(() => parseRate(rate)).toThrow(`"${rate}" is not a rate: write '${meant}'`)
    expect(parseRate(meant).units).toBeGreaterThan(0)
  })

  it.each(['0 per minute', '100 per fortnight', '100 minutes'])('does not guess what %j means', (rate) =>
    expect(() => parseRate(rate)).toThrow("write for example '100/min'"),
  )

  it.each([undefined, null, 5, {}, []])('refuses a value that is no text: %j', (rate) => {
    expect(code(() => parseRate(rate as never))).toBe('SLUICE_BAD_RATE')
  })

  it('returns whole, safe numbers or an error with a code, for any text', () => {
    const near = fc.stringMatching(/^\d{0,14}\/\d{0,10}(ms|s|sec|m|min|h|hour|d|day|w)?$/)
    forAll(cases(1_000), fc.oneof(near, fc.string()), (text) => {
      const parsed = code(() => parseRate(text))
      if (parsed === 'SLUICE_BAD_RATE') return
      const { units, windowUs } = parsed as ReturnType<typeof parseRate>
      expect([units, windowUs].every((one) => Number.isSafeInteger(one) && one >= 1)).toBe(true)
    })
  })
})

describe('durationMs', () => {
  it.each([
    [0, 0],
    [1.5, 1.5],
    ['250ms', 250],
    ['1.5s', 1_500],
    ['5min', 300_000],
    ['5m', 300_000],
    ['2h', 7_200_000],
    ['7d', 604_800_000],
    ['1day', 86_400_000],
    ['1hour', 3_600_000],
    ['30sec', 30_000],
    ['1 hour', 3_600_000],
    ['2.5 min', 150_000],
  ] satisfies [Duration, number][])('reads %j as %d ms', (span, ms) => expect(durationMs(span)).toBe(ms))

  it.each([
    -1,
    NaN,
    Infinity,
    '',
    '5',
    's',
    '-5s',
    '5  s',
    ' 5s',
    '5s ',
    '1e3s',
    '.5s',
    '5.s',
    '5w',
    '5s5s',
    '9'.repeat(400) + 's',
    null,
    undefined,
    {},
  ])('refuses %j', (span) => expect(code(() => durationMs(span as Duration))).toBe('SLUICE_BAD_DURATION'))

  it('names the units when it refuses', () => {
    expect(() => durationMs('5 weeks' as Duration)).toThrow('a number with a unit (ms, s, min, h, d)')
    // As on a command line, which has no numbers: `--delay 5`.
    expect(() => durationMs('5' as Duration)).toThrow(
      /"5" is not a span of time: give a number with a unit .*; in code/,
    )
  })
})
