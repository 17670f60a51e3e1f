/** A job as Celery's message, and a task's result as the store keeps it. */
import { hostname } from 'node:os'
import { type ClaimedJob, messageLimitMs } from '../claim/claimed-job.ts'
import { CeleryTaskError, isFinal, resultValue, type TaskResult, writeLoosely } from '../celery/result.ts'
import { answerIn } from './answer.ts'
import { argumentsOfInput } from '../celery/arguments.ts'
import { plainJson } from '../celery/json.ts'
import { blank, type TaskMessage } from '../celery/task-message.ts'
import { encodePayload } from '../core/payload.ts'
import type { AnyTask } from '../tasks/task.ts'
import { timeoutError } from '../worker/verdict.ts'

const origin = `sluice${process.pid}@${hostname()}`
/** How long after a task's time-out, at which an error is raised in it, the worker kills the task. */
const graceS = 2
/** The highest priority that a queue with `x-max-priority` takes; other queues ignore it. */
const priorityMost = 255

/**
 * Returns the message of a job.
 * @param call `id`: another one for each attempt, since a worker remembers which have expired; `expiresMs`: wall time
 */
export function messageOf(
  job: ClaimedJob,
  task: AnyTask,
  input: unknown,
  call: { id: string; expiresMs: number; replyTo: string },
): TaskMessage {
  const softLimitS = Math.ceil(Math.min(task.timeoutMs, messageLimitMs(job)) / 1_000)
  return {
    ...blank,
    ...argumentsOfInput(input),
    ...call,
    task: task.name,
    rootId: job.id,
    priority: Math.min(Math.max(job.priority, 0), priorityMost),
    softLimitS,
    hardLimitS: softLimitS + graceS,
    origin,
    headers: { sluice_job: job.id, sluice_attempt: job.attempt, sluice_ambiguous: job.ambiguous },
  }
}

/**
 * Returns a result of Python as JSON text for the store. Numbers that JavaScript cannot hold become text, because the
 * call was made and must not fail.
 * @throws UsageError SLUICE_PAYLOAD_TOO_LARGE, SLUICE_BAD_PAYLOAD
 */
export function resultOf(value: unknown, task: AnyTask): string | null {
  if (value === undefined || value === null) return null
  return encodePayload(plain(value), `result of "${task.name}"`)
}

const plain = (value: unknown) => plainJson(value, (text) => text.replaceAll('\u0000', '\ufffd').toWellFormed())

/** The end of a traceback shows what happened. */
const tracebackMost = 1_400

/** An error of Python as the record of a job shows it: with its type as the name, and the traceback as the stack. */
export function pythonError(error: CeleryTaskError): Error {
  const argsText = error.args.map((one) => (typeof one === 'string' ? one : writeLoosely(plain(one)))).join(', ')
  const shown = new Error(argsText === '' ? error.type : argsText)
  shown.name = error.type
  shown.stack = error.traceback?.slice(-tracebackMost) ?? ''
  return Object.assign(shown, { code: error.code }, answerIn(error))
}

/** The error of a failed call. */
export function errorOf(
  { task, id, job }: { task: AnyTask; id: string; job: ClaimedJob },
  result: TaskResult,
): unknown {
  const state = isFinal(result.state) ? result.state : 'FAILURE'
  try {
    return resultValue({ ...result, id, state })
  } catch (error) {
    if (!(error instanceof CeleryTaskError)) return error
    return error.type.endsWith('TimeLimitExceeded') ? timeoutError(task, messageLimitMs(job)) : pythonError(error)
  }
}

/** The error of a call of which no worker knows any more. */
export function silentError(): Error {
  const text =
    'the task ended without a result: it has sent itself again (self.retry, autoretry_for; set max_retries = 0), or raised Ignore or Reject'
  return Object.assign(new Error(text), { name: 'NoResult', code: 'SLUICE_CELERY_FAILED', stack: '' })
}
