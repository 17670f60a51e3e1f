/**
 * The interface of a second limiter, whose state other programs share (docs/redis.md): it must confirm what the store granted
 * before that is used. The store decides first and commits. So its ledger has every grant before the other state does, no
 * process waits for the other limiter while it holds a lock, and no request is sent for what the store has no room for.
 */

import type { Moment } from '../core/clock.ts'
import type { Limit } from './limit.ts'

/** A number of grants that are alike. */
export interface Wish {
  /** Names of buckets, for example `crm:acme`. */
  readonly buckets: readonly string[]
  /** Units of each bucket. */
  readonly units: readonly number[]
  /** Number of grants. */
  readonly count: number
  /** How long they live by the definitions that the store granted by, in ms. */
  readonly lifeMs: number
  /** Monotonic ms before which they may not be used, because the store granted them ahead of time. Default: at once. */
  readonly notBeforeMs?: number | undefined
}

/** Grants of the store that the second limiter has to confirm. */
export interface PeerRequest {
  readonly wishes: readonly Wish[]
  /** The epoch that the store returned with the grants; undefined: none. */
  readonly epoch: string | undefined
  /** When the request to the store was sent, in monotonic ms: what is not confirmed soon after is not used. */
  readonly sentMs: number
  /** A moment before that: time that the monotonic clock misses from then on counts, too. */
  readonly requestedAt?: Moment | undefined
  /** True for one more request of a running job. Default false. */
  readonly isFurther?: boolean
}

/** Result of one wish. */
export interface PeerDecision {
  /** How many of its grants were confirmed; the first ones. */
  readonly granted: number
  /** Monotonic ms from which their life counts; undefined: as the store granted them. */
  readonly fromMs: number | undefined
  /** Monotonic ms before which nothing may be sent under them; undefined: as the store granted them. */
  readonly notBeforeMs: number | undefined
  /** Ms after which it is worth sending the rest to the store again. */
  readonly waitMs: number
  /** The bucket that other programs have used up; undefined: there is another reason. */
  readonly lacking: string | undefined
  /** Resolves when the store holds that bucket, or cannot be reached; undefined: no hold is needed. */
  readonly held?: Promise<void>
}

/** A second limiter that must confirm grants. */
export interface PeerLimiter {
  /** Starts it; before, `confirm` may not be called. A second call changes nothing. */
  start(): void
  /** Resolves when it has answered since the start, or soon after the start: what is granted before cannot be confirmed. */
  waitUntilReady(): Promise<void>
  /** True while it does not answer: limits wait, except those that are open then. */
  readonly isAway: boolean
  /** True when jobs with these limits can begin now. */
  isOpenFor(limits: readonly Pick<Limit, 'rules' | 'isOpenWithoutStore'>[]): boolean
  /** Calls `changed` whenever that may have changed; the returned function ends it. */
  onChange(changed: () => void): () => void
  /**
   * Requests confirmation. Never rejects: without an answer nothing is granted. `id`: id of the grants; undefined: no request
   * was needed.
   */
  confirm(request: PeerRequest): Promise<{ id: string | undefined; decisions: PeerDecision[] }>
  /**
   * Records, as soon as possible, that a grant used `more` units than granted (negative: fewer). Call it before the
   * store is informed.
   */
  settle(grant: string, bucket: string, more: number): void
  /**
   * Charges units of a request that may have arrived late once more. Rejects if they may not have been charged.
   * @param epoch the one that the store returned with its own charge; undefined: none
   */
  chargeAgain(buckets: readonly string[], units: readonly number[], epoch: string | undefined): Promise<void>
  /** Gives a grant back under which nothing was sent. Call it before the store is informed. */
  refund(grant: string, buckets: readonly string[], units: readonly number[]): void
  /**
   * Holds the places of a job that runs already, because the process that held them is gone. Never rejects. Resolves to the id by which
   * `freePlaces` frees them.
   */
  takePlaces(buckets: readonly string[]): Promise<string>
  /** Frees the place of one job, or take, of a grant, when it has ended: after a refund, too. */
  freePlaces(grant: string, buckets: readonly string[]): void
  /** Holds buckets because the vendor demanded a pause. */
  hold(buckets: readonly string[], ms: number): void
}
