/** Jobs that this process gives back uncalled, for a reason that may pass or may never pass. */
const timesMax = 10
const jobsMax = 10_000

/** Counts how often each was given back, so that it fails, visibly, instead of going round for ever. */
export class Patience {
  readonly #times = new Map<string, number>()

  /** Counts one more time for this job; false when it has gone round too often. */
  spend(id: string): boolean {
    const times = (this.#times.get(id) ?? 0) + 1
    this.#times.delete(id)
    if (times > timesMax) return false
    this.#times.set(id, times)
    // Most go on elsewhere, and are never heard of again.
    if (this.#times.size > jobsMax) this.#times.delete(this.#times.keys().next().value as string)
    return true
  }

  /** The job went on: what was counted is over. */
  forget(id: string): void {
    this.#times.delete(id)
  }
}
