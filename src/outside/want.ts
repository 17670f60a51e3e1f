/** What is taken, checked at the door. */
import { UsageError } from '../core/errors.ts'
import { checkKey, type Limit } from '../limits/limit.ts'
import type { WaitOptions } from '../limits/taker.ts'

/** A take that makes sense. */
export interface Want {
  readonly limit: Limit
  /** The bucket's name. */
  readonly take: string
  readonly cost: number
  /** Infinity: for ever. */
  readonly maxWaitMs: number
  /** So long a request may begin under a grant, in ms; Infinity for a limit that counts places only. */
  readonly grantMs: number
}

/** As it is asked for. */
type Asked = { [Field in 'key' | 'cost' | 'maxWaitMs']?: WaitOptions[Field] | undefined }

/** Reads what is to be taken. @throws UsageError SLUICE_MISSING_KEY, SLUICE_BAD_KEY, SLUICE_BAD_OPTION, SLUICE_COST_ABOVE_CAPACITY */
export function wantOf(limit: Limit, { key, cost = 1, maxWaitMs = Infinity }: Asked): Want {
  const { name, rules, grantUs } = limit
  if (limit.keyed && (key === undefined || key === null || key === ''))
    throw new UsageError('SLUICE_MISSING_KEY', `limit "${name}" has a bucket for each key: say whose, by \`key\``)
  if (!limit.keyed && key !== undefined)
    throw new UsageError('SLUICE_BAD_OPTION', `limit "${name}" has no keys: leave out \`key\``)
  if (!['string', 'number', 'boolean', 'undefined'].includes(typeof key))
    throw new UsageError('SLUICE_BAD_OPTION', `\`key\` is a string, a number or a boolean`)
  if (!Number.isSafeInteger(cost) || cost < 0 || cost > 2 ** 31 - 1)
    throw new UsageError('SLUICE_BAD_OPTION', `cost is ${cost}; it must be a whole number from 0 to 2,147,483,647`)
  if (!(maxWaitMs >= 0))
    throw new UsageError('SLUICE_BAD_OPTION', `maxWaitMs is ${maxWaitMs}; it must be a number of ms, 0 and more`)
  const counted = rules.filter((rule) => rule.kind !== 'concurrency')
  const capacity = Math.min(...counted.map((rule) => rule.room))
  if (cost > capacity) {
    throw new UsageError(
      'SLUICE_COST_ABOVE_CAPACITY',
      `cost is ${cost}, and limit "${name}" never has more than ${capacity} at once: take less, or in parts`,
    )
  }
  return {
    limit,
    take: key === undefined ? name : `${name}:${checkKey(name, String(key))}`,
    cost,
    maxWaitMs,
    grantMs: counted.length === 0 ? Infinity : grantUs / 1_000,
  }
}
