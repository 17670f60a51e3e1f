/** What somebody has to do now and then, whoever lives: history partitions ahead, what is over forgotten. */
import type { Clock } from '../core/clock.ts'
import type { Db } from '../db/db.ts'

const sweepMs = 60_000
const pruneMs = 3_600_000
const keepDays = 7

/** Runs housekeeping when it is due; many workers may, the store lets one at a time do each part. */
export class Housekeeping {
  readonly #db: Db
  readonly #clock: Clock
  readonly #schema: string
  #sweptMs: number
  #prunedMs: number

  constructor(db: Db, clock: Clock, schema: string) {
    this.#db = db
    this.#clock = clock
    this.#schema = schema
    // The first prune comes soon after the start, at a time of its own for each worker of a fleet.
    this.#sweptMs = clock.monotonicMs() - clock.random() * sweepMs
    this.#prunedMs = clock.monotonicMs() - pruneMs + clock.random() * sweepMs
  }

  /** Does what is due. */
  async run(): Promise<void> {
    const now = this.#clock.monotonicMs()
    if (now - this.#sweptMs >= sweepMs) {
      this.#sweptMs = now
      await this.#db.query(`select ${this.#schema}.sweep_v1()`)
    }
    if (now - this.#prunedMs >= pruneMs) {
      this.#prunedMs = now
      await this.#db.query(`select ${this.#schema}.prune_v1($1)`, [keepDays])
    }
  }
}
