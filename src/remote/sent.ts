/** A job in hand that was, or will be, published for stock workers. */
import { createHash } from 'node:crypto'
import type { ClaimedJob } from '../claim/claimed-job.ts'
import type { JobKey } from '../claim/outlet.ts'
import type { AnyTask } from '../tasks/task.ts'
import { type Call, unknownWorker } from './call.ts'
import type { SentCall } from './inquiry.ts'

/** See the fields. */
export interface Sent extends Call, SentCall {
  readonly job: ClaimedJob
  readonly task: AnyTask
  readonly sinceMs: number
  isPublished: boolean
  /** A report about it may have been lost, with a worker or on the way. */
  isDoubtful: boolean
  /** A worker has reported that it failed; what that means is being recorded. */
  hasFailed: boolean
  /** Why it was stopped here. */
  stopped: Error | undefined
  /** Resolves when its end is recorded. */
  recorded?: Promise<unknown> | undefined
}

/** How long, in ms, a job may be under way that holds only places: its claim must be young. */
export const claimMs = 5_000

/** The state of a job before it is published. */
const unsentYet = {
  begunMs: undefined,
  by: undefined,
  retry: undefined,
  isPublished: false,
  isBack: false,
  isDoubtful: false,
  hasFailed: false,
  misses: 0,
  stopped: undefined,
  estate: undefined,
}

/** Returns a job that is to be published at `nowMs`. */
export function sentOf(job: ClaimedJob, task: AnyTask, nowMs: number): Sent {
  const untilMs = job.grantedMs + (job.grantUs === null ? claimMs : job.grantUs / 1_000) * 0.75
  return { ...unsentYet, job, task, id: messageIdOf(job), queue: queueOf(task), untilMs, sinceMs: nowMs }
}

/** Returns a job that another dispatcher has published by `nowMs`, if it has; `isBegun`: it had recorded that it began. */
export function inheritedOf(
  job: ClaimedJob,
  task: AnyTask,
  nowMs: number,
  { estate, isBegun, isDoubtful }: { estate: string; isBegun: boolean; isDoubtful: boolean },
): Sent {
  const sent = { ...unsentYet, job, task, id: messageIdOf(job), queue: queueOf(task), estate, isDoubtful }
  const begun = isBegun ? { by: { worker: unknownWorker, pid: -1 }, begunMs: nowMs } : {}
  // No message of that dispatcher can begin later, whatever the life of its grant.
  return { ...sent, ...begun, isPublished: true, untilMs: nowMs + claimMs, sinceMs: -Infinity }
}

/** The queue of the stock workers of a task. */
export function queueOf({ remote }: AnyTask): string {
  return remote?.queue ?? ''
}

/**
 * Returns the id of an attempt's message. Each attempt has its own, because a worker remembers the ids that have
 * expired; and it can be computed from the attempt alone.
 */
export function messageIdOf({ claim, seq }: JobKey): string {
  const hash = createHash('sha256').update(`${claim}:${seq}`).digest('hex')
  return [
    hash.slice(0, 8),
    hash.slice(8, 12),
    `8${hash.slice(13, 16)}`,
    `8${hash.slice(17, 20)}`,
    hash.slice(20, 32),
  ].join('-')
}
