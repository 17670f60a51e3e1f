/**
 * Compares what vendors state to have left with what the ledger has granted, and charges buckets for the difference:
 * somebody else uses the account (limits/ledger/charge_others.sql).
 */
import { limitOf } from '../core/bucket.ts'
import { caughtUpMs, type Moment, readMoment } from '../core/clock.ts'
import { hash64 } from '../core/hash.ts'
import { RecentMap } from '../core/recent-map.ts'
import { perStore, type Store } from '../db/store.ts'
import { type Counted, type Match, matchesOf, WindowWitness } from '../limits/vendor-counts.ts'
import type { Count } from '../vendors/answer.ts'

/** How much earlier than stated a window may begin: vendors state times in whole seconds, and the statement takes time. */
const slackMs = 2_000
/** In shorter windows nothing would be left to compare. */
const windowMsMin = 10_000
/** How often a bucket is compared: at most 60 times in a window, within these bounds. */
const compareMsMin = 1_000
const compareMsMax = 30_000
/** How many buckets are remembered: those whose counts were read last. */
const bucketsMax = 10_000

/** The observations of a bucket's vendor. */
interface Known {
  readonly witness: WindowWitness
  comparedMs: number
  /** End of the window in which nothing was left at the last comparison; monotonic ms. */
  spentUntilMs: number
}

/** A count that waits to be compared, and when it was read. */
interface Waiting {
  readonly match: Match
  readonly at: Moment
}

/** The counts that a process has read, for one store. */
export class OthersUse {
  readonly #store: Store
  readonly #known = new RecentMap<string, Known>(bucketsMax)
  readonly #waiting = new Map<string, Waiting>()
  #isComparing = false
  /** Among the waiting counts is one that shows that nothing is left. */
  #isUrgent = false
  #comparedMs = -Infinity

  constructor(store: Store) {
    this.#store = store
  }

  /**
   * Reads the counts of an answer to a request of these buckets, and compares them with the ledger now and then, with one
   * statement for all buckets at a time. Never throws, and keeps nobody waiting.
   * @param limits those of the request
   * @param cap returns the latest time that the store's clock can show, in microseconds
   */
  recordCounts(
    buckets: readonly string[],
    limits: readonly Counted[],
    counts: readonly Count[],
    cap: () => number | null,
  ): void {
    if (counts.length === 0) return
    const at = readMoment(this.#store.clock)
    const atMs = at.monotonicMs
    for (const match of matchesOf(limits, counts)) {
      const bucket = buckets.find((one) => limitOf(one) === match.limit && !/[*/]/.test(one))
      if (bucket === undefined || match.windowMs < windowMsMin) continue
      const known = this.#getOrCreateKnown(bucket)
      const isFixed = known.witness.recordCount(match, atMs)
      const untilMs = atMs + (match.resetMs ?? 0)
      // Rounding makes the end of one window move a little.
      const isSpent = match.left === 0 && isFixed && untilMs > known.spentUntilMs + slackMs
      const everyMs = Math.min(Math.max(match.windowMs / 60, compareMsMin), compareMsMax)
      if (!isSpent && atMs < known.comparedMs + everyMs) continue
      this.#waiting.set(bucket, { match: { ...match, isFixed }, at })
      if (isSpent) known.spentUntilMs = untilMs
      this.#isUrgent ||= isSpent
      if (isSpent || atMs >= this.#comparedMs + compareMsMin) void this.#compare(cap)
    }
  }

  #getOrCreateKnown(bucket: string): Known {
    const known = this.#known.get(bucket) ?? {
      witness: new WindowWitness(),
      comparedMs: -Infinity,
      spentUntilMs: -Infinity,
    }
    this.#known.set(bucket, known)
    return known
  }

  /** Compares the waiting counts. If the store does not answer, the next answers of the vendor show the same use, or more. */
  async #compare(cap: () => number | null): Promise<void> {
    if (this.#isComparing) return
    this.#isComparing = true
    this.#isUrgent = false
    try {
      const { clock } = this.#store
      const nowMs = clock.monotonicMs()
      this.#comparedMs = nowMs
      const columns: (string | number | null)[][] = [[], [], [], [], []]
      for (const [bucket, { match, at }] of this.#waiting) {
        this.#getOrCreateKnown(bucket).comparedMs = nowMs
        const { most, left, windowMs, resetMs = 0, isFixed, marginMs } = match
        const ageMs = caughtUpMs(clock, at) - at.monotonicMs
        // The window of the answer is over.
        if (isFixed && resetMs <= ageMs) continue
        const sinceMs = ageMs + (isFixed ? Math.max(0, windowMs - resetMs) : windowMs) + marginMs + slackMs
        const toUs = (ms: number) => Math.ceil(ms * 1_000)
        const row = [hash64(bucket), most, left, toUs(sinceMs), isFixed ? toUs(resetMs - ageMs) : null]
        for (const [i, value] of row.entries()) columns[i]?.push(value)
      }
      this.#waiting.clear()
      if (columns[0]?.length) await this.#store.call('charge_others', [...columns, cap()])
    } catch {
      // If it failed, the next answers of the vendor show the same.
    } finally {
      this.#isComparing = false
      if (this.#isUrgent) void this.#compare(cap)
    }
  }
}

/** Returns the counts that this process has read, for a store. */
export const othersUseOf = perStore((store) => new OthersUse(store))
