/** Minutes of saturated demand under one limit without keys, against an account at a vendor, on a clock that the test moves. */
import type { Db } from '../../src/db/db.ts'
import { hash64, newId } from '../../src/core/hash.ts'
import { sqlOn } from '../../src/db/store.ts'
import { defineLimit } from '../../src/claim/definitions/define.ts'
import type { Limit } from '../../src/limits/limit.ts'
import type { Count } from '../../src/vendors/answer.ts'
import { readerOf } from '../../src/vendors/reader.ts'
import { ownClock } from '../claim/engine.ts'
import { fn } from '../servers/fn.ts'
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
    // Grants all that is free, as a claim does.
    await this.#db.query(
      `create function sluice.test_grant(p_bucket bigint, p_id uuid) returns bigint language plpgsql as $$
       declare r ${fn}.room;
       begin
         perform ${fn}.renew_bucket_states(array[p_bucket]);
         select * into r from unnest(${fn}.bucket_room(array[p_bucket], sluice.now_us()));
         if r.avail > 0 then perform ${fn}.append_ledger(array[r], p_id, array[r.avail], array[r.avail]); end if;
         return r.avail;
       end $$`,
    )
  }

  /** Plays; resolves to the account's windows: the first one had begun before. */
  async play({ of, account, untilMs, stepMs = 500, saw, step }: Play): Promise<Window[]> {
    const bucket = hash64(of.name)
    await this.#clock?.set(startMs)
    await defineLimit(sqlOn(this.#db), of)
    await this.#db.query(`insert into sluice.bucket (id, name, key) values ($1, $2, '')`, [bucket, of.name])
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
        if (refused !== undefined)
          await this.#db.query(`select ${fn}.refuse_buckets($1, '{}', $2, $3, null, '429')`, [
            [bucket],
            waitUs,
            stepMs * 1_000,
          ])
        else if (isHeld) await this.#db.query(`select ${fn}.accept_buckets($1, $2, null)`, [[bucket], stepMs * 1_000])
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
