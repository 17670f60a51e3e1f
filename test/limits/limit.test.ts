import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { charge, emptyBucket, room } from '../../src/limits/decide.ts'
import { guarantees } from '../../src/limits/guarantee.ts'
import { limit, type Limit, type LimitOptions } from '../../src/limits/limit.ts'
import { type Grant, greedy, minute, second, worst } from './oracle.ts'
import { forAll } from '../for-all.ts'
import { cases } from '../long.ts'

const code = (body: () => unknown): unknown => {
  try {
    return body()
  } catch (error) {
    return (error as { code?: string }).code
  }
}

/**
 * Most arrivals in a half-open window, when the transit may take 0 to marginUs - 1: an adversary delays grants of up to
 * marginUs - 1 before the window until it begins, and lets the rest through at once.
 */
const worstArrivals = (grants: readonly Grant[], windowUs: number, marginUs: number): number =>
  worst(grants, windowUs + Math.max(0, marginUs - 1))

const anyRate = fc
  .tuple(fc.integer({ min: 1, max: 150 }), fc.integer({ min: 1, max: 90 }), fc.constantFrom('00ms', 's', 'min'))
  .map(([units, count, unit]) => `${units}/${count}${unit}` as `${number}/${number}s`)

describe('a rate with the default burst', () => {
  it.each([
    { rate: '100/min', capacity: 10, perMinute: 91 },
    { rate: '1/s', capacity: 1, perMinute: 60 },
    { rate: '9/s', capacity: 1, perMinute: 540 },
    { rate: '10/s', capacity: 1, perMinute: 600 },
    { rate: '50/s', capacity: 5, perMinute: 2_760 },
  ] as const)('of $rate has room for $capacity, and $perMinute a minute less the margin', (one) => {
    const made = limit('a', { rate: one.rate, transit: 0 })
    const [rule] = made.rules
    expect(rule).toMatchObject({ capacity: one.capacity })
    const windowUs = rule?.windowUs ?? 0
    const perMinute = ((rule?.drain ?? 0) / (rule?.weight ?? 1)) * minute * ((windowUs + made.grantUs) / windowUs)
    expect(perMinute).toBeCloseTo(one.perMinute, 6)
  })

  it('never shows the vendor more than the rate, however calls are delayed, and can reach it', () => {
    fc.assert(
      fc.property(anyRate, fc.integer({ min: 0, max: 2_000 }), (rate, transit) => {
        const made = limit('a', { rate, transit })
        const [rule] = made.rules
        if (rule === undefined) throw new Error('no rule')
        const grants = greedy(made.rules, 0, rule.units * 3)
        expect(worstArrivals(grants, rule.windowUs, made.grantUs + made.transitUs)).toBe(rule.units)
        expect(guarantees(made)[0]?.worst).toBe(rule.units)
      }),
      { numRuns: cases(150), examples: [['149/100ms', 1, 615]] },
    )
  })

  it('never shows the vendor more under demand that comes and goes', () => {
    const demand = fc.array(fc.tuple(fc.integer({ min: 0, max: 5 * second }), fc.integer({ min: 1, max: 20 })), {
      maxLength: 100,
    })
    forAll(cases(300), anyRate, fc.integer({ min: 0, max: 1_000 }), demand, (rate, transit, steps) => {
      const made = limit('a', { rate, transit })
      const grants: Grant[] = []
      let bucket = emptyBucket(made.rules, 0)
      let nowUs = 0
      for (const [passUs, want] of steps) {
        const free = room(made.rules, bucket, (nowUs += passUs))
        const units = Math.min(want, free.avail)
        bucket = charge(made.rules, free.bucket, units)
        if (units > 0) grants.push([nowUs, units])
      }
      const [rule] = made.rules
      const spanUs = (rule?.windowUs ?? 0) + made.grantUs + made.transitUs
      expect(worst(grants, spanUs)).toBeLessThanOrEqual(rule?.units ?? 0)
    })
  })

  it('keeps each rate when several hold together', () => {
    const made = limit('a', { rate: ['5/s', '60/min', '1000/h'], transit: 50 })
    const grants = greedy(made.rules, 0, 1_500)
    for (const rule of made.rules) {
      expect(worstArrivals(grants, rule.windowUs, made.grantUs + made.transitUs)).toBeLessThanOrEqual(rule.units)
    }
  })

  it('would exceed the rate without its margin, which proves that the adversary of this test works', () => {
    const unaware = limit('a', { rate: '50/s', transit: 0 })
    expect(worstArrivals(greedy(unaware.rules, 0, 500), second, 250_000)).toBeGreaterThan(50)
  })
})

