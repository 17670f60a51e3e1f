import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { charge, emptyBucket, room } from '../../src/limits/decide.ts'
import { guaranteeOf, vendorViews, vendorWarning } from '../../src/limits/exposure.ts'
import { limit, type Limit } from '../../src/limits/limit.ts'
import type { Rule } from '../../src/limits/rule.ts'
import type { VendorAlgorithm, VendorRate } from '../../src/limits/vendor.ts'
import { charge as count, emptyWindow, waitOf, type WindowRule } from '../../src/testing/window.ts'
import { anyFlow, type Grant, greedy, level, minute, second, sliding } from './oracle.ts'
import { forAll } from '../for-all.ts'
import { cases } from '../long.ts'

/** A vendor that counts in one way. */
type Vendor = VendorRate & { algorithm: VendorAlgorithm; burst: number }

const vendorOf = (algorithm: VendorAlgorithm, units: number, windowUs: number, burst = units): Vendor => ({
  rate: `${units}/${windowUs / 1_000}ms` as VendorRate['rate'],
  units,
  windowUs,
  algorithm,
  burst,
})

/** Refusals of arrivals at these times (in microseconds, sorted): in all, and the most in one of the vendor's windows. */
function refusals(vendor: Vendor, times: readonly number[]): { all: number; most: number } {
  const { algorithm, units, windowUs, burst } = vendor
  const rule: WindowRule = { algorithm, limit: units, windowNs: windowUs * 1_000, burst }
  const state = emptyWindow(rule)
  const refused: number[] = []
  let [most, since, index] = [0, 0, NaN]
  for (const atUs of times) {
    const nowNs = atUs * 1_000
    const tokens = state.tokens + ((nowNs - state.atNs) * units) / rule.windowNs
    const isFull = algorithm === 'bucket' && tokens >= burst - 1e-6
    const isNew = algorithm !== 'bucket' && Math.floor(atUs / windowUs) !== index
    index = Math.floor(atUs / windowUs)
    if (isFull || isNew) since = 0
    if (waitOf(rule, state, nowNs) === 0) {
      count(rule, state, nowNs)
      continue
    }
    refused.push(atUs)
    since += 1
    const within = algorithm === 'sliding log' ? refused.filter((one) => one > atUs - windowUs).length : since
    most = Math.max(most, within)
  }
  return { all: refused.length, most }
}

const boundOf = (rules: readonly Rule[], vendor: Vendor, marginUs = 0): number =>
  vendorViews({ rules, grantUs: 0, transitUs: marginUs, vendor })[0]?.refused ?? NaN

/** The calls of grants, with a transit of 0 to marginUs - 1: some are delayed to a moment at which many arrive together. */
function arrivals(grants: readonly Grant[], marginUs: number, gatherUs: number, phaseUs: number): number[] {
  return grants
    .flatMap(([atUs, units]) => {
      const gate = Math.ceil((atUs + phaseUs) / gatherUs) * gatherUs - phaseUs
      return Array<number>(units).fill((gate <= atUs + Math.max(0, marginUs - 1) ? gate : atUs) + phaseUs)
    })
    .toSorted((a, b) => a - b)
}

/** Grants of a demand that comes and goes: all free units for a while, then none for a while. */
function grantsOf(rules: readonly Rule[], spells: readonly (readonly [pauseUs: number, most: number])[]): Grant[] {
  let bucket = emptyBucket(rules, 0)
  const grants: Grant[] = []
  let nowUs = 0
  for (const [pauseUs, most] of spells) {
    nowUs += pauseUs
    for (let left = most; left > 0;) {
      const free = room(rules, bucket, nowUs)
      const units = Math.min(left, free.avail)
      if (units > 0) {
        bucket = charge(rules, free.bucket, units)
        grants.push([nowUs, units])
        left -= units
      } else nowUs = free.nextUs
    }
  }
  return grants
}

const ways = ['fixed window', 'sliding log', 'sliding counter', 'bucket'] as const

