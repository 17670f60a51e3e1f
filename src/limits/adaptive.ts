/** A limit whose rate is found: raised while the vendor accepts everything, lowered when it refuses. Pure, in whole units. */
import { inspect } from 'node:util'
import { badLimit, type Rule, withPaces } from './rule.ts'
import { countsUnits } from './kind.ts'

/** Bounds of a rate that is found, in units of the rate's window. */
export interface Bounds {
  /** Never fewer; whole, at least 1. Default 1. */
  readonly floor: number
  /** Never more; whole, at least the floor. Default 100 times the rate that the code states. Never beyond exact arithmetic. */
  readonly ceiling: number
}

/** The state of the search for a rate, beside its bounds; stored with the definition that was found. */
export interface Found extends Bounds {
  /** The rate after the newest refusal; absent: the vendor has refused nothing yet. */
  readonly top?: number
  /** True if the last change lowered the rate. */
  readonly hasFallen?: boolean
}

/** The last window, as the ledger shows it. */
export interface Course {
  /** The rate in force, in units of its window. */
  readonly units: number
  /** How long it has been in force, in windows. */
  readonly windows: number
  /** The same in minutes. */
  readonly minutes: number
  /** Units granted in the last window. */
  readonly used: number
  /** Units that the vendor accepted in its window before its newest refusal under this rate; undefined: it refused none. */
  readonly accepted: number | undefined
  /** The vendor has refused a request in the last window. */
  readonly isRefused: boolean
}

/** A refusal lowers a rate to at most, and at least, this part of it. */
const most = 0.95
const least = 0.5
/** A rate counts as tried only if at least this part of it was used. */
const tried = 0.85
/**
 * Up to this multiple of the rate that the vendor refused, steps are small. Beyond it the vendor evidently allows more,
 * so they are large.
 */
const near = 1.1
const smallStep = 0.05
const largeStep = 0.25
/** How many windows pass before the rate is raised where the vendor has refused it. */
const patience = 2

function clamp(units: number, { floor, ceiling }: Bounds): number {
  return Math.min(Math.max(units, floor), ceiling)
}

/**
 * Returns what is to be in force; undefined: no change. A refusal lowers the rate to what the vendor had accepted, by a
 * twentieth at least and by half at most, once in a window. It is raised after a full window without refusal in which it
 * was used up: doubled until the first refusal, by small steps around the rate that was refused, by a quarter beyond; at
 * most once a minute, because each rate is a version of the definition.
 */
export function adaptRate(course: Course, found: Found): (Found & { units: number }) | undefined {
  const { units, windows, minutes, used, accepted, isRefused } = course
  const { floor, ceiling, top, hasFallen = false } = found
  const to = (wanted: number, more: Omit<Found, keyof Bounds>) => {
    const next = clamp(wanted, found)
    return next === units ? undefined : { units: next, floor, ceiling, ...more }
  }
  const refused = (at: number) => {
    const next = clamp(at, found)
    return to(next, { top: next, hasFallen: true })
  }
  if (clamp(units, found) !== units) return to(units, { ...(top === undefined ? {} : { top }), hasFallen })
  if (accepted !== undefined && (!hasFallen || windows >= 1))
    return refused(Math.max(Math.ceil(units * least), Math.min(Math.floor(units * most), accepted)))
  if (isRefused || used < tried * units || windows < 1 || minutes < 1) return undefined
  if (top === undefined) return to(units * 2, {})
  if (units >= near * top) return to(Math.ceil(units * (1 + largeStep)), { top })
  if (units >= top && windows < patience) return undefined
  return to(units + Math.max(1, Math.floor(units * smallStep)), { top })
}

/**
 * Checks the option `adaptive` of a limit.
 * @param isPlain false for a limit with keys, a pool, shares or a burst
 * @throws UsageError SLUICE_BAD_LIMIT
 */
export function boundsOf(name: string, given: unknown, rules: readonly Rule[], isPlain: boolean): Bounds | undefined {
  if (given === undefined || given === false) return undefined
  const bad = (why: string) => badLimit(name, `adaptive ${why}`)
  const counting = withPaces(rules)
    .map((one) => one.rule)
    .filter(countsUnits)
  const [rule] = counting
  if (rule?.kind !== 'rate' || counting.length > 1 || !isPlain)
    throw bad('needs one rate, and no other rule, key, pool, share or burst: one rate is found for one account')
  if (given !== true && (typeof given !== 'object' || given === null))
    throw bad(`is ${inspect(given)}; it is true, or { floor, ceiling } in units of the rate's window`)
  const { floor = 1, ceiling = 100 * rule.units, ...rest } = given === true ? {} : (given as Partial<Bounds>)
  const isWhole = Number.isSafeInteger(floor) && Number.isSafeInteger(ceiling)
  if (!isWhole || floor < 1 || ceiling < floor || Object.keys(rest).length > 0)
    throw bad(`is ${inspect(given)}; floor and ceiling are whole numbers, 1 <= floor <= ceiling`)
  if (clamp(rule.units, { floor, ceiling }) !== rule.units)
    throw bad(`begins at ${rule.rate}, which is not between its floor (${floor}) and its ceiling (${ceiling})`)
  // Some way below what `level` in limits/rule.ts refuses, because the margin may change.
  const exact = Math.floor((8 * Number.MAX_SAFE_INTEGER) / rule.spanUs)
  return { floor, ceiling: Math.min(ceiling, Math.max(exact, rule.units)) }
}
