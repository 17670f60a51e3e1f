/** What one attempt may send: its grants, one for each request, and whether it may still be given back as uncalled. */
import { AttemptError } from '../core/errors.ts'
import type { Grant } from './gate.ts'

/** Units that a request takes of limits, by name, in place of what its job costs there. */
export type RequestCost = Readonly<Record<string, number>>

/** What `fetch` needs of the attempt that it serves. */
export interface Grants {
  /** The grant that the attempt was claimed with; undefined when the job has no limits (then nothing is ever stale). */
  readonly own: Grant | undefined
  /**
   * Takes one further grant in all limits of the job, waiting for it (undefined: no limits).
   * `beforeWait`: told how long, in ms, before each wait for room; what it throws ends the taking.
   * `unused`: a grant that ran out before anything was written under it; it is given back. `cost`: default the job's.
   */
  take(
    signal: AbortSignal,
    beforeWait: (waitMs: number) => void,
    unused?: Grant,
    cost?: RequestCost,
  ): Promise<Grant | undefined>
  /** Gives back a grant under which nothing was written, and takes none. */
  giveBack(unused: Grant): Promise<void>
  /** The vendor asked for silence: holds the buckets of this job for `ms` from now, fleet-wide. */
  hold(ms: number, reason: string): Promise<void>
}

/** The code of the error by which an attempt gives its job back uncalled. */
export const uncalledCode = 'SLUICE_UNCALLED'

/** An attempt that has sent nothing waits so long for another grant; beyond it the job waits in the store, not in a slot. */
const patienceMs = 250

function uncalled(waitMs: number): AttemptError {
  const text = `the grant ran out before the request could be written, and the next one is ${Math.ceil(waitMs)} ms away; the job goes back uncalled`
  return new AttemptError(uncalledCode, text, { retryable: true })
}

/** A request could not be sent because its grants grew old before they could be used: this machine or the way is too slow. */
export class StaleGrantError extends AttemptError {
  constructor(text: string) {
    super('SLUICE_GRANT_STALE', text, { retryable: true })
  }
}

/** The grants of one attempt, as its requests spend them; requests may run at once. */
export class Allowance {
  /** Aborts with the attempt, and when it is given back as uncalled: from then on it sends nothing. */
  readonly signal: AbortSignal
  readonly #grants: Grants
  readonly #returned = new AbortController()
  #ownIsSpent = false
  /** Grants handed out and not returned unused: under each a request was written, was tried, or may be written at any moment. */
  #spent = 0

  constructor(grants: Grants, signal: AbortSignal) {
    this.#grants = grants
    this.signal = AbortSignal.any([signal, this.#returned.signal])
  }

  /** A grant for one request. `unused`: the one before it, under which that request was not written. `cost`: of a further one. */
  async next(signal: AbortSignal, unused?: Grant, cost?: RequestCost): Promise<Grant | undefined> {
    if (unused !== undefined) this.#spent--
    signal.throwIfAborted()
    const isFirst = !this.#ownIsSpent
    this.#ownIsSpent = true
    const grant = isFirst ? this.#grants.own : await this.#take(signal, unused, cost)
    signal.throwIfAborted()
    this.#spent++
    return grant
  }

  /** True while no request of the attempt was written, was tried, or may be written at any moment. */
  get unsent(): boolean {
    return this.#spent === 0
  }

  /** Requests that were written, were tried, or may be written at any moment. */
  get spent(): number {
    return this.#spent
  }

  /**
   * Why the attempt is given back as uncalled, if it is: nothing was sent, and nothing will be. Ask this, not the error
   * that a handler throws: client libraries put errors of their own in its place.
   */
  get returned(): AttemptError | undefined {
    return this.#returned.signal.reason as AttemptError | undefined
  }

  /** A request could not be sent: if nothing else was, nothing will be. */
  giveUp(error: StaleGrantError): void {
    if (this.unsent) this.#returned.abort(error)
  }

  async #take(signal: AbortSignal, unused?: Grant, cost?: RequestCost): Promise<Grant | undefined> {
    try {
      return await this.#grants.take(signal, (waitMs) => this.#beforeWait(waitMs), unused, cost)
    } catch (error) {
      if (error instanceof StaleGrantError) this.giveUp(error)
      throw error
    }
  }

  /** Gives back a grant under which nothing was written. While the store is away it is lost, no more than that. */
  async giveBack(unused: Grant): Promise<void> {
    this.#spent--
    await this.#grants.giveBack(unused).catch(() => {})
  }

  /** A request was refused before it took a grant: the attempt's own, if no request has had it, goes back. */
  async forgo(): Promise<void> {
    if (this.#ownIsSpent) return
    this.#ownIsSpent = true
    if (this.#grants.own !== undefined) await this.#grants.giveBack(this.#grants.own).catch(() => {})
  }

  /** The vendor asked for silence: see `Grants.hold`. */
  hold(ms: number, reason: string): Promise<void> {
    return this.#grants.hold(ms, reason)
  }

  // Decided and made final in one step: whatever else of this attempt waits for a grant is not sent either.
  #beforeWait(waitMs: number): void {
    if (waitMs <= patienceMs || !this.unsent) return
    const error = uncalled(waitMs)
    this.#returned.abort(error)
    throw error
  }
}
