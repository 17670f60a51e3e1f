/** The times in which the store is away and limits with `onStoreError: 'open'` grant without it: logged and counted. */
import type { Clock } from '../core/clock.ts'
import type { Log } from '../core/log.ts'

/**
 * For how long, in ms, takes do not call a store that has failed to answer, because each call would wait for its own
 * time-out.
 */
const retryMs = 1_000

/** The store's outages, as one process sees them. */
export class StoreOutage {
  /** Grants made without the store so far. */
  uncharged = 0
  readonly #clock: Clock
  readonly #log: Log
  #retryAtMs: number | undefined
  #since = 0

  constructor(clock: Clock, log: Log) {
    this.#clock = clock
    this.#log = log
  }

  /** True for a second after the store failed to answer. */
  get isOn(): boolean {
    return this.#retryAtMs !== undefined && this.#clock.monotonicMs() < this.#retryAtMs
  }

  /** Records that the store did not answer. */
  begun(error: unknown): void {
    if (this.#retryAtMs === undefined) {
      this.#since = this.uncharged
      this.#log.warn('the store does not answer; limits with onStoreError "open" grant without it', {
        err: error,
      })
    }
    this.#retryAtMs = this.#clock.monotonicMs() + retryMs
  }

  /** Counts a grant made without the store. */
  recordGrant(limits: readonly string[]): void {
    this.uncharged++
    this.#log.debug('granted without the store', { limits: limits.join(', ') })
  }

  /** Records that the store answered. */
  over(): void {
    if (this.#retryAtMs === undefined) return
    this.#retryAtMs = undefined
    this.#log.warn('the store answers again; what was granted without it was not charged', {
      grants: this.uncharged - this.#since,
    })
  }
}
