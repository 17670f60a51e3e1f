/** The options of a take, checked. */
import { inspect } from 'node:util'
import { UsageError } from '../core/errors.ts'
import { checkFields, checkSignal } from '../core/fields.ts'
import { checkKey, costMax, type Limit } from '../limits/limit.ts'
import type { TakeKey, WaitOptions } from '../limits/take.ts'
import { countsUnits } from '../limits/kind.ts'

/** A valid take of one limit or several: of all or none. */
export interface TakeRequest {
  readonly limits: readonly Limit[]
  /** The name of each limit's bucket. */
  readonly buckets: readonly string[]
  /** Units of each. */
  readonly costs: readonly number[]
  /** Infinity: for ever. */
  readonly maxWaitMs: number
}

/** The options as the caller gave them. */
type GivenOptions = { [Field in 'key' | 'cost' | 'maxWaitMs' | 'signal']?: WaitOptions[Field] | undefined }

/** Checks the options of a take. @throws UsageError SLUICE_MISSING_KEY, SLUICE_BAD_KEY, SLUICE_BAD_OPTION */
export function takeRequestOf(given: Limit | readonly Limit[], options: GivenOptions): TakeRequest {
  // A misspelt `maxWaitMs` would wait for ever.
  checkFields('SLUICE_BAD_OPTION', 'a take', options, ['key', 'cost', 'maxWaitMs', 'signal'])
  const { key, cost, maxWaitMs = Infinity, signal } = options
  const limits = [given].flat() as Limit[]
  const names = limits.map((one) => {
    if (Array.isArray(one?.rules)) return one.name
    throw new UsageError('SLUICE_BAD_OPTION', `${inspect(one, { depth: 0 })} is no limit; give what limit(…) returned`)
  })
  if (limits.length === 0 || new Set(names).size < limits.length)
    throw new UsageError(
      'SLUICE_BAD_OPTION',
      `a take needs a limit, or several different ones; it got ${listed(names)}`,
    )
  if (typeof maxWaitMs !== 'number' || !(maxWaitMs >= 0))
    throw new UsageError(
      'SLUICE_BAD_OPTION',
      `maxWaitMs is ${inspect(maxWaitMs)}; it must be a number of ms, 0 or more`,
    )
  checkSignal(signal)
  const keys = byLimit('key', key, names)
  const costs = byLimit('cost', cost, names)
  const hasKeys = ({ keyed, pool, label }: Limit) => keyed || pool !== undefined || label !== undefined
  if (key !== undefined && keys === undefined && !limits.some(hasKeys))
    throw new UsageError('SLUICE_BAD_OPTION', `a take got \`key\`, and ${listed(names)} has no keys; leave it out`)
  return {
    limits,
    buckets: limits.map((limit) =>
      bucketOf(limit, keys === undefined && hasKeys(limit) ? (key as TakeKey) : keys?.[limit.name]),
    ),
    costs: limits.map(({ name, currency }) => {
      const given = costs === undefined ? (cost as number | undefined) : costs[name]
      if (given === undefined && currency !== undefined)
        throw new UsageError('SLUICE_BAD_OPTION', `limit "${name}" is in money; give \`cost\`, such as money(0.002)`)
      return checkUnits(name, given ?? 1)
    }),
    maxWaitMs,
  }
}

/** Returns the values by limit's name; undefined: one value was given for all. @throws UsageError SLUICE_BAD_OPTION */
function byLimit<V>(
  field: string,
  given: V | Readonly<Record<string, V>> | undefined,
  names: readonly string[],
): Readonly<Record<string, V>> | undefined {
  if (typeof given !== 'object' || given === null) return undefined
  const unknown = Object.keys(given).find((name) => !names.includes(name))
  if (unknown === undefined) return given as Readonly<Record<string, V>>
  throw new UsageError('SLUICE_BAD_OPTION', `\`${field}\` names "${unknown}", but the take is of ${listed(names)}`)
}

/** Returns the name of the bucket that a take names. @throws UsageError SLUICE_MISSING_KEY, SLUICE_BAD_KEY, SLUICE_BAD_OPTION */
function bucketOf({ name, keyed, pool, label }: Limit, key: TakeKey | undefined): string {
  const isKeyed = keyed || pool !== undefined || label !== undefined
  if (isKeyed && (key === undefined || key === null || key === ''))
    throw new UsageError('SLUICE_MISSING_KEY', `limit "${name}" has keys; give \`key\``)
  if (pool !== undefined && !pool.some((member) => member.key === String(key)))
    throw new UsageError(
      'SLUICE_BAD_KEY',
      `"${key}" is not a member of the pool "${name}"; outside of jobs a take must name a member`,
    )
  if (!isKeyed && key !== undefined)
    throw new UsageError('SLUICE_BAD_OPTION', `limit "${name}" has no keys; leave out \`key\``)
  if (!['string', 'boolean', 'undefined'].includes(typeof key) && !Number.isFinite(key))
    throw new UsageError('SLUICE_BAD_OPTION', `\`key\` must be a string, a number or a boolean`)
  return key === undefined ? name : `${name}:${checkKey(name, String(key))}`
}

/** Checks a number of units of a limit, and returns it. @throws UsageError SLUICE_BAD_OPTION */
export function checkUnits(name: string, units: unknown): number {
  if (Number.isInteger(units) && (units as number) >= 0 && (units as number) <= costMax) return units as number
  const text = `units of limit "${name}" are ${inspect(units, { depth: 0 })}; they must be a whole number from 0 to 2,147,483,647`
  throw new UsageError('SLUICE_BAD_OPTION', text)
}

/**
 * Returns what was used of each limit of a take; undefined: not given, so as charged. A number alone counts for the only
 * limit that has units. @throws UsageError SLUICE_BAD_OPTION
 */
export function usedUnits(
  limits: readonly Limit[],
  used: number | Readonly<Record<string, number>>,
): (number | undefined)[] {
  const counted = limits.filter(({ rules }) => rules.some(countsUnits)).map(({ name }) => name)
  const isNamed = typeof used === 'object' && used !== null
  if (!isNamed && counted.length !== 1) {
    const why = `a number alone needs a take of one limit with units; this one has ${listed(counted)}`
    throw new UsageError('SLUICE_BAD_OPTION', `${why}: name them, settle({ ${counted[0] ?? 'limit'}: ${used} })`)
  }
  const named = byLimit('settle', isNamed ? used : { [counted[0] ?? '']: used }, counted)
  // A value that is there, but no number (undefined, where an answer lacks its usage), must not count as charged.
  return limits.map(({ name }) => (Object.hasOwn(named ?? {}, name) ? checkUnits(name, named?.[name]) : undefined))
}

function listed(names: readonly string[]): string {
  return names.length === 0 ? 'none' : names.map((name) => `"${name}"`).join(', ')
}
