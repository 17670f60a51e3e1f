/** Counts what was granted in the periods of quotas, for `proof.ts`: by the definition alone, not by the code that grants. */
import { type Period, periodOf } from '../core/calendar.ts'
import type { Rule } from './rule.ts'

/** How far the limiter's clock, whose times are in the ledger, was ahead of the store's clock, by which calendars go. */
export interface ClockOffset {
  /** Its offset before the first known step of the store's clock. */
  firstUs: number
  /** Its offset from each time on (of the limiter's clock); the newest last. */
  steps: readonly { atUs: number; clockOffsetUs: number }[]
}

/** The clocks show the same. */
export const level: ClockOffset = { firstUs: 0, steps: [] }

/** Returns by how much the store's clock was set back altogether. */
export function setBack({ firstUs, steps }: ClockOffset): number {
  const moves = steps.map(({ clockOffsetUs }, i) => clockOffsetUs - (steps[i - 1]?.clockOffsetUs ?? firstUs))
  return moves.reduce((sum, us) => sum + Math.max(0, us), 0)
}

/** A period of a quota by the store's clock, and what counts in it since its first grant (a time of the ledger). */
export type CountedPeriod = Period & { firstUs: number; units: number; over: number }

/** Counts what was granted in the last periods of a quota. A grant within the margin of a boundary counts on both sides. */
export class Periods {
  readonly rule: number
  readonly #quota: NonNullable<Rule['quota']>
  readonly #clockOffset: ClockOffset
  /** A period that ended less than this ago may come back, because the store's clock may have been set back. */
  readonly #backUs: number
  /** The newest period is last. */
  readonly #counts: CountedPeriod[] = []

  constructor(rule: number, quota: NonNullable<Rule['quota']>, clockOffset: ClockOffset) {
    this.rule = rule
    this.#quota = quota
    this.#clockOffset = clockOffset
    this.#backUs = setBack(clockOffset)
  }

  /** Counts units granted at a time (negative: given back). Returns the periods in which they count. */
  count(atUs: number, units: number, over = 0): readonly CountedPeriod[] {
    const { marginUs } = this.#quota
    const { firstUs, steps } = this.#clockOffset
    const wallUs = atUs - (steps.findLast((step) => step.atUs <= atUs)?.clockOffsetUs ?? firstUs)
    const all = [...new Set([wallUs - marginUs, wallUs, wallUs + marginUs].map((us) => this.#period(us, atUs)))]
    for (const period of all) {
      period.units += units
      period.over += over
    }
    return all
  }

  #period(us: number, firstUs: number): CountedPeriod {
    const known = this.#counts.findLast(({ startUs, endUs }) => us >= startUs && us < endUs)
    if (known !== undefined) return known
    const period = { ...periodOf(this.#quota, us), firstUs, units: 0, over: 0 }
    this.#counts.push(period)
    // Only what is given back can still reach older periods, and that makes them no fuller.
    while (this.#counts.length > 6 && (this.#counts[0]?.endUs ?? us) < us - this.#backUs) this.#counts.shift()
    return period
  }
}