describe('a window', () => {
  it('never shows the vendor more than it holds, however calls are delayed, and can reach it', () => {
    forAll(cases(150), anyRate, fc.integer({ min: 0, max: 2_000 }), (window, transit) => {
      const made = limit('a', { window, transit })
      const [rule] = made.rules
      if (rule === undefined) throw new Error('no rule')
      const grants = greedy([rule], 0, rule.units * 4)
      expect(worstArrivals(grants, rule.windowUs, made.grantUs + made.transitUs)).toBe(rule.units)
      const [said] = guarantees(made)
      expect(said).toMatchObject({ worst: rule.units, burst: rule.units })
      const lastUs = greedy([rule], 0, rule.units * 101).at(-1)?.[0] ?? 0
      expect((rule.units * 1e8) / lastUs).toBeCloseTo(said?.perSecond ?? 0, 6)
    })
  })

  it('of 50/s gives 40/s when the transit may vary by 250 ms, and exceeds 50/s without that margin', () => {
    const aware = limit('a', { window: '50/s', transit: 150 })
    expect(aware.grantUs + aware.transitUs).toBe(250_000)
    const grants = greedy(aware.rules, 0, 4_000)
    expect(worstArrivals(grants, second, 250_000)).toBe(50)
    expect(4_000 / ((grants.at(-1)?.[0] ?? 0) / second)).toBeCloseTo(40 * (60 / 61) * (80 / 79), 1)
    const unaware = limit('a', { window: '50/s', transit: 0 })
    expect(worstArrivals(greedy(unaware.rules, 0, 500), second, 250_000)).toBe(100)
  })

  it('holds together with other windows, a rate and a concurrency', () => {
    const made = limit('a', { window: ['10/s', '100/min'], rate: '300/h', concurrency: 4 })
    expect(made.rules.map(({ kind }) => kind)).toEqual(['rate', 'pace', 'window', 'window', 'concurrency'])
    const flow = made.rules.filter(({ kind }) => kind !== 'concurrency')
    const grants = greedy(flow, 0, 400)
    for (const rule of flow)
      expect(worstArrivals(grants, rule.windowUs, made.grantUs + made.transitUs)).toBeLessThanOrEqual(rule.units)
    expect(guarantees(made).at(-1)).toMatchObject({
      worst: 4,
      burst: 4,
      text: expect.stringContaining('at most 4 at one time'),
    })
  })
})

describe('a rate with a burst of its own', () => {
  it('allows what its guarantee states, and no more', () => {
    forAll(
      cases(150),
      anyRate,
      fc.integer({ min: 1, max: 200 }),
      fc.integer({ min: 0, max: 1_000 }),
      (rate, burst, transit) => {
        const made = limit('a', { rate, burst, transit })
        const [rule] = made.rules
        if (rule === undefined) throw new Error('no rule')
        const marginUs = made.grantUs + made.transitUs
        const seen = worstArrivals(
          greedy([rule], 0, 2 * burst + rule.units * (3 + Math.ceil(marginUs / rule.windowUs))),
          rule.windowUs,
          marginUs,
        )
        const said = guarantees(made)[0]?.worst ?? 0
        expect(seen).toBeLessThanOrEqual(said)
        // Whole microseconds: a transit of less than J is at most J - 1, so up to the drain of one microsecond may be missing; and
        // one more where a refill falls between two microseconds.
        expect(seen).toBeGreaterThanOrEqual(said - Math.ceil(rule.drain / rule.weight) - 1)
      },
    )
  })

  it('of 100/min with burst 20 allows up to 119 without delay', () => {
    const made = limit('a', { rate: '100/min', burst: 20 })
    expect(guarantees({ ...made, grantUs: 0, transitUs: 0 })[0]).toMatchObject({
      worst: 119,
      burst: 20,
      utilisation: 1,
    })
    expect(guarantees(made)[0]).toMatchObject({ worst: 120, marginMs: 200 })
    expect(guarantees(made)[0]?.text).toContain('over 100')
  })
})

