/** A worker's reports of its jobs, many in one message: which have begun, how attempts ended, and which it did not take. */
import type { Clock } from '../core/clock.ts'
import type { Outcome } from '../claim/finish/outcome.ts'
import type { Dispatcher, JobInHand } from './jobs-in-hand.ts'
import { messageMax } from './messages.ts'

/** How an attempt ended; null: it was not begun. */
type End = [key: string, outcome: Outcome | null]

/** Parameters of `Outbox`; see the fields. */
export interface OutboxOptions {
  clock: Clock
  /** Returns the jobs in hand. */
  inHand(): Iterable<JobInHand>
  sendBegun(to: Dispatcher, keys: string[]): void
  sendEnds(to: Dispatcher, ends: End[]): void
}

/** After how long a job is reported as begun, and how often such jobs are looked for. */
const beganMs = 100

/** Reports on their way to dispatchers. */
export class Outbox {
  readonly #options: OutboxOptions
  readonly #ends = new Set<JobInHand>()
  /** Keys of jobs that were not taken, by dispatcher. */
  readonly #refused = new Map<Dispatcher, string[]>()
  #isFlushing = false
  #isSending = false

  constructor(options: OutboxOptions) {
    this.#options = options
  }

  /** Records that jobs have begun. */
  reportBegun(): void {
    if (this.#isSending) return
    this.#isSending = true
    this.#options.clock.after(beganMs, () => this.#sendBegun())
  }

  /** Reports a job that was not taken. */
  refuse(to: Dispatcher, key: string): void {
    add(this.#refused, to, key)
    this.#flushSoon()
  }

  /** Reports the end of an attempt; may be called again for the same one. */
  reportEnd(inHand: JobInHand): void {
    this.#ends.add(inHand)
    this.#flushSoon()
  }

  /** Reports which jobs have begun, all that have run for a while at once: most jobs end before that. */
  #sendBegun(): void {
    this.#isSending = false
    const { clock, inHand: all, sendBegun } = this.#options
    const atMs = clock.monotonicMs() - beganMs
    const byDispatcher = new Map<Dispatcher, string[]>()
    for (const one of all()) {
      if (one.isReportedBegun || one.outcome !== undefined) continue
      if (one.sinceMs > atMs) this.reportBegun()
      else {
        one.isReportedBegun = true
        add(byDispatcher, one.to, one.key)
      }
    }
    for (const [to, keys] of byDispatcher) sendBegun(to, keys)
  }

  #flushSoon(): void {
    if (!this.#isFlushing) setImmediate(() => this.#flush())
    this.#isFlushing = true
  }

  /** Reports how attempts ended, all of one turn in one message, unless that would be too long. */
  #flush(): void {
    this.#isFlushing = false
    const nowMs = this.#options.clock.monotonicMs()
    const byDispatcher = new Map<Dispatcher, End[]>()
    for (const one of this.#ends) {
      one.sentMs = nowMs
      // A dispatcher that does not know the job would take its end for a repetition.
      if (one.outcome !== undefined && !one.isOrphan) add(byDispatcher, one.to, [one.key, one.outcome])
    }
    this.#ends.clear()
    for (const [to, keys] of this.#refused) for (const key of keys) add(byDispatcher, to, [key, null])
    this.#refused.clear()
    for (const [to, ends] of byDispatcher) for (const part of divideEnds(ends)) this.#options.sendEnds(to, part)
  }
}

/** Divides ends among messages. */
function divideEnds(ends: readonly End[]): End[][] {
  const parts: End[][] = []
  let size = Infinity
  for (const end of ends) {
    const more = JSON.stringify(end).length
    if (size + more > messageMax) {
      parts.push([])
      size = 0
    }
    parts.at(-1)?.push(end)
    size += more
  }
  return parts
}

function add<T>(lists: Map<Dispatcher, T[]>, to: Dispatcher, one: T): void {
  const list = lists.get(to)
  if (list === undefined) lists.set(to, [one])
  else list.push(one)
}
