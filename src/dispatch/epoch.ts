/**
 * Watches over the limiter's state: whether the store is still what it was, and whether its clock goes on evenly. Each worker
 * looks when it registers and at each beat; what it finds it puts right for all (limits/look.sql, limits/shift.sql).
 */
import { type Clock, leastUs, type Reading, stepForward, type StoreClock } from '../core/clock.ts'
import type { Db } from '../db/db.ts'
import { engineSchema } from '../db/migrate.ts'
import type { Log } from './task.ts'

/** What look says. */
export interface Look {
  now_us: string
  ahead_us: string
  watched: boolean
  n: string
  lsn: string | null
  restored: boolean
  raised_us: string
  renewal: boolean
}

/** One process's watch. */
export class Epoch {
  readonly #db: Db
  readonly #clock: Clock
  readonly #schema: string
  readonly #storeClock: StoreClock
  readonly #log: Log
  #past: Reading | undefined
  #isRenewing = false
  #known: { n: string | null; lsn: string | null } = { n: null, lsn: null }

  constructor(db: Db, clock: Clock, schema: string, storeClock: StoreClock, log: Log) {
    this.#db = db
    this.#clock = clock
    this.#schema = schema
    this.#storeClock = storeClock
    this.#log = log
  }

  /** Looks once. Anybody may, as often as he likes; every 2 s keeps what is granted after a loss or a step to that time. */
  async look(): Promise<void> {
    await this.lookBy((known) =>
      this.#db.call<Look>('look', `select * from ${engineSchema(this.#schema)}.look($1,$2,$3)`, known),
    )
  }

  /** Looks once by a statement that does other things too: `ask` is given what look is, and its row has what that says. */
  async lookBy<R extends Look>(ask: (known: readonly unknown[]) => Promise<R[]>): Promise<R | undefined> {
    const past = this.#past
    const sentMs = this.#clock.monotonicMs()
    const [row] = await ask([past === undefined ? null : leastUs(past, sentMs), this.#known.n, this.#known.lsn])
    if (row !== undefined) await this.#learn(row, past, sentMs)
    if (row?.renewal === true) void this.#renew()
    return row
  }

  /** Makes buckets anew whose ledger is too long for a claim to do it; in the background, and as long as that takes. */
  async #renew(): Promise<void> {
    if (this.#isRenewing) return
    this.#isRenewing = true
    const sql = `select ${engineSchema(this.#schema)}.renewed() as is_more`
    const one = () =>
      this.#db.transaction(async (tx) => {
        await tx.query('set local statement_timeout = 0')
        return (await tx.query<{ is_more: boolean }>(sql))[0]?.is_more === true
      })
    try {
      while (await one());
    } catch (error) {
      this.#log.warn('a limit with a new definition is still closed; the next look tries again', {
        error: String(error),
      })
    } finally {
      this.#isRenewing = false
    }
  }

  async #learn(row: Look, past: Reading | undefined, sentMs: number): Promise<void> {
    const heardMs = this.#clock.monotonicMs()
    const reading = { us: Number(row.now_us), sentMs, heardMs, bootMs: this.#clock.bootMs() }
    this.#tell(row)
    this.#known = { n: row.n, lsn: row.lsn }
    if (!row.watched) {
      this.#past = undefined
      return this.#storeClock.forget()
    }
    const { byUs, isOwn } = past === undefined ? { byUs: 0, isOwn: false } : stepForward(past, reading)
    if (byUs > 0 && !isOwn && (await this.#shift(byUs, row.ahead_us))) return
    // Right as it is, also where this process slept, or heard of an earlier one late.
    this.#past = reading
    this.#storeClock.forget()
    this.#storeClock.saw(reading.us, heardMs)
  }

  /** Takes a step forward back; true: what was read is out of date, and the reading before stays good. */
  async #shift(byUs: number, aheadUs: string): Promise<boolean> {
    const sql = `select ${engineSchema(this.#schema)}.shift($1, $2) as outcome`
    const [row] = await this.#db.call<{ outcome: string }>('shift', sql, [byUs, aheadUs])
    if (row?.outcome === 'moved')
      this.#log.warn(
        "the store's clock stepped forward; limits go on evenly, as if it had not: look after that clock",
        {
          seconds: Math.round(byUs / 1e6),
        },
      )
    return row?.outcome !== 'witnessed'
  }

  #tell({ restored, raised_us, n }: Look): void {
    if (restored)
      this.#log.error(
        'the store lacks commits that it had acknowledged (restored from a backup, or failed over): limits are closed until ' +
          'what they granted before is out of their windows, an hour at most; jobs of the gap may be lost, or run again',
        { epoch: Number(n) },
      )
    if (Number(raised_us) > 0)
      this.#log.warn(
        "the store's clock was set back; limits go on evenly, as if it had not been: look after that clock",
        {
          seconds: Math.round(Number(raised_us) / 1e6),
        },
      )
  }
}
