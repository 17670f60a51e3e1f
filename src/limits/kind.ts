/** The properties of each kind of rule, for all code that need not know the kinds. A new kind has a row here. */

/** The kinds of rules. A pace belongs to the rate before it, and people see the two as one rule. */
export type Kind = 'rate' | 'pace' | 'window' | 'quota' | 'concurrency'

interface Traits {
  /** It bounds either the units that are granted in some time, or the jobs that run at one time. */
  readonly bounds: 'units' | 'places'
  /** True if it keeps a debt that becomes smaller with each microsecond, and not counts that are dropped at some time. */
  readonly drains: boolean
  /** True if the vendor's span may begin at any moment, so that the margin widens it; not for periods of a calendar. */
  readonly slides: boolean
}

const kinds: Readonly<Record<Kind, Traits>> = {
  rate: { bounds: 'units', drains: true, slides: true },
  pace: { bounds: 'units', drains: true, slides: false },
  window: { bounds: 'units', drains: false, slides: true },
  quota: { bounds: 'units', drains: false, slides: false },
  concurrency: { bounds: 'places', drains: false, slides: false },
}

/** A rule, as far as its kind decides. */
export interface OfKind {
  readonly kind: Kind
}

/** True if a rule bounds how many units are granted in some time, and not how many jobs run at one time. */
export const countsUnits = ({ kind }: OfKind): boolean => kinds[kind].bounds === 'units'

/** True if a rule keeps a debt that becomes smaller with each microsecond. */
export const drains = ({ kind }: OfKind): boolean => kinds[kind].drains

/** True if the vendor's span of a rule may begin at any moment. */
export const slides = ({ kind }: OfKind): boolean => kinds[kind].slides
