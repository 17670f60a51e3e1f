/** The errors that takes outside of jobs are rejected with. */
import { AttemptError, StoreError, UsageError } from '../core/errors.ts'
import { span } from '../core/figures.ts'
import { StaleGrantError } from '../http/allowance.ts'
import type { TakeRequest } from './take-request.ts'

/** For how long all grants of a take may arrive too old before the take fails. */
export const lateMsMax = 10_000

/** The error of a take when Redis, where limits are shared, is away. */
export function redisAwayError(): StoreError {
  return new StoreError(
    'SLUICE_REDIS_UNREACHABLE',
    'Redis, where limits are shared, does not answer, so nothing is granted',
  )
}

/** The error of a take whose grant did not come in time, or cannot. */
export function takeTimeoutError(want: TakeRequest, soonestMs: number): AttemptError {
  const when = soonestMs > 0 ? `the earliest room is in ${span(soonestMs)}` : 'its turn did not come'
  return new AttemptError(
    'SLUICE_TAKE_TIMEOUT',
    `${describeWant(want)} could not be taken within ${span(want.maxWaitMs)}: ${when}; wait longer, or try again later`,
    { retryable: true, ...(soonestMs > 0 ? { retryAfterMs: Math.ceil(soonestMs) } : {}) },
  )
}

/** The error of a take that the store has not answered long after its longest wait. */
export function silentStoreError(want: TakeRequest): StoreError {
  return new StoreError(
    'SLUICE_STORE_UNREACHABLE',
    `the store did not answer when ${describeWant(want)} was to be taken within ${span(want.maxWaitMs)}`,
  )
}

/** The error of a take whose cost is more than the limit can ever grant. */
export function aboveCapacityError(want: TakeRequest, capacity: number): UsageError {
  const above = want.limits.flatMap(({ name }, i) => {
    const units = want.costs[i] ?? 1
    return units > capacity ? [`${units} units of limit "${name}"`] : []
  })
  return new UsageError(
    'SLUICE_COST_ABOVE_CAPACITY',
    `${above.join(' and ')} can never be granted: there are at most ${capacity} at once; take fewer at a time`,
  )
}

/** The error of a take all of whose grants arrived too old. */
export function tooLateError(want: TakeRequest): StaleGrantError {
  return new StaleGrantError(
    `for ${span(lateMsMax)} all grants of ${want.buckets.join(' and ')} were too old when they arrived; this machine or its connection to the store is too slow`,
  )
}

/** Returns what a take wants, in words. */
function describeWant({ buckets, costs }: TakeRequest): string {
  return buckets.map((bucket, i) => `${costs[i]} of ${bucket}`).join(' and ')
}
