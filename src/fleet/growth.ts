/** Finds queues that grow, from their lengths at each look. Pure. */

/** A queue that has grown since it was last empty, or shorter. */
export interface Growing {
  subject: string
  /** For how long, in ms. */
  forMs: number
  /** Jobs a minute, on the average of that time; at least 1. */
  perMinute: number
}

/** One look at a queue. */
interface Look {
  atMs: number
  length: number
}

/** Lengths are compared once in this time, so that a short lull, or a burst of claims, does not end a growth. */
const stepMs = 60_000
/** After a longer pause the earlier lengths no longer count, because another worker, or nobody, has watched meanwhile. */
const pauseMaxMs = 5 * stepMs
const minuteMs = 60_000

/** The lengths of all queues, as one process has seen them. */
export class Growth {
  /** By queue: since when it grows, and the end of the last step. */
  readonly #queues = new Map<string, { since: Look; step: Look }>()
  #firstMs = Infinity
  #lastMs = -Infinity

  /** Returns true while it has watched for too short a time to know that a queue does not grow. */
  isNew(nowMs: number): boolean {
    return nowMs - this.#firstMs < 2 * stepMs
  }

  /**
   * Records the present lengths; a queue that is left out is empty. Returns the queues that have grown for at least one
   * step.
   */
  recordLengths(lengths: readonly { subject: string; value: number }[], nowMs: number): Growing[] {
    if (nowMs - this.#lastMs > pauseMaxMs) {
      this.#queues.clear()
      this.#firstMs = nowMs
    }
    this.#lastMs = nowMs
    const seen = new Map(lengths.map(({ subject, value }) => [subject, value]))
    for (const queue of this.#queues.keys()) if ((seen.get(queue) ?? 0) === 0) this.#queues.delete(queue)
    return [...seen].flatMap(([subject, length]) => {
      const now = { atMs: nowMs, length }
      const known = this.#queues.get(subject)
      if (length === 0) return []
      if (known === undefined) {
        this.#queues.set(subject, { since: now, step: now })
        return []
      }
      if (nowMs - known.step.atMs >= stepMs) {
        if (length <= known.step.length) known.since = now
        known.step = now
      }
      const forMs = known.step.atMs - known.since.atMs
      if (forMs <= 0) return []
      const grown = known.step.length - known.since.length
      return [{ subject, forMs, perMinute: Math.max(1, Math.round((grown / forMs) * minuteMs)) }]
    })
  }
}
