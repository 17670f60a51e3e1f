/** Reads the units that a handler gives by the names of limits, for `ctx.fetch` and `settle`. */
import { UsageError } from '../core/errors.ts'
import type { RequestCost } from '../http/allowance.ts'
import { checkUnits } from '../limits/cost.ts'
import type { Limit } from '../limits/limit.ts'

/**
 * Returns the units that a request takes of each bucket: those that `cost` names, else those of the job.
 * @param names the limit of each bucket
 * @param costs the units that the job takes of each bucket
 * @throws UsageError SLUICE_BAD_COST
 */
export function requestUnits(
  cost: RequestCost | null | undefined,
  limits: readonly Limit[],
  names: readonly string[],
  costs: readonly number[],
): number[] {
  check(Object.entries(cost ?? {}), limits, '`ctx.fetch`')
  return names.map((name, i) => cost?.[name] ?? costs[i] ?? 1)
}

/**
 * Returns the units that an attempt has used, by limit; a number alone is that of the only limit with costs. A wrong name or
 * amount is reported and left out: the call has been made, so it is no reason to fail the job.
 */
export function settledUnits(
  actual: number | RequestCost,
  limits: readonly Limit[],
  wrong: (text: string) => void,
): RequestCost {
  const given: [name: string | undefined, units: number][] =
    typeof actual === 'object' && actual !== null ? Object.entries(actual) : [[undefined, actual]]
  const right = given.flatMap(([name, units]): [string, number][] => {
    try {
      const one: [string, number] = [name ?? onlyCosted(limits), units]
      check([one], limits, '`settle`')
      return [one]
    } catch (error) {
      wrong(`the units stay charged, because ${(error as UsageError).message}`)
      return []
    }
  })
  return Object.fromEntries(right)
}

function check(units: readonly [name: string, units: number][], limits: readonly Limit[], from: string): void {
  for (const [name, count] of units) {
    const isKnown = limits.some((limit) => limit.name === name)
    if (isKnown) checkUnits(name, count, from)
    else throw bad(`the task has no limit "${name}"; it has: ${namesOf(limits) || 'none'}`)
  }
}

function onlyCosted(limits: readonly Limit[]): string {
  const costed = limits.filter(({ cost }) => cost !== 1)
  const [only] = costed
  if (only !== undefined && costed.length === 1) return only.name
  const names = costed.length === 0 ? '' : ` (${namesOf(costed)})`
  throw bad(
    `\`settle\` with a number alone needs a task with exactly one limit with costs; this one has ${costed.length}${names}: name the limit, settle({ name: units })`,
  )
}

const namesOf = (limits: readonly Limit[]) => limits.map(({ name }) => name).join(', ')
const bad = (text: string) => new UsageError('SLUICE_BAD_COST', text)
