/** Requests to vendors outside of jobs: `fetch` of limits, and what its callers observe and settle. */
import type { Moment } from '../core/clock.ts'
import { UsageError } from '../core/errors.ts'
import { newId } from '../core/hash.ts'
import type { Store } from '../db/store.ts'
import type { Margins } from '../claim/definitions/margins.ts'
import { Agents } from '../http/agent.ts'
import { failureIn, isAccepted, refusalIn } from '../http/feedback.ts'
import { createFetch } from '../http/fetch.ts'
import { warmClient } from '../http/warm.ts'
import type { Used, WaitOptions } from '../limits/take.ts'
import type { Acquirer, Sent } from './acquire.ts'
import { FetchGrants } from './fetch-grants.ts'
import type { TakenGrant } from './lease.ts'
import type { Leases } from './leases.ts'
import type { TakeRequest } from './take-request.ts'

/** Parameters of `Fetches`; see the fields. */
export interface FetchesOptions {
  readonly store: Store
  /** Addresses beyond the public ones that `fetch` may call. */
  readonly allowPrivate: readonly string[]
  readonly acquirer: Acquirer
  readonly margins: Margins
  readonly leases: Leases
  /** Waits for a grant; gives back `unused` in the same statement. */
  take(want: TakeRequest, options: Pick<WaitOptions, 'signal'>, unused: TakenGrant | undefined): Promise<TakenGrant>
  /** @throws StoreError SLUICE_CLOSED */
  checkOpen(): void
}

/** The grants of each response of `fetch`. */
const grantsOf = new WeakMap<Response, FetchGrants>()

/** Returns a request as the circuit counts it, as one of its own. */
function sentRequestOf({ buckets, limits }: TakeRequest, requestedAt: Moment | undefined, isTrial: boolean): Sent {
  return { buckets, limits, requestedAt, isTrial, who: newId() }
}

/** The requests of one Sluice. */
export class Fetches {
  readonly #options: FetchesOptions
  readonly #underway = new Set<FetchGrants>()
  #agents: Agents | undefined

  constructor(options: FetchesOptions) {
    this.#options = options
  }

  /** See {@link Limit.fetch}. */
  async fetch(want: TakeRequest, input: string | URL | Request, init: RequestInit): Promise<Response> {
    const { store, allowPrivate, acquirer, margins } = this.#options
    const { clock } = store
    store.db.checkOutside('`fetch` of a limit')
    this.#agents ??= new Agents(allowPrivate)
    const agent = this.#agents.of([])
    await warmClient(agent)
    const untilMs = clock.monotonicMs() + want.maxWaitMs
    const spend = new FetchGrants({
      limits: want.limits,
      take: (signal, unused) => {
        const maxWaitMs = Math.max(0, untilMs - clock.monotonicMs())
        return this.#options.take({ ...want, maxWaitMs }, { signal }, unused)
      },
      recordRefusal: (refusal, requestedAt, isTrial) => {
        if (refusal.cause === undefined) margins.applyStatedMargin(want.limits)
        return acquirer.recordRefusal(sentRequestOf(want, requestedAt, isTrial), refusal)
      },
      recordAccepted: (requestedAt, host) => acquirer.recordAccepted(want, requestedAt, host),
      served: (requestedAt) => acquirer.recordServed(want, requestedAt),
      recordCounts: (counts) => acquirer.recordCounts(want.buckets, want.limits, counts),
    })
    this.#options.checkOpen()
    this.#underway.add(spend)
    try {
      const call = createFetch({ agent, clock, allowance: spend, limits: want.limits })
      const response = await spend.within(() => call(input, init))
      grantsOf.set(response, spend)
      return response
    } finally {
      this.#underway.delete(spend)
    }
  }

  /** See {@link Taker.observe}. */
  async observe(want: TakeRequest, response: object): Promise<boolean> {
    // A promise, mostly: every refusal would be overlooked.
    if (typeof response !== 'object' || response === null || 'then' in response)
      throw new UsageError(
        'SLUICE_BAD_OPTION',
        '`observe` was given no response, and no error: await the request first',
      )
    const { store, acquirer, leases } = this.#options
    const refusal = refusalIn(response, want.limits, { wallMs: store.clock.wallMs() })
    // It is not known which request the response answers. If no request of this process was a trial, it was sent before
    // the refusal.
    const requestedAt = leases.trialOf(want.buckets)
    const bad = refusal ?? failureIn(response, want.limits)
    if (bad !== undefined)
      await acquirer.recordRefusal(sentRequestOf(want, requestedAt, requestedAt !== undefined), bad)
    else if (isAccepted(response)) acquirer.recordServed(want, requestedAt)
    if (bad === undefined && requestedAt !== undefined && isAccepted(response)) {
      await acquirer.recordAccepted(want, requestedAt)
      leases.recordAccepted(want.buckets)
    }
    return refusal !== undefined
  }

  /** See {@link Taker.settle}. */
  async settle(response: Response, used: Used): Promise<void> {
    const grants = grantsOf.get(response)
    if (grants !== undefined) return grants.settle(used)
    const text = 'the response is not one that `fetch` of a limit returned, so it is not known what it was charged'
    throw new UsageError('SLUICE_BAD_OPTION', text)
  }

  /** Ends the requests under way that have no response yet. */
  abort(reason: Error): void {
    for (const spend of this.#underway) spend.abort(reason)
  }

  /** Closes all connections once the responses in progress have been read to their end. */
  async close(): Promise<void> {
    await this.#agents?.close()
  }
}
