/** The cost of one job: its number of units in a limit, read from its input and compared with the most that the limit can hold. */
import { inspect } from 'node:util'
import { UsageError } from '../core/errors.ts'
import { amount } from '../core/money.ts'
import { costMax, fieldOf, type Limit } from './limit.ts'
import { countsUnits } from './kind.ts'

/** Returns the part of its declared cost, in thousandths, that a job of this input is expected to use; undefined: not known. */
export type Expect = (limit: Limit, input: unknown) => number | undefined

/**
 * Returns the units that a job of this input takes from a limit: what is declared, or what is expected if costs are learned.
 * @throws UsageError SLUICE_BAD_COST; SLUICE_COST_ABOVE_CAPACITY
 */
export function costOf(limit: Limit, input: unknown, expect?: Expect): number {
  const declared = declaredOf(limit, input)
  const share = limit.learn === undefined ? undefined : expect?.(limit, input)
  const units = share === undefined ? declared : Math.min(declared, Math.max(1, Math.ceil((declared * share) / 1_000)))
  checkFits(limit, units)
  return units
}

/**
 * Returns the units that a limit, or a task, declares for a job of this input.
 * @throws UsageError SLUICE_BAD_COST unless they are whole and from 0 to 2,147,483,647
 */
export function declaredOf(limit: Limit, input: unknown): number {
  const { name, cost, currency } = limit
  let units: unknown
  try {
    units = typeof cost === 'function' ? cost(input as never) : typeof cost === 'string' ? fieldOf(input, cost) : cost
  } catch (cause) {
    const message = `the cost function of limit "${name}" threw: ${String(cause)}`
    throw new UsageError('SLUICE_BAD_COST', message, { cause })
  }
  checkUnits(name, units, typeof cost === 'string' ? `field "${cost}"` : 'its cost function', currency)
  return units
}

/** Checks a number of units; `currency` of a limit in money. @throws UsageError SLUICE_BAD_COST */
export function checkUnits(name: string, units: unknown, from: string, currency?: string): asserts units is number {
  if (Number.isInteger(units) && (units as number) >= 0 && (units as number) <= costMax) return
  const most = currency === undefined ? `${costMax}` : `${costMax}, in millionths of ${currency}`
  const advice =
    currency === undefined ? '' : `: \`money(0.002)\` gives them, up to ${amount(costMax, currency)} for one job`
  throw new UsageError(
    'SLUICE_BAD_COST',
    `limit "${name}" takes the cost from ${from}, which gave ${inspect(units, { depth: 0 })}; it must be a whole number from 0 to ${most}${advice}`,
  )
}

/** Returns the most units that a limit can ever grant at once: what its narrowest rule holds. Infinity if it only has places. */
export function capacityOf({ rules }: Pick<Limit, 'rules'>): number {
  return Math.min(...rules.filter(countsUnits).map((rule) => rule.capacity))
}

function checkFits({ name, rules, classic, currency }: Limit, units: number): void {
  const narrow = rules.find((rule) => countsUnits(rule) && rule.capacity < units)
  if (narrow === undefined) return
  const { kind, rate, capacity } = narrow
  const isSafe = kind === 'rate' && !classic
  const advice = isSafe
    ? `. A \`rate\` grants at most a tenth of its units at once: use \`window: '${rate}'\`, which may grant all at once, or give a larger \`burst\``
    : `. Raise its ${kind === 'rate' ? '`burst`' : kind}, or make the job smaller`
  throw new UsageError(
    'SLUICE_COST_ABOVE_CAPACITY',
    `the job costs ${amount(units, currency)} in limit "${name}", whose ${kind} ${rate} holds ${amount(capacity, currency)} at most, so it could never start${advice}`,
  )
}

/**
 * Returns what a job adds to the turn of its fair key, by its cost in the limit that it shares with others: in thousandths
 * of what the limit holds if that is more than a thousand, so that no sum of turns exceeds the store's 64 bits. At least 1.
 */
export function turnOf(limit: Limit, units: number): number {
  const capacity = capacityOf(limit)
  const unit = Number.isFinite(capacity) ? Math.max(1, Math.floor(capacity / 1_000)) : 1
  return Math.max(1, Math.ceil(units / unit))
}
