/** Reports the attempts of a worker: their beginnings and ends as events, and when a task that failed works again. */
import type { Clock } from '../core/clock.ts'
import type { ClaimedJob } from '../claim/claimed-job.ts'
import type { Outcome } from '../claim/finish/outcome.ts'
import type { AttemptListener } from '../claim/attempt-listener.ts'
import type { AttemptEvent, RecordedError } from '../report/events.ts'
import type { Report } from '../report/report.ts'

/** How many failures in a row make a success worth a report. */
const failuresMin = 5

/**
 * By what a process reports to: tasks whose last attempts failed, how many, and since when. Workers of one process share it, also
 * those that follow each other.
 */
const failing = new WeakMap<Report, Map<string, { failures: number; sinceMs: number }>>()

/** The events of one worker's attempts. */
export class AttemptEvents implements AttemptListener {
  readonly #report: Report
  readonly #clock: Clock
  readonly #worker: () => string | undefined
  readonly #failing: Map<string, { failures: number; sinceMs: number }>

  /** @param worker returns the worker's id */
  constructor(report: Report, clock: Clock, worker: () => string | undefined) {
    this.#report = report
    this.#clock = clock
    this.#worker = worker
    this.#failing = failing.get(report) ?? new Map()
    failing.set(report, this.#failing)
  }

  begun(jobs: readonly ClaimedJob[]): void {
    if (!this.#report.has('started')) return
    for (const job of jobs) this.#report.emit('started', this.#describeAttempt(job))
  }

  /** False for almost every success: then nothing waits for its record. */
  wants({ kind }: Outcome): boolean {
    if (kind === 'done') return this.#failing.size > 0 || this.#report.has('done')
    return kind === 'retry' || kind === 'throttled' || kind === 'failed' || kind === 'interrupt'
  }

  ended(job: ClaimedJob, outcome: Outcome): void {
    if (outcome.kind === 'done') return this.#emitDone(job, outcome.tookMs)
    if (!('error' in outcome)) return
    const error = recorded(outcome.error)
    if (outcome.kind === 'throttled') {
      const { tookMs, delayMs: retryInMs } = outcome
      return this.#report.emit('throttled', { ...this.#describeAttempt(job), error, tookMs, retryInMs })
    }
    if (outcome.kind === 'failed')
      return this.#report.emit('exhausted', { ...this.#describeAttempt(job), reason: outcome.reason, error, jobs: 1 })
    const { failures = 0, sinceMs = this.#clock.monotonicMs() } = this.#failing.get(job.task) ?? {}
    this.#failing.set(job.task, { failures: failures + 1, sinceMs })
    const retryInMs = outcome.kind === 'retry' ? outcome.delayMs : 0
    this.#report.emit('failed', { ...this.#describeAttempt(job), error, tookMs: outcome.tookMs, retryInMs })
  }

  #emitDone(job: ClaimedJob, tookMs: number): void {
    const { task } = job
    const failing = this.#failing.get(task)
    this.#failing.delete(task)
    if (this.#report.has('done')) this.#report.emit('done', { ...this.#describeAttempt(job), tookMs })
    if (failing === undefined || failing.failures < failuresMin) return
    const { failures, sinceMs } = failing
    const forMs = this.#clock.monotonicMs() - sinceMs
    this.#report.emit('recovered', { task, failures, forMs, worker: this.#worker() })
  }

  #describeAttempt({ id, task, queue, attempt }: ClaimedJob): AttemptEvent {
    return { job: id, task, queue, attempt, worker: this.#worker() }
  }
}

/** Reads an error as the store records it. */
function recorded(text: string): RecordedError {
  return JSON.parse(text) as RecordedError
}
