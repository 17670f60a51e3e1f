import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { periodOf } from '../../src/core/calendar.ts'
import { type Bucket, charge, emptyBucket, room } from '../../src/limits/decide.ts'
import { refund } from './specification.ts'
import { rebuild } from './rebuild.ts'
import { guarantees } from '../../src/limits/guarantee.ts'
import { limit, type LimitOptions } from '../../src/limits/limit.ts'
import type { Rule } from '../../src/limits/rule.ts'
import { anyQuota, type Grant, greedy, minute, quota, second, worst, worstPeriod } from './oracle.ts'
import { forAll } from '../for-all.ts'
import { cases } from '../long.ts'

const us = (iso: string): number => Date.parse(iso) * 1_000
const iso = (at: number): string => new Date(at / 1_000).toISOString()
const hour = 60 * minute
const code = (options: unknown): unknown => {
  try {
    return limit('a', options as LimitOptions)
  } catch (error) {
    return (error as { code?: string }).code
  }
}

/** Any time, and times around nights in which clocks change. */
const anyStart = fc
  .tuple(
    fc.constantFrom(
      '2026-03-08T08:00Z',
      '2025-11-02T08:00Z',
      '2018-02-18T02:00Z',
      '2018-11-04T03:00Z',
      '2024-04-06T15:00Z',
      '2024-10-05T15:30Z',
      '2024-04-25T22:00Z',
      '2024-03-30T22:00Z',
      '2024-03-10T05:00Z',
      '2024-02-29T23:59Z',
    ),
    fc.integer({ min: -3 * hour, max: 3 * hour }),
  )
  .map(([at, by]) => us(at) + by)

/** Time passes, or goes to the end of a period, or a margin before or after it, or next to that; then units are wanted. */
const anySteps = fc.array(
  fc.record({
    pass: fc.oneof(
      fc.integer({ min: -minute, max: 2 * hour }).map((by) => ({ by })),
      fc.record({ margins: fc.constantFrom(-1, 0, 1), off: fc.constantFrom(-1, 0, 1) }),
    ),
    want: fc.integer({ min: 0, max: 80 }),
  }),
  { maxLength: 60 },
)

type Step = typeof anySteps extends fc.Arbitrary<(infer S)[]> ? S : never

/** Carries out the steps under one quota; `see` gets each state before anything is taken. */
function live(
  rule: Rule,
  startUs: number,
  steps: readonly Step[],
  see: (bucket: Bucket, nowUs: number) => void = () => {},
): Grant[] {
  const grants: Grant[] = []
  const { quota: of } = rule
  let bucket = emptyBucket([rule], startUs)
  let nowUs = startUs
  for (const { pass, want } of steps) {
    if ('by' in pass) nowUs += pass.by
    else if (of !== undefined) nowUs = periodOf(of, nowUs).endUs + pass.margins * of.marginUs + pass.off
    see(bucket, nowUs)
    const free = room([rule], bucket, nowUs)
    const units = Math.min(want, free.avail)
    if (units > 0) grants.push([free.bucket.atUs, units])
    bucket = charge([rule], free.bucket, units)
  }
  return grants
}

