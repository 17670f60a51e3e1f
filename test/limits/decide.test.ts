import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type Bucket, charge, emptyBucket, hold, refund, release, room } from '../../src/limits/decide.ts'
import { rebuild } from '../../src/limits/rebuild.ts'
import { limit } from '../../src/limits/limit.ts'
import { type Rule, withPaces } from '../../src/limits/rule.ts'
import {
  anyFlow,
  anyRule,
  bound,
  giveBack,
  type Grant,
  greedy,
  keptGrants,
  type Known,
  level,
  minute,
  places,
  second,
  sliding,
  vastRule,
  worst,
  worstPeriod,
  quota,
} from './oracle.ts'
import { cases } from '../long.ts'

/** What happens to a bucket: time passes (or goes back), then some units are wanted, or a silence is demanded. */
const anyStep = fc.record({
  passUs: fc.oneof(fc.integer({ min: 0, max: 3 * second }), fc.integer({ min: -minute, max: minute })),
  want: fc.integer({ min: 0, max: 200 }),
  holdUs: fc.option(fc.integer({ min: 1, max: 5 * second }), { freq: 12 }),
})
const anySteps = fc.array(anyStep, { maxLength: 40 })

type Step = typeof anyStep extends fc.Arbitrary<infer S> ? S : never

/** Carries out the steps; `see` gets each state before anything is taken. */
function live(
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
    fc.assert(
      fc.property(anyFlow, anySteps, fc.integer({ min: 1, max: 5 * minute }), (rule, steps, spanUs) => {
        const grants = live([rule], steps, () => {})
        expect(worst(grants, spanUs)).toBeLessThanOrEqual(bound(rule, spanUs))
      }),
      { numRuns: cases(500) },
    )
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
    fc.assert(
      fc.property(fc.array(anyRule, { minLength: 1, maxLength: 3 }), anySteps, (rules, steps) => {
        live(rules, steps, (bucket, nowUs) => exact(rules, bucket, nowUs))
      }),
      { numRuns: cases(1_000) },
    )
  })

  it('is exact near 2^53', () => {
    fc.assert(
      fc.property(vastRule, fc.integer({ min: 0, max: 1_000 }), (rule, laterUs) => {
        const full = charge([rule], emptyBucket([rule], 0), rule.room)
        exact([rule], full, 0)
        const later = room([rule], full, laterUs)
        exact([rule], charge([rule], later.bucket, later.avail), laterUs)
      }),
      { numRuns: cases(2_000) },
    )
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
    fc.assert(
      fc.property(anyRefunds, (refunds) => {
        expect(worst(keptGrants(rule, 5 * minute, refunds, refund), minute)).toBeLessThanOrEqual(100)
      }),
      { numRuns: cases(400) },
    )
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
    fc.assert(
      fc.property(fc.array(anyFlow, { minLength: 1, maxLength: 2 }), anySteps, anyBacks, (rules, steps, backs) => {
        const { history, bucket } = withRefunds(rules, steps, backs)
        let never = emptyBucket(rules, 0)
        for (const one of history) {
          never = charge(rules, room(rules, never, one.atUs).bucket, one.units - one.refunded)
        }
        never = room(rules, never, bucket.atUs).bucket
        expect(room(rules, bucket, bucket.atUs).bucket).toEqual(never)
      }),
      { numRuns: cases(500) },
    )
  })
})

