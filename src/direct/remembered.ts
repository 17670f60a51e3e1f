/** What a worker remembers of messages that it no longer has in hand, to recognise those that arrive again. */
import type { Clock } from '../core/clock.ts'
import { RecentMap } from '../core/recent-map.ts'

/** How many messages of each kind are remembered. */
export const keysMax = 10_000
/**
 * After a lost connection the broker delivers messages again. For so many ms after the first of them has arrived, a message with the
 * key of one that went back unbegun is taken for that one. Later it may be another message of the same content, which a worker has
 * begun and lost.
 */
const droppedMs = 60_000

/** The messages of one worker that it no longer has, by key. */
export class Remembered {
  readonly #clock: Clock
  /** Messages that were carried out here, because the server may miss an acknowledgement even while the connection stands. */
  readonly #done = new RecentMap<string, true>(keysMax)
  /** Messages that arrived here, were not begun, and went back when their connection was lost. */
  readonly #dropped = new RecentMap<string, true>(keysMax)
  /** When the first message arrived after those went back, in monotonic ms. */
  #backMs: number | undefined

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Records that what becomes of a message was carried out here. */
  recordDone(key: string): void {
    this.#done.set(key, true)
  }

  /** Returns whether a message was carried out here. */
  isDone(key: string): boolean {
    return this.#done.has(key)
  }

  /** Records that a message went back unbegun, because its connection was lost. */
  recordDropped(key: string): void {
    this.#dropped.set(key, true)
    this.#backMs = undefined
  }

  /** Records that a message arrived over a connection that stands. */
  recordArrival(): void {
    this.#backMs ??= this.#clock.monotonicMs()
  }

  /** Returns whether a message that arrives again went back from here unbegun; forgets that. */
  takeDropped(key: string): boolean {
    const nowMs = this.#clock.monotonicMs()
    return this.#dropped.delete(key) && nowMs - (this.#backMs ?? nowMs) < droppedMs
  }
}
