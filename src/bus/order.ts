/** Records the events of a handler with an order in the store, in the order in which they came. */

import { countForStatement } from '../core/payload.ts'

/** A sender splits larger groups into several transactions. */
const most = 500

/** An event that is to be recorded. */
interface Queued<T> {
  readonly one: T
  readonly done: () => void
}

/** A queue of events, which records them in order. */
export class Order<T> {
  readonly #record: (one: T) => Promise<void>
  readonly #insist: (one: T, error: unknown) => Promise<void>
  readonly #lengthOf: (one: T) => number
  #waiting: Queued<T>[] = []
  #isWorking = false

  /**
   * @param record tries to record one. Calls that begin at the same time share a transaction, so all of them fail, or none,
   * unless the store refuses one of them, or another transaction holds one for more than 20 ms
   * @param insist records one however often that fails, or gives it up; never rejects
   * @param lengthOf returns how many characters it has in the store, at most
   */
  constructor(
    record: (one: T) => Promise<void>,
    insist: (one: T, error: unknown) => Promise<void>,
    lengthOf: (one: T) => number,
  ) {
    this.#record = record
    this.#insist = insist
    this.#lengthOf = lengthOf
  }

  /** Resolves when it is recorded, or given up. */
  add(one: T): Promise<void> {
    return new Promise((done) => {
      this.#waiting.push({ one, done })
      if (!this.#isWorking) void this.#work()
    })
  }

  async #work(): Promise<void> {
    this.#isWorking = true
    while (this.#waiting.length > 0) {
      // What has arrived with the first one is recorded together with it.
      await new Promise((resolve) => setImmediate(resolve))
      const count = countForStatement(this.#waiting, most, ({ one }) => this.#lengthOf(one))
      const queued = this.#waiting.splice(0, count)
      const tried = await Promise.allSettled(queued.map(({ one }) => this.#record(one)))
      for (const [i, { one, done }] of queued.entries()) {
        const its = tried[i]
        if (its?.status === 'rejected') await this.#insist(one, its.reason)
        done()
      }
    }
    this.#isWorking = false
  }
}
