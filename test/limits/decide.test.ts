/** Decisions: what a bucket grants under endless demand, when units are free, and what a step back of the clock does. */
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type Bucket, charge, emptyBucket, room } from '../../src/limits/decide.ts'
import { hold, release } from './specification.ts'
import type { Rule } from '../../src/limits/rule.ts'
import { forAll } from '../for-all.ts'
import { cases } from '../long.ts'
import { anyFlow, anyRule, bound, greedy, level, minute, places, second, sliding, vastRule, worst } from './oracle.ts'
import { anySteps, live } from './steps.ts'

describe('a bucket under endless demand', () => {
  it.each([
    { units: 100, capacity: 100, halfOpen: 199, closed: 200 },
    { units: 15, capacity: 15, halfOpen: 29, closed: 30 },
    { units: 100, capacity: 1, halfOpen: 100, closed: 101 },
    { units: 91, capacity: 10, halfOpen: 100, closed: 101 },
    { units: 90, capacity: 10, halfOpen: 99, closed: 100 },
  ])(
    'with $units/min and room for $capacity shows the vendor $halfOpen in a minute',
    ({ units, capacity, halfOpen, closed }) => {
      const grants = greedy([level(units, minute, capacity)], 0, 1_000)
      expect(worst(grants, minute)).toBe(halfOpen)
      expect(worst(grants, minute, 'closed')).toBe(closed)
    },
  )

  it('with 100/min spaces grants by 600 ms when there is room for one', () => {
    const times = greedy([level(100, minute, 1)], 0, 200).map(([atUs]) => atUs)
    expect(new Set(times.slice(1).map((atUs, i) => atUs - (times[i] ?? 0)))).toEqual(new Set([600_000]))
  })

  it.each([
    { units: 100, capacity: 100, lastS: 2_940 },
    { units: 100, capacity: 1, lastS: 2_999.4 },
    { units: 91, capacity: 10, lastS: 3_290.1 },
  ])('grants 5,000 at $units/min, room $capacity, within $lastS s, to 1 and to 8 workers', (one) => {
    const rules = [level(one.units, minute, one.capacity)]
    const last = (workers: number) => (greedy(rules, 0, 5_000, workers).at(-1)?.[0] ?? 0) / second
    expect(last(1)).toBeCloseTo(one.lastS, 1)
    expect(last(8)).toBe(last(1))
  })

  it('never grants more than B + ceil(L r) - 1 in a half-open L, or N in a window, whatever is requested when', () => {
    forAll(cases(500), anyFlow, anySteps, fc.integer({ min: 1, max: 5 * minute }), (rule, steps, spanUs) => {
      const grants = live([rule], steps, () => {})
      expect(worst(grants, spanUs)).toBeLessThanOrEqual(bound(rule, spanUs))
    })
  })

  it('with a window of 100/min has units again after 61 s, grants 6,000 an hour, and 5,000 by 2,989 s, to 1 worker as to 8', () => {
    const rule = sliding(100, second)
    const grants = greedy([rule], 0, 6_000)
    expect(grants.slice(0, 2)).toEqual([
      [0, 100],
      [61 * second, 100],
    ])
    expect(worst(grants, 60 * minute)).toBe(6_000)
    const last = (workers: number) => greedy([rule], 0, 5_000, workers).at(-1)?.[0]
    expect(last(1)).toBe(2_989 * second)
    expect(last(8)).toBe(2_989 * second)
  })

  it('of concurrency has as many places as were released, and none by waiting', () => {
    const rules = [places(3)]
    const full = charge(rules, emptyBucket(rules, 0), 3)
    expect(room(rules, full, minute)).toMatchObject({ avail: 0, nextUs: Number.MAX_SAFE_INTEGER })
    expect(room(rules, release(rules, full, 2), 0).avail).toBe(2)
    expect(release(rules, full, 5).debt).toEqual([0])
  })

  it('takes no second place for a further request of a job, and its rate as for any other', () => {
    const rules = [places(1), level(2, second, 2)]
    const running = charge(rules, emptyBucket(rules, 0), 1)
    expect(room(rules, running, 0).avail).toBe(0)
    expect(room(rules, running, 0, true)).toMatchObject({ avail: 1, nextUs: 0 })
    const further = charge(rules, running, 1, true)
    expect(further.debt[0]).toBe(1)
    expect(room(rules, further, 0, true)).toMatchObject({ avail: 0, nextUs: second / 2 })
  })
})

describe('the time until units are free', () => {
  const exact = (rules: readonly Rule[], bucket: Bucket, nowUs: number) => {
    const free = room(rules, bucket, nowUs)
    if (free.avail > 0) {
      const hasTime = rules.some(({ kind }) => kind !== 'concurrency')
      return expect(free.nextUs).toBe(Math.max(bucket.holdUs, hasTime ? free.bucket.atUs : nowUs))
    }
    if (free.nextUs === Number.MAX_SAFE_INTEGER) return expect(room(rules, bucket, 366 * 86_400 * second).avail).toBe(0)
    expect(room(rules, bucket, free.nextUs - 1).avail).toBe(0)
    expect(room(rules, bucket, free.nextUs).avail).toBeGreaterThanOrEqual(1)
  }

  it('is exact to the microsecond, with several rules, holds and clocks that go back', () => {
    forAll(cases(1_000), fc.array(anyRule, { minLength: 1, maxLength: 3 }), anySteps, (rules, steps) => {
      live(rules, steps, (bucket, nowUs) => exact(rules, bucket, nowUs))
    })
  })

  it('is exact near 2^53', () => {
    forAll(cases(2_000), vastRule, fc.integer({ min: 0, max: 1_000 }), (rule, laterUs) => {
      const full = charge([rule], emptyBucket([rule], 0), rule.capacity)
      exact([rule], full, 0)
      const later = room([rule], full, laterUs)
      exact([rule], charge([rule], later.bucket, later.avail), laterUs)
    })
  })
})

describe('a step back of the clock', () => {
  it('gives the bucket no units until the clock is past its latest time', () => {
    const rules = [level(10, 10 * second, 5)]
    const first = room(rules, emptyBucket(rules, 0), 100 * second)
    expect(first.avail).toBe(5)
    const spent = charge(rules, first.bucket, 5)
    const back = room(rules, spent, 40 * second)
    expect(back).toMatchObject({ avail: 0, bucket: { atUs: 100 * second }, nextUs: 101 * second })
    expect(room(rules, back.bucket, 103 * second).avail).toBe(3)
  })

  it('does not end a hold before it began', () => {
    const rules = [level(10, 10 * second, 5)]
    const held = hold(room(rules, emptyBucket(rules, 100 * second), 40 * second).bucket, 30 * second)
    expect(room(rules, held, 40 * second)).toMatchObject({ avail: 0, nextUs: 130 * second })
    expect(room(rules, held, 130 * second).avail).toBe(5)
  })
})