describe('a quota', () => {
  it('never lets a vendor count more in a period, as long as its clock and the transit are within the margin', () => {
    forAll(cases(1_000), anyQuota, anyStart, anySteps, (rule, startUs, steps) => {
      expect(worstPeriod(live(rule, startUs, steps), rule)).toBeLessThanOrEqual(rule.capacity)
    })
  })

  it('computes when the next unit is free, to the microsecond', () => {
    forAll(cases(500), anyQuota, anyStart, anySteps, (rule, startUs, steps) => {
      live(rule, startUs, steps, (bucket, nowUs) => {
        const { avail, nextUs, bucket: seen } = room([rule], bucket, nowUs)
        if (avail > 0) return expect(nextUs).toBe(seen.atUs)
        expect(room([rule], bucket, nextUs - 1).avail).toBe(0)
        return expect(room([rule], bucket, nextUs).avail).toBeGreaterThanOrEqual(1)
      })
    })
  })

  it('is granted in full in each period, from a margin after its beginning', () => {
    forAll(cases(200), anyQuota, anyStart, (rule, startUs) => {
      const grants = greedy([rule], startUs, rule.capacity * 4)
      expect(grants.map(([, units]) => units)).toEqual([rule.capacity, rule.capacity, rule.capacity, rule.capacity])
    })
  })

  it("gets a refunded unit back in the unit's own period only", () => {
    const rule = quota(10, { unit: 'hour', zone: 'UTC', anchorUs: null }, second)
    const noon = us('2026-06-01T12:00Z')
    const full = charge([rule], room([rule], emptyBucket([rule], noon), noon + minute).bucket, 10)
    const back = refund([rule], noon + minute, 4, [], room([rule], full, noon + 2 * minute).bucket)
    expect(room([rule], back, noon + 2 * minute).avail).toBe(4)
    const later = room([rule], full, noon + hour + minute).bucket
    const spent = charge([rule], later, 10)
    expect(room([rule], refund([rule], noon + minute, 4, [], spent), noon + hour + 2 * minute).avail).toBe(0)
  })

  it('counts a grant near the end of a period in both periods, and refunds it in both', () => {
    const rule = quota(10, { unit: 'hour', zone: 'UTC', anchorUs: null }, second)
    const one = us('2026-06-01T13:00Z')
    const near = charge([rule], room([rule], emptyBucket([rule], 0), one - second).bucket, 6)
    expect(room([rule], near, one + minute).avail).toBe(4)
    const back = refund([rule], one - second, 6, [], room([rule], near, one + minute).bucket)
    expect(room([rule], back, one + minute).avail).toBe(10)
    const over = charge([rule], room([rule], emptyBucket([rule], 0), one - second - 1).bucket, 10)
    // The bucket is full until a margin after its end.
    expect(room([rule], over, one - minute).nextUs).toBe(one + second)
    expect(room([rule], over, one + second).avail).toBe(10)
  })

  it('under a new definition waits for the margin after a beginning, and counts the grants of this period', () => {
    const rule = quota(10, { unit: 'hour', zone: 'UTC', anchorUs: null }, second)
    const noon = us('2026-06-01T12:00Z')
    const before = limit('a', { rate: '1000/s' }).rules
    const at = (atUs: number) => rebuild([before, [rule]], [{ atUs: noon + 5, units: 3 }], emptyBucket(before, atUs))
    expect(room([rule], at(noon + 10), noon + 10)).toMatchObject({ avail: 0, nextUs: noon + second })
    expect(room([rule], at(noon + minute), noon + minute).avail).toBe(7)
    expect(room([rule], at(noon + hour + minute), noon + hour + minute).avail).toBe(10)
  })

  it('gets no room in the period before from a refund: under a new definition nobody knows what counts there', () => {
    const rule = quota(10, { unit: 'hour', zone: 'UTC', anchorUs: null }, second)
    const noon = us('2026-06-01T12:00Z')
    const before = limit('a', { rate: '1000/s' }).rules
    const granted = [1, 2].map((n) => ({ atUs: noon - n * minute, units: 10 }))
    const made = rebuild([before, [rule]], granted, emptyBucket(before, noon + 10))
    const back = refund([rule], noon - minute, 10, [], made)
    expect(room([rule], back, noon + 10)).toMatchObject({ avail: 0, nextUs: noon + second })
  })
})

describe('examples of calendars and vendors', () => {
  const { rules } = limit('a', { quota: '1000/day', zone: 'America/Los_Angeles' })

  it.each([
    ['2026-11-01T07:00:00.000Z', '2026-11-02T08:00:00.000Z', 25],
    ['2026-03-08T08:00:00.000Z', '2026-03-09T07:00:00.000Z', 23],
  ])('1000/day in Los Angeles from %s to %s lasts %d h, and is reset once', (from, to, hours) => {
    const rule = rules[0] as Rule
    const [first, second_, third] = greedy(rules, us(from) + minute, 3_000)
    const marginUs = rule.quota?.marginUs ?? 0
    expect(marginUs).toBe(200_000)
    expect(first).toEqual([us(from) + minute, 1_000])
    expect(second_).toEqual([us(to) + marginUs, 1_000])
    expect(iso((third?.[0] ?? 0) - marginUs)).toBe(iso(us(to) + 24 * hour))
    expect((us(to) - us(from)) / hour).toBe(hours)
  })

  it('29000/month allows 1000 a day in February 2028, which has 29 days', () => {
    const [rule] = limit('a', { quota: '29000/month', zone: 'America/Los_Angeles' }).rules
    const of = periodOf((rule as Rule).quota ?? { unit: 'month', zone: 'UTC', anchorUs: null }, us('2028-02-20T12:00Z'))
    expect((of.endUs - of.startUs) / hour / 24).toBe(29)
  })

  it('60/min without a margin allows 120 within 100 ms, and with a margin both minutes are charged', () => {
    const grants = (marginUs: number): Grant[] => {
      const rule = quota(60, { unit: 'minute', zone: 'UTC', anchorUs: null }, marginUs)
      let bucket = emptyBucket([rule], 0)
      return [59.9, 60].map((at): Grant => {
        const free = room([rule], bucket, us('2026-06-01T12:00Z') + at * second)
        bucket = charge([rule], free.bucket, free.avail)
        return [free.bucket.atUs, free.avail]
      })
    }
    expect(worst(grants(0), 100_001)).toBe(120)
    expect(worst(grants(200_000), 100_001)).toBe(60)
  })
})

