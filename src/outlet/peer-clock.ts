/** What the monotonic clock of another process can show by now, so that ages need no wall clocks, which differ and step. */
import { caughtUpMs, type Clock, type Moment } from '../core/clock.ts'

/** Two clocks run at rates that differ by at most one thousandth. */
const drift = 0.001

/** A latest time that is so much too late came from a step of a clock of this machine. */
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
  /** What `latestMs` returned, or the peer's clock has shown. */
  #leastMs = -Infinity

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** The moment on which the latest time rests; undefined: it is not known. */
  get since(): Moment | undefined {
    return this.#sample?.since
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
    this.#leastMs = Math.max(this.#leastMs, theirMs)
  }

  /** Returns the latest time that the peer's clock can show now, not less than before; Infinity: it is not known. */
  latestMs(): number {
    const boundMs = this.#bound(this.#sample)
    if (boundMs === Infinity) return Infinity
    this.#leastMs = this.#leastMs > boundMs + stepMs ? boundMs : Math.max(this.#leastMs, boundMs)
    return this.#leastMs
  }

  #bound(sample: Sample | undefined): number {
    if (sample === undefined) return Infinity
    const { since, theirMs } = sample
    return theirMs + (caughtUpMs(this.#clock, since) - since.monotonicMs) * (1 + drift)
  }
}
