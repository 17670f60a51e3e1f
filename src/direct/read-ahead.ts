/**
 * How many messages a worker reads ahead: by default as many as it has slots, so that no message waits here that another
 * worker could begin. While most messages are denied it reads many more, so that it soon sees the messages behind them.
 */
import type { Clock } from '../core/clock.ts'

/** The counts of one worker since it began. */
export interface DirectCounts {
  /** Messages that were delivered, those that came back among them. */
  delivered: number
  /** Messages that their limits denied, and that were put off. */
  denied: number
  /** Attempts that began, and how many of these succeeded. */
  begun: number
  done: number
}

/** Parameters of `ReadAhead`; see the fields. */
export interface ReadAheadOptions {
  clock: Clock
  /** How many messages are read ahead at other times. */
  least: number
  /**
   * False if some tasks are executed at most once: messages that were read ahead would be in doubt if this worker were
   * lost.
   */
  isWideAllowed: boolean
  counts(): Readonly<DirectCounts>
  setPrefetch(prefetch: number): unknown
}

/** How many messages, and about how many bytes, are then read ahead; the broker gets no more copies than that at a time. */
const wideMax = 10_000
const bytesMax = 8 * 2 ** 20
/** At least so many messages must be denied for each one that begins. */
const deniedMin = 4
const lookMs = 50
/** After how many looks without that the reading ahead ends. */
const quietMax = 20
/** The weight of the newest size in the mean of sizes. */
const newestWeight = 0.05

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

  /** Records that a message of this many bytes was denied. */
  recordDenied(bytes: number): void {
    this.#bytes = Math.max(1, this.#bytes === 0 ? bytes : this.#bytes + (bytes - this.#bytes) * newestWeight)
    if (this.#isLooking || !this.#options.isWideAllowed) return
    this.#isLooking = true
    void this.#look().finally(() => (this.#isLooking = false))
  }

  /** Stops changing the number. */
  close(): void {
    this.#end.abort()
  }

  /** Adapts the number until no more messages are denied than usual. */
  async #look(): Promise<void> {
    const { clock, least, counts, setPrefetch: set } = this.#options
    const { signal } = this.#end
    let [before, now] = [{ ...counts() }, least]
    for (let quiet = 0; quiet < quietMax;) {
      await clock.sleep(lookMs, signal, false)
      if (signal.aborted) return
      const [denied, begun] = [counts().denied - before.denied, counts().begun - before.begun]
      quiet++
      if (denied + begun < least) continue
      before = { ...counts() }
      if (denied < deniedMin * begun) continue
      quiet = 0
      const most = Math.max(least, Math.min(wideMax, Math.floor(bytesMax / this.#bytes)))
      if (most > now * 2 || most < now / 2) await set((now = most))
    }
    if (now !== least) await set(least)
  }
}
