/** Computes the error of a worker's clock from the times in its events. Pure. */

/** A reading of this process's clocks. */
export interface Clocks {
  wallMs: number
  monotonicMs: number
}

/** How many of the newest events are used; the least delayed of them is the most exact. */
const kept = 3
/** The wall clock here was set, if it has moved by more than this beside the monotonic one. */
const stepMs = 20

/** The clock of one worker. */
export class Skew {
  #offsets: number[] = []
  #baseMs = 0

  /** Records that an event of the worker arrived, with the time that its clock gave it, in ms since 1970. */
  recordEvent(atMs: number, now: Clocks): void {
    if (this.#isSet(now)) this.#offsets = []
    this.#baseMs = now.wallMs - now.monotonicMs
    this.#offsets = [...this.#offsets, atMs - now.wallMs].slice(-kept)
  }

  /**
   * Returns how far the clock is ahead, in ms. Below 0: how far it is behind at most, because an event takes time to arrive.
   * Undefined: not known, also since the clock here was set.
   */
  aheadMs(now: Clocks): number | undefined {
    return this.#offsets.length === 0 || this.#isSet(now) ? undefined : Math.max(...this.#offsets)
  }

  #isSet({ wallMs, monotonicMs }: Clocks): boolean {
    return Math.abs(wallMs - monotonicMs - this.#baseMs) > stepMs
  }
}