describe('the number of calls that a vendor can refuse', () => {
  const demand = fc.array(fc.tuple(fc.double({ min: 0, max: 2, noNaN: true }), fc.integer({ min: 1, max: 120 })), {
    minLength: 1,
    maxLength: 6,
  })
  const vendor = fc.record({
    algorithm: fc.constantFrom(...ways),
    scale: fc.oneof({ weight: 2, arbitrary: fc.constant(1) }, fc.double({ min: 0.3, max: 3, noNaN: true })),
    small: fc.double({ min: 0.05, max: 1, noNaN: true }),
    phase: fc.double({ min: 0, max: 1, noNaN: true, maxExcluded: true }),
    margin: fc.oneof(fc.constant(0), fc.double({ min: 0, max: 0.5, noNaN: true })),
  })

  it('is never more than the bound, whatever the rule, the demand, the phase and the delays', () => {
    forAll(cases(700), anyFlow, vendor, demand, (rule, { algorithm, scale, small, phase, margin }, spells) => {
      const { units, windowUs } = rule
      const their = vendorOf(
        algorithm,
        Math.max(1, Math.round(units * scale)),
        windowUs,
        Math.max(1, Math.round(units * scale * small)),
      )
      const marginUs = Math.floor(margin * windowUs)
      const pauses = spells.map(([pause, most]) => [Math.floor(pause * windowUs), most] as const)
      const seen = arrivals(grantsOf([rule], pauses), marginUs, windowUs, Math.floor(phase * windowUs))
      expect(refusals(their, seen).most).toBeLessThanOrEqual(boundOf([rule], their, marginUs))
    })
  })

  it('is never more than the bound for several rules, and for our own limits as they are defined', () => {
    const limits: Limit[] = [
      limit('a', { rate: '100/min', transit: 5_000 }),
      limit('a', { rate: ['5/s', '60/min'] }),
      limit('a', { window: '50/s', transit: 300 }),
      limit('a', { rate: '100/min', burst: 40 }),
    ]
    forAll(cases(400), fc.constantFrom(...limits), vendor, demand, (made, { algorithm, small, phase }, spells) => {
      const { windowUs, units } = made.rules[0] as Rule
      const their = vendorOf(algorithm, units, windowUs, Math.max(1, Math.round(units * small)))
      const marginUs = made.grantUs + made.transitUs
      const pauses = spells.map(([pause, most]) => [Math.floor(pause * windowUs), most] as const)
      const seen = arrivals(grantsOf(made.rules, pauses), marginUs, windowUs, Math.floor(phase * windowUs))
      expect(refusals(their, seen).most).toBeLessThanOrEqual(boundOf(made.rules, their, marginUs))
    })
  })

  it('includes the last grant of a window when the time between grants is a fraction of a microsecond', () => {
    const rule = level(60, 272_607_935, 1)
    const their = vendorOf('sliding counter', 18, rule.windowUs)
    const grants = greedy([rule], 0, 200)
    const seen = refusals(their, arrivals(grants, 0, 1, 1)).most
    expect(seen).toBeGreaterThan(40)
    expect(seen).toBeLessThanOrEqual(boundOf([rule], their))
  })

  it('reaches the bound by a burst after a pause, across the edge of a window', () => {
    forAll(
      cases(200),
      fc.constantFrom(...ways),
      fc.integer({ min: 2, max: 60 }),
      fc.integer({ min: 1, max: 60 }),
      (way, units, burst) => {
        const rule = level(units, units * 600_000, burst)
        const their = vendorOf(way, units, rule.windowUs, Math.max(1, Math.floor(units / 10)))
        // A full window with nothing left over; then its burst, and on at its rate.
        const full = rule.windowUs * Math.ceil(1 + burst / units)
        const steady = Array.from({ length: units }, () => [600_000, 1] as const)
        const spells = [[full, 1] as const, ...steady.slice(1), [0, burst + 2 * units] as const]
        const grants = grantsOf([rule], spells)
        const turn = grants[units]?.[0] ?? 0
        const seen = [0, 1, 2, 600_000].map((offUs) => {
          const phaseUs = (rule.windowUs - ((turn - offUs) % rule.windowUs)) % rule.windowUs
          return refusals(their, arrivals(grants, 0, 1, phaseUs)).most
        })
        expect(Math.max(...seen)).toBeGreaterThanOrEqual(boundOf([rule], their) - 1)
      },
    )
  })
})

// Refusals of a number of calls in a row (900 in the last row), at 100 a minute, without delay, in the worst phase.
describe.each([
  { rule: level(100, minute, 100), calls: 1_000, refused: [99, 99, 107, 0, 90], bounds: [99, 99, 100, 0, 90] },
  { rule: sliding(100, second), calls: 1_000, refused: [0, 0, undefined, 0, 900], bounds: [0, 0, 100, 0, 90] },
  { rule: level(100, minute, 1), calls: 1_000, refused: [0, 0, 10, 0, 0], bounds: [0, 0, 1, 0, 0] },
  { rule: level(91, minute, 10), calls: 900, refused: [0, 0, 1, 0, 0], bounds: [0, 0, 1, 0, 0] },
])('$calls calls by $rule.rate, $rule.capacity at once', ({ rule, calls, refused, bounds }) => {
  const vendors = [...ways.map((way) => vendorOf(way, 100, minute)), vendorOf('bucket', 100, minute, 10)]

  it('are refused as often as the reference computes, and in one window no more than the bound', () => {
    const grants = greedy([rule], 0, calls)
    const worst = vendors.map((vendor) => {
      const seen = Array.from({ length: 120 }, (_, k) =>
        refusals(vendor, arrivals(grants, 0, 1, (k * minute) / 120 + 1)),
      )
      return { all: Math.max(...seen.map(({ all }) => all)), most: Math.max(...seen.map(({ most }) => most)) }
    })
    expect(worst.map(({ all }, k) => (refused[k] === undefined ? undefined : all))).toEqual(refused)
    expect(vendors.map((vendor) => boundOf([rule], vendor))).toEqual(bounds)
    for (const [k, { most }] of worst.entries()) expect(most).toBeLessThanOrEqual(bounds[k] ?? NaN)
  })
})

