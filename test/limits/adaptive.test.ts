/** A rate that is found: its steps, its bounds, and what it comes to against a vendor that counts. */
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { adaptRate, type Course, type Found } from '../../src/limits/adaptive.ts'
import { limit, type LimitOptions } from '../../src/limits/limit.ts'
import { forAll } from '../for-all.ts'
import '../property.ts'

const bounds = { floor: 10, ceiling: 1_000 }
const course = (of: Partial<Course>): Course => ({
  units: 100,
  windows: 1,
  minutes: 1,
  used: 90,
  accepted: undefined,
  isRefused: false,
  ...of,
})
const unitsOf = (of: Partial<Course>, found: Partial<Found> = {}) =>
  adaptRate(course(of), { ...bounds, ...found })?.units

describe('the next rate', () => {
  it('is twice as high until the vendor refuses for the first time', () => {
    expect(adaptRate(course({}), bounds)).toEqual({ ...bounds, units: 200 })
  })

  it('stays while the limit is not used up, or not long enough', () => {
    expect(unitsOf({ used: 80 })).toBeUndefined()
    expect(unitsOf({ windows: 0.9 })).toBeUndefined()
    expect(unitsOf({ windows: 50, minutes: 0.9 })).toBeUndefined()
    expect(unitsOf({ isRefused: true })).toBeUndefined()
  })

  it('is what the vendor accepted before it refused, by a twentieth less at least, and half at most', () => {
    const lowered = (units: number) => ({ ...bounds, units, top: units, hasFallen: true })
    expect(adaptRate(course({ accepted: 70 }), bounds)).toEqual(lowered(70))
    expect(adaptRate(course({ accepted: 99 }), bounds)).toEqual(lowered(95))
    expect(adaptRate(course({ accepted: 3 }), bounds)).toEqual(lowered(50))
  })

  it('is lowered once in a window, and at once after it was raised', () => {
    expect(unitsOf({ accepted: 70, windows: 0.5 }, { top: 100, hasFallen: true })).toBeUndefined()
    expect(unitsOf({ accepted: 70, windows: 1 }, { top: 100, hasFallen: true })).toBe(70)
    expect(unitsOf({ accepted: 70, windows: 0.1 }, { top: 100 })).toBe(70)
  })

  it('is raised by little where the vendor has refused, and by much where it accepted more', () => {
    expect(unitsOf({}, { top: 100 })).toBeUndefined()
    expect(unitsOf({ windows: 2 }, { top: 100 })).toBe(105)
    expect(unitsOf({}, { top: 110 })).toBe(105)
    expect(unitsOf({}, { top: 90 })).toBe(125)
  })

  it('is one that a limit can have, whatever its window', () => {
    const windows = ['ms', 's', 'min', '7min', 'h', '7h', 'd', '31d', '366d']
    const units = fc.integer({ min: 1, max: 10_000_000 })
    forAll(fc.constantFrom(...windows), units, fc.double({ min: 0, max: 1, noNaN: true }), (window, begin, part) => {
      const at = (rate: number) => limit('found', { rate: `${rate}/${window}` as '1/s', adaptive: true, transit: 100 })
      let ceiling: number | undefined
      try {
        ceiling = at(begin).adaptive?.ceiling
      } catch {
        // It is beyond exact arithmetic from the start.
      }
      if (ceiling === undefined) return
      for (const rate of [ceiling, begin + Math.round(part * (ceiling - begin))]) at(rate)
    })
    expect(limit('found', { rate: '100/min', adaptive: true }).adaptive).toEqual({ floor: 1, ceiling: 10_000 })
    expect(limit('found', { rate: '500000/d', adaptive: true }).adaptive?.ceiling).toBeLessThan(1_000_000)
  })

  it('never leaves its bounds, falls only after a refusal, and rises only when it was used up', () => {
    const whole = fc.integer({ min: 1, max: 10_000 })
    const history = fc.array(
      fc.record({
        windows: fc.double({ min: 0, max: 5, noNaN: true }),
        part: fc.nat(120),
        accepted: fc.option(fc.nat(10_000), { nil: undefined }),
        isRefused: fc.boolean(),
      }),
      { maxLength: 60 },
    )
    forAll(whole, whole, whole, history, (one, other, start, steps) => {
      const [floor = 1, ceiling = 1] = [one, other].toSorted((a, b) => a - b)
      let units = Math.min(Math.max(start, floor), ceiling)
      let found: Found = { floor, ceiling }
      for (const { part, ...step } of steps) {
        const used = Math.floor((units * part) / 100)
        const next = adaptRate({ ...step, minutes: step.windows, units, used }, found)
        if (next === undefined) continue
        expect(next.units).toBeGreaterThanOrEqual(floor)
        expect(next.units).toBeLessThanOrEqual(ceiling)
        expect(Number.isInteger(next.units)).toBe(true)
        if (next.units < units) expect(step.accepted).toBeDefined()
        if (next.units > units)
          expect([step.accepted, step.isRefused, used >= 0.85 * units]).toEqual([undefined, false, true])
        ;({ units, ...found } = next)
      }
    })
  })

  it('comes back into its bounds when they have changed', () => {
    expect(unitsOf({ units: 5, used: 0 })).toBe(10)
    expect(unitsOf({ units: 2_000, used: 0 })).toBe(1_000)
  })
})

describe('adaptive, as an option', () => {
  const made = (options: object) => limit('found', options as LimitOptions).adaptive

  it('has a floor and a ceiling', () => {
    expect(made({ rate: '20/min', adaptive: true })).toEqual({ floor: 1, ceiling: 2_000 })
    expect(made({ rate: '20/min', adaptive: { ceiling: 50 } })).toEqual({ floor: 1, ceiling: 50 })
    expect(made({ rate: '20/min', concurrency: 3, adaptive: false })).toBeUndefined()
  })

  it.each([
    { window: '20/min', adaptive: true },
    { rate: ['20/min', '100/h'], adaptive: true },
    { rate: '20/min', by: 'account', adaptive: true },
    { rate: '20/min', burst: 20, adaptive: true },
    { rate: '20/min', adaptive: { floor: 21 } },
    { rate: '20/min', adaptive: { floor: 0 } },
    { rate: '20/min', adaptive: { top: 5 } },
    { rate: '20/min', adaptive: 'yes' },
  ])('is refused where it makes no sense: %j', (options) => {
    expect(() => made(options)).toThrow(expect.objectContaining({ code: 'SLUICE_BAD_LIMIT' }))
  })
})