describe('a definition of quotas', () => {
  it('may have several, with all other rules', () => {
    const made = limit('a', {
      quota: ['10/min', '100/day', '1000/month'],
      rate: '5/s',
      concurrency: 2,
      zone: 'Asia/Tokyo',
    })
    expect(made.rules.map(({ kind, rate }) => `${kind} ${rate}`)).toEqual([
      'rate 5/s',
      'quota 10/min',
      'quota 100/day',
      'quota 1000/month',
      'concurrency 2',
    ])
    const said = guarantees(made)
    expect(said[2]).toMatchObject({ worst: 200, burst: 100 })
    expect(said[2]?.text).toContain('at most 100 in any day of Asia/Tokyo')
    expect(said[2]?.text).toContain('200')
  })

  it('states the most that any window of the length can see: twice the quota, and no more', () => {
    const rule = quota(10, { unit: 'hour', zone: 'UTC', anchorUs: null }, second)
    const noon = us('2026-06-01T12:00Z')
    const late: Grant[] = [[noon - 2 * second, 10], ...greedy([rule], noon + second, 10)]
    expect(worst(late, hour)).toBe(20)
  })

  it('takes an anchor as a Date or an instant', () => {
    for (const anchor of ['2026-01-31T09:00:00Z', new Date('2026-01-31T10:00:00+01:00'), '2026-01-31T10:00:00+01:00'])
      expect(limit('a', { quota: '1/month', anchor }).rules[0]?.quota).toMatchObject({
        anchorUs: us('2026-01-31T09:00:00Z'),
      })
  })

  it.each([
    [{ quota: '10000/fortnight' }, 'SLUICE_BAD_RATE'],
    [{ quota: '100/2h' }, 'SLUICE_BAD_RATE'],
    [{ quota: '100/s' }, 'SLUICE_BAD_RATE'],
    [{ quota: '0/day' }, 'SLUICE_BAD_RATE'],
    [{ quota: 100 }, 'SLUICE_BAD_RATE'],
    [{ quota: null }, 'SLUICE_BAD_RATE'],
    [{ quota: [] }, 'SLUICE_BAD_LIMIT'],
    [{ quota: '10/day', zone: 'Mars/Olympus' }, 'SLUICE_BAD_ZONE'],
    [{ quota: '10/day', zone: '+02:00' }, 'SLUICE_BAD_ZONE'],
    [{ quota: '10/day', zone: 7 }, 'SLUICE_BAD_ZONE'],
    [{ rate: '10/s', zone: 'UTC' }, 'SLUICE_BAD_LIMIT'],
    [{ rate: '10/s', anchor: '2026-01-31T09:00:00Z' }, 'SLUICE_BAD_LIMIT'],
    [{ quota: '10/day', anchor: 'soon' }, 'SLUICE_BAD_LIMIT'],
    [{ quota: '10/day', anchor: '2026-01-31T09:00:00' }, 'SLUICE_BAD_LIMIT'],
    [{ quota: '10/day', anchor: new Date(NaN) }, 'SLUICE_BAD_LIMIT'],
    [{ quota: '10/day', anchor: 1e12 }, 'SLUICE_BAD_LIMIT'],
    [{ quota: '10/min', transit: '30s' }, 'SLUICE_BAD_LIMIT'],
    [{ quota: '10/hour', transit: '15min' }, 'SLUICE_BAD_LIMIT'],
    [{ quota: '10/day', burst: 3 }, 'SLUICE_BAD_LIMIT'],
  ])('of %j gives %s', (options, expected) => expect(code(options)).toBe(expected))

  it.each([
    { quota: '10/hour', transit: '14min' },
    { quota: '10/day', transit: '10h' },
  ])('may contain %j', (options) => expect(code(options)).toMatchObject({ name: 'a' }))
})
