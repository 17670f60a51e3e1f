/** The options of a take, checked. */
import { UsageError } from '../core/errors.ts'
import { checkKey, type Limit } from '../limits/limit.ts'
import type { WaitOptions } from '../limits/take.ts'

/** A valid take. */
export interface TakeRequest {
  readonly limit: Limit
  /** The bucket's name. */
  readonly take: string
  readonly cost: number
  /** Infinity: for ever. */
  readonly maxWaitMs: number
}

/** The options as the caller gave them. */
type Asked = { [Field in 'key' | 'cost' | 'maxWaitMs']?: WaitOptions[Field] | undefined }

/** Checks the options of a take. @throws UsageError SLUICE_MISSING_KEY, SLUICE_BAD_KEY, SLUICE_BAD_OPTION */
export function takeRequestOf(limit: Limit, { key, cost = 1, maxWaitMs = Infinity }: Asked): TakeRequest {
  const { name, pool, label } = limit
  const isKeyed = limit.keyed || pool !== undefined || label !== undefined
  if (isKeyed && (key === undefined || key === null || key === ''))
    throw new UsageError('SLUICE_MISSING_KEY', `limit "${name}" has a bucket for each key; give \`key\``)
  if (pool !== undefined && !pool.some((member) => member.key === String(key)))
    throw new UsageError(
      'SLUICE_BAD_KEY',
      `"${key}" is not a member of the pool "${name}"; outside of jobs a take must name a member`,
    )
  if (!isKeyed && key !== undefined)
    throw new UsageError('SLUICE_BAD_OPTION', `limit "${name}" has no keys; leave out \`key\``)
  if (!['string', 'number', 'boolean', 'undefined'].includes(typeof key))
    throw new UsageError('SLUICE_BAD_OPTION', `\`key\` must be a string, a number or a boolean`)
  if (!Number.isSafeInteger(cost) || cost < 0 || cost > 2 ** 31 - 1)
    throw new UsageError('SLUICE_BAD_OPTION', `cost is ${cost}; it must be a whole number from 0 to 2,147,483,647`)
  if (!(maxWaitMs >= 0))
    throw new UsageError('SLUICE_BAD_OPTION', `maxWaitMs is ${maxWaitMs}; it must be a number of ms, 0 or more`)
  return {
    limit,
    take: key === undefined ? name : `${name}:${checkKey(name, String(key))}`,
    cost,
    maxWaitMs,
  }
}
