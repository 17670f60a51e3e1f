/** Which keys of a Redis have the limits, and how many databases share them. */
import { UsageError } from '../core/errors.ts'
import { env } from '../db/open.ts'

/**
 * Returns where limits are in Redis, and for how many databases: as given, else by the environment, else by default.
 * @throws UsageError SLUICE_BAD_REDIS
 */
export function sharingOf(given: { redisPrefix?: string | undefined; redisStores?: number | undefined }): {
  prefix: string
  stores: number
} {
  const stores = given.redisStores ?? Number(env('SLUICE_REDIS_STORES') ?? 1)
  if (!Number.isInteger(stores) || stores < 1 || stores > 1_000)
    throw new UsageError(
      'SLUICE_BAD_REDIS',
      'the number of databases that share limits in Redis (SLUICE_REDIS_STORES) must be a whole number from 1 to 1000',
    )
  return { prefix: given.redisPrefix ?? env('SLUICE_REDIS_PREFIX') ?? 'sluice:', stores }
}
