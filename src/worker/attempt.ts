/** What happens around a handler: deadline, validation, time-out, the verdict. Never throws: its value is the outcome. */
import type { Agent } from 'undici'
import type { Clock } from '../core/clock.ts'
import { AttemptError, SluiceError } from '../core/errors.ts'
import { encodePayload } from '../core/payload.ts'
import { delayMs } from '../core/retry.ts'
import type { Db } from '../db/db.ts'
import { validate } from '../dispatch/admit.ts'
import type { Handout } from '../dispatch/claim.ts'
import type { Outcome } from '../dispatch/finish.ts'
import type { AnyTask, Context, Log } from '../dispatch/task.ts'
import { createFetch } from '../http/fetch.ts'
import { storeGrants } from './grants.ts'

/** What attempts share. */
export interface AttemptOptions {
  db: Db
  clock: Clock
  schema: string
  agent: Agent
  log: Log
}

const errorBytesMax = 8_192

/**
 * Runs one attempt of a job.
 * @param signal aborted when the worker gives the job up
 */
export async function attempt(job: Handout, task: AnyTask, options: AttemptOptions, signal: AbortSignal): Promise<Outcome> {
  const { clock } = options
  const grantUs = Math.min(...task.limits.map((limit) => limit.grantUs))
  const grantMs = job.takes === null ? undefined : (Number.isFinite(grantUs) ? grantUs : 100_000) / 1_000
  // A grant is a promise about arrival: one that has grown old in a slow process is given back, uncalled.
  if (grantMs !== undefined && clock.monotonicMs() > job.grantedMs + grantMs) return { kind: 'return' }
  const startedMs = clock.monotonicMs()
  const ended = new AbortController()
  const timer = clock.sleep(task.timeoutMs, ended.signal, false).then(() => {
    if (!ended.signal.aborted) ended.abort(new AttemptError('SLUICE_TIMEOUT', `the attempt took longer than ${task.timeoutMs} ms`, { retryable: true }))
  })
  const all = AbortSignal.any([signal, ended.signal])
  try {
    const result = await run(job, task, options, all, grantMs)
    const text = result === undefined ? null : encodePayload(result, `result of "${task.name}"`)
    return { kind: 'done', result: text, tookMs: clock.monotonicMs() - startedMs }
  } catch (error) {
    const tookMs = clock.monotonicMs() - startedMs
    if (signal.aborted && error === signal.reason) return { kind: 'interrupt', error: describe(error), tookMs }
    return verdict(error, job, task, clock, tookMs)
  } finally {
    ended.abort(new AttemptError('SLUICE_ATTEMPT_OVER', 'the attempt is over; it makes no further calls', { retryable: false }))
    await timer
  }
}

/** Validates, calls the handler, and stops waiting for it when the signal is aborted: a deaf handler keeps no slot. */
async function run(job: Handout, task: AnyTask, options: AttemptOptions, signal: AbortSignal, grantMs: number | undefined): Promise<unknown> {
  const input = await validate(task, job.input)
  const { db, clock, schema, agent, log } = options
  const context: Context = {
    fetch: createFetch({ agent, clock, signal, grants: storeGrants({ db, clock, schema, job, grantMs }) }),
    signal,
    attempt: job.attempt,
    ambiguous: job.ambiguous,
    log,
    job: { id: job.id, queue: job.queue, createdAt: new Date(job.createdMs), tags: job.tags ?? [] },
  }
  return new Promise((resolve, reject) => {
    const stop = () => reject(signal.reason as Error)
    signal.addEventListener('abort', stop, { once: true })
    // Promise.resolve().then: a handler that throws at once must not escape either.
    Promise.resolve()
      .then(() => task.run(input, context))
      .then(resolve, reject)
      .finally(() => signal.removeEventListener('abort', stop))
  })
}

function verdict(error: unknown, job: Handout, task: AnyTask, clock: Clock, tookMs: number): Outcome {
  const text = describe(error)
  const final = SluiceError.is(error) && !(error instanceof AttemptError && error.retryable)
  if (final) return { kind: 'failed', reason: 'refused', error: text, tookMs }
  const failed = job.failed + 1
  if (failed >= task.retry.attempts) return { kind: 'failed', reason: 'exhausted', error: text, tookMs }
  const asked = error instanceof AttemptError ? (error.retryAfterMs ?? 0) : 0
  return { kind: 'retry', error: text, delayMs: Math.max(asked, delayMs(failed, task.retry, clock.random())), tookMs }
}

/** An error as JSON that the store can keep. */
function describe(error: unknown): string {
  const seen = error instanceof Error ? error : new Error(typeof error === 'string' ? error : 'the handler threw something that is not an Error')
  const code = (seen as { code?: unknown }).code
  const clean = (text: string) => text.replaceAll('\u0000', '\ufffd').toWellFormed().slice(0, errorBytesMax / 4)
  return JSON.stringify({
    name: clean(seen.name),
    message: clean(seen.message),
    ...(typeof code === 'string' ? { code: clean(code) } : {}),
    ...(seen.stack ? { stack: clean(seen.stack) } : {}),
  })
}
