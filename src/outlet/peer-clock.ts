/** What the monotonic clock of another process can show by now, so that ages need no wall clocks, which differ and step. */
import { caughtUpMs, type Clock, type Moment } from '../core/clock.ts'

/** Two clocks run at rates that differ by at most one thousandth. */
const drift = 0.001

/** A worker that knows a dispatcher's clock less exactly, in ms, takes nothing from it: a quarter of a grant's life. */
const doubtMs = 250
/** Two bounds that differ by more than the doubts allow: a clock of this machine has stepped. */
const stepMs = 1_000

/** The peer's clock showed `theirMs` after `since`. */
interface Sample {
  since: Moment
  theirMs: number
}

/** The clock of one other process. */
export class PeerClock {
  readonly #clock: Clock
  #sample: Sample | undefined
  /** The peer's clock had shown `theirMs` at `atMs`. */
  #shown = { theirMs: -Infinity, atMs: 0 }
  /** What `promisedMs` returned. */
  #promisedMs = -Infinity

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** The moment on which the latest time rests; undefined: it is not known. */
  get since(): Moment | undefined {
    return this.#sample?.since
  }

  /** True if the peer's time is known to a quarter of a second. */
  get isKnown(): boolean {
    return this.#bound(this.#sample) - this.earliestMs() <= doubtMs
  }

  /** The peer answered a message that was sent at `since`; its clock showed `theirMs`. */
  answered(since: Moment, theirMs: number): void {
    const sample = { since, theirMs }
    if (this.#bound(sample) <= this.#bound(this.#sample)) this.#sample = sample
    this.showed(theirMs)
  }

  /** The peer's clock has shown this. */
  showed(theirMs: number): void {
    // Beyond what was possible: a clock of this machine stood still.
    if (theirMs > this.#bound(this.#sample)) this.#sample = undefined
    if (theirMs > this.earliestMs()) this.#shown = { theirMs, atMs: this.#clock.monotonicMs() }
  }

  /** Returns the earliest time that the peer's clock can show now. */
  earliestMs(): number {
    const { theirMs, atMs } = this.#shown
    return theirMs + (this.#clock.monotonicMs() - atMs) * (1 - drift)
  }

  /** Returns the latest time that the peer's clock can show now, not less than what was promised; Infinity: it is not known. */
  latestMs(): number {
    const boundMs = this.#bound(this.#sample)
    if (this.#promisedMs > boundMs + stepMs) this.#promisedMs = -Infinity
    return Math.max(this.#promisedMs, boundMs)
  }

  /** Returns the latest time, if it is known well, and will never return an earlier one. */
  promisedMs(): number | null {
    if (!this.isKnown) return null
    this.#promisedMs = this.latestMs()
    return this.#promisedMs
  }

  #bound(sample: Sample | undefined): number {
    if (sample === undefined) return Infinity
    const { since, theirMs } = sample
    return theirMs + (caughtUpMs(this.#clock, since) - since.monotonicMs) * (1 + drift)
  }
}
