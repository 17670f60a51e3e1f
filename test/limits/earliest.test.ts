import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type Bucket, charge, emptyBucket, room } from '../../src/limits/decide.ts'
import { hold } from './specification.ts'
import { earliestUs } from '../../src/limits/earliest.ts'
import { limit } from '../../src/limits/limit.ts'
import type { Rule } from '../../src/limits/rule.ts'
import { forAll } from '../for-all.ts'
import { isLong } from '../long.ts'
import { anyFlow, greedy, minute, second } from './oracle.ts'

/** What a bucket went through before `why` reads it: waits, and units taken. */
const anyPast = fc.array(
  fc.record({ passUs: fc.integer({ min: 0, max: 2 * minute }), units: fc.integer({ min: 0, max: 50 }) }),
  { maxLength: 12 },
)
const anyState = fc.record({
  rules: fc.array(anyFlow, { minLength: 1, maxLength: 3 }),
  startUs: fc.integer({ min: 1_790_000_000, max: 1_800_000_000 }).map((s) => s * second),
  past: anyPast,
  holdUs: fc.option(fc.integer({ min: 1, max: minute }), { freq: 4 }),
  passUs: fc.integer({ min: 0, max: 3 * minute }),
  units: fc.integer({ min: 1, max: 150 }),
  /** How many at a time those before it take, and how long a worker is away in between. */
  greed: fc.array(fc.record({ units: fc.integer({ min: 1, max: 60 }), idleUs: fc.integer({ min: 0, max: second }) }), {
    maxLength: 5,
  }),
})
type State = typeof anyState extends fc.Arbitrary<infer S> ? S : never

/** Makes the bucket, as it is when `why` reads it. */
function bucketOf({ rules, startUs, past, holdUs, passUs }: State): { bucket: Bucket; nowUs: number } {
  let bucket = emptyBucket(rules, startUs)
  let nowUs = startUs
  for (const step of past) {
    nowUs += step.passUs
    const free = room(rules, bucket, nowUs)
    bucket = charge(rules, free.bucket, Math.min(step.units, free.avail))
  }
  if (holdUs !== null) bucket = hold(bucket, holdUs)
  return { bucket, nowUs: nowUs + passUs }
}

/** Grants until the wanted unit is granted, as greedily as `greed` demands (at last without any delay), and returns when. */
function grantedUs(
  rules: readonly Rule[],
  start: Bucket,
  fromUs: number,
  units: number,
  greed: State['greed'],
): number {
  let [bucket, nowUs, left] = [start, fromUs, units]
  const habits = [...greed]
  for (;;) {
    const free = room(rules, bucket, nowUs)
    const habit = habits[0]
    const granted = Math.min(left, free.avail, habit?.units ?? left)
    if (granted === left) return free.bucket.atUs
    left -= granted
    bucket = charge(rules, free.bucket, granted)
    nowUs = granted > 0 ? nowUs + (habit?.idleUs ?? 0) : Math.max(nowUs, free.nextUs)
    if (granted > 0) habits.shift()
  }
}

describe('the earliest time of many units', () => {
  it('is never after the time at which decide.ts grants them, in any state', () => {
    const runs = isLong ? 100_000 : 1_000
    let waited = 0
    forAll(runs, anyState, (state) => {
      const { bucket, nowUs } = bucketOf(state)
      const realUs = grantedUs(state.rules, bucket, nowUs, state.units, state.greed)
      const boundUs = earliestUs(state.rules, bucket, nowUs, state.units)
      expect(boundUs).toBeLessThanOrEqual(realUs)
      if (realUs > nowUs) waited++
    })
    expect(waited).toBeGreaterThan(runs / 4)
  })

  it('is, where nothing is left unused, at least the wait divided by the number of rules', () => {
    forAll(isLong ? 20_000 : 500, anyState, (state) => {
      const { bucket, nowUs } = bucketOf(state)
      const realUs = grantedUs(state.rules, bucket, nowUs, state.units, [])
      const boundUs = earliestUs(state.rules, bucket, nowUs, state.units)
      // A step of each window, and the whole microseconds of each rate, come on top. What another rule delays may fall
      // into the next period of a quota.
      const slackUs =
        Math.max(...state.rules.map(({ kind, partUs, spanUs }) => (kind === 'quota' ? spanUs : partUs))) + 1_000
      expect(realUs - nowUs).toBeLessThanOrEqual((boundUs - nowUs + slackUs) * state.rules.length)
    })
  })

  it('is exact for one rate, and for one window', () => {
    for (const one of [
      limit('a', { rate: '100/min' }),
      limit('a', { rate: '7/s', burst: 3 }),
      limit('a', { window: '20/s' }),
    ]) {
      const times = greedy(one.rules, 0, 300).flatMap(([us, units]) => Array.from({ length: units }, () => us))
      for (const n of [1, 7, 50, 299]) expect(earliestUs(one.rules, emptyBucket(one.rules, 0), 0, n)).toBe(times[n - 1])
    }
  })

  it('takes the rule that binds, not the room of one and the period of another', () => {
    const { rules } = limit('crm', { window: ['20/s', '5000/h'] })
    const us = earliestUs(rules, emptyBucket(rules, 0), 0, 60)
    expect(us).toBeGreaterThan(2 * second)
    expect(us).toBeLessThan(4 * second)
  })
})
