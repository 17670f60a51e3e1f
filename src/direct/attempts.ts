/** The attempts of one worker's messages: begins them, stops those that were revoked, and reports the end of each. */
import type { AttemptListener } from '../claim/attempt-listener.ts'
import type { ClaimedJob } from '../claim/claimed-job.ts'
import type { Outcome } from '../claim/finish/outcome.ts'
import { type Outlet, type Reports, localReports } from '../claim/outlet.ts'
import { BriefMap } from '../core/brief-map.ts'
import type { Clock } from '../core/clock.ts'
import { AttemptError } from '../core/errors.ts'
import type { Bookings } from './bookings.ts'
import type { Ends } from './ends.ts'
import { type Entry, type GrantOf, jobOf } from './intake.ts'
import type { DirectLimiter } from './limiter.ts'
import type { DirectCounts } from './read-ahead.ts'

/** Parameters of `Attempts`; see the fields. */
export interface AttemptsOptions {
  clock: Clock
  /** Messages are acknowledged when their attempts begin. */
  acksEarly: boolean
  /** Undefined: no task has limits. */
  limits: { limiter: DirectLimiter; bookings: Bookings } | undefined
  ends: Pick<Ends, 'reportBegun'>
  listener: AttemptListener
  outlet(reports: Reports): Outlet
}

/** An attempt under way. */
interface Running {
  readonly entry: Entry
  readonly job: ClaimedJob
  readonly sinceMs: number
  isRevoked?: true
}

/** The end of an attempt. */
export interface EndedAttempt {
  readonly entry: Entry
  readonly job: ClaimedJob
  readonly outcome: Outcome
  readonly isRevoked: boolean
}

/** All attempts under way. */
export class Attempts {
  readonly #options: AttemptsOptions
  readonly #counts: DirectCounts
  readonly #outlet: Outlet
  readonly #onEnded: (ended: EndedAttempt) => void
  /** By the `seq` of their jobs. */
  readonly #running = new BriefMap<number, Running>()

  /** @param counts gets how many attempts began, and how many are done */
  constructor(options: AttemptsOptions, counts: DirectCounts, onEnded: (ended: EndedAttempt) => void) {
    this.#options = options
    this.#counts = counts
    this.#onEnded = onEnded
    this.#outlet = options.outlet(localReports((job, outcome) => this.#end(job, outcome)))
  }

  /** How many more attempts can begin. */
  free(): number {
    return this.#outlet.free()
  }

  /** The messages whose attempts run. */
  entries(): readonly Entry[] {
    return this.#running.values().map(({ entry }) => entry)
  }

  /** Begins an attempt of each message. */
  start(all: readonly { entry: Entry; grant: GrantOf | undefined }[]): void {
    const { clock, listener, ends, acksEarly } = this.#options
    const nowMs = clock.monotonicMs()
    // If its connection is lost before that is written, it comes again, and is acknowledged at its end.
    if (acksEarly) for (const { entry } of all) entry.incoming.ack()
    const jobs = all.map(({ entry, grant }, i) => {
      const job = jobOf(entry, grant, nowMs, this.#counts.begun + 1 + i)
      const running: Running = { entry, job, sinceMs: nowMs }
      this.#running.set(job.seq, running)
      return job
    })
    this.#counts.begun += jobs.length
    listener.begun(jobs)
    for (const { entry } of all) ends.reportBegun(entry, clock.wallMs())
    this.#outlet.start(jobs)
  }

  /** Stops the attempt of a task that was revoked, if it runs. */
  revoke(id: string): void {
    for (const running of this.#running.values())
      if (running.job.id === id) {
        running.isRevoked = true
        this.#outlet.abort(running.job, revokedError())
      }
  }

  /** Stops all attempts. */
  abortAll(reason: Error): void {
    for (const { job } of this.#running.values()) this.#outlet.abort(job, reason)
  }

  #end(job: ClaimedJob, outcome: Outcome): void {
    const running = this.#running.get(job.seq)
    if (running === undefined) return
    this.#running.delete(job.seq)
    const { entry, sinceMs, isRevoked = false } = running
    const { clock, limits, listener } = this.#options
    if (job.grant !== undefined && limits !== undefined) {
      limits.limiter.freePlaces(job.grant, entry.holds)
      limits.bookings.recordHeldTime(entry.holds, clock.monotonicMs() - sinceMs)
    }
    if (listener.wants(outcome)) listener.ended(job, outcome)
    if (outcome.kind === 'done') this.#counts.done++
    this.#onEnded({ entry, job, outcome, isRevoked })
  }
}

const revokedError = () => new AttemptError('SLUICE_CANCELLED', 'the task was revoked', { retryable: false })
