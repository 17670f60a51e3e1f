/** The messages of dispatchers and workers. Both sides know a job in hand by its key. */
import type { Log } from '../core/log.ts'
import type { ClaimedJob } from '../claim/claimed-job.ts'
import type { JobKey } from '../claim/outlet.ts'
import type { Executor } from '../claim/finish/attempt-report.ts'
import type { Outcome } from '../claim/finish/outcome.ts'

/** A job on its way; `grantedMs` is in the clock of its dispatcher. */
export type SentJob = Omit<ClaimedJob, 'requestedAt' | 'claimedMs' | 'notBeforeMs' | 'decidedMs'>

/** Tasks of a worker that share slots of their own, such as threads. */
export interface SharedSlots {
  tasks: string[]
  slots: number
}

/** The capacity of a worker. */
export interface Capacity {
  /** The stint in which it takes jobs: the dispatcher may give it some as long as it lasts. Null: it takes none. */
  stint: string | null
  /** Attempts at once. */
  slots: number
  tasks: string[]
  kinds: SharedSlots[]
}

/** A worker looks for a dispatcher. */
interface Seek {
  type: 'seek'
  worker: string
  /** The store whose jobs it executes; undefined: it has none, and takes jobs of any. */
  store?: string | undefined
}

/** A worker's sign of life, sent every second to each dispatcher that it has jobs or unrecorded ends of, or that has written lately. */
export interface Announcement extends Capacity {
  type: 'announce'
  worker: string
  /** Counts up: an older one is ignored. */
  n: number
  /** For the records of attempts: where it runs. */
  by?: Executor
  /** The worker's monotonic clock, in ms; the answer repeats it. */
  at: number
  /** The latest time that the dispatcher's monotonic clock can show by now, in ms; null: the worker does not know. */
  asOf: number | null
  /** Keys of what it has in hand, or has ended without knowing that this is recorded. */
  holds: string[]
  /** Jobs of another dispatcher that is silent, without their inputs; `from`: the worker of the store that claimed them. */
  orphans: { job: ClaimedJob; from: string }[]
  /**
   * Its stints with any dispatcher that are over, and the jobs that it has begun in each, until it knows that they are
   * recorded.
   */
  left: { stint: string; begun: JobKey[] }[]
}

/** Jobs that have run for a while. A job that ends sooner is only reported as ended. */
interface Began {
  type: 'began'
  worker: string
  keys: string[]
}

/** How attempts ended; null: the job was not begun. */
interface Ended {
  type: 'ended'
  worker: string
  ends: [key: string, outcome: Outcome | null][]
}

/** The worker has no jobs, and takes none. */
interface Bye {
  type: 'bye'
  worker: string
}

/** A statement that a worker without a store needs. */
export interface ToRun {
  id: string
  /** The name of a function, or the path of a .sql file. */
  name: string
  args: readonly unknown[]
}

/** Has the dispatcher run a statement on its store. */
interface Run extends ToRun {
  type: 'run'
  worker: string
}

/** A message to a dispatcher. */
export type ToDispatcher = Seek | Announcement | Began | Ended | Run | Bye

/** A dispatcher offers to give the worker jobs. */
export interface Offer {
  type: 'offer'
  from: string
  /** The store whose jobs it gives; undefined: only workers with a store may take them. */
  store?: string | undefined
  /** Its release. */
  version: string
}

/** The answer to an announcement. */
export interface Answer {
  type: 'answer'
  from: string
  /** The announcement's `at`, and the dispatcher's clock after it. */
  echo: number
  at: number
  /** Keys of ends that are recorded, and stints whose end is. */
  recorded: string[]
  /** Keys that the dispatcher does not know, or has given up. */
  strangers: string[]
  /** Keys of the orphans that it has taken over. */
  inherited: string[]
}

/** Jobs to begin at once. */
export interface Grants {
  type: 'grants'
  from: string
  /** The dispatcher's clock. */
  at: number
  /** The worker of the store that claimed them. */
  claimer: string
  /** The worker's stint: it takes jobs of no other. */
  stint: string | null
  jobs: SentJob[]
  recorded: string[]
}

/** The result of a statement. */
export interface StatementResult {
  type: 'result'
  from: string
  id: string
  rows?: unknown[]
  /** `isAway`: the store could not be reached, or its answer was lost. */
  error?: { code: string; message: string; isAway: boolean }
}

/** Attempts to stop. */
interface Abort {
  type: 'abort'
  from: string
  keys: string[]
}

/** The dispatcher gives no more jobs, and ends when it has recorded the ends of those that it has given. */
interface Left {
  type: 'left'
  from: string
}

/** A message to a worker. */
export type ToWorker = Offer | Answer | Grants | StatementResult | Abort | Left

/** How long the result of a statement is awaited, in ms. Then it may have run, as when the answer of a store is lost. */
export const answerMs = 10_000

/** The most characters of one message, or of one job or end alone, so that the broker takes it: RabbitMQ 4 takes no more than 16 MB. */
export const messageMax = 500_000

/** Returns a receiver of messages' texts. It drops texts that cannot be read, with a warning. */
export function createReceiver<T>(log: Log, receive: (message: T) => void): (text: string) => void {
  return (text) => {
    try {
      receive(JSON.parse(text) as T)
    } catch (error) {
      log.warn('a message between a dispatcher and a worker cannot be read; it is dropped', { err: error })
    }
  }
}

/** Returns the name by which both sides know a job in hand. Each attempt of a job has its own. */
export function keyOf({ claim, seq }: JobKey): string {
  return `${claim}:${seq}`
}

/** Checks an announcement: another version of Sluice may have written it. @throws TypeError if it lacks what is read of it */
export function checkAnnouncement(announcement: Partial<Announcement>): void {
  const { worker, n, by, stint, slots, tasks, kinds, holds, orphans, left } = announcement
  const isWhole =
    typeof worker === 'string' &&
    Number.isSafeInteger(n) &&
    Number.isSafeInteger(slots) &&
    (by === undefined || [by?.worker, by?.host, by?.version].every((text) => typeof text === 'string')) &&
    (stint === null || typeof stint === 'string') &&
    [tasks, kinds, holds, orphans, left].every((list) => Array.isArray(list)) &&
    kinds?.every((kind) => Array.isArray(kind?.tasks)) === true &&
    orphans?.every((orphan) => typeof orphan?.job === 'object') === true &&
    left?.every((over) => typeof over?.stint === 'string' && Array.isArray(over.begun)) === true
  if (!isWhole) throw new TypeError('the announcement of a worker lacks what it can take, or what it holds')
}

/** How long, in ms, a job without limits may be under way: its claim must be young. */
const lifeMs = 5_000
const defaultGrantMs = 100

/**
 * Returns the time, in the clock of its dispatcher, after which a worker does not take a job: when a quarter of its
 * grant's life is left.
 */
export function latestArrivalMs({
  buckets,
  grantUs,
  grantedMs,
}: Pick<ClaimedJob, 'buckets' | 'grantUs' | 'grantedMs'>): number {
  const ownMs = buckets === null ? lifeMs : grantUs === null ? defaultGrantMs : grantUs / 1_000
  return grantedMs + Math.min(ownMs, lifeMs) * 0.75
}