describe('the check of a definition', () => {
  const define = (options: unknown, name = 'a') => code(() => limit(name, options as LimitOptions))
  it.each([
    [{ rate: [] }, 'SLUICE_BAD_LIMIT'],
    [{}, 'SLUICE_BAD_LIMIT'],
    [{ window: [], concurrency: undefined }, 'SLUICE_BAD_LIMIT'],
    [{ window: '3000000000/day' }, 'SLUICE_BAD_LIMIT'],
    [{ window: '5/fortnight' }, 'SLUICE_BAD_RATE'],
    [{ window: '5/s', burst: 3 }, 'SLUICE_BAD_LIMIT'],
    [{ concurrency: 0 }, 'SLUICE_BAD_LIMIT'],
    [{ concurrency: 1.5 }, 'SLUICE_BAD_LIMIT'],
    [{ concurrency: '3' }, 'SLUICE_BAD_LIMIT'],
    [{ concurrency: 1e7 }, 'SLUICE_BAD_LIMIT'],
    [{ rate: null }, 'SLUICE_BAD_RATE'],
    [{ rate: 100 }, 'SLUICE_BAD_RATE'],
    [{ rate: '0/min' }, 'SLUICE_BAD_RATE'],
    [{ rate: ['5/s', '5 per minute'] }, 'SLUICE_BAD_RATE'],
    [{ rate: '5/s', burst: 0 }, 'SLUICE_BAD_LIMIT'],
    [{ rate: '5/s', burst: 1.5 }, 'SLUICE_BAD_LIMIT'],
    [{ rate: '5/s', burst: NaN }, 'SLUICE_BAD_LIMIT'],
    [{ rate: '5/s', burst: '3' }, 'SLUICE_BAD_LIMIT'],
    [{ rate: '5/s', transit: -1 }, 'SLUICE_BAD_DURATION'],
    [{ rate: '5/s', transit: '1 fortnight' }, 'SLUICE_BAD_DURATION'],
    [{ rate: '5/s', transit: 1e308 }, 'SLUICE_BAD_LIMIT'],
    [{ rate: '5/s', transit: '25h' }, 'SLUICE_BAD_LIMIT'],
    [{ rate: '999983/day', burst: 1_000_000 }, 'SLUICE_BAD_LIMIT'],
  ])('answers %j with %s', (options, expected) => expect(define(options)).toBe(expected))

  it.each(['', 'A', '1a', 'a b', 'a:b', 'é', 'a'.repeat(64)])('refuses the name %j', (name) => {
    expect(define({ rate: '5/s' }, name)).toBe('SLUICE_BAD_LIMIT')
  })

  it('refuses each rule that does not fit exact arithmetic', () => {
    const anyUnit = fc.constantFrom('ms', 's', 'm', 'h', 'day')
    forAll(
      fc.integer({ min: 1, max: 999_999_999_999 }),
      anyUnit,
      fc.option(fc.integer({ min: 1, max: 1e9 })),
      (units, unit, burst) => {
        const made = define({ rate: `${units}/${unit}`, ...(burst === null ? {} : { burst }) })
        if (made === 'SLUICE_BAD_LIMIT') return
        for (const rule of (made as Limit).rules) {
          expect([rule.drain, rule.weight, rule.capacity * rule.weight].every(Number.isSafeInteger)).toBe(true)
          expect(Math.min(rule.drain, rule.weight, rule.capacity)).toBeGreaterThanOrEqual(1)
        }
      },
    )
  })
})

describe('a key', () => {
  const byPath = limit('crm', { rate: '5/s', by: 'account.id' })
  const byFunction = limit('crm', { rate: '5/s', by: (input: { key: unknown }) => input.key as string })
  const keyOf = (key: unknown) => code(() => byFunction.keyOf({ key }))

  it('is read along its path, as text', () => {
    expect(byPath.keyOf({ account: { id: 7 } })).toBe('7')
    expect(byPath.path).toBe('account.id')
    expect(limit('all', { rate: '5/s' }).keyOf({})).toBeUndefined()
  })

  it.each([
    {},
    null,
    undefined,
    { account: null },
    { account: { id: '' } },
    { account: { id: {} } },
    { account: 'id' },
  ])('is missing in %j', (input) => expect(code(() => byPath.keyOf(input as never))).toBe('SLUICE_MISSING_KEY'))

  it('is not taken from the prototype', () => {
    const inherited = limit('crm', { rate: '5/s', by: 'constructor.name' })
    expect(code(() => inherited.keyOf({} as never))).toBe('SLUICE_MISSING_KEY')
  })

  it.each([undefined, null, '', 10n, Symbol('a'), () => 1, NaN, Infinity, ['a'], {}])(
    'is missing when its value is %s',
    (key) => {
      expect(keyOf(key)).toBe('SLUICE_MISSING_KEY')
    },
  )

  it.each(['a\u0000', 'a\u001fb', 'a'.repeat(513)])('of %j is refused, because it cannot be stored', (key) =>
    expect(keyOf(key)).toBe('SLUICE_BAD_KEY'),
  )
  it.each([['a'.repeat(512)], ['ключ'], [0], [false]])('may be %j', (key) => expect(keyOf(key)).toBe(String(key)))
})

it('a limit refuses an unknown option: `key` instead of `by` would make one bucket of many', () => {
  const options = { rate: '5/s', key: 'account' } as never
  expect(() => limit('crm', options)).toThrow(expect.objectContaining({ code: 'SLUICE_BAD_LIMIT' }))
})
