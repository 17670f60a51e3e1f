/** The interface of what receives the beginnings and ends of attempts, to report them. */
import type { ClaimedJob } from './claimed-job.ts'
import type { Outcome } from './finish/outcome.ts'

/** Receives the beginnings and ends of attempts. */
export interface AttemptListener {
  /** These attempts begin. */
  begun(jobs: readonly ClaimedJob[]): void
  /** Returns whether `ended` is to be called for this outcome. */
  wants(outcome: Outcome): boolean
  /** The end of an attempt is recorded. */
  ended(job: ClaimedJob, outcome: Outcome): void
}
