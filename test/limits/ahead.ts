/**
 * Grants units ahead of time: each with the first instant at which the rates allow it. Pure, in the arithmetic of
 * `src/limits/decide.ts`. This is the specification; `src/limits/room/grant_ahead.sql` does the same in the store.
 */
import { type Bucket, charge, room } from '../../src/limits/decide.ts'
import { countsUnits, drains } from '../../src/limits/kind.ts'
import { aheadMostUs } from '../../src/limits/margin.ts'
import type { Rule } from '../../src/limits/rule.ts'

/** What was granted ahead. */
export interface Ahead {
  /** The bucket at the last instant: until then it grants nothing else. */
  bucket: Bucket
  /** When each unit may be used, in microseconds, in order. */
  instantsUs: number[]
}

/**
 * Grants up to `units` single units, each at the first instant that the rates allow, not more than `aheadMostUs` after
 * `nowUs`. That is the same as one claim at each of the instants, so no window holds more. Windows and quotas must have
 * all the units left now, so that none of them decides an instant. They count the units at the last instant, and the
 * bucket grants nothing else until then. Returns undefined for a bucket that grants nothing ahead. Such a bucket is
 * held, has no rate, has a concurrency (whose places would be missing elsewhere until the instants), or has a window or
 * a quota with fewer units left.
 */
export function grantAhead(rules: readonly Rule[], bucket: Bucket, nowUs: number, units: number): Ahead | undefined {
  if (bucket.trialUs > 0 || bucket.holdUs > nowUs) return undefined
  const instantsUs: number[] = []
  const first = room(rules, bucket, Math.max(nowUs, bucket.atUs))
  if (!mayGrantAhead(rules, first.bucket, units)) return undefined
  let seen = first
  while (instantsUs.length < units && seen.nextUs <= nowUs + aheadMostUs) {
    const then = room(rules, seen.bucket, seen.nextUs).bucket
    instantsUs.push(then.atUs)
    seen = room(rules, charge(rules, then, 1), then.atUs)
  }
  const lastUs = instantsUs.at(-1)
  if (lastUs === undefined) return { bucket: seen.bucket, instantsUs }
  const { parts, spent } = charge(rules, room(rules, first.bucket, lastUs).bucket, instantsUs.length)
  return { bucket: { ...seen.bucket, parts, spent, aheadUs: lastUs }, instantsUs }
}

function mayGrantAhead(rules: readonly Rule[], { debt, spent }: Bucket, units: number): boolean {
  // A quota's next period may begin before the last instant, and may have been used before a clock was set back.
  const used = (i: number) => Math.max(debt[i] ?? 0, spent[i]?.next ?? 0)
  const lets = (rule: Rule, i: number) => drains(rule) || (countsUnits(rule) && rule.capacity - used(i) >= units)
  return rules.some(({ kind }) => kind === 'rate') && rules.every(lets)
}
