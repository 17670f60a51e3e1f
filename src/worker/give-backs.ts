/** Bounds how often this process gives a job back uncalled, for a reason that may or may not pass. */
import { RecentMap } from '../core/recent-map.ts'

const timesMax = 10
/** Most jobs continue in another worker, and this one sees nothing more of them. */
const jobsMax = 10_000

/**
 * Counts how often each job was given back, so that it fails visibly instead of being claimed and given back for ever.
 */
export class GiveBackCounter {
  readonly #times = new RecentMap<string, number>(jobsMax)

  /** Counts one more return of this job; returns false when there were too many. */
  spend(id: string): boolean {
    const times = (this.#times.get(id) ?? 0) + 1
    if (times <= timesMax) this.#times.set(id, times)
    else this.#times.delete(id)
    return times <= timesMax
  }

  /** Resets the count: the job has run. */
  forget(id: string): void {
    this.#times.delete(id)
  }
}
