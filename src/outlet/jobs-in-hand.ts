/** A worker's record of the jobs that it took, and of the dispatchers from which it took them. */
import type { Clock, Moment } from '../core/clock.ts'
import type { ClaimedJob } from '../claim/claimed-job.ts'
import type { Outcome } from '../claim/finish/outcome.ts'
import type { SentJob } from './messages.ts'
import { PeerClock } from './peer-clock.ts'

/** A job in hand, or one whose end is not recorded. */
export interface JobInHand {
  readonly key: string
  readonly job: ClaimedJob
  /** The worker of the store that claimed it. */
  readonly claimer: string
  /** The dispatcher that sent it, and may still have it in hand. */
  readonly from: Dispatcher
  /** The dispatcher that waits for its end. */
  to: Dispatcher
  /** That dispatcher knows the job only from this worker. */
  isOrphan: boolean
  outcome?: Outcome
  /** When it began, in monotonic ms. */
  readonly sinceMs: number
  /** A message other than an announcement has reported that it began. */
  isReportedBegun: boolean
  /** When the end was last sent, in monotonic ms. */
  sentMs: number
}

/** A dispatcher that has written to this worker. */
export interface Dispatcher {
  readonly id: string
  readonly time: PeerClock
  silentMs: number
  /** The stint in which this worker takes its jobs; null: it takes none. */
  stint: string | null
  n: number
  /** When the last announcements were sent, by the time in each, which its answer repeats. */
  readonly announced: Map<number, Moment>
}

/** Returns the record of a dispatcher that writes for the first time. */
export function newDispatcher(id: string, clock: Clock): Dispatcher {
  return { id, time: new PeerClock(clock), silentMs: 0, stint: null, n: 0, announced: new Map() }
}

/** Returns a job as this worker executes it. @param grantedMs by the clock of this worker */
export function jobOf(sent: SentJob, grantedMs: number, requestedAt: Moment | undefined): ClaimedJob {
  return { ...sent, grantedMs, ...(requestedAt === undefined ? {} : { requestedAt }) }
}
