/** A job that was published for stock workers, and what each report of a worker means for it. Pure. */
import { isExpired, type TaskResult, unread } from '../celery/result.ts'
import { isRecord } from '../celery/json.ts'

/** The state of a call. */
export interface Call {
  /** The process that began it, of this worker. */
  by: { worker: string; pid: number } | undefined
  /** The task has sent itself again: its error, until the second message is over. */
  retry: TaskResult | undefined
}

/** Stands for the worker that has begun a call if its name is not known. */
export const unknownWorker = ''

/** The meaning of a report. */
export type Meaning =
  | 'nothing'
  | 'begun'
  /** A second process has begun it: the message was delivered again. */
  | 'begun again'
  | 'done'
  | 'failed'
  /** It has failed, and its task has sent itself again: that message has to be stopped. */
  | 'retries'
  /** The message that it had sent has begun after all, and made a call that no limit has granted. */
  | 'ungranted'
  /** The message that it had sent will not begin. */
  | 'retried'
  /** It was not called, and will not be. */
  | 'uncalled'
  /** It was begun, and its message was delivered again, too late. Its worker was cut off and goes on with it, or is gone. */
  | 'back'
  /** It was begun, and how it ended is not known. */
  | 'lost'

/** Errors that Celery makes itself: the process of the call has died. */
const deathErrors = new Set(['WorkerLostError', 'Terminated', 'WorkerShutdown', 'WorkerTerminate'])

/** Notes a worker's report, and returns what it means. */
export function readMeaning(call: Call, result: TaskResult): Meaning {
  const { state, value } = result
  if (state === 'SUCCESS') return 'done'
  if (state === 'FAILURE') return meaningOfFailure(call, value)
  if (state === 'STARTED') return meaningOfStart(call, value)
  // Whatever it states, a worker has had the call.
  if (state === unread) return call.by === undefined ? meaningOfStart(call, {}) : 'nothing'
  if (state === 'RETRY') {
    call.retry = result
    return 'retries'
  }
  if (state !== 'REVOKED') return 'nothing'
  if (call.retry !== undefined) return 'retried'
  if (call.by === undefined) return 'uncalled'
  return isExpired(result) ? 'back' : 'lost'
}

function meaningOfFailure({ by }: Call, error: unknown): Meaning {
  const { type = '' } = error as { type?: string }
  if (type === 'NotRegistered' && by === undefined) return 'uncalled'
  return deathErrors.has(type) ? 'lost' : 'failed'
}

function meaningOfStart(call: Call, value: unknown): Meaning {
  const { hostname, pid } = isRecord(value) ? value : {}
  const by = { worker: typeof hostname === 'string' ? hostname : '', pid: Number(pid ?? -1) }
  const former = call.by
  call.by = by
  if (call.retry !== undefined) {
    call.retry = undefined
    return 'ungranted'
  }
  if (former === undefined) return 'begun'
  if (former.worker === unknownWorker) return 'nothing'
  return former.worker === by.worker && former.pid === by.pid ? 'nothing' : 'begun again'
}
