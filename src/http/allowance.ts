/** The grants of one attempt, one for each request, and whether the attempt may still be given back uncalled. */
import { AttemptError } from '../core/errors.ts'
import { span } from '../core/figures.ts'
import type { Count } from '../vendors/answer.ts'
import type { Refusal } from './feedback.ts'
import type { Grant } from './send-check.ts'

/** Units that a request takes of limits, by name, in place of what its job takes of them. */
export type RequestCost = Readonly<Record<string, number>>

/** The parts of an attempt that `fetch` uses. */
export interface Grants {
  /** The grant that the attempt was claimed with; undefined when the job has no limits (then nothing is ever stale). */
  readonly own: Grant | undefined
  /**
   * Takes one further grant of all limits of the job, and waits for it (undefined: no limits). `beforeWait`: called
   * before each wait for room with the wait in ms; an error that it throws ends the taking. `unused`: a grant that
   * expired before anything was written under it; it is refunded. `cost`: default the job's.
   */
  take(
    signal: AbortSignal,
    beforeWait: (waitMs: number) => void,
    unused?: Grant,
    cost?: RequestCost,
  ): Promise<Grant | undefined>
  /** Refunds a grant under which nothing was written, and takes none. */
  giveBack(unused: Grant): Promise<void>
  /**
   * The vendor refused a request, or failed: holds the buckets that this concerns, fleet-wide. `grant`: the request's;
   * undefined: it was sent at some time of the attempt. Resolves to how long they are held, in ms; undefined: none is.
   */
  recordRefusal(refusal: Refusal, grant: Grant | undefined): Promise<number | undefined>
  /**
   * The vendor accepted the request of this grant: if it had refused others before, their buckets grant again as their
   * rules allow. `host`: the vendor's, undefined: not known.
   */
  recordAccepted(grant: Grant, host?: string): void
  /** The vendor's counts in an answer: what they show of somebody else's use is charged. */
  recordCounts(counts: readonly Count[]): void
}

/** The code of the error with which an attempt gives its job back uncalled. */
export const uncalledCode = 'SLUICE_UNCALLED'

/**
 * Longest wait of an attempt that has sent nothing for another grant, in ms; beyond it the job waits in the store, not in
 * a slot.
 */
const patienceMs = 250

function uncalledError(waitMs: number): AttemptError {
  const text = `the grant ran out before the request could be written, and the next one is ${span(waitMs)} away; nothing was sent, and the job waits again`
  return new AttemptError(uncalledCode, text, { retryable: true })
}

function noRoomError(waitMs: number): AttemptError {
  const text = `the next grant is ${span(waitMs)} away, and the attempt's time is over before that; the request was not sent`
  return new AttemptError('SLUICE_NO_ROOM_IN_TIME', text, { retryable: true, retryAfterMs: waitMs })
}

/**
 * A request could not be sent because its grants expired before they could be used: this machine or the network is too
 * slow.
 */
export class StaleGrantError extends AttemptError {
  constructor(text: string) {
    super('SLUICE_GRANT_STALE', text, { retryable: true })
  }
}

/** Where `fetch` takes its grants: the allowance of an attempt, or a limit itself outside of jobs. */
export type Spending = Pick<
  Allowance,
  | 'signal'
  | 'takeNext'
  | 'giveBack'
  | 'refundOwn'
  | 'giveUp'
  | 'recordRefusal'
  | 'recordAccepted'
  | 'recordAwaited'
  | 'recordCounts'
>

/** The grants of one attempt, spent by its requests; requests may run concurrently. */
export class Allowance {
  /** Aborts with the attempt, and when the attempt is given back uncalled: from then on it sends nothing. */
  readonly signal: AbortSignal
  readonly #grants: Grants
  readonly #leftMs: () => number
  readonly #returned = new AbortController()
  #ownIsSpent = false
  #isRefused = false
  #bad: { readonly refusal: Refusal; readonly heldMs: number | undefined } | undefined
  #isAccepted = false
  /** Hosts whose answers are awaited, and since when, in monotonic ms. */
  readonly #awaited = new Set<{ readonly host: string; readonly sinceMs: number }>()
  /** Grants handed out and not returned unused: a request was written or tried under each, or may be at any moment. */
  #spent = 0

