/** The line of takes for the store, of which few requests pass at a time. */
import type { Clock } from '../core/clock.ts'
import { StoreError } from '../core/errors.ts'

/** How a request leaves the line before its turn; see the fields. */
export interface Leaving {
  /** Aborted when the caller no longer needs the request. */
  readonly signal?: AbortSignal | undefined
  /** Longest wait in ms; then the request fails with the error that `late` returns. */
  readonly ms: number
  late(): Error
}

/** A request in line. */
interface Waiting {
  readonly sinceMs: number
  go(): void
  fail(reason: unknown): void
}

/** Lets few requests at a time through to the store. A grant grows old while its request waits for a connection. */
export class Turnstile {
  #free: number
  readonly #clock: Clock
  readonly #patienceMs: number
  readonly #line = new Set<Waiting>()

  /**
   * @param most how many requests pass at a time
   * @param patienceMs if the store does not answer a request, the requests that have been in line for this long fail
   * with it
   */
  constructor(most: number, clock: Clock, patienceMs: number) {
    this.#free = most
    this.#clock = clock
    this.#patienceMs = patienceMs
  }

  /** Runs `body` once its turn has come, in the order of the calls. */
  async pass<T>(body: () => Promise<T>, leaving: Leaving): Promise<T> {
    leaving.signal?.throwIfAborted()
    if (this.#free > 0) this.#free--
    else await this.#waitForTurn(leaving)
    try {
      return await body()
    } catch (error) {
      if (error instanceof StoreError) this.#failUnanswered(error)
      throw error
    } finally {
      const [next] = this.#line
      if (next === undefined) this.#free++
      else next.go()
    }
  }

  #waitForTurn({ signal, ms, late }: Leaving): Promise<void> {
    return new Promise((resolve, reject) => {
      const over = () => {
        this.#line.delete(waiting)
        cancel()
        signal?.removeEventListener('abort', onAbort)
      }
      const fail = (reason: unknown) => {
        over()
        reject(reason as Error)
      }
      const go = () => {
        over()
        resolve()
      }
      const waiting: Waiting = { sinceMs: this.#clock.monotonicMs(), go, fail }
      const onAbort = () => fail(signal?.reason)
      const cancel = ms === Infinity ? () => {} : this.#clock.after(ms, () => fail(late()))
      signal?.addEventListener('abort', onAbort)
      this.#line.add(waiting)
    })
  }

  /** Otherwise each request would wait for its own time-out, and a long line for minutes. */
  #failUnanswered(error: StoreError): void {
    const beforeMs = this.#clock.monotonicMs() - this.#patienceMs
    for (const waiting of this.#line) if (waiting.sinceMs <= beforeMs) waiting.fail(error)
  }
}
