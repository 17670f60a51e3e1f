/** The grants of one `fetch` of a limit. Each request takes one, and holds its place until its response is read or cancelled. */
import { AttemptError } from '../core/errors.ts'
import type { Spending } from '../http/allowance.ts'
import type { Grant } from '../http/send-check.ts'
import type { TakenGrant } from './lease.ts'

/** What a `FetchGrants` needs of the takes. */
export interface FetchGrantsOptions {
  /** Waits for a grant; gives back `unused` in the same statement. */
  take(signal: AbortSignal, unused: TakenGrant | undefined): Promise<TakenGrant>
  /** Lets the bucket grant nothing for `ms` from now. */
  hold(ms: number, why: string): Promise<void>
}

/** The grants of one `fetch` of a limit. */
export class FetchGrants implements Spending {
  readonly #options: FetchGrantsOptions
  readonly #leases: TakenGrant[] = []
  readonly #end = new AbortController()

  constructor(options: FetchGrantsOptions) {
    this.#options = options
  }

  get signal(): AbortSignal {
    return this.#end.signal
  }

  /** Runs a fetch; `closed` aborts it. If it fails, its leases are released. */
  async within(closed: AbortSignal, call: () => Promise<Response>): Promise<Response> {
    const end = () => this.#end.abort(closed.reason)
    if (closed.aborted) end()
    closed.addEventListener('abort', end)
    try {
      return await call()
    } catch (error) {
      for (const lease of this.#leases) lease.ended()
      throw error
    } finally {
      closed.removeEventListener('abort', end)
    }
  }

  async next(signal: AbortSignal, unused?: Grant): Promise<Grant> {
    const lease = await this.#options.take(signal, unused as TakenGrant | undefined)
    this.#leases.push(lease)
    lease.whenLost((reason) => this.#end.abort(reason))
    return lease
  }

  async giveBack(unused: Grant): Promise<void> {
    await (unused as TakenGrant).giveBack()
  }

  async forgo(): Promise<void> {}

  giveUp(error: AttemptError): void {
    this.#end.abort(error)
  }

  async hold(ms: number, why: string): Promise<void> {
    await this.#options.hold(ms, why)
  }
}
