/** What somebody has to do now and then, whoever lives: history partitions ahead, what is over forgotten. */
import type { Clock } from '../core/clock.ts'
import type { Db } from '../db/db.ts'

const minuteMs = 60_000
const hourMs = 3_600_000
/** How long finished jobs and the ledger are kept. */
const keepDaysDefault = 7
/** A worker also beats and watches in the same round: longer than this only the next one goes on. */
const roundMs = 500
const pruneMs = 5 * minuteMs
/** Lanes are numbered by a hash: from the smallest bigint on. */
const leastId = '-9223372036854775808'

/** One thing to do, in portions: each is a transaction of its own, so that no lock outlives it. */
interface Chore {
  everyMs: number
  dueMs: number
  /** Does a portion; resolves to something true when there may be more, which the next call is told. */
  step(last: unknown): Promise<unknown>
  last: unknown
}

/** Runs housekeeping when it is due; many workers may, the store lets one at a time do each part. */
export class Housekeeping {
  readonly #clock: Clock
  readonly #expire: Chore
  readonly #chores: Chore[]

  constructor(db: Db, clock: Clock, schema: string, keepDays = keepDaysDefault) {
    this.#clock = clock
    const chore = (everyMs: number, call: string, params: (last: unknown) => unknown[] = () => []): Chore => ({
      everyMs,
      // The first comes soon after the start, at a time of its own for each worker of a fleet.
      dueMs: clock.monotonicMs() + clock.random() * minuteMs,
      last: undefined,
      step: async (last) => (await db.query(`select ${call} as more`, params(last)))[0]?.['more'],
    })
    this.#expire = chore(hourMs, `${schema}.expire_v1($1)`, () => [keepDays])
    this.#chores = [
      chore(minuteMs, `${schema}.sweep_v1()`),
      chore(minuteMs, `${schema}.lapse_v1()`),
      chore(hourMs, `${schema}.collect_v1($1)`, (last) => [last ?? leastId]),
      chore(hourMs, `${schema}.partition_v1()`),
      this.#expire,
      chore(hourMs, `${schema}.late_v1($1)`, () => [keepDays]),
      chore(hourMs, `${schema}.forget_v1($1, $2)`, (last) => [keepDays, last ?? 0]),
    ]
  }

  /** Does what is due; what is left after half a second is due again in the next round. */
  async run(): Promise<void> {
    const beganMs = this.#clock.monotonicMs()
    for (const chore of this.#chores) {
      if (chore.dueMs > beganMs) continue
      chore.dueMs = beganMs + chore.everyMs
      await this.#work(chore, beganMs + roundMs)
      if (chore.last) chore.dueMs = beganMs
    }
  }

  /** Does everything, for five minutes at most. Resolves to the partitions that were dropped. */
  async prune(): Promise<string[]> {
    const untilMs = this.#clock.monotonicMs() + pruneMs
    const dropped: unknown[] = []
    for (const chore of this.#chores) {
      const answers = await this.#work(chore, untilMs)
      if (chore === this.#expire) dropped.push(...answers.filter(Boolean))
    }
    return dropped as string[]
  }

  /** At least one portion, so that none starves behind the others; resolves to what each said. */
  async #work(chore: Chore, untilMs: number): Promise<unknown[]> {
    const answers: unknown[] = []
    do answers.push((chore.last = await chore.step(chore.last)))
    while (chore.last && this.#clock.monotonicMs() < untilMs)
    return answers
  }
}
