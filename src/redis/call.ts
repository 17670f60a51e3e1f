/** The parameters and results of `RedisLimiter`. */
import type { RedisBucket, Seed } from './definition.ts'

/** A request for grants from one set of buckets. */
export interface Item {
  /** Number of jobs; each gets its units of all these buckets, or none. */
  want: number
  /** They may not be used before this time, in microseconds from the decision, 250,000 at most; `aheadUs` counts from it. Default 0. */
  afterUs?: number
  /** `bucket`: index in the call's list, from 0. */
  takes: readonly { bucket: number; units: number }[]
}

/** The fields that calls for grants and settlements have in common. */
export interface RedisCall {
  /** Id of the grant, or of the settlement; the same id within a minute is the same call and gets the same answer. */
  id: string
  buckets: readonly RedisBucket[]
  /** The epoch that the caller knows: if another is in force, nothing is done. Default: any, if the state is whole. */
  epoch?: string
  /** The latest time that Redis's clock can show, by the caller's monotonic clock, in microseconds; default: not known. */
  capUs?: number
  /** Ms after sending within which the call is carried out, or not at all. Default: the time-out, for each try. */
  withinMs?: number
}

/** A call for grants. */
export interface Reservation extends RedisCall {
  items: readonly Item[]
  /** True for one more request of a running job, which has its places already. Default false. */
  isFurther?: boolean
  /** The places are free again after this time unless the lease is renewed: microseconds, at most a minute. Default: when they are ended. */
  leaseUs?: number
  /**
   * Grants that fit within this time are given now, for use from then on; microseconds, whole, at most 200,000.
   * Default: not ahead, as for calls of other programs. For 10 s after such a call nothing of its buckets is granted ahead.
   */
  aheadUs?: number
}

/** Why a bucket denies; see `Granted`. */
export type DenialCause = 'used' | 'held' | 'others' | 'behind' | 'unreadable'

/** Result of an item. */
export interface Granted {
  /** How many of those wanted were granted; the first ones. */
  granted: number
  /** Microseconds after which it is worth sending the rest again; 0: all were granted. */
  waitUs: number
  /** Index of the bucket that will be the last to have room for the next; undefined: none lacks it. */
  lacking: number | undefined
  /** Microseconds after the decision at which the grants may be used; 0: at once, as always without `aheadUs`. */
  startUs: number
  /**
   * Why that bucket denies: its key has a value of another program. With `aheadUs` also: its units are used; it is closed or held,
   * whatever was used of it; other programs take from it, so nothing is granted ahead; or it has granted for later times already.
   */
  cause: DenialCause
  /** With `aheadUs`, for how many microseconds that bucket has granted nothing and got nothing back. */
  quietUs: number
}

/**
 * One report about grants in one bucket:
 * - `more`: a grant used so many units more than it was granted (negative: fewer); without `grant`: so many units count from now on,
 *   but not in quotas, for a request that is charged once more;
 * - `isUnused`: nothing of it was used, so its places are free, too;
 * - `ended`: so many of its places are free again (`grant` unset: the grant is not known; do not mix the two ways);
 * - `renewUs`: its lease lasts so long from now (with `places`: of so many, even if it had ended);
 * - `holdUs`: the vendor demanded a pause of this length; 0: such pauses are over.
 */
export type SettleAct = { bucket: number } & (
  | { grant?: string; more: number }
  | { grant: string; isUnused: true }
  | { ended: number; grant?: string }
  | { grant: string; renewUs: number; places?: number }
  | { holdUs: number }
)

/** A report of what happened to grants. The acts are carried out in order. */
export interface Settlement extends RedisCall {
  acts: readonly SettleAct[]
}

/** The caller's definition of a bucket is out of date, and nothing was done; `version`: the one in force. */
export interface Superseded {
  isDecided: false
  why: 'superseded'
  bucket: number
  version: number
}

/**
 * The state is not whole (emptied, restarted, failed over), or is not of the epoch that the caller knows, and nothing was done.
 * `epoch`: the one in force; undefined: none. A caller that named this epoch, or none, begins a new one `instead` of it. A
 * caller that named another reads again which epoch counts: it may be newer by now, or this server may have been cut off.
 */
export interface Lost {
  isDecided: false
  why: 'lost'
  epoch: string | undefined
}

/** An answer; `nowUs`: the limits' time at which it was decided. */
export type Decided<T> = { isDecided: true; nowUs: number; results: T[] } | Superseded | Lost

/** The epoch of another owner is in force, whole or not, and nothing was done. */
export interface Owned {
  isDecided: false
  why: 'owned'
  owner: string
}

/** The parameters with which an epoch begins. */
export interface Beginning {
  /** Id of the new epoch: random, never used before. */
  epoch: string
  /** The only owner that begins epochs here from now on. */
  owner: string
  /**
   * Number of databases that share the limits: each of them may begin epochs, and the others join it (`Joining`). Default 1: only
   * the owner begins epochs.
   */
  stores?: number
  /** The epoch that `Lost` returned: if another is in force by now, nothing is done. Default: none. */
  instead?: string | undefined
  /**
   * From now on, each bucket that is not Sluice's own grants nothing for as long as its rules look back (a quota: until its
   * period is over; a concurrency: a minute, because Redis does not know how long jobs run), but no longer than this, in
   * microseconds. Default without bound, which is right if it is not known what was granted; 0: only the seeds count.
   */
  closeUs?: number
  /**
   * The buckets to write, with the units that have been used of each. They are sent in portions; from the first to the
   * last no epoch is in force, so nothing is granted.
   */
  seeds?: readonly Seed[]
  /** Called before each portion; an error that it throws ends the beginning. */
  before?: () => Promise<void>
  /** Redis may have granted what is in the seeds up to this many microseconds later; until then they grant nothing. */
  delayUs?: number
  /** Ms after sending within which a portion is carried out, or not at all; default 10 s. */
  withinMs?: number
}

/** How a database takes part in an epoch that another one began. */
export interface Joining {
  /** Id under which it takes part from then on, as a name of the epoch in its calls: random, never used before. */
  id: string
  owner: string
  /** Number of databases that share the limits. */
  stores: number
  /** Id of the epoch that it joins: if another is in force by now, nothing is done. */
  epoch: string
  /** Id under which it took part in the epoch before, which ends; then `seeds` are not added again. Default: it did not. */
  instead?: string | undefined
  /** The units that it has used of each bucket by now. They are sent in portions; it takes part after the last. */
  seeds: readonly Seed[]
  /** As in `Beginning`. */
  before?: Beginning['before']
  delayUs: number
}

/** A definition on which databases agreed: Redis may have lost it since. */
export interface Stood {
  version: number
  text: string
  /** The version in the caller's own database then. */
  own: number
}

/** A definition on which databases agree. */
export interface Agreed {
  version: number
  /** The definition, if it is another than the caller's. */
  text: string | undefined
  /** True if any of them publishes it. */
  isPublished: boolean
  /** For the caller's next call. */
  stood: Stood
}

/** The epoch in force. */
export interface Epoch {
  /** Its id; undefined: none is in force. */
  id: string | undefined
  /** True if the state is that epoch's: nothing was lost since it began. */
  isWhole: boolean
  owner: string | undefined
  /** Id under which the database of the call takes part in it; undefined: it does not. The one that began it: its id. */
  mine: string | undefined
  /** Number of databases that share the limits. */
  stores: number
  /** The time that Redis's clock shows, in microseconds. */
  nowUs: number
}
