import fc from 'fast-check'
import { expect, test } from 'vitest'
import { type Arrival, prove } from '../../src/testing/index.ts'
import { forAll } from '../for-all.ts'

const arrival = (atMs: number, more: Partial<Arrival> = {}): Arrival => ({
  seq: 0,
  atNs: atMs * 1e6,
  keys: [''],
  method: 'GET',
  path: '/',
  verdict: 200,
  ...more,
})
const claim = { name: 'two a second', limit: 2, windowMs: 1_000 }

test('a window is half-open: a call that arrives exactly one window later is in the next', () => {
  expect(
    prove(
      [0, 1, 1_000].map((at) => arrival(at)),
      [claim],
    ).rules,
  ).toEqual([{ ...claim, exceeded: 0, worst: 2, keys: 1 }])
  expect(
    prove(
      [0, 1, 999].map((at) => arrival(at)),
      [claim],
    ).rules,
  ).toEqual([{ ...claim, exceeded: 1, worst: 3, keys: 1 }])
})

test('refused calls count as arrived, keys are separate, and repeats are counted', () => {
  const arrivals = [
    arrival(0, { jobId: 'a', attempt: '1' }),
    arrival(1, { jobId: 'a', attempt: '1', verdict: 429 }),
    arrival(2, { jobId: 'a', attempt: '2', verdict: 0 }),
    arrival(3, { jobId: 'b' }),
    arrival(4, { jobId: 'b', keys: ['other'] }),
    arrival(5),
  ]
  expect(prove(arrivals, [claim])).toEqual({
    arrivals: 6,
    vendor429: 1,
    duplicates: 2,
    rules: [{ ...claim, exceeded: 3, worst: 5, keys: 2 }],
  })
})

test('two pointers give the same count as a search of all pairs', () => {
  const times = fc.array(fc.integer({ min: 0, max: 50 }), { maxLength: 60 })
  forAll(
    times,
    fc.integer({ min: 1, max: 5 }),
    fc.integer({ min: 1, max: 20 }),
    fc.integer({ min: 1, max: 3 }),
    (ats, limit, windowMs, keys) => {
      const arrivals = ats.map((at, i) => arrival(at, { keys: [String(i % keys)] }))
      const counts = arrivals.map(
        (first) =>
          arrivals.filter(
            ({ atNs, keys: [key] }) =>
              key === first.keys[0] && atNs >= first.atNs && atNs < first.atNs + windowMs * 1e6,
          ).length,
      )
      const [proved] = prove(arrivals, [{ name: '', limit, windowMs }]).rules
      expect(proved?.worst).toBe(Math.max(0, ...counts))
      // Of arrivals at one instant, each begins a window; only the first of them, in order, sees all the others.
      expect((proved?.exceeded ?? 0) > 0).toBe(counts.some((count) => count > limit))
    },
  )
})
