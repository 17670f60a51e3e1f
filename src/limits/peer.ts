/**
 * Limits whose state others share (docs/redis.md): what the store granted is asked for there, too, before it is used. The store
 * decides first and commits; so its ledger knows of every grant before the others' state does, nobody waits for that state
 * with a lock in hand, and nobody asks it for what the store has no room for.
 */

import type { Moment } from '../core/clock.ts'
import type { Limit } from './limit.ts'

/** Grants that are alike. */
export interface Wish {
  /** Names of buckets, for example `crm:acme`. */
  readonly takes: readonly string[]
  /** Units of each. */
  readonly units: readonly number[]
  /** How many. */
  readonly count: number
}

/** What was granted by the store, and is to be asked for. */
export interface SharedAsk {
  readonly wishes: readonly Wish[]
  /** The epoch that the store told with it; undefined: none. */
  readonly epoch: string | undefined
  /** When the store was asked, in monotonic ms: what is not answered soon after is not used any more. */
  readonly sentMs: number
  /** Before that: what the monotonic clock misses from then on counts, too. */
  readonly asked?: Moment | undefined
  /** One more request of a job that runs. Default false. */
  readonly isFurther?: boolean
}

/** What became of a wish. */
export interface Leave {
  /** So many of them; the first ones. */
  readonly granted: number
  /** Monotonic ms: their life counts from here, */
  readonly fromMs: number
  /** and nothing may be sent under them before this. */
  readonly notBeforeMs: number
  /** For the rest it is worth asking the store again after so long. */
  readonly waitMs: number
  /** The bucket that others have used up; undefined: it was something else. */
  readonly lacking: string | undefined
  /** Resolves when the store grants nothing of that bucket any more, or cannot be told; undefined: it need not be. */
  readonly held?: Promise<void>
}

/** Whoever else has a say. */
export interface SharedLimits {
  /** Begins; before, nobody may be asked. A second call changes nothing. */
  start(): void
  /** Resolves when somebody has answered since the start, or soon after it: what is granted before is asked for in vain. */
  ready(): Promise<void>
  /** Nobody answers there: limits wait, but for those that are open then. */
  readonly isAway: boolean
  /** True when jobs with these limits can begin now. */
  isOpenFor(limits: readonly Pick<Limit, 'rules' | 'isOpenWithoutStore'>[]): boolean
  /** Calls back whenever that may have changed; the returned function ends it. */
  onChange(changed: () => void): () => void
  /** Asks. Never rejects: without an answer nothing is granted. `id`: of the grants; undefined: nobody had to be asked. */
  ask(asked: SharedAsk): Promise<{ id: string | undefined; leaves: Leave[] }>
  /** So many units of a grant were used more than granted (negative: fewer). Told as soon as possible; to be said before the store is told. */
  settle(grant: string, take: string, more: number): void
  /** Nothing was sent under a grant: it goes back. To be said before the store is told. */
  unused(grant: string, takes: readonly string[], units: readonly number[]): void
  /** The vendor asked for silence. */
  hold(takes: readonly string[], ms: number): void
}
