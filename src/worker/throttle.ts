/** A bound of one process's own on how many attempts begin: a bucket as limits have, decided by the same arithmetic. */
import type { Clock } from '../core/clock.ts'
import type { Rate } from '../core/rate.ts'
import type { Log } from '../core/log.ts'
import { charge, emptyBucket, room } from '../limits/decide.ts'
import { limit } from '../limits/limit.ts'
import type { Rule } from '../limits/rule.ts'

const warnMs = 60_000

/** Bounds starts. */
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
    // Nothing lies between this decision and the start.
    this.#rules = limit('worker', { rate, transit: 0 }).rules
    this.#bucket = emptyBucket(this.#rules, this.#nowUs())
  }

  /** Attempts that may begin now. */
  most(): number {
    return room(this.#rules, this.#bucket, this.#nowUs()).avail
  }

  /**
   * Calls `then` when one may begin, a millisecond from now at the earliest: one that may by now could not when the caller
   * looked. Of several calls the last one counts.
   */
  tell(then: () => void): void {
    const nowUs = this.#nowUs()
    const { nextUs } = room(this.#rules, this.#bucket, nowUs)
    this.#disarm?.()
    this.#disarm = this.#clock.after(Math.max(1, (nextUs - nowUs) / 1_000), then)
  }

  /** So many begin. @param isShort there was room for more, and as many were claimed as this bound allows */
  began(count: number, isShort: boolean): void {
    this.#bucket = charge(this.#rules, room(this.#rules, this.#bucket, this.#nowUs()).bucket, count)
    const nowMs = this.#clock.monotonicMs()
    if (!isShort || nowMs - this.#warnedMs < warnMs) return
    this.#warnedMs = nowMs
    this.#log.warn('this worker begins no more attempts than its own `rate` allows, though limits and slots would', {
      rate: this.#rate,
    })
  }

  #nowUs(): number {
    return Math.floor(this.#clock.monotonicMs() * 1_000)
  }
}
