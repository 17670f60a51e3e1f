/** How far the clock of a worker is off, by the times that its events show. Pure. */

/** A reading of this process's clocks. */
export interface Clocks {
  wallMs: number
  monotonicMs: number
}

/** The newest events; the one that was least delayed shows the most. */
const kept = 3
/** The wall clock was set, if it has moved by more than this beside the monotonic one. */
const stepMs = 20

/** The clock of one worker. */
export class Skew {
  #offsets: number[] = []
  #baseMs = 0

  /** An event of the worker arrived, which its clock dates so, in ms since 1970. */
  heard(atMs: number, now: Clocks): void {
    const baseMs = now.wallMs - now.monotonicMs
    if (Math.abs(baseMs - this.#baseMs) > stepMs) this.#offsets = []
    this.#baseMs = baseMs
    this.#offsets = [...this.#offsets, atMs - now.wallMs].slice(-kept)
  }

  /**
   * How far it is ahead, in ms; below 0: how far it is behind at most, since an event takes time to arrive. Undefined: not known.
   */
  get aheadMs(): number | undefined {
    return this.#offsets.length === 0 ? undefined : Math.max(...this.#offsets)
  }
}
