/** The clock of a store in a random history: time passes as the history has it, and the store shows it, or steps back. */
import type { Db } from '../../src/db/db.ts'
import { checkClock, limiterNowUs } from '../limits/engine.ts'
import type { Time } from './witness.ts'

/** Time, and what the store shows of it. */
export class WorldClock implements Time {
  us: number
  shownUs: number
  readonly #db: Db

  constructor(db: Db, startUs: number) {
    this.#db = db
    this.us = startUs
    this.shownUs = startUs
  }

  /** Has the store show the time. */
  async show(): Promise<void> {
    await this.#db.query('update sluice.test_clock set at = to_timestamp($1 / 1000000.0)', [this.shownUs])
  }

  /** Time passes. */
  async pass(us: number): Promise<void> {
    this.us += us
    this.shownUs += us
    await this.show()
  }

  /** Sets the store's clock back; a worker would notice within 2 s, here it does at once. */
  async back(us: number): Promise<void> {
    const shownUs = await limiterNowUs(this.#db)
    this.us += 1_000
    this.shownUs -= us
    await this.show()
    await checkClock(this.#db, shownUs)
  }
}
