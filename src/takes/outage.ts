/** The time in which the store is away, for limits that are open then: seen in the log and by a count. */
import type { Clock } from '../core/clock.ts'
import type { Log } from '../core/log.ts'

/** After an answer that did not come the store is left alone for so long: each of those asking would wait for it. */
const probeMs = 1_000

/** One process's view of it. */
export class Outage {
  /** Granted without the store, in all. */
  uncharged = 0
  readonly #clock: Clock
  readonly #log: Log
  #askMs: number | undefined
  #since = 0

  constructor(clock: Clock, log: Log) {
    this.#clock = clock
    this.#log = log
  }

  /** The store gave no answer a moment ago. */
  get isOn(): boolean {
    return this.#askMs !== undefined && this.#clock.monotonicMs() < this.#askMs
  }

  /** It gave no answer. */
  begun(error: unknown): void {
    if (this.#askMs === undefined) {
      this.#since = this.uncharged
      this.#log.warn('the store is away, and limits with onStoreError "open" grant without it', {
        error: String(error),
      })
    }
    this.#askMs = this.#clock.monotonicMs() + probeMs
  }

  /** A limit granted without it. */
  granted(limit: string): void {
    this.uncharged++
    this.#log.debug('granted without the store', { limit })
  }

  /** It answered. */
  over(): void {
    if (this.#askMs === undefined) return
    this.#askMs = undefined
    this.#log.info('the store is back; what was granted without it was not charged', {
      grants: this.uncharged - this.#since,
    })
  }
}
