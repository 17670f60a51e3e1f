/** The state of a bucket under a changed definition: what it keeps, and that no window holds more than it allows. */
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type Bucket, charge, emptyBucket, room } from '../../src/limits/decide.ts'
import { limit } from '../../src/limits/limit.ts'
import { rebuild } from './rebuild.ts'
import { type Rule, withPaces } from '../../src/limits/rule.ts'
import { forAll } from '../for-all.ts'
import { cases } from '../long.ts'
import {
  anyFlow,
  anyRule,
  bound,
  type Grant,
  level,
  minute,
  places,
  quota,
  second,
  sliding,
  worst,
  worstPeriod,
} from './oracle.ts'
import { anySteps, live } from './steps.ts'

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
    forAll(
      cases(500),
      anyRules,
      fc.array(anyFlow, { minLength: 1, maxLength: 3 }),
      anySteps,
      anySteps,
      (before, after, first, then) => {
        const old = live(before, first, () => {})
        const made = rebuild([before, after], entries(old), replay(before, old, old.at(-1)?.[0] ?? 0))
        const grants = [...old, ...live(after, then, () => {}, made)]
        for (const rule of after) {
          if (rule.quota !== undefined) expect(worstPeriod(grants, rule, old.length)).toBeLessThanOrEqual(rule.capacity)
          else
            expect(worst(grants, rule.windowUs, 'half-open', old.length)).toBeLessThanOrEqual(
              bound(rule, rule.windowUs),
            )
        }
      },
    )
  })

  it('has the same effect as if it had been in force from the start, as far as it looks back', () => {
    forAll(cases(500), anyRules, anySteps, (rules, steps) => {
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
    })
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
    forAll(cases(500), anyRules, anyRules, anySteps, (rules, others, steps) => {
      const all = live(rules, steps, () => {})
      const bucket = replay(rules, all, all.at(-1)?.[0] ?? 0)
      const [own] = withPaces(rules)
      const stay = rules.slice(own?.i, own?.pace === undefined ? 1 : 2).filter(({ kind }) => kind !== 'concurrency')
      const after = [...others.filter(({ rate, kind }) => kind !== 'concurrency' && rate !== stay[0]?.rate), ...stay]
      const made = rebuild([rules, after], [], bucket)
      const known = ({ debt, parts, spent }: Bucket, at: number, { kind }: Rule) =>
        kind === 'window' ? parts[at] : kind === 'quota' ? spent[at] : debt[at]
      for (const [i, rule] of stay.entries())
        expect(known(made, after.length - stay.length + i, rule)).toEqual(known(bucket, i, rule))
    })
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
