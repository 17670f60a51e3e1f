/** Computes the error of a worker's clock from the times in its events. Pure. */

/** A reading of this process's clocks. */
export interface Clocks {
  wallMs: number
  monotonicMs: number
}

/** How many of the newest events are used; the least delayed of them is the most exact. */
const kept = 3
/** The wall clock was set, if it has moved by more than this beside the monotonic one. */
const stepMs = 20

/** The clock of one worker. */
export class Skew {
  #offsets: number[] = []
  #baseMs = 0

  /** Records that an event of the worker arrived, with the time that its clock gave it, in ms since 1970. */
  recordEvent(atMs: number, now: Clocks): void {
    const baseMs = now.wallMs - now.monotonicMs
    if (Math.abs(baseMs - this.#baseMs) > stepMs) this.#offsets = []
    this.#baseMs = baseMs
    this.#offsets = [...this.#offsets, atMs - now.wallMs].slice(-kept)
  }

  /**
   * How far the clock is ahead, in ms. Below 0: how far it is behind at most, because an event takes time to arrive.
   * Undefined: not known.
   */
  get aheadMs(): number | undefined {
    return this.#offsets.length === 0 ? undefined : Math.max(...this.#offsets)
  }
}
