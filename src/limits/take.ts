/** Taking from a limit outside of jobs: what a {@link Limit} offers for it. `provideTaker` names what carries it out. */
import { UsageError } from '../core/errors.ts'

/** Any limit, by its name; `limit.ts` imports this file, so `Limit` cannot be named here. */
export interface Named {
  readonly name: string
}

/** Key of a bucket. */
export type TakeKey = string | number | boolean

/** The key and the cost of a take. With several limits `key` and `cost` count for each, or are given by limit: `{ crm: 'a1' }`. */
export interface TakeOptions {
  /** Key of the bucket: needed for a limit with keys, an error for one without. */
  key?: TakeKey | Readonly<Record<string, TakeKey>> | undefined
  /** Units; whole, 0 or more, at most what the limit can ever hold at once; default 1. A concurrency always counts one place. */
  cost?: number | Readonly<Record<string, number>> | undefined
}

/** The key and the cost of a take, and how long to wait. */
export interface WaitOptions extends TakeOptions {
  /** Longest wait in ms; default: until the take is granted. 0: as `tryTake`, but with an error. */
  maxWaitMs?: number | undefined
  /** Ends the wait, with the signal's reason. */
  signal?: AbortSignal | undefined
}

/**
 * The grant of a take. For a rate, a window or a quota it permits one request now, and needs no further call. For a
 * concurrency it is a place, held until `release`, or until this process is gone for some 15 s.
 */
export interface Lease {
  readonly id: string
  /**
   * Ms from now within which a request under the lease must begin, because the limit's guarantee counts on that; 0: the grant
   * came too late, give it back and take another. Infinity if the limit counts places only. `fetch` of the limit checks it.
   */
  readonly freshForMs: number
  /**
   * Aborts when the place is lost, because this process did not renew it in time: stop what runs under the lease.
   * Never aborts without a place.
   */
  readonly signal: AbortSignal
  /** True if it was granted while the store was away (`onStoreError: 'open'`): nothing was charged. */
  readonly isUncharged: boolean
  /**
   * Ends the lease, so that its place is free again. A second call, or a call without a place, does nothing. Never rejects:
   * a store that is away is informed later.
   */
  release(): Promise<void>
  /**
   * Ends the lease unused: the bucket becomes as if it had not been granted. Only if no request was sent under it. Never
   * rejects; if the store cannot be reached, the units remain charged.
   */
  giveBack(): Promise<void>
  /**
   * Settles what was really used, by limit; a number alone if the lease is of one limit with units. Less than was granted is
   * refunded (minus what has drained since, unless the limit has `refund: 'full'`); more is a debt. Counts once. A place
   * stays held.
   * @throws UsageError SLUICE_BAD_OPTION; StoreError SLUICE_STORE_UNREACHABLE: what was granted stays charged, and it may be
   * settled again
   * @example await lease.settle({ tpm: usage.total_tokens })
   */
  settle(used: Used): Promise<void>
  /** `release`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>
}

/** Units that were used, by limit, or of the only one. */
export type Used = number | Readonly<Record<string, number>>

/** Result of `tryTake`: a lease, or after how many ms to try again (0: at once). */
export type Tried =
  | { readonly granted: true; readonly retryAfterMs: 0; readonly lease: Lease }
  | { readonly granted: false; readonly retryAfterMs: number; readonly lease?: never }

/** The methods with which any process uses a limit outside of jobs, in the same buckets as jobs. See docs/outside.md. */
export interface Takeable {
  /**
   * Takes now or not at all, in one round trip; a denied take is not charged. It is also denied if others wait (`take`) and
   * there would be no room left for them.
   * @throws UsageError SLUICE_MISSING_KEY, SLUICE_BAD_KEY, SLUICE_BAD_OPTION, SLUICE_COST_ABOVE_CAPACITY;
   * StoreError SLUICE_STORE_UNREACHABLE unless the limit has `onStoreError: 'open'`
   */
  tryTake(options?: TakeOptions): Promise<Tried>
  /**
   * Waits for its turn: calls for the same units go in their order, calls for other units take turns with these; takers and jobs that wait
   * for the same bucket alternate.
   * @throws as `tryTake`, and StoreError SLUICE_TAKE_TIMEOUT as soon as it is known that no grant can come within `maxWaitMs`
   */
  take(options?: WaitOptions): Promise<Lease>
  /**
   * Like the global fetch, and like `ctx.fetch` of a job: each request, redirects included, waits for a grant of this limit
   * and is written while the grant is fresh; a 429 holds the bucket for everybody. A place is held until the response has
   * been read, or cancelled.
   * @throws as `take`, and AttemptError as `ctx.fetch`
   */
  fetch(input: string | URL | Request, init?: RequestInit & WaitOptions): Promise<Response>
  /**
   * Reads the answer to a request that another client sent under `take`: if the vendor refused it, the bucket is held for
   * everybody, and if it accepted one after that, the bucket is open again: give it every answer. Resolves to whether it
   * was refused.
   * @param response a response of any client, or the error that it threw for one
   * @throws UsageError SLUICE_MISSING_KEY, SLUICE_BAD_KEY; StoreError SLUICE_STORE_UNREACHABLE
   */
  observe(response: object, options?: Pick<TakeOptions, 'key'>): Promise<boolean>
}

/**
 * Takes from one limit, or from all of several or none; see {@link Takeable}.
 * @example takes.fetch([crm, total], url, { key: accountId })
 */
export interface Taker {
  tryTake(limits: Named | readonly Named[], options?: TakeOptions): Promise<Tried>
  take(limits: Named | readonly Named[], options?: WaitOptions): Promise<Lease>
  fetch(
    limits: Named | readonly Named[],
    input: string | URL | Request,
    init?: RequestInit & WaitOptions,
  ): Promise<Response>
  observe(limits: Named | readonly Named[], response: object, options?: Pick<TakeOptions, 'key'>): Promise<boolean>
  /**
   * Settles what a response of `fetch` has cost, its redirects included; see `Lease.settle`.
   * @throws as `Lease.settle`, and UsageError SLUICE_BAD_OPTION for a response of another `fetch`, or a copy
   * @example await takes.settle(response, { tpm: (await response.clone().json()).usage.total_tokens })
   */
  settle(response: Response, used: Used): Promise<void>
}

let provider: (() => Taker | Promise<Taker>) | undefined

/** Sets what carries out takes from now on. */
export function provideTaker(next: () => Taker | Promise<Taker>): void {
  provider = next
}

async function taker(): Promise<Taker> {
  if (provider === undefined) {
    throw new UsageError(
      'SLUICE_NOT_CONFIGURED',
      'no Sluice is configured to take from: import from "sluice", not from its parts',
    )
  }
  return provider()
}

/** Takes from limits, in the store that `limit.take` uses. */
export const takes: Taker = {
  tryTake: async (limits, options) => (await taker()).tryTake(limits, options),
  take: async (limits, options) => (await taker()).take(limits, options),
  fetch: async (limits, input, init) => (await taker()).fetch(limits, input, init),
  observe: async (limits, response, options) => (await taker()).observe(limits, response, options),
  settle: async (response, used) => (await taker()).settle(response, used),
}

/** Returns what a limit offers outside of jobs. @param self returns the limit, which is not made yet */
export function takesOf(self: () => Named): Takeable {
  return {
    tryTake: (options) => takes.tryTake(self(), options),
    take: (options) => takes.take(self(), options),
    fetch: (input, init) => takes.fetch(self(), input, init),
    observe: (response, options) => takes.observe(self(), response, options),
  }
}
