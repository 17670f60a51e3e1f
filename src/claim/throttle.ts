/**
 * A process's own bound on the attempts that it starts: a bucket like those of limits, decided by the same arithmetic.
 */
import type { Clock } from '../core/clock.ts'
import type { Rate } from '../core/rate.ts'
import type { Log } from '../core/log.ts'
import { charge, emptyBucket, room } from '../limits/decide.ts'
import { limit } from '../limits/limit.ts'
import type { Rule } from '../limits/rule.ts'

const warnMs = 60_000

/** Bounds the starts of attempts. */
export class Throttle {
  readonly #clock: Clock
  readonly #log: Log
  readonly #rate: Rate
  readonly #rules: readonly Rule[]
  #bucket
  #warnedMs = -Infinity
  #disarm: (() => void) | undefined

  /** @throws UsageError SLUICE_BAD_RATE */
  constructor(rate: Rate, clock: Clock, log: Log) {
    this.#rate = rate
    this.#clock = clock
    this.#log = log
    // No time passes between this decision and the start, so the transit is 0.
    this.#rules = limit('worker', { rate, transit: 0 }).rules
    this.#bucket = emptyBucket(this.#rules, this.#nowUs())
  }

  /** Returns how many attempts may start now. */
  countAllowed(): number {
    return room(this.#rules, this.#bucket, this.#nowUs()).avail
  }

  /**
   * Calls `then` when an attempt may start, in a millisecond at the earliest, even if one may start now. A later call
   * replaces an earlier one.
   */
  callWhenAllowed(then: () => void): void {
    const nowUs = this.#nowUs()
    const { nextUs } = room(this.#rules, this.#bucket, nowUs)
    this.#disarm?.()
    this.#disarm = this.#clock.after(Math.max(1, (nextUs - nowUs) / 1_000), then)
  }

  /**
   * Charges attempts that start. @param isShort true if there was room for more attempts and this bound reduced the claim
   */
  chargeStarts(count: number, isShort: boolean): void {
    this.#bucket = charge(this.#rules, room(this.#rules, this.#bucket, this.#nowUs()).bucket, count)
    const nowMs = this.#clock.monotonicMs()
    if (!isShort || nowMs - this.#warnedMs < warnMs) return
    this.#warnedMs = nowMs
    this.#log.warn(
      'this worker starts only as many attempts as its own `rate` allows; limits and slots would allow more',
      {
        rate: this.#rate,
      },
    )
  }

  #nowUs(): number {
    return Math.floor(this.#clock.monotonicMs() * 1_000)
  }
}
