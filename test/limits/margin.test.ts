/** Margins that follow what is measured: when they change, and that no window of the vendor's holds more meanwhile. */
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type Bucket, charge, emptyBucket, room } from '../../src/limits/decide.ts'
import type { Entry } from './specification.ts'
import { rebuild } from './rebuild.ts'
import { limit } from '../../src/limits/limit.ts'
import { type Course, joinMargins, type Margin, nextMargin, statedMargin } from '../../src/limits/margin.ts'
import { BucketProof, type Defined, type LedgerRow } from '../../src/limits/proof.ts'
import { slides } from '../../src/limits/kind.ts'
import { rulesOf } from '../../src/limits/rules.ts'
import { minute, second } from './oracle.ts'
import { forAll } from '../for-all.ts'
import { cases } from '../long.ts'

const ms = 1_000
const stated: Margin = { grantUs: 100 * ms, transitUs: 100 * ms }
const wide = [100, 100]
const quiet = { ageUs: 5 * ms, latePart: 0, latePartMost: 0, latePartOfAll: 0, wayUs: 2 * ms }

/** What follows on a limit of 200/s that has been in force for an hour, unless stated otherwise. */
const after = (course: Partial<Course>) =>
  nextMargin({
    inForce: stated,
    stated,
    measured: quiet,
    isMeasured: true,
    rules: limit('a', { rate: '200/s' }).rules,
    steadyUs: 3_600 * second,
    ...course,
  })

