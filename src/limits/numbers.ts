/** The numbers of a limit, which an operator may change while everything runs, in the form that is stored. */
import type { Money } from '../core/money.ts'
import { type Duration, durationMs, type Rate } from '../core/rate.ts'
import type { Quota } from './quota.ts'

/** Units, or money, in a window of time: `'100/min'`, `'5 USD/h'`. The example stands in messages of the compiler. */
export type Amount<Example extends Rate> = Rate | Money<string> | Example

/** Numbers of a limit, as they were given; `transit` in ms. */
export interface LimitNumbers {
  rate?: Amount<'100/min'> | readonly Amount<'100/min'>[]
  window?: Amount<'100/min'> | readonly Amount<'100/min'>[]
  quota?: Quota<'1000/day'> | readonly Quota<'1000/day'>[]
  zone?: string
  anchor?: Date | string
  concurrency?: number
  burst?: number
  transit?: Duration
}

/** Changes by an operator: a number sets, null removes; what is not named stays as it is. `transit` may be measured. */
export type NumberChanges = {
  [Field in keyof LimitNumbers]?:
    | LimitNumbers[Field]
    | (Field extends 'transit' ? 'measured' : never)
    | null
    | undefined
}

/** Names of the numbers. */
export const numberFields = ['rate', 'window', 'quota', 'zone', 'anchor', 'concurrency', 'burst', 'transit'] as const

/** Returns the numbers among the options of a limit, the same for the same numbers. */
export function numbersOf(options: object): LimitNumbers {
  const given = options as Record<string, unknown>
  const stored = (field: string, value: unknown) => {
    // Measured is what holds where nothing is stated.
    if (field === 'transit') return value === 'measured' ? undefined : durationMs(value as Duration)
    return Array.isArray(value) && value.length === 1 ? value[0] : value
  }
  return Object.fromEntries(
    numberFields.flatMap((field) => {
      const value = given[field] === undefined ? undefined : stored(field, given[field])
      return value === undefined ? [] : [[field, value]]
    }),
  )
}

/** Returns numbers with an operator's changes. */
export function applyChanges(numbers: LimitNumbers, changes: NumberChanges): LimitNumbers {
  const stated = Object.entries(changes).filter(([, value]) => value !== undefined)
  const all = Object.entries({ ...numbers, ...Object.fromEntries(stated) })
  return numbersOf(Object.fromEntries(all.filter(([, value]) => value !== null)))
}

/** Returns numbers in words: `100/min, concurrency 5`. */
export function numbersInWords(numbers: LimitNumbers): string {
  const word = ([field, value]: [string, unknown]) => {
    const text = [value].flat().map((one) => (typeof one === 'string' ? one : JSON.stringify(one)))
    return field === 'rate' ? text.join(' and ') : `${field} ${text.join(' and ')}${field === 'transit' ? ' ms' : ''}`
  }
  return Object.entries(numbers).map(word).join(', ')
}
