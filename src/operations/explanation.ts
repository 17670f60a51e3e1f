/** The rows of `explain_job.sql` about a job that waits, and the reasons that `why` makes of them. */
import type { ParkedRow } from '../core/parked.ts'
import type { ParsedHours } from '../core/hours.ts'
import type { Cause } from '../limits/circuit.ts'
import type { Rule } from '../limits/rule.ts'

/** One reason why a job has not started. */
export interface Reason {
  kind:
    | 'granted'
    | 'expired'
    | 'parked'
    | 'delay'
    | 'retry'
    | 'rule'
    | 'snoozed'
    | 'throttled'
    | 'unseen'
    | 'paused'
    | 'closed'
    | 'limit'
    | 'concurrency'
    | 'held'
    | 'restored'
    | 'redis-away'
    | 'redis-begun'
    | 'redis-used'
    | 'undefined-limit'
    | 'order'
    | 'no-worker'
    | 'slots'
  /** For people; the times are in `notBefore` and `about`. */
  text: string
  /**
   * It cannot start before this time for this reason, unless units are given back, jobs before it are cancelled, or an
   * operator changes something; undefined: no time is known.
   */
  notBefore: Date | undefined
  /** An estimate of when this reason ends, never before `notBefore`; absent: there is none. */
  about?: Date
  /** It is ended by time, by other jobs (that start, or end), by a worker that is to be started, or by an operator. */
  acts: 'time' | 'jobs' | 'worker' | 'operator'
  /** The next step for that worker or operator. */
  todo?: string
  limit?: string
  key?: string
  /** For `paused` and `closed`: the gate, since when it is closed, and the user that closed it. */
  gate?: string
  since?: Date
  by?: string
}

/** A pause: its reason, user, and start. */
export interface Pausing {
  reason: string
  by: string
  sinceMs: number
}

/** A bucket's state in the store, in microseconds of the limiter's clock. */
export interface BucketState {
  /** Null: the bucket was never used. */
  version: number | null
  atUs: number
  debt: number[] | null
  parts: number[][] | null
  /** Times by the store's clock; ledger.quota has the order. */
  quota: number[][] | null
  holdUs: number
}

/** A bucket in which the job needs room. */
export interface NeededBucket {
  limit: string
  key: string
  /** Number of members, if it is a pool. */
  members: number | null
  avail: number
  /** Units that are kept for jobs that have waited longer. */
  kept: number
  /** Units that the job takes, and those that jobs before it in its lane take; `before` is 0 if none of those has costs. */
  cost: number
  before: number
  /** Jobs of other fair keys that have their turns in this bucket before it, about. */
  rivals: number
  /** The definition in force; null: the limit is not defined. */
  spec: { rules: Rule[]; currency?: string } | null
  version: number | null
  /** It is what a share leaves to others, and may be lent more at any time. */
  isLent: boolean
  /** Until then (microseconds) every bucket of the limit is closed. */
  reopens: number | null
  /** The states of all buckets that may serve the job: workers' labels, members of a pool. */
  states: (BucketState[] | null)[]
  defined: boolean
  /** The bucket is held until then, which took so long in all; because the vendor demanded it, unless `cause` is set. */
  heldMs: number | null
  heldForMs: number | null
  /** The vendor has answered requests of it badly; `n` in a row. `tried`: it is held while a request shows whether it accepts again. */
  refusal: { cause: Cause; answer: string; n: number; sinceMs: number } | null
  tried: boolean | null
  /** Units that others have used in the longest span of its rules. */
  others: number | null
  /** In Redis the limit is used up by others, or closed; `spent`: the vendor's count shows that nothing is left. */
  cause: 'used' | 'closed' | 'spent' | null
  /** Held, because the store may lack some of the grants. */
  lost: boolean | null
  paused: Pausing | null
  /** It is shared in Redis, and waits while Redis is unavailable. */
  shared: boolean | null
  /** The number of jobs that may run at a time, if all places are taken; null: this does not stop the job. */
  places: number | null
  nextMs: number
}

/** One row of `explain_job.sql`. */
export interface Explanation {
  id: string
  task: string
  queue: string
  attempt: number
  state: 'waiting' | 'scheduled' | 'dispatched' | 'running'
  due_ms: number | null
  /** When it may begin, if it was granted ahead of time and waits for that in a worker's hands; null: it does not. */
  granted_ms: number | null
  /** Microseconds of the limiter's clock, and how far it is ahead of the store's. */
  now_us: number
  clock_offset_us: number
  ahead: number
  fair: string | null
  /** The live workers that could run it. A dispatcher has the slots of its fleet: none while its broker is away. */
  workers: { count: number; slots: number }
  /** Labels that its limits require of a worker. */
  labels: string[] | null
  lanes_before: number
  kin_lanes: number
  kin_jobs: number
  gates: (Pausing & { gate: string; untilMs: number | null; hours: ParsedHours | null })[] | null
  error: { message?: string } | null
  parked: ParkedRow[] | null
  delay_reason: string | null
  /** Set if the next round of a worker decides about it: `expired`, or `too-dear` (it costs more than a limit holds). */
  ends_by: string | null
  /** No first attempt begins after this time; null: no bound. */
  expires_ms: number | null
  raw: boolean
  /** Set if limits are shared in Redis: since when Redis is unavailable, and why; since when its state is whole. */
  redis: { sinceMs: number | null; why: string | null; begunMs: number } | null
  buckets: NeededBucket[] | null
}
