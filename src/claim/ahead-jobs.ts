/** Jobs in hand that were granted ahead of time. Until its instant such a job takes no slot. */
import { limitOf } from '../core/bucket.ts'
import type { Clock } from '../core/clock.ts'
import { hash64 } from '../core/hash.ts'
import type { ClaimedJob } from './claimed-job.ts'

/** Jobs that wait for their instants, and how many more may. */
export class AheadJobs {
  /**
   * When all slots are taken, a waiting job must get one within this many ms on average. Few grants live for less, and
   * a grant that expires has cost a unit for nothing.
   */
  static readonly #placeMs = 25
  /** A claim that takes longer than this, in ms, has no job whose instant is still to come. */
  static readonly #keptMs = 5_000
  /** The weight of the newest attempt in the mean duration of attempts. */
  static readonly #newestWeight = 0.1
  readonly #jobs = new Set<ClaimedJob>()
  #tookMs: number | undefined
  /** The newest call-backs. */
  #callBacks: { atMs: number; isConcerned: (job: ClaimedJob) => boolean }[] = []

  /** Adds jobs that wait for their instants. */
  add(jobs: readonly ClaimedJob[]): void {
    for (const job of jobs) this.#jobs.add(job)
  }

  /** Removes jobs whose instant has come, or that were given up. */
  delete(jobs: readonly ClaimedJob[]): void {
    for (const job of jobs) this.#jobs.delete(job)
  }

  /**
   * Records a call-back: a job that it concerns may not begin if it was claimed before `atMs` (monotonic) and granted
   * ahead.
   */
  callBack(atMs: number, isConcerned: (job: ClaimedJob) => boolean): void {
    this.#callBacks = [...this.#callBacks.filter((call) => call.atMs > atMs - AheadJobs.#keptMs), { atMs, isConcerned }]
  }

  /** Returns whether a job that was just received was claimed before a call-back that concerns it. */
  isCalledBack(job: ClaimedJob): boolean {
    const { requestedAt, notBeforeMs } = job
    if (requestedAt === undefined || notBeforeMs === undefined) return false
    return this.#callBacks.some(({ atMs, isConcerned }) => requestedAt.monotonicMs <= atMs && isConcerned(job))
  }

  /** Records for how long an attempt took its slot. */
  recordDuration(ms: number): void {
    this.#tookMs = this.#tookMs === undefined ? ms : this.#tookMs + (ms - this.#tookMs) * AheadJobs.#newestWeight
  }

  /** Returns how many of the waiting jobs need no slot yet. */
  countWithoutSlot(slots: number): number {
    return Math.min(this.#jobs.size, this.#jobsMax(slots))
  }

  /** Returns how many more jobs may wait. */
  room(slots: number): number {
    return Math.max(0, this.#jobsMax(slots) - this.#jobs.size)
  }

  /**
   * Returns how many jobs may wait: at most twice as many as there are slots; none before it is known how long attempts
   * take.
   */
  #jobsMax(slots: number): number {
    if (this.#tookMs === undefined) return 0
    return Math.floor(slots * Math.min(2, AheadJobs.#placeMs / this.#tookMs))
  }
}

/** Returns the jobs that a notification calls back (`limits/takers/call_back_grants_ahead.sql`); undefined: it calls none back. */
export function readCallBack(payload: string): ((job: Pick<ClaimedJob, 'id' | 'buckets'>) => boolean) | undefined {
  if (!payload.startsWith('!')) return undefined
  const what = new Set(payload.slice(1).split(','))
  return ({ id, buckets }) =>
    payload === '!' || what.has(id) || buckets?.some((one) => what.has(limitOf(one)) || what.has(hash64(one))) === true
}

/** The callers that wait for conditions; `recheck` makes them check again. */
interface Waitable {
  waitUntil(isTrue: () => boolean): Promise<void>
  recheck(): void
}

/** How long, in ms, a job without grants waits for a slot that others took: another worker may have a free one. */
const bareWaitMs = 1_000

/** Returns how long a job may wait for a slot, in ms: as long as its grants live. */
export function slotWaitMs({ grantedMs, grantUs }: ClaimedJob, clock: Clock): number {
  return grantUs === null ? bareWaitMs : Math.max(0, grantedMs + grantUs / 1_000 - clock.monotonicMs())
}

/**
 * Calls `then` in the same turn in which `isTrue` becomes true, because several callers may wait for the same slot.
 * Resolves to false, without calling it, if that takes longer than `ms`.
 */
export async function runWhenTrue(
  ms: number,
  clock: Clock,
  waitable: Waitable,
  isTrue: () => boolean,
  then: () => void,
): Promise<boolean> {
  // The timer decides, and not the clock, because it may fire a little before its time.
  let isOver = false
  const forget = clock.after(ms, () => {
    isOver = true
    waitable.recheck()
  })
  while (!isTrue() && !isOver) await waitable.waitUntil(() => isTrue() || isOver)
  forget()
  if (!isTrue()) return false
  then()
  return true
}
