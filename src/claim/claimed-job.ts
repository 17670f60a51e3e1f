/** Decodes the jobs of a claim's reply: arrays with one position for each field. */

import type { Moment } from '../core/clock.ts'

/** What a worker has to know of the changes of one rule, or of a time limit. */
interface Ruling {
  keys?: Record<string, string>
  timeoutMs?: number
}

/** A job in hand: claimed, not yet finished. */
export interface ClaimedJob {
  claim: string
  /** Monotonic ms, not later than the store's decision: the grants' life counts from it. */
  grantedMs: number
  /** When it was claimed, if its grants began at another time (`grantedMs`), in monotonic ms. */
  claimedMs?: number
  /** It may not start before, in monotonic ms, because the store, or Redis, granted it for later; undefined: it may start now. */
  notBeforeMs?: number
  /**
   * The store granted it ahead of time, so no slot is kept for it yet: monotonic ms, not later than the store's decision. Undefined: the
   * claim has a slot for it.
   */
  decidedMs?: number
  /**
   * A moment before the claim. Time that the monotonic clock misses after it, in a machine that sleeps, makes the
   * grants older, too.
   */
  requestedAt?: Moment
  /** The epoch to present to a second limiter. */
  epoch?: string
  /** The vendor has refused requests of one of the buckets: the claim has the job to find out whether it accepts again. */
  isTrial?: boolean
  /** The id of its grant in Redis; undefined: it has none there. */
  grant?: string
  seq: number
  id: string
  task: string
  queue: string
  attempt: number
  failed: number
  throttled: number
  crashes: number
  ambiguous: boolean
  priority: number
  createdMs: number
  buckets: string[] | null
  /** Units for each of `buckets`, and of its turn; null: all are 1. */
  costs: number[] | null
  /** The shortest life of a grant, in microseconds, by the definitions in force; null: no limits. */
  grantUs: number | null
  /** The buckets that were charged, if they differ from `buckets`: one for each of `buckets`. */
  chargedBuckets: string[] | null
  /** The id of the bucket (its hash) for whose room its lane waited; null: it waited for its turn, or for a worker. */
  blocker: string | null
  tags: string[] | null
  /** Undefined: omitted from the reply, to be fetched. */
  input: unknown
  /**
   * 2: no process with its task's code has checked it; 1: it has met no rules; 0: it has; or the changes by rules, if
   * these gave it keys, or the message that it comes from limits its time; that limit alone: it has met no rules.
   */
  admitted: number | Ruling | readonly Ruling[]
  /** The job left its claim before its input was read, so only its claim has to be ended. */
  isGone?: boolean
}

/**
 * Returns false for a job that has left its claim, and for a job of a claim that this process did not know: its grants
 * count as too old.
 */
export function mayStart({ isGone = false, grantedMs }: ClaimedJob): boolean {
  return !isGone && grantedMs !== -Infinity
}

/** Returns the longest time of an attempt that the message allows from which a job comes, in ms. */
export function messageLimitMs({ admitted }: Pick<ClaimedJob, 'admitted'>): number {
  return Math.min(...rulingsOf(admitted).map(({ timeoutMs = Infinity }) => timeoutMs))
}

/** Returns what a claim has of the rules that a job has met; none unless one gave it keys, or its message limits its time. */
export function rulingsOf(admitted: ClaimedJob['admitted']): readonly Ruling[] {
  return typeof admitted === 'number' ? [] : [admitted].flat()
}

/** The history of a message that is executed without a claim. */
export interface Known {
  /** Attempts so far that count, failures among them, those that the vendor refused, and lost workers. */
  readonly attempt: number
  readonly failed: number
  readonly throttled: number
  readonly crashes: number
  /** It may have been executed before. */
  readonly isDoubtful: boolean
}

/**
 * Returns the next attempt of a message that the store does not know.
 * @param own its other fields; left out: it has no limits
 */
export function unclaimedJob(
  { attempt, failed, throttled, crashes, isDoubtful }: Known,
  own: Pick<ClaimedJob, 'id' | 'task' | 'queue' | 'grantedMs' | 'createdMs' | 'input'> & Partial<ClaimedJob>,
): ClaimedJob {
  return {
    claim: '',
    seq: 0,
    attempt: attempt + 1,
    failed,
    throttled,
    crashes,
    ambiguous: isDoubtful,
    priority: 0,
    buckets: null,
    costs: null,
    grantUs: null,
    chargedBuckets: null,
    blocker: null,
    tags: null,
    admitted: 0,
    ...own,
  }
}

/** A job that the second limiter denied; `reason`: the bucket without room, undefined: another reason. */
export interface Denial {
  kind: 'denied'
  reason: string | undefined
}

/** The fields of each single job. */
type Own = [seq: number, id: string, attempt: number, created: number]
/** The fields that the ordinary jobs of a lane share. */
type Common = [
  task: string,
  queue: string,
  failed: number,
  throttled: number,
  crashes: number,
  ambiguous: boolean,
  priority: number,
  buckets: string[] | null,
  admitted: ClaimedJob['admitted'],
  costs: number[] | null,
  grantUs: number | null,
  chargedBuckets: string[] | null,
  blocker: string | null,
]
/** Omitted if too long for a claim's reply; tags also if there are none. */
type Payload = [] | [input: unknown, tags?: string[]]

/**
 * A job as claim/mark/encode_job.sql and claim/mark/encode_job_payload.sql return it: complete, or without the common fields if it follows another of its lane.
 */
type EncodedJob = [...Own, ...Common, ...Payload] | [...Own, ...Payload]

const ownFields = 4
const wholeFields = 17

/** Decodes the jobs in a claim's reply, in JSON; null: none. */
export function decodeJobs(text: string | null, claim: string, grantedMs: number): ClaimedJob[] {
  if (text === null) return []
  const encoded = JSON.parse(text) as EncodedJob[]
  let ordinary: Common | undefined
  return encoded.map((job) => {
    if (job.length < wholeFields && ordinary !== undefined) return decodeJob(job, ordinary, ownFields, claim, grantedMs)
    const common = job.slice(ownFields, wholeFields) as Common
    const [task, queue, , , , , priority, buckets, , , grantUs, , blocker] = common
    ordinary = [task, queue, 0, 0, 0, false, priority, buckets, 1, null, grantUs, null, blocker]
    return decodeJob(job, common, wholeFields, claim, grantedMs)
  })
}

/** @param at position of the input */
function decodeJob(job: EncodedJob, common: Common, at: number, claim: string, grantedMs: number): ClaimedJob {
  const [seq, id, attempt, created] = job
  const [
    task,
    queue,
    failed,
    throttled,
    crashes,
    ambiguous,
    priority,
    buckets,
    admitted,
    costs,
    grantUs,
    chargedBuckets,
    blocker,
  ] = common
  return {
    claim,
    grantedMs,
    seq,
    id,
    task,
    queue,
    attempt,
    failed,
    throttled,
    crashes,
    ambiguous,
    priority,
    createdMs: created,
    buckets,
    costs,
    grantUs,
    chargedBuckets,
    blocker,
    tags: (job[at + 1] as string[] | undefined) ?? null,
    input: job[at],
    admitted,
  }
}
