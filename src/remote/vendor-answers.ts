/**
 * Holds limits by the vendor's answers that calls of stock workers report, as workers in Node do by the answers that
 * their handlers get.
 */
import type { ClaimedJob } from '../claim/claimed-job.ts'
import { marginsOf } from '../claim/definitions/margins.ts'
import { StoreClock } from '../core/clock.ts'
import type { Store } from '../db/store.ts'
import type { PeerLimiter } from '../limits/peer.ts'
import { Acquirer } from '../takes/acquire.ts'
import { isPlaces } from '../tasks/remote.ts'
import type { AnyTask } from '../tasks/task.ts'
import { badAnswerIn } from '../worker/bad-answer.ts'
import type { Throttling } from '../worker/verdict.ts'

/** Holds limits, and frees them again. */
export class VendorAnswers {
  readonly #store: Store
  readonly #acquirer: Acquirer

  constructor(store: Store, peer: PeerLimiter | undefined) {
    this.#store = store
    this.#acquirer = new Acquirer(store, new StoreClock(), peer)
  }

  /**
   * Holds the limits that an error concerns, if the vendor refused the call or failed. Undefined: the error is an
   * ordinary one.
   */
  async recordFailure(job: ClaimedJob, { limits }: AnyTask, error: unknown): Promise<Throttling | undefined> {
    const refusal = badAnswerIn(error, limits, undefined, undefined)?.refusal
    const buckets = bucketsOf(job)
    if (refusal === undefined) return undefined
    if (buckets.length === 0) return refusal.cause === undefined ? refusal : undefined
    if (refusal.cause === undefined) marginsOf(this.#store).applyStatedMargin(limits)
    const sent = { buckets, limits, requestedAt: job.requestedAt, who: job.id, isTrial: job.isTrial === true }
    const heldMs = await this.#acquirer.recordRefusal(sent, refusal).catch(() => undefined)
    // A single failure is an ordinary one.
    return refusal.cause === undefined || heldMs !== undefined ? { ...refusal, heldMs } : undefined
  }

  /** The vendor has served a call. */
  recordServed(job: ClaimedJob, { limits }: AnyTask): void {
    const buckets = bucketsOf(job)
    if (buckets.length === 0) return
    this.#acquirer.recordServed({ buckets, limits }, job.requestedAt)
    // If the store does not receive it, the next call reports the same.
    if (job.isTrial === true) void this.#acquirer.recordAccepted({ buckets, limits }, job.requestedAt).catch(() => {})
  }
}

function bucketsOf({ chargedBuckets, buckets }: ClaimedJob): readonly string[] {
  return (chargedBuckets ?? buckets ?? []).filter((bucket) => !isPlaces(bucket))
}
