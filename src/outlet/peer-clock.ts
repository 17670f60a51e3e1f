/** Bounds of the time that another process's monotonic clock shows, so that ages need no wall clocks, which differ and step. */
import { caughtUpMs, type Clock, drift, type Moment } from '../core/clock.ts'

/** A worker that knows a dispatcher's clock less exactly, in ms, takes nothing from it: a quarter of a grant's life. */
export const doubtMost = 250
/** If two bounds differ by more than their uncertainty allows, a clock of this machine has stepped. */
const stepMs = 1_000

/** The peer's clock showed `theirMs` after `since`. */
interface Reading {
  since: Moment
  theirMs: number
}

/** The clock of one other process. */
export class PeerClock {
  readonly #clock: Clock
  #reading: Reading | undefined
  /** The latest time `theirMs` that the peer's clock has shown, and when that was received. */
  #shown = { theirMs: -Infinity, atMs: 0 }
  /** The time that `promiseLatestMs` returned. */
  #promisedMs = -Infinity

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** The moment from which the latest time is computed; undefined: it is not known. */
  get since(): Moment | undefined {
    return this.#reading?.since
  }

  /** True if the peer's time is known to a quarter of a second. */
  get isKnown(): boolean {
    return this.doubtMs <= doubtMost
  }

  /** By how much the peer's time may differ from what is known, in ms; Infinity: it is not known. */
  get doubtMs(): number {
    return this.#latestMsBy(this.#reading) - this.earliestMs()
  }

  /** Records that the peer answered a message sent at `since`, when its clock showed `theirMs`. */
  recordAnswer(since: Moment, theirMs: number): void {
    const sample = { since, theirMs }
    if (this.#latestMsBy(sample) <= this.#latestMsBy(this.#reading)) this.#reading = sample
    this.recordTime(theirMs)
  }

  /** Records that the peer's clock has shown this time. */
  recordTime(theirMs: number): void {
    // Beyond what was possible: a clock of this machine stood still.
    if (theirMs > this.#latestMsBy(this.#reading)) this.#reading = undefined
    if (theirMs > this.earliestMs()) this.#shown = { theirMs, atMs: this.#clock.monotonicMs() }
  }

  /** Returns the earliest time that the peer's clock can show now. */
  earliestMs(): number {
    const { theirMs, atMs } = this.#shown
    return theirMs + (this.#clock.monotonicMs() - atMs) * (1 - drift)
  }

  /** Returns the latest time that the peer's clock can show now, not less than what was promised; Infinity: it is not known. */
  latestMs(): number {
    const boundMs = this.#latestMsBy(this.#reading)
    if (this.#promisedMs > boundMs + stepMs) this.#promisedMs = -Infinity
    return Math.max(this.#promisedMs, boundMs)
  }

  /** Returns the latest time, if it is known well, and will never return an earlier one. */
  promiseLatestMs(): number | null {
    if (!this.isKnown) return null
    this.#promisedMs = this.latestMs()
    return this.#promisedMs
  }

  #latestMsBy(sample: Reading | undefined): number {
    if (sample === undefined) return Infinity
    const { since, theirMs } = sample
    return theirMs + (caughtUpMs(this.#clock, since) - since.monotonicMs) * (1 + drift)
  }
}
