/** Time that tests let pass. */
import { type Clock, systemClock } from '../../src/core/clock.ts'

/** Simulated time, from 0, and what is due in it. */
export class World {
  nowMs = 0
  readonly #due: { atMs: number; n: number; run: () => void }[] = []
  #n = 0

  /** A clock of this world, which shows another time, and runs at another rate. */
  clock(offsetMs: number, rate: number): Clock {
    const nowMs = () => offsetMs + this.nowMs * rate
    const after = (ms: number, then: () => void) => {
      const entry = { atMs: this.nowMs + ms / rate, n: this.#n++, run: then }
      this.#due.push(entry)
      return () => void (entry.run = () => {})
    }
    const sleep = (ms: number) => new Promise<void>((resolve) => void after(ms, resolve))
    return { ...systemClock, monotonicMs: nowMs, bootMs: nowMs, wallMs: nowMs, after, sleep }
  }

  async runUntil(endMs: number): Promise<void> {
    for (;;) {
      this.#due.sort((a, b) => a.atMs - b.atMs || a.n - b.n)
      const next = this.#due[0]
      if (next === undefined || next.atMs > endMs) break
      this.#due.shift()
      this.nowMs = Math.max(this.nowMs, next.atMs)
      next.run()
      await new Promise((resolve) => setImmediate(resolve))
    }
    this.nowMs = endMs
  }
}
