/**
 * How many messages a worker reads ahead: as many as it has slots, so that none waits here that another worker could begin; many
 * more while most are denied, so that what stands behind them is seen soon.
 */
import type { Consumer } from '../amqp/consumer.ts'
import type { Clock } from '../core/clock.ts'
import type { DirectCounts } from './counts.ts'

/** What it needs; see the fields. */
export interface ReadAheadOptions {
  clock: Clock
  slots: number
  /** False: what is read ahead would be in doubt if this worker were lost, and some tasks are executed at most once. */
  isWideAllowed: boolean
  counts(): Readonly<DirectCounts>
  consumers(): readonly Consumer[]
}

/** How many messages, and about how many bytes, are read ahead then: the broker gets no more copies than that at a time. */
const wideMax = 10_000
const bytesMax = 8 * 2 ** 20
/** How many are denied for each that begins, at least. */
const deniedMin = 4
const lookMs = 50
/** After how many looks without it, it is over. */
const quietMax = 20
/** A part of the last size in a mean of the latest ones. */
const newest = 0.05

/** The reading ahead of one worker. */
export class ReadAhead {
  readonly #options: ReadAheadOptions
  readonly #end = new AbortController()
  /** The mean size of messages that were denied. */
  #bytes = 0
  #isLooking = false

  constructor(options: ReadAheadOptions) {
    this.#options = options
  }

  /** A message of this many bytes was denied. */
  denied(bytes: number): void {
    this.#bytes = Math.max(1, this.#bytes === 0 ? bytes : this.#bytes + (bytes - this.#bytes) * newest)
    if (this.#isLooking || !this.#options.isWideAllowed) return
    this.#isLooking = true
    void this.#look().finally(() => (this.#isLooking = false))
  }

  /** It changes no more. */
  close(): void {
    this.#end.abort()
  }

  /** Goes on until no more are denied than usual. */
  async #look(): Promise<void> {
    const { clock, slots, counts, consumers } = this.#options
    const { signal } = this.#end
    const set = (prefetch: number) => Promise.all(consumers().map((consumer) => consumer.setPrefetch(prefetch)))
    let [before, now] = [{ ...counts() }, slots]
    for (let quiet = 0; quiet < quietMax;) {
      await clock.sleep(lookMs, signal, false)
      if (signal.aborted) return
      const [denied, begun] = [counts().denied - before.denied, counts().begun - before.begun]
      quiet++
      if (denied + begun < slots) continue
      before = { ...counts() }
      if (denied < deniedMin * begun) continue
      quiet = 0
      const most = Math.max(slots, Math.min(wideMax, Math.floor(bytesMax / this.#bytes)))
      if (most > now * 2 || most < now / 2) await set((now = most))
    }
    if (now !== slots) await set(slots)
  }
}