describe('a vendor in the definition of a limit', () => {
  it('is part of one sentence about the worst case, and without it the sentence is complete, too', () => {
    expect(guaranteeOf(limit('a', { rate: '100/min', concurrency: 5 })).sentence).toBe(
      'the vendor sees at most 100 in any window of 100/min, and 5 at one time, as long as the way from decision to arrival varies by no more than 200 ms; a vendor of 100/min refuses none by fixed window, sliding log, bucket of 100, up to 4 by sliding counter, up to 1 by bucket of 10',
    )
    expect(
      guaranteeOf(limit('a', { rate: '200/min', vendor: { limit: '100/min', algorithm: 'bucket' } })).sentence,
    ).toMatch(/; a vendor of 100\/min refuses any number by bucket of 100$/)
    expect(guaranteeOf(limit('a', { concurrency: 5 }))).toEqual({
      sentence: 'the vendor sees at most 5 at one time',
      rules: [expect.objectContaining({ worst: 5 })],
      vendors: [],
    })
  })

  it('leads to a warning when its limit could be exceeded, as far as its way of counting is known', () => {
    const warned = (made: Limit) => vendorWarning(made)
    expect(warned(limit('a', { rate: '100/min' }))).toBeUndefined()
    expect(warned(limit('a', { rate: '100/min', vendor: '100/min' }))).toBeUndefined()
    expect(warned(limit('a', { rate: '120/min', vendor: '100/min' }))).toMatch(
      /allows 100\/min, and up to 120 may arrive/,
    )
    expect(warned(limit('a', { rate: '100/min', burst: 100, vendor: '100/min' }))).toMatch(/up to 200/)
    expect(
      warned(limit('a', { rate: '100/min', burst: 100, vendor: { limit: '100/min', algorithm: 'bucket' } })),
    ).toMatch(/bucket of 100\), and may refuse up to 1 at a time/)
    expect(
      warned(limit('a', { rate: '90/min', burst: 90, vendor: { limit: '100/min', algorithm: 'bucket' } })),
    ).toBeUndefined()
    expect(warned(limit('a', { rate: '200/min', vendor: { limit: '100/min', algorithm: 'bucket' } }))).toMatch(
      /may refuse any number$/,
    )
    expect(warned(limit('a', { concurrency: 5, vendor: '100/min' }))).toMatch(/no rate of this limit keeps to that/)
    expect(warned(limit('a', { rate: ['100/min', '1000/h'], vendor: '1000/h' }))).toBeUndefined()
  })

  it('may be a name, a rate, or both and a function', () => {
    const read = () => undefined
    expect(limit('a', { rate: '1/s', vendor: 'github' })).toMatchObject({ vendor: undefined, answers: 'github' })
    expect(limit('a', { rate: '1/s', vendor: '2/s' })).toMatchObject({ vendor: { rate: '2/s' }, answers: undefined })
    expect(limit('a', { rate: '1/s', vendor: { answers: read } })).toMatchObject({ vendor: undefined, answers: read })
    expect(limit('a', { rate: '1/s', vendor: { limit: '2/s', answers: 'aws' } })).toMatchObject({
      vendor: { rate: '2/s' },
      answers: 'aws',
    })
  })

  it.each([
    [{ limit: '100/min', algorithm: 'leaky' }, 'SLUICE_BAD_LIMIT', /use one of fixed window/],
    [{ limit: '100/min', burst: 5 }, 'SLUICE_BAD_LIMIT', /capacity of a `bucket`/],
    [{ limit: '100/min', algorithm: 'bucket', burst: 0 }, 'SLUICE_BAD_LIMIT', /at least 1/],
    [
      { limit: '100/min', answer: 'github' },
      'SLUICE_BAD_LIMIT',
      /has no "answer"; did you mean "answers"\? there are limit/,
    ],
    ['much/more', 'SLUICE_BAD_RATE', /is not a rate/],
    ['gitub', 'SLUICE_BAD_LIMIT', /no vendor 'gitub'; name one of github, .*or state a rate/],
    ['toString', 'SLUICE_BAD_LIMIT', /no vendor 'toString'/],
    [{ answers: 'gitub' }, 'SLUICE_BAD_LIMIT', /no vendor 'gitub'/],
    [{ answers: 7 }, 'SLUICE_BAD_LIMIT', /no vendor 7/],
    [{ algorithm: 'bucket', answers: 'github' }, 'SLUICE_BAD_LIMIT', /what its vendor allows is missing/],
    [{}, 'SLUICE_BAD_LIMIT', /what its vendor allows is missing/],
  ])('is refused as %j', (vendor, code, message) => {
    const define = () => limit('a', { rate: '1/s', vendor: vendor as never })
    expect(define).toThrow(expect.objectContaining({ code, message: expect.stringMatching(message) }))
  })
})
