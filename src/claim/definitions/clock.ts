/**
 * Checks whether the store is still the same, and whether its clock runs evenly. Each worker checks when it registers
 * and at each beat, and corrects the limiter's clock for the whole fleet (limits/clock/check_epoch.sql,
 * limits/clock/undo_clock_step.sql).
 */
import { leastUs, type Reading, stepForward, type StoreClock } from '../../core/clock.ts'
import type { Store } from '../../db/store.ts'

/** The row that `engine.check_epoch` returns. */
export interface EpochCheck {
  now_us: string
  clock_offset_us: string
  watched: boolean
  n: string
  lsn: string | null
  restored: boolean
  raised_us: string
  renewal: boolean
}

/** The checks of one process. */
export class StoreEpoch {
  readonly #store: Store
  readonly #storeClock: StoreClock
  #past: Reading | undefined
  #isRenewing = false
  #known: { n: string | null; lsn: string | null } = { n: null, lsn: null }

  constructor(store: Store, storeClock: StoreClock) {
    this.#store = store
    this.#storeClock = storeClock
  }

  /**
   * Checks once. Any process may do this at any time. With a check every 2 s, grants go wrong for at most that long
   * after a loss or a step.
   */
  async check(): Promise<void> {
    await this.checkBy((known) => this.#store.call<EpochCheck>('check_epoch', known))
  }

  /**
   * Checks once with a statement that also does other work. `send` gets the parameters of `engine.check_epoch`, and
   * resolves to a row with its columns.
   */
  async checkBy<R extends EpochCheck>(send: (known: readonly unknown[]) => Promise<R[]>): Promise<R | undefined> {
    const past = this.#past
    const sentMs = this.#store.clock.monotonicMs()
    const [row] = await send([past === undefined ? null : leastUs(past, sentMs), this.#known.n, this.#known.lsn])
    if (row !== undefined) await this.#learn(row, past, sentMs)
    if (row?.renewal === true) void this.#renew()
    return row
  }

  /** Rebuilds buckets whose ledger is too long for a claim to read; in the background, however long that takes. */
  async #renew(): Promise<void> {
    if (this.#isRenewing) return
    this.#isRenewing = true
    const { db, log } = this.#store
    const rebuildOne = () =>
      db.transaction(async (tx) => {
        await tx.query('set local statement_timeout = 0')
        return (
          (await this.#store.on(tx).call<{ rebuild_next_bucket: boolean }>('rebuild_next_bucket'))[0]
            ?.rebuild_next_bucket === true
        )
      })
    try {
      while (await rebuildOne());
    } catch (error) {
      log.warn('a limit with a new definition is still closed; the next check tries again', {
        err: error,
      })
    } finally {
      this.#isRenewing = false
    }
  }

  async #learn(row: EpochCheck, past: Reading | undefined, sentMs: number): Promise<void> {
    const receivedMs = this.#store.clock.monotonicMs()
    const reading = { us: Number(row.now_us), sentMs, receivedMs, bootMs: this.#store.clock.bootMs() }
    this.#warn(row)
    this.#known = { n: row.n, lsn: row.lsn }
    if (!row.watched) {
      this.#past = undefined
      return this.#storeClock.forget()
    }
    const { byUs, isOwn } = past === undefined ? { byUs: 0, isOwn: false } : stepForward(past, reading)
    if (byUs > 0 && !isOwn && (await this.#undoStep(byUs, row.clock_offset_us))) return
    // The reading is right, also if this process slept, or received an earlier one late.
    this.#past = reading
    this.#storeClock.forget()
    this.#storeClock.recordReading(reading.us, [sentMs, receivedMs])
  }

  /**
   * Takes back a forward step of the store's clock. Returns true if this reading is out of date and the previous one
   * stays valid.
   */
  async #undoStep(byUs: number, clockOffsetUs: string): Promise<boolean> {
    const [row] = await this.#store.call<{ undo_clock_step: string }>('undo_clock_step', [byUs, clockOffsetUs])
    if (row?.undo_clock_step === 'moved')
      this.#store.log.warn("the store's clock stepped forward; limits continue as if it had not: check that clock", {
        seconds: Math.round(byUs / 1e6),
      })
    return row?.undo_clock_step !== 'witnessed'
  }

  #warn({ restored, raised_us, n }: EpochCheck): void {
    if (restored)
      this.#store.log.error(
        'the store lacks commits that it had acknowledged (restored from a backup, or failed over): limits are closed until ' +
          'what they granted before is out of their windows, an hour at most; jobs sent or ended after that may be lost, or run again',
        { epoch: Number(n) },
      )
    if (Number(raised_us) > 0)
      this.#store.log.warn("the store's clock was set back; limits continue as if it had not been: check that clock", {
        seconds: Math.round(Number(raised_us) / 1e6),
      })
  }
}
