/** Folds equal lines: the first is written at once, those that follow are counted, and written as one line now and then. */
import type { Clock } from '../core/clock.ts'
import { span } from '../core/figures.ts'
import type { Line } from './lines.ts'

/** The time from the first line of a kind to the second, in ms; it doubles from then on. */
const firstMs = 1_000
/** Kinds that are remembered; beyond that the oldest is written and forgotten. */
const kindsMax = 500

/** Lines of one kind. */
interface Kind {
  /** Lines are counted until then, in monotonic ms. */
  untilMs: number
  windowMs: number
  /** Lines since the last one that was written. */
  count: number
  sinceMs: number
  last: Line
  lastMs: number
}

/** Folds lines. The counts of the written lines add up to the number of lines. */
export class Folding {
  readonly #clock: Clock
  readonly #longestMs: number
  readonly #write: (line: Line) => void
  readonly #kinds = new Map<string, Kind>()
  #disarm: (() => void) | undefined

  /**
   * @param write writes a line; a line that stands for several has `count` and `forMs` among its details
   * @param longestMs the longest time between two lines of a kind
   */
  constructor(clock: Clock, write: (line: Line) => void, longestMs = 60_000) {
    this.#longestMs = longestMs
    this.#clock = clock
    this.#write = write
  }

  /** Writes the line, or counts it. */
  add(line: Line): void {
    const nowMs = this.#clock.monotonicMs()
    const kind = this.#kinds.get(line.kind)
    if (kind !== undefined) {
      if (kind.count++ === 0) kind.sinceMs = nowMs
      kind.last = line
      kind.lastMs = nowMs
      if (nowMs >= kind.untilMs) this.#release(kind, nowMs)
      return
    }
    this.#write(line)
    const windowMs = firstMs
    this.#kinds.set(line.kind, {
      untilMs: nowMs + windowMs,
      windowMs,
      count: 0,
      sinceMs: nowMs,
      last: line,
      lastMs: nowMs,
    })
    for (const [name, oldest] of this.#kinds) {
      if (this.#kinds.size <= kindsMax) break
      if (oldest.count > 0) this.#release(oldest, nowMs)
      this.#kinds.delete(name)
    }
    this.#arm()
  }

  /** Writes what was counted so far. */
  flush(): void {
    const nowMs = this.#clock.monotonicMs()
    for (const kind of this.#kinds.values()) if (kind.count > 0) this.#release(kind, nowMs)
  }

  /** Writes what was counted so far, for the last time. */
  end(): void {
    this.#disarm?.()
    this.#disarm = undefined
    this.flush()
    this.#kinds.clear()
  }

  #arm(): void {
    if (this.#disarm !== undefined) return
    this.#disarm = this.#clock.after(firstMs, () => {
      this.#disarm = undefined
      this.#look()
      if (this.#kinds.size > 0) this.#arm()
    })
  }

  /** Writes what is due, and forgets kinds of which there was no line for a minute. */
  #look(): void {
    const nowMs = this.#clock.monotonicMs()
    for (const [name, kind] of this.#kinds) {
      if (nowMs < kind.untilMs) continue
      if (kind.count === 0) {
        if (nowMs - kind.untilMs >= this.#longestMs) this.#kinds.delete(name)
        continue
      }
      this.#release(kind, nowMs)
    }
  }

  #release(kind: Kind, nowMs: number): void {
    const { count, last } = kind
    kind.count = 0
    kind.windowMs = Math.min(this.#longestMs, kind.windowMs * 2)
    kind.untilMs = nowMs + kind.windowMs
    const forMs = Math.max(1, Math.round(kind.lastMs - kind.sinceMs))
    // Otherwise a line that is written after the last failure would look as if things still failed.
    const agoMs = nowMs - kind.lastMs
    const about = [
      ...(count > 1 ? [`the last of ${count} in ${span(forMs)}`] : []),
      ...(agoMs <= firstMs ? [] : [`${span(agoMs)} ago`]),
    ].join(', ')
    const message = about === '' ? last.message : `${last.message} (${about})`
    if (count === 1) return this.#write({ ...last, message })
    const details = Object.entries(last.details ?? {}).filter(([name]) => last.common.includes(name))
    this.#write({
      ...last,
      message,
      details: { ...Object.fromEntries(details), count, forMs },
    })
  }
}
