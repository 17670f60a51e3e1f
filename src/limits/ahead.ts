/** Grants units ahead of time: each with the first instant at which the rates allow it. Pure; `limits/room/grant_ahead.sql` does the same. */
import { type Bucket, charge, room } from './decide.ts'
import type { Rule } from './rule.ts'

/** Units are granted at most so long ahead of time, in microseconds. */
export const aheadMostUs = 200_000

/** What was granted ahead. */
export interface Ahead {
  /** The bucket at the last instant: until then it grants nothing else. */
  bucket: Bucket
  /** When each unit may be used, in microseconds, in order. */
  instantsUs: number[]
}

/**
 * Grants up to `units` single units, each at the first instant that the rates allow, not more than `aheadMostUs` after `nowUs`. That
 * is the same as one claim at each of the instants, so no window holds more. Returns undefined for a bucket that grants nothing
 * ahead: it is held, or has other rules than rates. A window or a quota would count a unit in the period of the claim, not in
 * that of its use; a place that is taken early is missing elsewhere.
 */
export function grantAhead(rules: readonly Rule[], bucket: Bucket, nowUs: number, units: number): Ahead | undefined {
  if (!rules.every(({ kind }) => kind === 'rate' || kind === 'pace') || bucket.probeUs > 0 || bucket.holdUs > nowUs)
    return undefined
  const instantsUs: number[] = []
  let seen = room(rules, bucket, Math.max(nowUs, bucket.atUs))
  while (instantsUs.length < units && seen.nextUs <= nowUs + aheadMostUs) {
    const then = room(rules, seen.bucket, seen.nextUs).bucket
    instantsUs.push(then.atUs)
    seen = room(rules, charge(rules, then, 1), then.atUs)
  }
  return { bucket: { ...seen.bucket, aheadUs: instantsUs.at(-1) ?? seen.bucket.aheadUs }, instantsUs }
}