describe('a margin', () => {
  it('shrinks by the life of a grant first, within its sum, and then by what the way varies less', () => {
    const first = after({})
    expect(first).toEqual({ grantUs: 10 * ms, transitUs: 190 * ms })
    const next = after({ inForce: first as Margin })
    expect(next).toEqual({ grantUs: 10 * ms, transitUs: 5 * ms })
    expect(after({ inForce: next as Margin })).toBeUndefined()
  })

  it('that others count by becomes what is stated: at once where it is too small, else step by step as any other', () => {
    const others = { isFixed: true, measured: { ...quiet, latePartMost: 1 } }
    const next = (inForce: Margin, steadyUs = 3_600 * second) => after({ ...others, inForce, steadyUs })
    expect(next({ grantUs: 10 * ms, transitUs: 5 * ms }, 0)).toEqual(stated)
    const widened = { grantUs: 1_000 * ms, transitUs: 100 * ms }
    expect(next(widened, 29 * second)).toBeUndefined()
    const first = { grantUs: 100 * ms, transitUs: 1_000 * ms }
    expect(next(widened)).toEqual(first)
    expect(next(first)).toEqual(stated)
    expect(next(stated)).toBeUndefined()
    const rules = limit('a', { rate: '200/40s' }).rules
    expect(after({ ...others, inForce: first, rules, steadyUs: 41 * second })).toBeUndefined()
    expect(after({ ...others, inForce: first, rules, steadyUs: 43 * second })).toEqual(stated)
  })

  it('shrinks only after every grant that lived longer has left the window', () => {
    const inForce = { grantUs: 10 * ms, transitUs: 190 * ms }
    const rules = limit('a', { rate: '200/40s' }).rules
    // A second limiter may have confirmed a grant for a second later.
    expect(after({ inForce, rules, steadyUs: 41 * second + 199 * ms })).toBeUndefined()
    expect(after({ inForce, rules, steadyUs: 41 * second + 200 * ms })).toBeDefined()
  })

  it('does not shrink within half a minute, nor where all windows are long or quotas', () => {
    expect(after({ steadyUs: 29 * second })).toBeUndefined()
    expect(after({ rules: limit('a', { rate: '200/h' }).rules })).toBeUndefined()
    expect(after({ rules: limit('a', { quota: '1000/day' }).rules })).toBeUndefined()
  })

  it.each([{ window: '9000/h' }, { quota: '1000/day' }] as const)(
    'shrinks for the short windows of a limit, and not for %o, which counts with what is stated',
    (long) => {
      const numbers = { rate: '200/s', ...long } as const
      const { rules } = limit('a', numbers)
      const inForce = { grantUs: 10 * ms, transitUs: 190 * ms }
      expect(after({ rules })).toEqual(inForce)
      const next = after({ rules, inForce, steadyUs: 30 * second }) as Margin
      expect(next).toEqual({ grantUs: 10 * ms, transitUs: 5 * ms })
      const made = rulesOf('a', numbers, next).rules
      expect(made[0]).toEqual(rulesOf('a', { rate: '200/s' }, next).rules[0])
      expect(made.at(-1)).toEqual(rules.at(-1))
      // Wider than stated, it is theirs too, and shrinks when all their grants have left them.
      const wider = { grantUs: 10 * ms, transitUs: second }
      expect(rulesOf('a', numbers, wider).rules.at(-1)).not.toEqual(rules.at(-1))
      const hourUs = 'window' in long ? 3_600 * second : 0
      expect(after({ rules, inForce: wider, steadyUs: hourUs + 30 * second })).toBeDefined()
      if (hourUs > 0) expect(after({ rules, inForce: wider, steadyUs: hourUs })).toBeUndefined()
    },
  )

  it('suits a process that joins within its sum, which is wider than its parts while it shrinks', () => {
    const at = (grant: number, transit: number) => {
      const made = joinMargins({ grantUs: grant * ms, transitUs: transit * ms }, stated)
      return [made.grantUs / ms, made.transitUs / ms]
    }
    expect([at(10, 5), at(10, 190), at(100, 100)]).toEqual([wide, wide, wide])
    expect([at(25, 690), at(600, 20)].join()).toBe('100,615,600,100')
  })

  it('widens at once to what is stated when some host has measured too little', () => {
    const inForce = { grantUs: 10 * ms, transitUs: 5 * ms }
    const measured = { ...quiet, wayUs: undefined }
    expect(after({ inForce, measured, steadyUs: 0 })).toEqual({ grantUs: 10 * ms, transitUs: 100 * ms })
  })

  it('widens at once when answers vary more, up to what is stated', () => {
    const inForce = { grantUs: 10 * ms, transitUs: 5 * ms }
    const at = (wayUs: number) => after({ inForce, measured: { ...quiet, wayUs }, steadyUs: 0 })
    expect(at(4 * ms)).toBeUndefined()
    expect(at(20 * ms)).toEqual({ grantUs: 10 * ms, transitUs: 20 * ms })
    expect(at(900 * ms)).toEqual({ grantUs: 10 * ms, transitUs: 100 * ms })
    expect(after({ measured: { ...quiet, wayUs: 900 * ms }, steadyUs: 0 })).toBeUndefined()
  })

  it('grows by the life of a grant while grants come too late, up to a second, for all limits', () => {
    const late = (ageUs: number, inForce = stated, latePartOfAll = 0.8) => {
      const rules = limit('a', { rate: '200/h', quota: '1000/day' }).rules
      return after({
        inForce,
        rules,
        measured: { ageUs, latePart: 0.9, latePartMost: 0.9, latePartOfAll, wayUs: undefined },
        steadyUs: 0,
      })
    }
    expect(late(130 * ms)).toEqual({ grantUs: 200 * ms, transitUs: 100 * ms })
    expect(late(90 * ms)).toEqual({ grantUs: 150 * ms, transitUs: 100 * ms })
    expect(late(9_000 * ms)).toEqual({ grantUs: second, transitUs: 100 * ms })
    expect(late(9_000 * ms, { grantUs: second, transitUs: 100 * ms })).toBeUndefined()
    // Most of the fleet's grants came in time: a longer life would cost it more.
    expect(late(130 * ms, stated, 0.4)).toBeUndefined()
    expect(late(130 * ms, { grantUs: 10 * ms, transitUs: 5 * ms }, 0.4)).toEqual(stated)
  })

  it('grows up to what is stated already when few grants come too late, and within its sum', () => {
    const late = (inForce: Margin) =>
      after({ inForce, measured: { ...quiet, ageUs: 300 * ms, latePart: 0.05, latePartMost: 0.05 }, steadyUs: 0 })
    expect(late({ grantUs: 10 * ms, transitUs: 5 * ms })).toEqual({ grantUs: 100 * ms, transitUs: 5 * ms })
    expect(late({ grantUs: 10 * ms, transitUs: 190 * ms })).toEqual({ grantUs: 100 * ms, transitUs: 100 * ms })
    expect(late(stated)).toBeUndefined()
  })

  it('neither grows nor shrinks for grants that another process received too late', () => {
    const measured = { ...quiet, latePartMost: 0.5 }
    expect(after({ inForce: { grantUs: 20 * ms, transitUs: 100 * ms }, measured })).toBeUndefined()
  })

  it('keeps a variation of the way that is stated', () => {
    const own = { ...stated, transitUs: 30 * ms }
    const first = after({ inForce: own, stated: own, isMeasured: false })
    expect(first).toEqual({ grantUs: 10 * ms, transitUs: 120 * ms })
    expect(after({ inForce: first as Margin, stated: own, isMeasured: false })).toEqual({
      grantUs: 10 * ms,
      transitUs: 30 * ms,
    })
  })
})

