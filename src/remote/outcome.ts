/** How attempts on stock workers end, as the store records it. Pure. */
import type { Outcome } from '../claim/finish/outcome.ts'
import type { Clock } from '../core/clock.ts'
import type { AnyTask } from '../tasks/task.ts'
import { describe, type Throttling, verdict } from '../worker/verdict.ts'
import { unknownWorker } from './call.ts'
import type { Sent } from './sent.ts'

/** How long an attempt took, and where, as far as that is known. */
export interface RunFacts {
  tookMs: number
  report?: { by: { worker: string; host: string; version: string } }
}

/**
 * Returns how long an attempt that ends now took, and where it ran. @param versionOf returns the version of a worker's
 * Celery
 */
export function runFactsOf(
  { begunMs, sinceMs, by }: Pick<Sent, 'begunMs' | 'sinceMs' | 'by'>,
  nowMs: number,
  versionOf: (worker: string) => string,
): RunFacts {
  // It is not known when another dispatcher sent it.
  const tookMs = nowMs - (begunMs ?? (sinceMs === -Infinity ? nowMs : sinceMs))
  if (by === undefined || by.worker === unknownWorker) return { tookMs }
  const [, host = ''] = by.worker.split('@')
  return { tookMs, report: { by: { worker: by.worker, host, version: `celery ${versionOf(by.worker)}` } } }
}

/** Returns how an attempt ends that was stopped here for `reason`. */
export function stoppedOutcome(reason: Error, { isOnce }: Pick<AnyTask, 'isOnce'>, facts: RunFacts): Outcome {
  const error = describe(reason)
  return isOnce ? { kind: 'failed', reason: 'doubtful', error, ...facts } : { kind: 'interrupt', error, ...facts }
}

/** Returns how an attempt ends with an error. @param called undefined: the call was not made; `refusal`: what holds its limits */
export function failedOutcome(
  { job, task }: Pick<Sent, 'job' | 'task'>,
  error: unknown,
  called: { refusal?: Throttling | undefined } | undefined,
  { tookMs, ...facts }: RunFacts,
  clock: Clock,
): Outcome {
  const { refusal } = called ?? {}
  // A vendor that refuses a call has not carried it out.
  const isInDoubt = called !== undefined && (refusal === undefined || refusal.cause !== undefined)
  const ended = verdict({ job, task, error, refusal, isInDoubt, tookMs }, clock)
  return { ...ended, ...(called === undefined ? {} : facts) }
}
