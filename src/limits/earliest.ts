/** Computes how soon a bucket can have granted a number of units, however large: the bound that `sluice why` shows. */
import { periodOf } from '../core/calendar.ts'
import { type Bucket, neverUs, room } from './decide.ts'
import { paceFull, paceOf, type Rule, windowParts } from './rule.ts'

/** More periods of a calendar are not looked at one by one; the bound is lower, and still true. */
const periodsMax = 1_000

/**
 * Returns the earliest time at which `units` have been granted, by the rule that takes longest. Nothing is granted sooner
 * by `decide.ts`, unless units are given back. Places of concurrency are left out, because time does not free them.
 * @param wallUs what calendars show at `nowUs`; default: the same
 */
export function earliestUs(
  rules: readonly Rule[],
  bucket: Bucket,
  nowUs: number,
  units: number,
  wallUs = nowUs,
): number {
  const clockOffsetUs = nowUs - wallUs
  // Nothing is granted while the bucket is held, but it drains.
  const fromUs = Math.max(nowUs, bucket.holdUs)
  const bounds = rules.map((rule, i) => {
    if (units < 1) return fromUs
    const alone = only(bucket, i)
    switch (rule.kind) {
      case 'rate': {
        const pace = paceOf(rules, i)
        const paced = pace && drainedUs(pace, only(bucket, i + 1), fromUs, units, paceFull(pace))
        return Math.min(drainedUs(rule, alone, fromUs, units), paced ?? neverUs)
      }
      case 'window':
        return windowUs(rule, alone, fromUs, units)
      case 'quota':
        return (
          clockOffsetUs + periodUs(rule, { ...alone, atUs: alone.atUs - clockOffsetUs }, fromUs - clockOffsetUs, units)
        )
      case 'pace':
      case 'concurrency':
        return fromUs
    }
  })
  return Math.max(fromUs, ...bounds)
}

/** Returns the part of a bucket that belongs to one of its rules. */
function only({ atUs, debt, parts, spent }: Bucket, i: number): Bucket {
  return {
    atUs,
    debt: debt.slice(i, i + 1),
    parts: parts.slice(i, i + 1),
    spent: spent.slice(i, i + 1),
    holdUs: 0,
    trialUs: 0,
    aheadUs: 0,
  }
}

/** All units together drain at the rule's rate, from what it holds when full. In BigInt, because it may be beyond 2^53. */
function drainedUs(
  rule: Rule,
  bucket: Bucket,
  nowUs: number,
  units: number,
  full = rule.capacity * rule.weight,
): number {
  const { atUs, debt } = room([rule], bucket, nowUs).bucket
  const drain = BigInt(rule.drain)
  const missing = BigInt(debt[0] ?? 0) + BigInt(units) * BigInt(rule.weight) - BigInt(full)
  if (missing <= 0n) return atUs
  return Math.min(neverUs, atUs + Number((missing + drain - 1n) / drain))
}

/** In a window of n units, each unit comes at least 61 parts after the n-th unit before it: the window's 60, and one more. */
function windowUs(rule: Rule, bucket: Bucket, nowUs: number, units: number): number {
  const { first, full } = split(rule, units)
  const firstUs = room([rule], bucket, nowUs, false, first).nextUs
  if (full === 0) return firstUs
  return (Math.floor(firstUs / rule.partUs) + full * (windowParts + 1)) * rule.partUs
}

/** Under a quota of n units, each unit comes in a later period than the n-th unit before it, and a margin after that period's start. */
function periodUs(rule: Rule, bucket: Bucket, wallUs: number, units: number): number {
  const { quota } = rule
  const { first, full } = split(rule, units)
  let us = room([rule], bucket, wallUs, false, first).nextUs
  if (quota === undefined) return us
  for (let n = 0; n < Math.min(full, periodsMax); n++) us = periodOf(quota, us).endUs + quota.marginUs
  return us
}

/** Splits units into what a rule can hold, at least one, and full rounds of it. */
function split({ capacity: most }: Rule, units: number): { first: number; full: number } {
  const full = Math.ceil(units / most) - 1
  return { first: units - full * most, full }
}