it('no window of the vendor holds more than its limit, however margins change and requests are delayed, as is proved', () => {
  const anyPhase = fc.record({
    measured: fc.record({
      ageUs: fc.integer({ min: 1, max: 400 }).map((each) => each * ms),
      latePart: fc.constantFrom(0, 0, 0.1, 0.9),
      latePartMost: fc.constantFrom(0, 0, 0.1, 0.9),
      latePartOfAll: fc.constantFrom(0, 0.1, 0.9),
      wayUs: fc.option(fc.integer({ min: 0, max: 40 }), { nil: undefined }),
    }),
    /** How long the definition stays before it is looked at again, in ms. */
    staysMs: fc.constantFrom(10, 500, 5_000, 31_000),
    /** 0: grants as soon as there is room. */
    pauseUs: fc.constantFrom(0, 0, 7_013, 211_000),
    delays: fc.array(fc.constantFrom(0, 1, 0, 1, 2), { minLength: 1, maxLength: 9 }),
    /** How much later than at its arrival a slow request is charged, for units that are not granted ahead: 1 is as late as may be. */
    lag: fc.constantFrom(0, 0, 0.5, 1),
    /** At the end of the phase another process joins. */
    joins: fc.constantFrom(false, false, true),
  })
  const anyNumbers = fc.constantFrom(
    { rate: '20/s' },
    { rate: '40/s' },
    { rate: '7/2s' },
    { window: '5/s' },
    { rate: '10/s', window: '30/4s' },
    { rate: '10/s', window: '20/61s' },
    { rate: '10/s', quota: '30/min' },
    { rate: '10/s', quota: '40/min', window: '15/2s' },
  )
  forAll(cases(1_000), anyNumbers, fc.array(anyPhase, { minLength: 2, maxLength: 9 }), (numbers, phases) => {
    const of = numbers as { rate: '20/s' }
    // The way really varies by this much; each measurement shows at least that.
    const trueUs = 20 * ms
    let inForce = statedMargin('a', undefined, [second])
    let rules = rulesOf('a', of, inForce).rules
    const leastUs = Math.min(...rules.filter(slides).map(({ windowUs }) => windowUs))
    let bucket: Bucket = emptyBucket(rules, 1_790_000_000 * second)
    const granted: Entry[] = []
    const versions = new Map<number, Defined>()
    const ledger: LedgerRow[] = []
    const arrived: number[] = []
    let sinceUs = bucket.atUs
    let version = 1
    const slow: number[] = []
    /** Charges for slow answers until then. Returns that time, or the first at which it charged: there is less room then. */
    const chargeSlow = (untilUs: number): number => {
      const [nextUs = Infinity] = slow.toSorted((a, b) => a - b)
      if (nextUs > untilUs) return untilUs
      slow.splice(slow.indexOf(nextUs), 1)
      const { spent } = (bucket = room(rules, bucket, nextUs).bucket)
      bucket = { ...charge(rules, bucket, 1), spent }
      granted.push({ atUs: bucket.atUs, units: 1 })
      const n = ledger.length + 1
      ledger.push({ n, atUs: bucket.atUs, version, units: 1, claim: null, debt: [], granted: null })
      return chargeSlow(Math.max(bucket.atUs, room(rules, bucket, bucket.atUs).nextUs))
    }
    for (const { measured, staysMs, pauseUs, delays, lag, joins } of phases) {
      const wayUs = measured.wayUs === undefined ? undefined : trueUs + measured.wayUs * ms
      // Grants for a while; those of long phases only near their end, where the next definition sees them.
      const endUs = sinceUs + staysMs * ms
      let nowUs = Math.max(sinceUs, endUs - 3 * second)
      for (let n = 0; n < 120; n++) {
        nowUs = chargeSlow(Math.max(nowUs, room(rules, bucket, nowUs).nextUs))
        const at = room(rules, bucket, Math.max(nowUs, room(rules, bucket, nowUs).nextUs))
        if (at.bucket.atUs > endUs) break
        bucket = charge(rules, at.bucket, at.avail)
        granted.push({ atUs: bucket.atUs, units: at.avail })
        versions.set(version, { rules, ...inForce, classic: false })
        const n = ledger.length + 1
        ledger.push({ n, atUs: bucket.atUs, version, units: at.avail, claim: `${n}`, debt: [], granted: null })
        for (let unit = 0; unit < at.avail; unit++) {
          const delay = delays[(n + unit) % delays.length] ?? 0
          // Slow by as much as is promised at most: it arrives when it is charged once more, at the latest.
          const byUs = delay === 2 ? inForce.grantUs + stated.transitUs : delay * (inForce.grantUs + trueUs)
          arrived.push(bucket.atUs + byUs)
          // Less than a window after it was written.
          const lagUs = Math.floor(lag * (leastUs - stated.transitUs - 1))
          if (delay === 2) slow.push(bucket.atUs + byUs + lagUs)
        }
        nowUs = bucket.atUs + pauseUs
      }
      bucket = room(rules, bucket, endUs).bucket
      const steadyUs = endUs - sinceUs
      const seen = { ...measured, wayUs }
      const next = joins
        ? joinMargins(inForce, stated)
        : nextMargin({ inForce, stated, measured: seen, isMeasured: true, rules, steadyUs })
      if (next === undefined) continue
      const after = rulesOf('a', of, next).rules
      bucket = rebuild([rules, after], granted, bucket)
      ;[rules, inForce, sinceUs] = [after, next, endUs]
      version++
    }
    const proof = new BucketProof(versions, 0)
    for (const row of ledger) proof.add(row)
    for (const { excess } of proof.seen.values()) expect(excess).toBeUndefined()
    arrived.sort((a, b) => a - b)
    for (const { units, windowUs, quota } of rules) {
      // For a quota, another minute has begun so many units later.
      const apart = (one = 0, other = 0) =>
        quota === undefined ? other - one >= windowUs : Math.floor(one / minute) < Math.floor(other / minute)
      for (let i = units; i < arrived.length; i++) expect(apart(arrived[i - units], arrived[i])).toBe(true)
    }
  })
})
