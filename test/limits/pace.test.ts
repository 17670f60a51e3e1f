/** The pace of a rate: all of its rate in the long run, a burst after a pause, and never more than its units in a window. */
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type Bucket, charge, emptyBucket, room } from '../../src/limits/decide.ts'
import { refund } from './specification.ts'
import { limit } from '../../src/limits/limit.ts'
import { pacedRules, paceOf, type Rule } from '../../src/limits/rule.ts'
import { type Grant, second, worst } from './oracle.ts'
import { forAll } from '../for-all.ts'
import { cases } from '../long.ts'

const marginUs = second / 5
const rulesOf = (units: number, windowUs: number) =>
  pacedRules('a', { rate: `${units}/${windowUs / 1_000}ms` as '1/s', units, windowUs }, marginUs)

/** Takes all that is free for so long, each time so late. */
function saturated(rules: readonly Rule[], lastUs: number, lateUs = 0): Grant[] {
  const grants: Grant[] = []
  let bucket = emptyBucket(rules, 0)
  for (let nowUs = 0; nowUs < lastUs;) {
    const free = room(rules, bucket, nowUs)
    if (free.avail > 0) {
      bucket = charge(rules, free.bucket, free.avail)
      grants.push([nowUs, free.avail])
    } else nowUs = free.nextUs + lateUs
  }
  return grants
}

/** The part of the nominal rate that is used between the tenth and the fiftieth window. */
function used(rate: '1/s', lateUs: number): number {
  const { rules } = limit('a', { rate })
  const { windowUs = 0, units = 0 } = rules[0] ?? {}
  const all = saturated(rules, 50 * windowUs, lateUs).filter(([atUs]) => atUs >= 10 * windowUs)
  return all.reduce((sum, [, some]) => sum + some, 0) / (40 * units)
}

describe('a rate in the long run', () => {
  it.each([
    ['100/min', 0.995, 100_000],
    ['100/10s', 0.97, 100_000],
    ['1000/h', 0.9999, 100_000],
    ['20/s', 0.82, 16_600],
    ['200/s', 0.82, 16_600],
  ] as const)(
    '%s is used to %d of what it states, however late each claim is by up to %d us',
    (rate, least, lateUs) => {
      const parts = [0, lateUs / 2, lateUs].map((us) => used(rate as '1/s', us))
      process.stdout.write(`${rate}: ${parts.map((part) => `${(100 * part).toFixed(2)} %`).join(', ')}\n`)
      for (const part of parts) expect(part).toBeGreaterThanOrEqual(least)
    },
  )
})

type Step =
  | { kind: 'pass'; part: number }
  | { kind: 'next'; need: number; us: number }
  | { kind: 'take'; share: number }
  | { kind: 'back'; ago: number; share: number }

const anyStep: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constant('pass'), part: fc.double({ min: 0, max: 1.2, noNaN: true }) }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant('next'),
      need: fc.constantFrom(1, 1, 2, 5),
      us: fc.constantFrom(0, 0, 1, 20_000),
    }),
  },
  { weight: 6, arbitrary: fc.record({ kind: fc.constant('take'), share: fc.constantFrom(0.1, 1, 1) }) },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant('back'),
      ago: fc.integer({ min: 1, max: 40 }),
      share: fc.constantFrom(0.5, 1),
    }),
  },
)

/** Plays steps, some of them again and again; calls `judge` at each grant with all that was granted and kept until then. */
function play(rules: readonly Rule[], steps: readonly Step[], rounds: number, judge: (kept: readonly Grant[]) => void) {
  const kept: { atUs: number; units: number }[] = []
  let bucket: Bucket = emptyBucket(rules, 0)
  let nowUs = 0
  for (const step of Array.from({ length: rounds }, () => steps).flat()) {
    const free = room(rules, bucket, nowUs)
    if (step.kind === 'pass') nowUs += Math.floor(step.part * (rules[0]?.windowUs ?? 0))
    else if (step.kind === 'next') nowUs = room(rules, bucket, nowUs, false, step.need).nextUs + step.us
    else if (step.kind === 'back') {
      const i = kept.length - step.ago
      const one = kept[i]
      if (one === undefined) continue
      const units = Math.ceil(one.units * step.share)
      bucket = refund(rules, one.atUs, units, kept.slice(i + 1), free.bucket)
      one.units -= units
    } else if (free.avail > 0) {
      const units = Math.ceil(free.avail * step.share)
      bucket = charge(rules, free.bucket, units)
      kept.push({ atUs: nowUs, units })
      judge(kept.map(({ atUs, units: some }): Grant => [atUs, some]))
    }
  }
}

describe('a rate with a pace', () => {
  const anyRate = fc.record({
    units: fc.integer({ min: 20, max: 400 }),
    windowUs: fc.constantFrom(second, 7 * second + 1, 60 * second),
  })

  it('never grants more than its units in a window and its margin, nor above its two lines, whatever comes back', () => {
    forAll(cases(150), anyRate, fc.array(anyStep, { minLength: 3, maxLength: 12 }), ({ units, windowUs }, steps) => {
      const rules = rulesOf(units, windowUs)
      const [rate, pace] = rules as [Rule, Rule]
      const most = (us: number) =>
        Math.max(
          rate.capacity + Math.ceil((us * rate.drain) / rate.weight) - 1,
          Math.ceil(((us + pace.partUs) * pace.drain) / pace.weight),
        )
      const wideUs = windowUs + marginUs
      const spans = [1, Math.ceil(wideUs / 10), windowUs, wideUs, Math.ceil(1.4 * wideUs), 3 * wideUs]
      play(rules, steps, 25, (kept) => {
        const last = kept.length - 1
        for (const us of spans) expect(worst(kept, us, 'half-open', last)).toBeLessThanOrEqual(most(us))
      })
      expect(most(wideUs)).toBe(units)
    })
  })

  it('has its burst after a pause, and none beside it', () => {
    const rules = rulesOf(100, 60 * second)
    const [[atUs, burst] = [], ...later] = saturated(rules, 120 * second)
    expect([atUs, burst]).toEqual([0, 10])
    for (const [, units] of later) expect(units).toBe(1)
    const busy = saturated(rules, 120 * second).reduce(
      (bucket, [us, units]) => {
        return charge(rules, room(rules, bucket, us).bucket, units)
      },
      emptyBucket(rules, 0),
    )
    expect(room(rules, busy, 180 * second).avail).toBe(10)
  })

  it('is left out where the bucket holds one unit, which is as fast, and with a burst, whose bucket drains at the rate', () => {
    const kinds = (made: { rules: readonly Rule[] }) => made.rules.map(({ kind }) => kind)
    expect(kinds(limit('a', { rate: '19/min' }))).toEqual(['rate'])
    expect(kinds(limit('a', { rate: '20/min' }))).toEqual(['rate', 'pace'])
    expect(kinds(limit('a', { rate: '100/min', burst: 20 }))).toEqual(['rate'])
    expect(kinds(limit('a', { rate: ['5/s', '100/min'], concurrency: 2 }))).toEqual([
      'rate',
      'rate',
      'pace',
      'concurrency',
    ])
    expect(paceOf(limit('a', { rate: ['5/s', '100/min'] }).rules, 0)).toBeUndefined()
  })

  it('denies no cost that its bucket holds, and says when the bucket has room for it', () => {
    const rules = rulesOf(100, 60 * second)
    const full = charge(rules, emptyBucket(rules, 0), 10)
    const { nextUs } = room(rules, full, 0, false, 10)
    expect(room(rules, full, nextUs - 1).units).toBe(9)
    expect(room(rules, full, nextUs).units).toBe(10)
  })
})
