/** What is notified of attempts as they begin and end, to report them. */
import type { ClaimedJob } from './claimed-job.ts'
import type { Outcome } from './finish/finish.ts'

/** Receives what becomes of attempts, to report it. */
export interface Watch {
  /** These attempts begin. */
  begun(jobs: readonly ClaimedJob[]): void
  /** Returns whether `ended` shall be called for this outcome. */
  wants(outcome: Outcome): boolean
  /** The end of an attempt is recorded. */
  ended(job: ClaimedJob, outcome: Outcome): void
}
