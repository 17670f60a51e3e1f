/**
 * The grants of one `fetch` of limits. Each request takes a grant of all these limits, and holds its places until its
 * response is read or cancelled.
 */
import { AttemptError } from '../core/errors.ts'
import type { Moment } from '../core/clock.ts'
import type { Spending } from '../http/allowance.ts'
import type { Refusal } from '../http/feedback.ts'
import type { Grant } from '../http/send-check.ts'
import type { Count } from '../vendors/answer.ts'
import type { Limit } from '../limits/limit.ts'
import type { Used } from '../limits/take.ts'
import type { TakenGrant } from './lease.ts'
import { usedUnits } from './take-request.ts'

/** Parameters of `FetchGrants`; see the fields. */
export interface FetchGrantsOptions {
  readonly limits: readonly Limit[]
  /** Waits for a grant; gives back `unused` in the same statement. */
  take(signal: AbortSignal, unused: TakenGrant | undefined): Promise<TakenGrant>
  /** As `Grants.recordRefusal` and `Grants.recordAccepted`; `requestedAt`: when the request's grant was requested. */
  recordRefusal(refusal: Refusal, requestedAt: Moment | undefined, isTrial: boolean): Promise<number | undefined>
  recordAccepted(requestedAt: Moment | undefined, host: string | undefined): Promise<void>
  /** As `Acquirer.recordServed`. */
  served(requestedAt: Moment | undefined): void
  /** As `Grants.recordCounts`. */
  recordCounts(counts: readonly Count[]): void
}

/** The grants of one `fetch` of limits. */
export class FetchGrants implements Spending {
  readonly #options: FetchGrantsOptions
  /** Grants under which a request was written, or may have been; the newest first. */
  #leases: TakenGrant[] = []
  readonly #end = new AbortController()

  constructor(options: FetchGrantsOptions) {
    this.#options = options
  }

  get signal(): AbortSignal {
    return this.#end.signal
  }

  /** Runs a fetch. If it fails, its leases are released. */
  async within(call: () => Promise<Response>): Promise<Response> {
    try {
      return await call()
    } catch (error) {
      for (const lease of this.#leases) lease.ended()
      throw error
    }
  }

  /** Aborts the fetch. */
  abort(reason: Error): void {
    this.#end.abort(reason)
  }

  /**
   * Settles what all requests together have used. It assigns the use to the newest grants first, up to what each was
   * charged.
   */
  async settle(used: Used): Promise<void> {
    let left = usedUnits(this.#options.limits, used)
    for (const [n, lease] of this.#leases.entries()) {
      const isLast = n === this.#leases.length - 1
      const own = left.map((units, i) => units && (isLast ? units : Math.min(units, lease.charged[i] ?? 1)))
      left = left.map((units, i) => units && units - (own[i] ?? 0))
      await lease.settleUnits(own)
    }
  }

  async takeNext(signal: AbortSignal, unused?: Grant): Promise<Grant> {
    // The store may have taken it back before its answer is here, and nothing was sent under it.
    ;(unused as TakenGrant | undefined)?.whenLost(() => {})
    const lease = await this.#options.take(signal, unused as TakenGrant | undefined)
    this.#leases = [lease, ...this.#leases.filter((one) => one !== unused)]
    lease.whenLost((reason) => this.#end.abort(reason))
    return lease
  }

  async giveBack(unused: Grant): Promise<void> {
    this.#leases = this.#leases.filter((one) => one !== unused)
    await (unused as TakenGrant).giveBack()
  }

  async refundOwn(): Promise<void> {}

  giveUp(error: AttemptError): void {
    this.#end.abort(error)
  }

  recordRefusal(refusal: Refusal, grant: Grant | undefined): Promise<number | undefined> {
    return this.#options.recordRefusal(refusal, grant?.requestedAt, (grant as TakenGrant | undefined)?.isTrial === true)
  }

  recordAccepted(grant: Grant, host?: string): void {
    this.#options.served(grant.requestedAt)
    if (!(grant as TakenGrant).isTrial) return
    // If the store does not receive it, the next accepted request does the same.
    void this.#options.recordAccepted(grant.requestedAt, host).catch(() => {})
  }

  recordAwaited(): () => void {
    return () => {}
  }

  recordCounts(counts: readonly Count[]): void {
    this.#options.recordCounts(counts)
  }
}
