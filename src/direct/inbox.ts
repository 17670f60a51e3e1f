/**
 * Messages that wait to be read, and denied ones that wait to be copied to a delay queue. Both happen for a part of each turn of the
 * event loop: a thousand messages at once would hold up attempts, whose grants would grow old.
 */
import type { Clock } from '../core/clock.ts'
import { isPromise, type MaybePromise } from '../core/maybe-promise.ts'
import type { AnyTask } from '../tasks/task.ts'
import type { Incoming } from './broker.ts'
import type { Entry } from './intake.ts'

/** Parameters of `Inbox`; see the fields. */
export interface InboxOptions {
  clock: Clock
  tasks: ReadonlyMap<string, AnyTask>
  /** Reads a message that was delivered from this queue. */
  read(incoming: Incoming, queue: string): MaybePromise<void>
  /** Copies a denied message, to come back at `dueMs` of the monotonic clock; undefined: it needs no copy. */
  copy(entry: Entry, dueMs: number): Promise<void> | undefined
}

/** How many copies of denied messages are under way at a time: messages behind them are delivered meanwhile. */
const copiesMax = 200
/** How long messages are read, and copied, in one turn of the event loop; acknowledgements are written at its end. */
const turnMs = 2

/** Messages that wait to be read, and messages that wait to be copied. */
export class Inbox {
  readonly #options: InboxOptions
  /** Messages that were delivered, and are not read yet. */
  readonly #unread: { incoming: Incoming; queue: string }[] = []
  /** Unread messages of tasks without limits. */
  readonly #plain: { incoming: Incoming; queue: string }[] = []
  /** Messages that were denied, and are not being copied yet. */
  readonly #denied: { entry: Entry; dueMs: number }[] = []
  #copying = 0
  #isInTurn = false

  constructor(options: InboxOptions) {
    this.#options = options
  }

  /** Takes a delivered message. */
  addDelivered(incoming: Incoming, queue: string): void {
    ;(this.#isPlain(incoming) ? this.#plain : this.#unread).push({ incoming, queue })
    this.#scheduleTurn()
  }

  /** Takes a message that was denied until `dueMs` of the monotonic clock. */
  addDenied(entry: Entry, dueMs: number): void {
    this.#denied.push({ entry, dueMs })
    this.#scheduleTurn()
  }

  #scheduleTurn(): void {
    if (this.#isInTurn) return
    this.#isInTurn = true
    setImmediate(() => void this.#runTurn())
  }

  async #runTurn(): Promise<void> {
    const { clock, read } = this.#options
    const untilMs = clock.monotonicMs() + turnMs
    let isMore = true
    try {
      while (isMore && clock.monotonicMs() < untilMs) {
        const next = this.#plain.shift() ?? this.#unread.shift()
        // The whole time of a reading counts, not only until it first waits.
        const reading = next && read(next.incoming, next.queue)
        if (isPromise(reading)) await reading
        isMore = this.#copyDenied() || next !== undefined
      }
    } finally {
      this.#isInTurn = false
      if (isMore) this.#scheduleTurn()
    }
  }

  /** Returns whether a message has no limits: it can begin at once, so it is read before others, which may be denied. */
  #isPlain({ properties }: Incoming): boolean {
    const name: unknown = properties.headers?.['task']
    return typeof name === 'string' && this.#options.tasks.get(name)?.limits.length === 0
  }

  /** Begins to copy a denied message. Returns false if there is none, or enough copies are under way. */
  #copyDenied(): boolean {
    const next = this.#copying < copiesMax ? this.#denied.shift() : undefined
    if (next === undefined) return false
    const copied = this.#options.copy(next.entry, next.dueMs)
    if (copied === undefined) return true
    this.#copying++
    void copied.finally(() => {
      this.#copying--
      if (this.#denied.length > 0) this.#scheduleTurn()
    })
    return true
  }
}
