/** What happens to a bucket, at random, and a bucket to which it happens. */
import fc from 'fast-check'
import { type Bucket, charge, emptyBucket, room } from '../../src/limits/decide.ts'
import { hold } from './specification.ts'
import type { Rule } from '../../src/limits/rule.ts'
import { type Grant, minute, second } from './oracle.ts'

/** What happens to a bucket: time passes (or goes back), then some units are wanted, or a silence is demanded. */
const anyStep = fc.record({
  passUs: fc.oneof(fc.integer({ min: 0, max: 3 * second }), fc.integer({ min: -minute, max: minute })),
  want: fc.integer({ min: 0, max: 200 }),
  holdUs: fc.option(fc.integer({ min: 1, max: 5 * second }), { freq: 12 }),
})
/** Some of them, in order. */
export const anySteps = fc.array(anyStep, { maxLength: 40 })

/** One of them. */
export type Step = typeof anyStep extends fc.Arbitrary<infer S> ? S : never

/** Carries out the steps; `see` gets each state before anything is taken. */
export function live(
  rules: readonly Rule[],
  steps: readonly Step[],
  see: (bucket: Bucket, nowUs: number) => void,
  start = emptyBucket(rules, 0),
): Grant[] {
  const grants: Grant[] = []
  let bucket = start
  let nowUs = start.atUs
  for (const step of steps) {
    nowUs += step.passUs
    see(bucket, nowUs)
    const free = room(rules, bucket, nowUs)
    bucket = free.bucket
    if (step.holdUs !== null) bucket = hold(bucket, step.holdUs)
    const units = Math.min(step.want, room(rules, bucket, nowUs).avail)
    if (units > 0) grants.push([bucket.atUs, units])
    bucket = charge(rules, bucket, units)
  }
  return grants
}
