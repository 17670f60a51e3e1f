/** Taking a limit outside of jobs: what a {@link Limit} offers, and where that goes: through whoever `provideTaker` named. */
import { UsageError } from '../core/errors.ts'

/** Any limit, before it is one: `limit.ts` needs this file. */
export interface Named {
  readonly name: string
}

/** What is taken. */
export interface TakeOptions {
  /** Whose bucket: needed for a limit with keys, wrong for one without. */
  key?: string | number | boolean
  /** Units; whole, 0 and more, at most what the limit ever has at once; default 1. Of a concurrency it is always one place. */
  cost?: number
}

/** What is taken, and how long to wait for it. */
export interface WaitOptions extends TakeOptions {
  /** So long at most; default: until it comes. 0: as `tryTake`, but with an error. */
  maxWaitMs?: number
  /** Ends the wait, with its reason. */
  signal?: AbortSignal
}

/**
 * What was granted. Of a rate, a window or a quota it is leave to make one request now, and nothing need be done about it; of
 * a concurrency it is a place, held until `release`, or until this process is gone for some 15 s.
 */
export interface Lease {
  readonly id: string
  /**
   * For so many ms from now a request may begin under it, for that is what the limit's guarantee counts on; 0: it came
   * too late, give it back and take another. Infinity where the limit counts places only. `fetch` of the limit sees to it.
   */
  readonly freshForMs: number
  /** Aborts when the place is lost (this process was not heard of for too long): stop what is done under it. Never without a place. */
  readonly signal: AbortSignal
  /** Granted without asking the store, which was away: `onStoreError: 'open'`. Nothing was charged. */
  readonly isUncharged: boolean
  /** Ends it: a place is free again. A second time, or where there is no place, it does nothing. Never rejects: a store that is away is told later. */
  release(): Promise<void>
  /** Ends it unused: the bucket becomes as if it had not been granted. Only when nothing was sent. Never rejects; what the store is not told remains charged. */
  giveBack(): Promise<void>
  /** `release`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>
}

/** The answer of `tryTake`: a lease, or when it is worth asking again (ms, 0: at once). */
export type Tried =
  | { readonly granted: true; readonly retryAfterMs: 0; readonly lease: Lease }
  | { readonly granted: false; readonly retryAfterMs: number; readonly lease?: never }

/** What a limit does outside of jobs; the same buckets as the jobs', from any process. See docs/outside.md. */
export interface Takeable {
  /**
   * Takes now or not at all: one round trip, nothing is charged when it is denied. It is also denied while others wait
   * (`take`) for whom there would be no room left.
   * @throws UsageError SLUICE_MISSING_KEY, SLUICE_BAD_KEY, SLUICE_BAD_OPTION, SLUICE_COST_ABOVE_CAPACITY;
   * StoreError SLUICE_STORE_UNREACHABLE unless the limit has `onStoreError: 'open'`
   */
  tryTake(options?: TakeOptions): Promise<Tried>
  /**
   * Waits for its turn, in the order of asking; with jobs that wait for the same bucket takers take turns.
   * @throws as `tryTake`, and StoreError SLUICE_TAKE_TIMEOUT when it cannot come within `maxWaitMs`, as soon as that is known
   */
  take(options?: WaitOptions): Promise<Lease>
  /**
   * Like the global fetch, as `ctx.fetch` of a job: each request, redirects included, waits for a grant of this limit, and
   * is written while that is fresh; a 429 holds the bucket for everybody. A place is held until the response has been
   * read, or cancelled.
   * @throws as `take`, and AttemptError as `ctx.fetch`
   */
  fetch(input: string | URL | Request, init?: RequestInit & WaitOptions): Promise<Response>
}

/** Takes any limit; see {@link Takeable}. */
export interface Taker {
  tryTake(limit: Named, options?: TakeOptions): Promise<Tried>
  take(limit: Named, options?: WaitOptions): Promise<Lease>
  fetch(limit: Named, input: string | URL | Request, init?: RequestInit & WaitOptions): Promise<Response>
}

let provider: (() => Taker | Promise<Taker>) | undefined

/** Says where takes go from now on; undefined: nowhere. */
export function provideTaker(next: (() => Taker | Promise<Taker>) | undefined): void {
  provider = next
}

async function taker(): Promise<Taker> {
  if (provider === undefined) {
    throw new UsageError(
      'SLUICE_NOT_CONFIGURED',
      'there is no Sluice to take from: import from "sluice" (not from its parts)',
    )
  }
  return provider()
}

/** What a limit offers outside of jobs. @param self the limit, which is not made yet */
export function takesOf(self: () => Named): Takeable {
  return {
    tryTake: async (options) => (await taker()).tryTake(self(), options),
    take: async (options) => (await taker()).take(self(), options),
    fetch: async (input, init) => (await taker()).fetch(self(), input, init),
  }
}
