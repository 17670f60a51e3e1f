/** Errors by which an attempt ends what its handler does. */
import { AttemptError } from '../core/errors.ts'
import { span } from '../core/figures.ts'
import { StaleGrantError } from '../http/allowance.ts'

/** Returns the error that aborts what the handler left running. @param name the task's */
export function attemptOverError(name: string): AttemptError {
  const text = `an attempt of "${name}" is over, and makes no further calls: await every call before the handler returns`
  return new AttemptError('SLUICE_ATTEMPT_OVER', text, { retryable: false })
}

/** How many grants in a row may be too old on arrival. */
export const lateMax = 5

/** Returns the error of a request for which so many were. */
export function tooLateError(grantMs: number, source: 'the store' | 'Redis'): StaleGrantError {
  const why = `${lateMax} grants in a row were too old when they arrived; this machine, or the network to ${source}, is too slow for a grant of ${span(grantMs)}`
  return new StaleGrantError(`no request was sent: ${why}. Another attempt may succeed.`)
}

/** Returns the error of an attempt whose limits are in Redis, too, in a worker without Redis. */
export function noRedisError(): AttemptError {
  const text =
    'the limits of this job are in Redis, too, which this worker does not have: it can make the first request of an attempt, but take no further grant, and settle nothing; give it the REDIS_URL and the DATABASE_URL of its dispatchers'
  return new AttemptError('SLUICE_NO_REDIS', text, { retryable: false })
}

/** Returns the error of a first request there whose grant expired before it was written. */
export function staleWithoutRedisError(): StaleGrantError {
  return new StaleGrantError(
    'the grant ran out before the request was written, and this worker has no Redis to take another',
  )
}

/** Returns the error of an attempt whose grant expired before its handler could be called. @param name the task's */
export function staleBeforeCallError(name: string): StaleGrantError {
  return new StaleGrantError(
    `the grant ran out before "${name}" could be called: while its input was checked (make the schema faster, and do look-ups in the handler), or while a thread was prepared`,
  )
}
