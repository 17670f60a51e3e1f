/** Refunds that come late: what a bucket has room for after units of earlier grants were given back. */
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { charge, emptyBucket, room } from '../../src/limits/decide.ts'
import { refund } from './specification.ts'
import type { Rule } from '../../src/limits/rule.ts'
import { forAll } from '../for-all.ts'
import { cases, isLong } from '../long.ts'
import { anyFlow, giveBack, keptGrants, type Known, level, minute, second, worst } from './oracle.ts'
import { anySteps, type Step } from './steps.ts'

const anyBacks = fc.array(
  fc.record({ every: fc.integer({ min: 1, max: 9 }), share: fc.double({ min: 0, max: 1, noNaN: true }) }),
  {
    maxLength: 3,
  },
)

/** Carries out the steps, and after each some units of an earlier grant may be given back. */
function withRefunds(rules: readonly Rule[], steps: readonly Step[], backs: { every: number; share: number }[]) {
  const history: Known[] = []
  let bucket = emptyBucket(rules, 0)
  let nowUs = 0
  for (const [i, step] of steps.entries()) {
    nowUs += step.passUs
    bucket = room(rules, bucket, nowUs).bucket
    for (const { every, share } of backs) {
      const index = history.length - every
      const one = history[index]
      if (i % every !== 0 || one === undefined) continue
      bucket = giveBack(rules, history, index, Math.floor((one.units - one.refunded) * share), bucket)
    }
    const units = Math.min(step.want, room(rules, bucket, nowUs).avail)
    if (units > 0) history.push({ atUs: bucket.atUs, units, refunded: 0 })
    bucket = charge(rules, bucket, units)
  }
  return { history, bucket }
}

describe('a late refund', () => {
  const rule = level(91, minute, 10)
  const full: typeof refund = (rules, _at, _units, _since, bucket) => ({
    ...bucket,
    debt: rules.map((one, i) => Math.max(0, (bucket.debt[i] ?? 0) - one.weight)),
  })
  /** Some grants at random, or all grants of a time, each refunded 0.05 to 20 s after it was given. */
  const delayUs = fc.integer({ min: 50_000, max: 20 * second })
  const anyRefunds = fc.oneof(
    fc.array(fc.option(delayUs), { minLength: 1, maxLength: 200 }).map((list) => {
      return (_: number, index: number) => list[index % list.length] ?? undefined
    }),
    fc
      .record({
        fromUs: fc.integer({ min: 0, max: 4 * minute }),
        lengthUs: fc.integer({ min: 0, max: 30 * second }),
        delayUs: fc.oneof(delayUs, fc.constant(20 * second)),
      })
      .map((one) => (atUs: number) => {
        return atUs >= one.fromUs && atUs < one.fromUs + one.lengthUs ? one.delayUs : undefined
      }),
  )

  it('gives no room that the vendor does not have', () => {
    // Each takes a tenth of a second.
    forAll(isLong ? 400 : 40, anyRefunds, (refunds) => {
      expect(worst(keptGrants(rule, 5 * minute, refunds, refund), minute)).toBeLessThanOrEqual(100)
    })
  })

  it('would give such room if all units were credited, which the search above is able to find', () => {
    const found = fc
      .sample(anyRefunds, { numRuns: 40, seed: 16 })
      .map((refunds) => worst(keptGrants(rule, 2 * minute, refunds, full), minute))
    expect(Math.max(...found)).toBeGreaterThan(120)
  })

  it('that comes at once leaves the bucket as if nothing had been granted', () => {
    const spent = charge([rule], emptyBucket([rule], 0), 4)
    expect(refund([rule], 0, 3, [], charge([rule], spent, 3))).toEqual(spent)
  })

  it('costs next to no throughput under demand that keeps the bucket full, however many grants are refunded', () => {
    const kept = (refunds: (atUs: number, index: number) => number | undefined) =>
      keptGrants(rule, 5 * minute, refunds, refund).length
    const everyOther = (_: number, index: number) => (index % 2 === 0 ? 150_000 : undefined)
    expect(kept(everyOther)).toBeGreaterThan(kept(() => undefined) * 0.98)
  })

  it('of the whole grant leaves the exact state without it, whatever is refunded in which order', () => {
    forAll(cases(500), fc.array(anyFlow, { minLength: 1, maxLength: 2 }), anySteps, anyBacks, (rules, steps, backs) => {
      const { history, bucket } = withRefunds(rules, steps, backs)
      let never = emptyBucket(rules, 0)
      for (const one of history) {
        never = charge(rules, room(rules, never, one.atUs).bucket, one.units - one.refunded)
      }
      never = room(rules, never, bucket.atUs).bucket
      expect(room(rules, bucket, bucket.atUs).bucket).toEqual(never)
    })
  })
})
