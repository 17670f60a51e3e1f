/** How attempts end. */
import type { Readmission } from '../../tasks/placement.ts'
import type { Denial } from '../claimed-job.ts'
import type { AttemptReport, Executor } from './attempt-report.ts'

/** The facts about an attempt whose handler was called. */
interface RunFacts {
  tookMs: number
  report?: AttemptReport
}

/** How an attempt ended. */
export type Outcome =
  | ({ kind: 'done'; result: string | null } & RunFacts)
  | ({ kind: 'failed'; reason: 'exhausted' | 'refused' | 'doubtful' | 'crashed'; error: string } & RunFacts)
  | ({ kind: 'retry'; error: string; delayMs: number } & RunFacts)
  /** The vendor refused it, which is no failure. */
  | ({ kind: 'throttled'; error: string; delayMs: number; delayReason: 'throttled' } & RunFacts)
  /**
   * No call was made: the attempt does not count. `unused`: its grant is refunded; `return`: its grant was refunded
   * before.
   */
  | { kind: 'unused' | 'return' }
  /** Unused, too. */
  | Denial
  /** The handler delayed the job: the attempt does not count. */
  | ({ kind: 'return'; delayMs: number; delayReason: string } & RunFacts)
  /** Unused, too: the job waits elsewhere, or later, because its task's limits have changed, or because of a rule. */
  | { kind: 'readmit'; place: Readmission }
  /** Unused, too: a rule discards the job. */
  | { kind: 'discard'; reason: string; tookMs: number }
  /**
   * The worker had to stop at once, or was lost (`crashed`, which is counted): the call may have been made; another worker
   * tries again.
   */
  | ({ kind: 'interrupt'; error: string; reason?: 'crashed' } & RunFacts)

/** Returns an outcome that shows where its attempt ran; if that is not known (`by` undefined), the outcome as it is. */
export function locateOutcome(outcome: Outcome, by: Executor | undefined): Outcome {
  if (by === undefined || !('tookMs' in outcome) || outcome.kind === 'discard') return outcome
  return { ...outcome, report: { by, ...outcome.report } }
}
