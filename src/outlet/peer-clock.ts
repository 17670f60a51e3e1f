/** What the monotonic clock of another process can show by now, so that ages need no wall clocks, which differ and step. */
import { caughtUpMs, type Clock, type Moment } from '../core/clock.ts'

/** Two clocks run at rates that differ by at most one thousandth. */
const drift = 0.001

/** The clock of one other process. */
export class PeerClock {
  readonly #clock: Clock
  /** The peer's clock showed `theirMs` at some time after `asked`. */
  #seen: { asked: Moment; theirMs: number } | undefined
  #leastMs = -Infinity

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** When the answer was requested on which the latest time rests; undefined: there was none. */
  get asked(): Moment | undefined {
    return this.#seen?.asked
  }

  /** The peer answered a question asked at `asked`, and its clock showed `theirMs` then. */
  answered(asked: Moment, theirMs: number): void {
    const best = this.#bound(this.#seen)
    if (this.#bound({ asked, theirMs }) <= best) this.#seen = { asked, theirMs }
    this.showed(theirMs)
  }

  /** The peer's clock has shown this. */
  showed(theirMs: number): void {
    this.#leastMs = Math.max(this.#leastMs, theirMs)
  }

  /** Returns the latest time that the peer's clock can show now, never less than before; Infinity: it is not known. */
  latestMs(): number {
    const latestMs = Math.max(this.#leastMs, this.#bound(this.#seen))
    if (latestMs !== Infinity) this.#leastMs = latestMs
    return latestMs
  }

  #bound(seen: { asked: Moment; theirMs: number } | undefined): number {
    if (seen === undefined) return Infinity
    return seen.theirMs + (caughtUpMs(this.#clock, seen.asked) - seen.asked.monotonicMs) * (1 + drift)
  }
}