describe('a changed definition', () => {
  const anyRules = fc.array(anyRule, { minLength: 1, maxLength: 3 })
  const entries = (grants: readonly Grant[]) => grants.map(([atUs, units]) => ({ atUs, units }))

  /** The bucket had these rules been in force from the start. */
  const replay = (rules: readonly Rule[], grants: readonly Grant[], atUs: number) => {
    let bucket = emptyBucket(rules, 0)
    for (const [at, units] of grants) bucket = charge(rules, room(rules, bucket, at).bucket, units)
    return room(rules, bucket, atUs).bucket
  }

  it('lets no window that contains the change hold more than it allows', () => {
    fc.assert(
      fc.property(
        anyRules,
        fc.array(anyFlow, { minLength: 1, maxLength: 3 }),
        anySteps,
        anySteps,
        (before, after, first, then) => {
          const old = live(before, first, () => {})
          const made = rebuild([before, after], entries(old), replay(before, old, old.at(-1)?.[0] ?? 0))
          const grants = [...old, ...live(after, then, () => {}, made)]
          for (const rule of after) {
            if (rule.quota !== undefined) expect(worstPeriod(grants, rule, old.length)).toBeLessThanOrEqual(rule.room)
            else
              expect(worst(grants, rule.windowUs, 'half-open', old.length)).toBeLessThanOrEqual(
                bound(rule, rule.windowUs),
              )
          }
        },
      ),
      { numRuns: cases(500) },
    )
  })

  it('has the same effect as if it had been in force from the start, as far as it looks back', () => {
    fc.assert(
      fc.property(anyRules, anySteps, (rules, steps) => {
        const all = live(rules, steps, () => {})
        const last = all.at(-1)?.[0] ?? 0
        const span = Math.min(...rules.map((rule) => (rule.kind === 'concurrency' ? Infinity : rule.spanUs)))
        const grants = all.filter(([atUs]) => atUs > last - span)
        const bucket = replay(rules, grants, last)
        const others = rules.map((rule) => ({ ...rule, spanUs: rule.spanUs + 1 }))
        const made = rebuild([others, rules], entries(grants), bucket)
        const isEarly = bucket.spent.some((one, i) => last < one.startUs + (rules[i]?.quota?.marginUs ?? 0))
        // Grants of the period before are not read: as long as they matter, nothing is granted.
        if (isEarly) {
          expect(room(rules, made, last).avail).toBe(0)
          return
        }
        expect(made).toEqual(bucket)
      }),
      { numRuns: cases(500) },
    )
  })

  it('keeps the debt of a classic bucket from before its window', () => {
    const made = limit('a', { rate: '100/min', burst: 1_000 })
    const spent = charge(made.rules, emptyBucket(made.rules, 0), 1_000)
    const later = room(made.rules, spent, 90 * second).bucket
    expect(room(made.rules, later, 90 * second).avail).toBe(150)
    const others = made.rules.map((rule) => ({ ...rule, spanUs: rule.spanUs + 1 }))
    expect(rebuild([others, made.rules], [{ atUs: 0, units: 1_000 }], later)).toEqual(later)
  })

  it('keeps what a rule knows that stays the same, without its grants', () => {
    fc.assert(
      fc.property(anyRules, anyRules, anySteps, (rules, others, steps) => {
        const all = live(rules, steps, () => {})
        const bucket = replay(rules, all, all.at(-1)?.[0] ?? 0)
        const [own] = withPaces(rules)
        const stay = rules.slice(own?.i, own?.pace === undefined ? 1 : 2).filter(({ kind }) => kind !== 'concurrency')
        const after = [...others.filter(({ rate, kind }) => kind !== 'concurrency' && rate !== stay[0]?.rate), ...stay]
        const made = rebuild([rules, after], [], bucket)
        const known = ({ debt, slots, spent }: Bucket, at: number, { kind }: Rule) =>
          kind === 'window' ? slots[at] : kind === 'quota' ? spent[at] : debt[at]
        for (const [i, rule] of stay.entries())
          expect(known(made, after.length - stay.length + i, rule)).toEqual(known(bucket, i, rule))
      }),
      { numRuns: cases(500) },
    )
  })

  it('keeps what a rate knows that is written in another way', () => {
    const [before, after] = [level(1, 2 * second, 5), level(5, 10 * second, 5)]
    expect(before.rate).not.toBe(after.rate)
    const bucket = charge([before], emptyBucket([before], 0), 5)
    expect(rebuild([[before], [after]], [], bucket).debt).toEqual(bucket.debt)
    expect(rebuild([[before], [level(5, 10 * second, 4)]], [], bucket).debt).toEqual([0])
  })

  it('keeps what a quota counts by a wider margin, because its grants may have lived as long', () => {
    const hour = (marginUs: number) => quota(40, { unit: 'hour', zone: 'UTC', anchorUs: null }, marginUs)
    const wide = [level(1_000, second, 100), hour(700_000)]
    const endUs = 1_800_000_000 * second
    const early = charge(wide, emptyBucket(wide, endUs - second), 0)
    const late = charge(wide, room(wide, early, endUs - second / 2).bucket, 30)
    const then = room(wide, late, endUs + 10 * second).bucket
    const granted = [{ atUs: endUs - second / 2, units: 30 }]
    const left = (marginUs: number) => {
      const after = [level(900, second, 90), hour(marginUs)]
      return room(after, rebuild([wide, after], granted, then), endUs + 10 * second).units
    }
    expect([left(700_000), left(200_000), left(800_000)]).toEqual([10, 10, 10])
    expect(left(0)).toBe(10)
  })

  it('keeps running jobs, and drops usage that is older than it looks back', () => {
    const before = [places(5), level(1, 86_400 * second, 100)]
    const bucket = charge(before, emptyBucket(before, 0), 5)
    const after = [places(2), level(1, second, 1), sliding(1, second)]
    const later = room(before, bucket, 2 * minute).bucket
    expect(rebuild([before, after], [{ atUs: 0, units: 5 }], later)).toMatchObject({ debt: [5, 0, 0] })
    // Ends were not counted meanwhile.
    expect(rebuild([before, [level(1, second, 1)], after], [], later)).toMatchObject({ debt: [0, 0, 0] })
  })
})
