/** The line of takes for the store, of which few requests pass at a time. */
import type { Clock } from '../core/clock.ts'
import { StoreError } from '../core/errors.ts'
import { RecentMap } from '../core/recent-map.ts'

/** How many kinds are remembered. */
const kindsMax = 1_000

/** When a request's turn comes, and how it leaves the line before that; see the fields. */
export interface Standing {
  /** Its place in the store's line: of those that have one, the smallest goes first. Default: infinity, it has none. */
  readonly place?: number
  /** Aborted when the caller no longer needs the request. */
  readonly signal?: AbortSignal | undefined
  /** Longest wait in ms; then the request fails with the error that `late` returns. */
  readonly ms: number
  late(): Error
}

/** Parameters of `Turnstile`; see the fields. */
export interface TurnstileOptions<Request, Answer> {
  /** How many statements are under way at most. */
  readonly most: number
  /** How many statements of one kind are under way at most. */
  readonly mostOfKind: number
  /** How many requests of one kind go together at most; one more if half of it is not whole. */
  readonly together: number
  readonly clock: Clock
  /**
   * If the store does not answer a statement, nor has answered any of its kind for so many ms, the requests of this kind
   * that have been in line for so long fail with it; those of all kinds, if it has answered none at all. Otherwise each
   * would wait for its own time-out, and a long line for minutes.
   */
  readonly patienceMs: number
  /** Sends requests of the same kind in one statement; resolves to their answers, in the same order. */
  send(requests: readonly Request[]): Promise<readonly Answer[]>
  /** Returns whether an answer that arrives now took so long that fewer requests should go together. */
  isOld(answer: Answer): boolean
}

/** What is remembered of a kind. */
interface Kind {
  /**
   * How many of its requests go together now. It begins with one, because a cold process is slow. It grows by one with each
   * statement that has so many, and halves when an answer is old: the first of a statement waits for the last. How long a
   * grant lives, and how long a statement takes, differs from kind to kind.
   */
  readonly together: number
  /** When the store last answered one of its statements, in monotonic ms. */
  readonly answeredMs: number
}

const unknown: Kind = { together: 1, answeredMs: -Infinity }

/** A request in line. */
interface Waiting<Request, Answer> {
  readonly request: Request
  readonly place: number
  readonly sinceMs: number
  /** Takes it out of the line. */
  leave(): void
  resolve(answer: Answer): void
  reject(reason: unknown): void
}

/**
 * Lets few statements at a time through to the store, because a grant grows old while its request waits for a connection.
 * Requests that wait while statements of their kind are under way then go together, because they need the same locks.
 */
export class Turnstile<Request, Answer> {
  readonly #options: TurnstileOptions<Request, Answer>
  /** The requests in line, by kind, in the order of their calls. The kind whose turn comes next is first. */
  readonly #lines = new Map<string, Set<Waiting<Request, Answer>>>()
  /** The kind of each statement under way. */
  readonly #underway: string[] = []
  readonly #kinds = new RecentMap<string, Kind>(kindsMax)
  /** When the store last answered a statement of any kind, in monotonic ms. */
  #answeredMs = -Infinity

  constructor(options: TurnstileOptions<Request, Answer>) {
    this.#options = options
  }

  /**
   * Sends a request once its turn has come. Kinds take turns, so that many requests of one kind do not hold up those of
   * another. Requests of one kind go in the order of their places, because the store grants nothing to one behind others.
   * Those without a place go in the order of the calls, beside them, so that they get a place soon.
   */
  async pass(kind: string, request: Request, standing: Standing): Promise<Answer> {
    const { place = Infinity, signal, ms, late } = standing
    signal?.throwIfAborted()
    const { clock } = this.#options
    return new Promise((resolve, reject) => {
      const line = this.#lineOf(kind)
      const leave = () => {
        line.delete(waiting)
        // There may be any number of kinds, so an empty line goes; the kind may have got another one since.
        if (line.size === 0 && this.#lines.get(kind) === line) this.#lines.delete(kind)
        cancel()
        signal?.removeEventListener('abort', onAbort)
      }
      const fail = (reason: unknown) => {
        leave()
        reject(reason as Error)
      }
      const waiting = { request, place, sinceMs: clock.monotonicMs(), leave, resolve, reject: fail }
      const onAbort = () => fail(signal?.reason)
      let cancel = () => {}
      line.add(waiting)
      this.#advance()
      if (!line.has(waiting)) return
      if (ms !== Infinity) cancel = clock.after(ms, () => fail(late()))
      signal?.addEventListener('abort', onAbort)
    })
  }

  /** The requests in line that have a place in the store's line. */
  get placed(): Request[] {
    return [...this.#lines.values()].flatMap((line) =>
      [...line].filter(({ place }) => place < Infinity).map(({ request }) => request),
    )
  }

  #lineOf(kind: string): Set<Waiting<Request, Answer>> {
    const line = this.#lines.get(kind) ?? new Set()
    this.#lines.set(kind, line)
    return line
  }

  #advance(): void {
    const { most, mostOfKind } = this.#options
    for (const [kind, line] of this.#lines) {
      if (this.#underway.length >= most) return
      if (this.#underway.filter((one) => one === kind).length >= mostOfKind) continue
      const some = first(line, this.#kindOf(kind).together)
      for (const one of some) one.leave()
      // To the end, where this loop comes to it again.
      if (this.#lines.delete(kind)) this.#lines.set(kind, line)
      void this.#send(kind, some)
    }
  }

  async #send(kind: string, some: readonly Waiting<Request, Answer>[]): Promise<void> {
    const { send, isOld, together, clock } = this.#options
    const isFull = some.length >= this.#kindOf(kind).together
    this.#underway.push(kind)
    try {
      const answers = await send(some.map(({ request }) => request))
      this.#answeredMs = clock.monotonicMs()
      const before = this.#kindOf(kind).together
      const grown = isFull ? Math.min(together, before + 1) : before
      const next = answers.some(isOld) ? Math.max(1, Math.floor(some.length / 2)) : grown
      this.#kinds.set(kind, { together: next, answeredMs: this.#answeredMs })
      for (const [i, { resolve }] of some.entries()) resolve(answers[i] as Answer)
    } catch (error) {
      if (error instanceof StoreError) this.#failUnanswered(kind, error)
      for (const { reject } of some) reject(error)
    } finally {
      this.#underway.splice(this.#underway.indexOf(kind), 1)
      this.#advance()
    }
  }

  #kindOf(kind: string): Kind {
    return this.#kinds.get(kind) ?? unknown
  }

  #failUnanswered(kind: string, error: StoreError): void {
    const beforeMs = this.#options.clock.monotonicMs() - this.#options.patienceMs
    if (this.#kindOf(kind).answeredMs > beforeMs) return
    const lines = this.#answeredMs > beforeMs ? [this.#lines.get(kind) ?? []] : this.#lines.values()
    for (const line of lines) for (const waiting of line) if (waiting.sinceMs <= beforeMs) waiting.reject(error)
  }
}

/** Returns `most` requests: those with the smallest places, and the oldest without one. Each of the two gets half, or what the other leaves. */
function first<T extends { readonly place: number }>(line: ReadonlySet<T>, most: number): T[] {
  const placed = [...line].filter(({ place }) => place < Infinity).toSorted((a, b) => a.place - b.place)
  const others = [...line].filter(({ place }) => place === Infinity)
  const half = Math.ceil(most / 2)
  return [
    ...placed.slice(0, Math.max(half, most - others.length)),
    ...others.slice(0, Math.max(half, most - placed.length)),
  ]
}
