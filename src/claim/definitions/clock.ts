/**
 * Watches over the limiter's state: whether the store is still what it was, and whether its clock goes on evenly. Each worker
 * looks when it registers and at each beat; what it finds it puts right for all (limits/clock/look.sql, limits/clock/shift.sql).
 */
import { leastUs, type Reading, stepForward, type StoreClock } from '../../core/clock.ts'
import type { Store } from '../../db/store.ts'

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
  readonly #store: Store
  readonly #storeClock: StoreClock
  #past: Reading | undefined
  #isRenewing = false
  #known: { n: string | null; lsn: string | null } = { n: null, lsn: null }

  constructor(store: Store, storeClock: StoreClock) {
    this.#store = store
    this.#storeClock = storeClock
  }

  /** Looks once. Anybody may, as often as he likes; every 2 s keeps what is granted after a loss or a step to that time. */
  async look(): Promise<void> {
    await this.lookBy((known) => this.#store.call<Look>('look', known))
  }

  /** Looks once by a statement that does other things too: `ask` is given what look is, and its row has what that says. */
  async lookBy<R extends Look>(ask: (known: readonly unknown[]) => Promise<R[]>): Promise<R | undefined> {
    const past = this.#past
    const sentMs = this.#store.clock.monotonicMs()
    const [row] = await ask([past === undefined ? null : leastUs(past, sentMs), this.#known.n, this.#known.lsn])
    if (row !== undefined) await this.#learn(row, past, sentMs)
    if (row?.renewal === true) void this.#renew()
    return row
  }

  /** Makes buckets anew whose ledger is too long for a claim to do it; in the background, and as long as that takes. */
  async #renew(): Promise<void> {
    if (this.#isRenewing) return
    this.#isRenewing = true
    const { db, log } = this.#store
    const one = () =>
      db.transaction(async (tx) => {
        await tx.query('set local statement_timeout = 0')
        return (await this.#store.on(tx).call<{ renewed: boolean }>('renewed'))[0]?.renewed === true
      })
    try {
      while (await one());
    } catch (error) {
      log.warn('a limit with a new definition is still closed; the next look tries again', {
        error: String(error),
      })
    } finally {
      this.#isRenewing = false
    }
  }

  async #learn(row: Look, past: Reading | undefined, sentMs: number): Promise<void> {
    const heardMs = this.#store.clock.monotonicMs()
    const reading = { us: Number(row.now_us), sentMs, heardMs, bootMs: this.#store.clock.bootMs() }
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
    const [row] = await this.#store.call<{ shift: string }>('shift', [byUs, aheadUs])
    if (row?.shift === 'moved')
      this.#store.log.warn(
        "the store's clock stepped forward; limits go on evenly, as if it had not: look after that clock",
        {
          seconds: Math.round(byUs / 1e6),
        },
      )
    return row?.shift !== 'witnessed'
  }

  #tell({ restored, raised_us, n }: Look): void {
    if (restored)
      this.#store.log.error(
        'the store lacks commits that it had acknowledged (restored from a backup, or failed over): limits are closed until ' +
          'what they granted before is out of their windows, an hour at most; jobs of the gap may be lost, or run again',
        { epoch: Number(n) },
      )
    if (Number(raised_us) > 0)
      this.#store.log.warn(
        "the store's clock was set back; limits go on evenly, as if it had not been: look after that clock",
        {
          seconds: Math.round(Number(raised_us) / 1e6),
        },
      )
  }
}