  /** @param leftMs returns for how many ms the attempt may go on */
  constructor(grants: Grants, signal: AbortSignal, leftMs = () => Infinity) {
    this.#grants = grants
    this.#leftMs = leftMs
    this.signal = AbortSignal.any([signal, this.#returned.signal])
  }

  /**
   * Returns a grant for one request.
   * @param unused the previous grant, under which this request was not written
   * @param cost of a further grant; the attempt's own has been charged already
   */
  async takeNext(signal: AbortSignal, unused?: Grant, cost?: RequestCost): Promise<Grant | undefined> {
    if (unused !== undefined) this.#spent--
    signal.throwIfAborted()
    const isFirst = !this.#ownIsSpent
    this.#ownIsSpent = true
    const grant = isFirst ? this.#grants.own : await this.#take(signal, unused, cost)
    signal.throwIfAborted()
    this.#spent++
    return grant
  }

  /** Requests that were written or tried, or may be at any moment. */
  get spent(): number {
    return this.#spent
  }

  /**
   * Why the attempt is given back uncalled, if it is: nothing was sent, and nothing will be. Check this, not the error
   * that a handler throws: client libraries replace it by errors of their own.
   */
  get returned(): AttemptError | undefined {
    return this.#returned.signal.reason as AttemptError | undefined
  }

  /** A request could not be sent: if no other was sent either, the attempt is given back uncalled. */
  giveUp(error: StaleGrantError): void {
    if (this.#spent === 0) this.#returned.abort(error)
  }

  async #take(signal: AbortSignal, unused?: Grant, cost?: RequestCost): Promise<Grant | undefined> {
    try {
      return await this.#grants.take(signal, (waitMs) => this.#giveUpLongWait(waitMs), unused, cost)
    } catch (error) {
      if (error instanceof StaleGrantError) this.giveUp(error)
      throw error
    }
  }

  /**
   * Refunds a grant under which nothing was written. While the store is unavailable the units are lost, nothing worse.
   */
  async giveBack(unused: Grant): Promise<void> {
    this.#spent--
    await this.#grants.giveBack(unused).catch(() => {})
  }

  /** A request was rejected before it took a grant: refunds the attempt's own grant if no request has used it. */
  async refundOwn(): Promise<void> {
    if (this.#ownIsSpent) return
    this.#ownIsSpent = true
    if (this.#grants.own !== undefined) await this.#grants.giveBack(this.#grants.own).catch(() => {})
  }

  /** True once the vendor has refused a request of this attempt. */
  get isRefused(): boolean {
    return this.#isRefused
  }

  /**
   * The last answer, if it was a bad one, or did not come; `heldMs`: for how long buckets are held because of it, in ms;
   * undefined: they are not.
   */
  get bad(): { readonly refusal: Refusal; readonly heldMs: number | undefined } | undefined {
    return this.#bad
  }

  /** True once the vendor has accepted a request of this attempt. */
  get isAccepted(): boolean {
    return this.#isAccepted
  }

  /** A request is sent to this host at this monotonic time; call the result when it is answered, or has failed. */
  recordAwaited(host: string, sinceMs: number): () => void {
    const one = { host, sinceMs }
    this.#awaited.add(one)
    return () => void this.#awaited.delete(one)
  }

  /** Returns the host whose answer has been awaited the longest, since before `untilMs`. */
  unansweredBy(untilMs: number): string | undefined {
    return [...this.#awaited].find(({ sinceMs }) => sinceMs <= untilMs)?.host
  }

  /** See `Grants.recordRefusal`. */
  async recordRefusal(refusal: Refusal, grant: Grant | undefined): Promise<number | undefined> {
    this.#isRefused ||= refusal.cause === undefined
    this.#bad = { refusal, heldMs: undefined }
    const heldMs = await this.#grants.recordRefusal(refusal, grant)
    this.#bad = { refusal, heldMs }
    return heldMs
  }

  /** See `Grants.recordAccepted`. */
  recordAccepted(grant: Grant, host?: string): void {
    this.#bad = undefined
    this.#isAccepted = true
    this.#grants.recordAccepted(grant, host)
  }

  /** See `Grants.recordCounts`. */
  recordCounts(counts: readonly Count[]): void {
    this.#grants.recordCounts(counts)
  }

  // Decides and aborts in one step, so that other requests of this attempt that wait for a grant are not sent either.
  #giveUpLongWait(waitMs: number): void {
    // Its slot would be taken until then, and it could only fail.
    if (this.#spent > 0 && waitMs > this.#leftMs() && waitMs < Infinity) throw noRoomError(waitMs)
    if (waitMs <= patienceMs || this.#spent > 0) return
    const error = uncalledError(waitMs)
    this.#returned.abort(error)
    throw error
  }
}
