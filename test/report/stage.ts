/** A clock that only the test moves, and a log that keeps its lines. */
import { type Clock, systemClock } from '../../src/core/clock.ts'
import { type Level, logTo } from '../../src/core/log.ts'

/** A line that was written. */
export interface Written {
  level: Level
  message: string
  details: Record<string, unknown> | undefined
}

/** A clock whose timers fire when `advance` passes their time. */
export class SteppedClock implements Clock {
  #nowMs = 1_000
  readonly #timers = new Set<{ atMs: number; fire: () => void }>()
  readonly random = () => 0.5
  readonly bootMs = () => this.#nowMs
  readonly wallMs = () => this.#nowMs
  readonly monotonicMs = () => this.#nowMs
  readonly sleep = systemClock.sleep
  readonly after = (ms: number, fire: () => void) => {
    const timer = { atMs: this.#nowMs + ms, fire }
    this.#timers.add(timer)
    return () => void this.#timers.delete(timer)
  }

  /** Moves the time on, and fires what is due on the way, in order. */
  advance(ms: number): void {
    const untilMs = this.#nowMs + ms
    for (;;) {
      const next = [...this.#timers].filter(({ atMs }) => atMs <= untilMs).toSorted((a, b) => a.atMs - b.atMs)[0]
      if (next === undefined) break
      this.#timers.delete(next)
      this.#nowMs = next.atMs
      next.fire()
    }
    this.#nowMs = untilMs
  }

  /** How many timers wait. */
  get waiting(): number {
    return this.#timers.size
  }
}

/** Makes a log that keeps its lines. */
export function keptLog() {
  const lines: Written[] = []
  const log = logTo((level, message, details) => void lines.push({ level, message, details }))
  return { lines, log }
}

/** Sums what lines stand for. */
export function counted(lines: readonly Written[]): number {
  return lines.reduce((sum, { details }) => sum + Number(details?.['count'] ?? 1), 0)
}
