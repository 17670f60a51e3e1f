/** Minutes of saturated demand under one limit without keys, against an account at a vendor, on a clock that the test moves. */
import type { Db } from '../../src/db/db.ts'
import { newId } from '../../src/core/hash.ts'
import { sqlOn } from '../../src/db/store.ts'
import { defineLimit } from '../../src/claim/definitions/define.ts'
import type { Limit } from '../../src/limits/limit.ts'
import type { Count } from '../../src/vendors/answer.ts'
import { readerOf } from '../../src/vendors/reader.ts'
import { ownClock } from '../claim/engine.ts'
import { accept } from '../takes/engine.ts'
import { addBucket, createTestGrant, refuse } from '../limits/engine.ts'
import type { Account } from './account.ts'

const startMs = 1_800_000_000_000

/** What happened in one of the account's windows. */
export interface Window {
  /** Calls that the account accepted, of ours and of another client. */
  ours: number
  others: number
  /** Calls of ours that it refused. */
  refused: number
}

/** Returns whole numbers below what it is given, the same for the same seed. */
export function random(seed: number): (below: number) => number {
  let state = seed
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return Math.floor((state / 2 ** 32) * below)
  }
}

/** What a play needs. Times in ms from its begin. */
export interface Play {
  readonly of: Limit
  readonly account: Account
  readonly untilMs: number
  /** How much time passes between two looks at the limit; its answers come a step later. Default 500. */
  readonly stepMs?: number
  /** Called with the counts of each answer, a step after the call. */
  readonly saw?: (counts: readonly Count[]) => Promise<unknown>
  /** Called at each step; returns the number of calls that another client makes then. */
  readonly step?: (ms: number) => Promise<number> | number
}

/** A store whose clock the test moves. */
export class Minutes {
  readonly #db: Db
  #clock: { set(ms: number): Promise<void> } | undefined

  constructor(db: Db) {
    this.#db = db
  }

  async open(): Promise<void> {
    this.#clock = await ownClock(this.#db, startMs)
    await this.#db.query(createTestGrant)
  }

  /** Plays; resolves to the account's windows: the first one had begun before. */
  async play({ of, account, untilMs, stepMs = 500, saw, step }: Play): Promise<Window[]> {
    await this.#clock?.set(startMs)
    await defineLimit(sqlOn(this.#db), of)
    const bucket = await addBucket(this.#db, of.name)
    const reader = readerOf([of.answers])
    const windows: Window[] = []
    const at = (ms: number) => (windows[account.windowOf(ms) + 1] ??= { ours: 0, others: 0, refused: 0 })
    let answers: ReturnType<Account['call']>[] = []
    let isHeld = false
    for (let ms = 0; ms < untilMs; ms += stepMs) {
      await this.#clock?.set(startMs + ms)
      for (const answer of answers) {
        const { counts, refused } = reader.read(answer)
        await saw?.(counts)
        const waitUs = (refused?.waitMs ?? 1_000) * 1_000
        if (refused !== undefined) await refuse(this.#db, [of.name], { waitUs, ageUs: stepMs * 1_000 })
        else if (isHeld) await accept(this.#db, [of.name], stepMs * 1_000)
        isHeld = refused !== undefined
      }
      const others = (await step?.(ms)) ?? 0
      const [row] = await this.#db.query<{ n: string }>('select sluice.test_grant($1, $2) as n', [bucket, newId()])
      for (let n = 0; n < others; n++) at(ms).others += account.call(ms).status === 200 ? 1 : 0
      answers = Array.from({ length: Number(row?.n ?? 0) }, () => account.call(ms))
      for (const { status } of answers) at(ms)[status === 200 ? 'ours' : 'refused']++
    }
    return windows
  }
}
