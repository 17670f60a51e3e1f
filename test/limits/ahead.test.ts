/** Grants ahead of time beside windows and quotas: no window and no period holds more than it may. */
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { grantAhead } from './ahead.ts'
import { charge, emptyBucket, room } from '../../src/limits/decide.ts'
import { pacedRules } from '../../src/limits/rule.ts'
import { forAll } from '../for-all.ts'
import { cases } from '../long.ts'
import { type Grant, level, minute, places, quota, second, sliding, worst, worstPeriod } from './oracle.ts'

const rate = pacedRules('a', { rate: '50/s', units: 50, windowUs: second }, 0)
const perMinute = (units: number, marginUs: number) =>
  quota(units, { unit: 'minute', zone: 'UTC', anchorUs: null }, marginUs)
const startUs = 1_800_000_000 * second

it('no window and no period holds more than it may, whatever is granted ahead near their ends', () => {
  const anyStep = fc.record({ us: fc.integer({ min: 0, max: second / 2 }), units: fc.integer({ min: 1, max: 12 }) })
  let ahead = 0
  forAll(
    cases(1_000),
    fc.integer({ min: 1, max: 60 }),
    fc.integer({ min: 1, max: 300_000 }),
    fc.constantFrom(second / 60, second),
    fc.array(anyStep, { minLength: 20, maxLength: 60 }),
    (units, marginUs, partUs, steps) => {
      const rules = [...rate, sliding(60, partUs), perMinute(units, marginUs)]
      let nowUs = startUs + minute - 2 * second
      let bucket = emptyBucket(rules, nowUs)
      const grants: Grant[] = []
      for (const step of steps) {
        nowUs += step.us
        const given = grantAhead(rules, room(rules, bucket, nowUs).bucket, nowUs, step.units)
        if (given !== undefined) {
          bucket = given.bucket
          grants.push(...given.instantsUs.map((us): Grant => [us, 1]))
          ahead += given.instantsUs.filter((us) => us > nowUs).length
          continue
        }
        const seen = room(rules, bucket, nowUs)
        const taken = Math.min(seen.avail, step.units)
        bucket = charge(rules, seen.bucket, taken)
        grants.push([bucket.atUs, taken])
      }
      for (const rule of rules) {
        if (rule.kind === 'quota') expect(worstPeriod(grants, rule)).toBeLessThanOrEqual(rule.capacity)
        else if (rule.kind !== 'pace')
          expect(worst(grants, rule.windowUs)).toBeLessThanOrEqual(rule.kind === 'rate' ? 50 : rule.capacity)
      }
    },
  )
  expect(ahead).toBeGreaterThan(1_000)
})

it('nothing is granted ahead without a rate, beside places, or for more units than are left', () => {
  const at = (rules: Parameters<typeof grantAhead>[0], used = 0) =>
    grantAhead(rules, charge(rules, room(rules, emptyBucket(rules, startUs), startUs).bucket, used), startUs, 10)
      ?.instantsUs.length
  const own = level(5, second, 2)
  expect(at([own, sliding(10, second), perMinute(10, second)])).toBe(3)
  expect(at([sliding(100, second), perMinute(100, second)])).toBeUndefined()
  expect(at([own, places(30)])).toBeUndefined()
  expect(at([own, sliding(9, second)])).toBeUndefined()
  expect(at([own, perMinute(9, second)])).toBeUndefined()
  expect([at([own, sliding(12, second)], 2), at([own, perMinute(12, second)], 2)]).toEqual([1, 1])
  expect([at([own, sliding(11, second)], 2), at([own, perMinute(11, second)], 2)]).toEqual([undefined, undefined])
})

it('nothing is granted ahead when the next period of a quota has fewer units left, as after a clock that was set back', () => {
  const rules = [level(50, second, 5), perMinute(30, second / 5)]
  const nowUs = startUs + minute - 300_000
  const bucket = charge(rules, room(rules, emptyBucket(rules, nowUs), nowUs).bucket, 5)
  const used = (next: number) => ({
    ...bucket,
    spent: bucket.spent.map((one, i) => (i === 1 ? { ...one, next } : one)),
  })
  expect(grantAhead(rules, used(20), nowUs, 10)?.instantsUs.length).toBe(10)
  expect(grantAhead(rules, used(21), nowUs, 10)).toBeUndefined()
})

it('a bucket that has granted ahead is free at the last instant, also if only places count by then', () => {
  const own = [level(50, second, 1)]
  const { bucket, instantsUs } = grantAhead(own, emptyBucket(own, startUs), startUs, 5) ?? {}
  const lastUs = instantsUs?.at(-1) ?? 0
  expect(lastUs).toBeGreaterThan(startUs)
  const changed = { ...emptyBucket([places(2)], lastUs), aheadUs: bucket?.aheadUs ?? 0 }
  expect(room([places(2)], changed, startUs)).toMatchObject({ avail: 0, nextUs: lastUs })
  expect(room([places(2)], changed, lastUs)).toMatchObject({ avail: 2, nextUs: lastUs })
})
