import { expect, test } from 'vitest'
import { charge, emptyWindow, release, waitOf } from '../../src/testing/window.ts'
import type { Algorithm, WindowRule } from '../../src/testing/window.ts'

const second = 1e9
const rule = (algorithm: Algorithm, limit: number, seconds: number, burst = limit): WindowRule => ({
  algorithm,
  limit,
  windowNs: seconds * second,
  burst,
})

/** How many of the requests at the given times (ns) a vendor refuses. */
function rejects(of: WindowRule, times: readonly number[]): number {
  const state = emptyWindow(of)
  let rejected = 0
  for (const atNs of times) {
    if (waitOf(of, state, atNs) > 0) rejected++
    else charge(of, state, atNs)
  }
  return rejected
}

const phases = 120

/** The worst result over all phases of the vendor's windows relative to our first request. */
function worstRejects(of: WindowRule, times: readonly number[]): number {
  let worst = 0
  for (let phase = 0; phase < phases; phase++) {
    const shiftNs = (phase * of.windowNs) / phases + 1
    worst = Math.max(
      worst,
      rejects(
        of,
        times.map((atNs) => atNs + shiftNs),
      ),
    )
  }
  return worst
}

const times = (count: number, at: (i: number) => number) =>
  Array.from({ length: count }, (_, i) => Math.round(at(i) * second))
const vendors = [
  rule('fixed window', 100, 60),
  rule('sliding log', 100, 60),
  rule('sliding counter', 100, 60),
  rule('bucket', 100, 60),
  rule('bucket', 100, 60, 10),
]
/** Refusals by each vendor, in the worst phase. */
const table = (schedule: readonly number[]) => vendors.map((vendor) => worstRejects(vendor, schedule))

test('the usual bucket (B = N, r = N/W) is refused by every kind of window', () => {
  expect(table(times(1_000, (i) => Math.max(i - 99, 0) * 0.6))).toEqual([99, 99, 107, 0, 90])
})

test('an exact sliding log, in bursts of N, is refused by counters and by small buckets', () => {
  expect(table(times(1_000, (i) => Math.floor(i / 100) * 60))).toEqual([0, 0, 500, 0, 900])
})

test('evenly spaced calls are refused by almost no kind of window', () => {
  expect(table(times(1_000, (i) => i * 0.6))).toEqual([0, 0, 10, 0, 0])
})

test('the small bucket (B = 10, r = (N-B+1)/W) is refused by almost no kind of window', () => {
  expect(table(times(900, (i) => (Math.max(i - 9, 0) * 60) / 91))).toEqual([0, 0, 1, 0, 0])
})

test('a fixed window of the wrong phase is refused by every kind of window', () => {
  expect(table(times(1_000, (i) => (i < 100 ? 59 : 60 * Math.floor(i / 100))))).toEqual([100, 100, 500, 99, 909])
})

test('a fixed window lets 120 of 60 through within 100 ms, a sliding counter 199 of 100 within its window', () => {
  /** The number of calls let through when a caller tries every 100 us in these spans. */
  const passed = (of: WindowRule, spans: readonly (readonly [from: number, to: number])[]) => {
    const state = emptyWindow(of)
    const let_ = spans.flatMap(([from, to]) => times(Math.round((to - from) * 10_000), (i) => from + i / 10_000))
    return let_.filter((atNs) => {
      const isFree = waitOf(of, state, atNs) === 0
      if (isFree) charge(of, state, atNs)
      return isFree
    })
  }
  const most = (atNs: readonly number[], spanNs: number) =>
    Math.max(...atNs.map((from) => atNs.filter((at) => at >= from && at < from + spanNs).length))
  expect(most(passed(rule('fixed window', 60, 60), [[59.9, 60.1]]), 0.11 * second)).toBe(120)
  expect(most(passed(rule('sliding counter', 100, 60), [[59.98, 120.2]]), 60 * second)).toBe(199)
})

test('the returned wait is exact: the call is refused a moment before, and allowed then', () => {
  for (const of of [
    ...vendors,
    rule('sliding log', 3, 1),
    rule('bucket', 7, 1, 2),
    rule('sliding counter', 5, 1),
    rule('fixed window', 1, 1),
  ]) {
    const state = emptyWindow(of)
    let nowNs = 7 * second
    let waited = 0
    for (let i = 0; i < 1_000; i++) {
      const waitNs = waitOf(of, state, nowNs)
      if (waitNs > 0) {
        waited++
        // A part in ten thousand before, beyond what the sums of floating numbers tolerate.
        expect(waitOf(of, state, nowNs + waitNs - Math.min(waitNs, of.windowNs * 1e-4) / 2)).toBeGreaterThan(0)
        nowNs = Math.ceil(nowNs + waitNs)
        expect(waitOf(of, state, nowNs), `${of.algorithm} ${i}`).toBe(0)
      }
      charge(of, state, nowNs)
      nowNs += (i % 7) * of.windowNs * 1e-4
    }
    expect(waited).toBeGreaterThan(0)
  }
})

test('concurrency counts calls that have begun and not ended', () => {
  const of = rule('concurrency', 2, 0)
  const state = emptyWindow(of)
  charge(of, state, 0)
  expect(waitOf(of, state, 0)).toBe(0)
  charge(of, state, 0)
  expect(waitOf(of, state, 9)).toBe(Number.POSITIVE_INFINITY)
  release(of, state)
  expect(waitOf(of, state, 9)).toBe(0)
})
