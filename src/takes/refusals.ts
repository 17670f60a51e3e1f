/** What takes outside of jobs are refused with. */
import { AttemptError, StoreError, UsageError } from '../core/errors.ts'
import { StaleGrantError } from '../http/allowance.ts'
import type { Want } from './want.ts'

/** For so long grants may be too old when they arrive, all of them. */
export const lateMsMax = 10_000

/** Limits are shared in Redis, which is away. */
export function sharedAway(): StoreError {
  return new StoreError(
    'SLUICE_REDIS_UNREACHABLE',
    'Redis, where limits are shared, does not answer; nothing is granted',
  )
}

/** The Sluice was closed. */
export function closed(): StoreError {
  return new StoreError('SLUICE_CLOSED', 'this Sluice is closed; open another')
}

/** It did not come in time, or cannot. */
export function timeout(want: Want, soonestMs: number): AttemptError {
  const when = soonestMs > 0 ? `there is room in ${Math.ceil(soonestMs)} ms at the earliest` : 'its turn did not come'
  return new AttemptError(
    'SLUICE_TAKE_TIMEOUT',
    `${want.cost} of ${want.take} could not be taken within ${want.maxWaitMs} ms: ${when}; wait longer, or come back later`,
    { retryable: true, ...(soonestMs > 0 ? { retryAfterMs: Math.ceil(soonestMs) } : {}) },
  )
}

/** It can never come. */
export function aboveCapacity(want: Want, capacity: number): UsageError {
  return new UsageError(
    'SLUICE_COST_ABOVE_CAPACITY',
    `${want.cost} units of limit "${want.limit.name}" can never be granted: it has ${capacity} at once at most; take less, or in parts`,
  )
}

/** All of them were too old. */
export function tooLate(want: Want): StaleGrantError {
  return new StaleGrantError(
    `for ${lateMsMax} ms all grants of ${want.take} were too old when they arrived; this machine, or the way to the store, is too slow`,
  )
}
