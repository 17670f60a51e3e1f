import { expect, it } from 'vitest'
import { figure, many, percent, span } from '../../src/core/figures.ts'

it('durations have the largest unit that fits, and one decimal where it tells something', () => {
  const said = [0, 0.4, 999.4, 999.5, 1_000, 3_333.333, 59_949, 60_000, 99_949, 99_951, 150_000, 300_000, 3_600_000]
  expect(said.map(span)).toEqual([
    '0 ms',
    '0 ms',
    '999 ms',
    '1 s',
    '1 s',
    '3.3 s',
    '59.9 s',
    '60 s',
    '99.9 s',
    '1.7 min',
    '2.5 min',
    '5 min',
    '60 min',
  ])
  const hours = 3_600_000
  expect([2 * hours, 2.25 * hours, 26 * hours, 48 * hours, 60 * hours, 720 * hours].map(span)).toEqual([
    '2 h',
    '2.3 h',
    '26 h',
    '2 d',
    '2.5 d',
    '30 d',
  ])
  expect(span(-3_333.333)).toBe('-3.3 s')
})

it('shares, rates and counts have no digits that mean nothing', () => {
  expect([0.07, 0.1 + 0.2, 1 / 3, 1].map(percent)).toEqual(['7 %', '30 %', '33.33 %', '100 %'])
  expect([1.5123456, 0.1 + 0.2, 12_345.678, 1_512, Infinity].map(figure)).toEqual([
    '1.512',
    '0.3',
    '12346',
    '1512',
    'Infinity',
  ])
  expect([many(0, 'job'), many(1, 'job'), many(371, 'job')]).toEqual(['0 jobs', '1 job', '371 jobs'])
})
