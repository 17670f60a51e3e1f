/** A worker's reports of its jobs, many in one message: which have begun, how attempts ended, and which it did not take. */
import type { Clock } from '../core/clock.ts'
import type { Outcome } from '../claim/finish/finish.ts'
import type { Dispatcher, Held } from './held.ts'
import { messageMax } from './messages.ts'

/** How an attempt ended; null: it was not begun. */
type End = [key: string, outcome: Outcome | null]

/** Parameters of `Outbox`; see the fields. */
export interface OutboxOptions {
  clock: Clock
  /** Returns the jobs in hand. */
  held(): Iterable<Held>
  began(to: Dispatcher, keys: string[]): void
  ended(to: Dispatcher, ends: End[]): void
}

/** After how long a job is reported as begun, and how often such jobs are looked for. */
const beganMs = 100

/** Reports on their way to dispatchers. */
export class Outbox {
  readonly #options: OutboxOptions
  readonly #ends = new Set<Held>()
  /** Keys of jobs that were not taken, by dispatcher. */
  readonly #refused = new Map<Dispatcher, string[]>()
  #isFlushing = false
  #isSending = false

  constructor(options: OutboxOptions) {
    this.#options = options
  }

  /** Records that jobs have begun. */
  began(): void {
    if (this.#isSending) return
    this.#isSending = true
    this.#options.clock.after(beganMs, () => this.#reportBegan())
  }

  /** Reports a job that was not taken. */
  refuse(to: Dispatcher, key: string): void {
    add(this.#refused, to, key)
    this.#flushSoon()
  }

  /** Reports the end of an attempt; may be called again for the same one. */
  ended(held: Held): void {
    this.#ends.add(held)
    this.#flushSoon()
  }

  /** Reports which jobs have begun, all that have run for a while at once: most jobs end before that. */
  #reportBegan(): void {
    this.#isSending = false
    const { clock, held: all, began } = this.#options
    const atMs = clock.monotonicMs() - beganMs
    const portions = new Map<Dispatcher, string[]>()
    for (const held of all()) {
      if (held.isReportedBegun || held.outcome !== undefined) continue
      if (held.sinceMs > atMs) this.began()
      else {
        held.isReportedBegun = true
        add(portions, held.to, held.key)
      }
    }
    for (const [to, keys] of portions) began(to, keys)
  }

  #flushSoon(): void {
    if (!this.#isFlushing) setImmediate(() => this.#flush())
    this.#isFlushing = true
  }

  /** Reports how attempts ended, all of one turn in one message, unless that would be too long. */
  #flush(): void {
    this.#isFlushing = false
    const nowMs = this.#options.clock.monotonicMs()
    const portions = new Map<Dispatcher, End[]>()
    for (const held of this.#ends) {
      held.sentMs = nowMs
      // A dispatcher that does not know the job would take its end for a repetition.
      if (held.outcome !== undefined && !held.isOrphan) add(portions, held.to, [held.key, held.outcome])
    }
    this.#ends.clear()
    for (const [to, keys] of this.#refused) for (const key of keys) add(portions, to, [key, null])
    this.#refused.clear()
    for (const [to, ends] of portions) for (const portion of divided(ends)) this.#options.ended(to, portion)
  }
}

/** Divides ends among messages. */
function divided(ends: readonly End[]): End[][] {
  const portions: End[][] = []
  let size = Infinity
  for (const end of ends) {
    const more = JSON.stringify(end).length
    if (size + more > messageMax) {
      portions.push([])
      size = 0
    }
    portions.at(-1)?.push(end)
    size += more
  }
  return portions
}

function add<T>(portions: Map<Dispatcher, T[]>, to: Dispatcher, one: T): void {
  const portion = portions.get(to)
  if (portion === undefined) portions.set(to, [one])
  else portion.push(one)
}
