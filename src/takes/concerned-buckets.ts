/** Which buckets a vendor's refusal concerns. Pure. */
import { limitOf, ownOf } from '../core/bucket.ts'
import type { Limit } from '../limits/limit.ts'

/**
 * Splits the buckets of a refused request into those that the refusal concerns, and the others: those of the limit that
 * it names, else those of the request's own keys, else all. A limit in money is a budget of the user's, which no vendor
 * knows: it is left out if the request has another one.
 */
export function splitByRefusal(
  buckets: readonly string[],
  limit: string | undefined,
  limits: readonly Pick<Limit, 'name' | 'currency'>[] = [],
): Record<'concerned' | 'others', string[]> {
  const named = buckets.filter((bucket) => limitOf(bucket) === limit)
  if (named.length > 0) return { concerned: named, others: [] }
  const isMoney = (bucket: string) =>
    limits.some(({ name, currency }) => name === limitOf(bucket) && currency !== undefined)
  const known = buckets.filter((bucket) => !isMoney(bucket))
  const theirs = known.length > 0 ? known : buckets
  const concerned = ownOf(theirs)
  return { concerned, others: theirs.filter((bucket) => !concerned.includes(bucket)) }
}
