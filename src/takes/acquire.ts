/**
 * Acquires units outside of claims (takes/acquire_grants.sql): for further requests of attempts, and for takers. Both
 * repeat the request until they have a grant that is fresh enough (grant-loop.ts), and refund grants that they did not
 * use.
 */
import { limitOf, ownOf } from '../core/bucket.ts'
import { caughtUpMs, type Clock, type Moment, readMoment, type StoreClock } from '../core/clock.ts'
import { StoreError } from '../core/errors.ts'
import { hash64 } from '../core/hash.ts'
import type { Store } from '../db/store.ts'
import type { Counted } from '../limits/vendor-counts.ts'
import type { PeerDecision, PeerLimiter } from '../limits/peer.ts'
import type { Refusal } from '../http/feedback.ts'
import type { Cause } from '../limits/circuit.ts'
import type { Limit } from '../limits/limit.ts'
import type { Count } from '../vendors/answer.ts'
import { minWaitMs } from '../vendors/time.ts'
import { decidedBetween } from '../claim/decision-times.ts'
import { failIfParked, repeatAfterParking } from '../claim/parking/parked.ts'
import { type Circuit, circuitOf, type Failing } from './circuit.ts'
import { splitByRefusal } from './concerned-buckets.ts'
import { type GrantLoop, type PendingGrant, repeatUntilGranted } from './grant-loop.ts'
import { othersUseOf } from './others-use.ts'
import type { Turnstile } from './turnstile.ts'

/** One request to the store. */
export interface GrantRequest {
  readonly pending: PendingGrant
  /** Names of buckets, and the units of each. */
  readonly buckets: readonly string[]
  readonly units: readonly number[]
  /** An unused grant to refund, and how much of it. */
  readonly back: { readonly id: string; readonly units: readonly number[] } | undefined
  /** The running job that requests it, and its claim; undefined: a taker does. */
  readonly job?: { readonly id: string; readonly claim: string }
  /**
   * The taker that requests it: the fields of engine.taker (takes/records.sql), in which infinity becomes null; undefined:
   * a job does.
   */
  readonly taker?: Readonly<Record<'line' | 'n' | 'wait' | 'holder' | 'life', string | number | null>>
}

interface Row {
  /** The place of its request in the statement, from 1. */
  ord: number
  granted: boolean
  lost: boolean
  wait_us: string | null
  soonest_us: string | null
  capacity: string | null
  now_us: string
  waited_us: string
  life_us: string | null
  n: string | null
  fresh_us: string | null
  redis_epoch: string | null
  lacking: boolean[] | null
  on_trial: boolean | null
  ahead_us: string | null
}

/** The store's result, with the times of the request; the other fields as in takes/acquire_grants.sql. */
export interface StoreAnswer extends Row {
  /** The time just before this request was sent. */
  readonly requestedAt: Moment
  /** When it was decided, or a little earlier, in monotonic ms. */
  readonly decidedMs: number
  /** Monotonic ms from which the grant's life counts. */
  readonly fromMs: number
  /** Monotonic ms before which nothing may be sent under it; undefined: it was not granted ahead of time. */
  readonly notBeforeMs: number | undefined
}

/** The result of the second limiter (`PeerLimiter`). */
export interface PeerAnswer {
  /** Monotonic ms from which the grant's life counts; undefined: not confirmed, so the grant must be refunded. */
  readonly fromMs: number | undefined
  /** Monotonic ms before which nothing may be sent under it; undefined: at once. */
  readonly notBeforeMs?: number | undefined
  /** When it was not confirmed: after how many ms another grant may be requested. */
  readonly waitMs: number
  /** The grant's id there; undefined: no second limiter was needed. */
  readonly id: string | undefined
}

/** The line of takers' requests. */
export type GrantLine = Turnstile<GrantRequest, StoreAnswer>

/** A grant of unknown age counts as this old. */
const ageMsMax = 86_400_000

function hashAll(buckets: readonly string[]): string[] {
  return [...new Set(buckets.map(hash64))]
}

/** A request under limits. */
export interface Limited {
  readonly buckets: readonly string[]
  /** The limits of the takes. */
  readonly limits: readonly Pick<Limit, 'name' | 'circuit' | 'currency'>[]
}

/** Returns how many failures in a row hold this bucket; infinity: its limit has no circuit. */
function circuitOfBucket({ limits }: Limited, bucket: string): number {
  return limits.find(({ name }) => name === limitOf(bucket))?.circuit || Infinity
}

/** Returns the buckets whose limits have a circuit. Only they count failures, whatever limits stand beside them. */
function bucketsWithCircuit(request: Limited): string[] {
  return request.buckets.filter((bucket) => circuitOfBucket(request, bucket) < Infinity)
}

/** A request that the vendor refused, or failed to serve. */
export interface Sent extends Limited {
  /** When its grant was requested; undefined: unknown, long ago. */
  readonly requestedAt: Moment | undefined
  /** The job, or the take. */
  readonly who: string
  /** It was a trial: the vendor had refused requests before. */
  readonly isTrial: boolean
}

/** The buckets that a bad answer concerns, and the request's others; `isAgain`: only those that are on trial. */
type Opened = Record<'concerned' | 'others', readonly string[]> & { isAgain?: boolean }

/** Requests grants from the store and from a second limiter. */
export class Acquirer {
  readonly #store: Store
  readonly #storeClock: StoreClock
  readonly #peer: PeerLimiter | undefined
  readonly #circuit: Circuit

  constructor(store: Store, storeClock: StoreClock, peer: PeerLimiter | undefined) {
    this.#store = store
    this.#storeClock = storeClock
    this.#peer = peer
    this.#circuit = circuitOf(store)
  }

  /** Sends one request to the store. @throws AttemptError SLUICE_PARKED */
  async request(request: GrantRequest): Promise<StoreAnswer> {
    const [answer] = await this.requestTogether([request])
    return answer as StoreAnswer
  }

  /**
   * Sends requests to the store in one statement; resolves to their answers, in the same order. All want the same units of
   * the same buckets. Several are of takers.
   * @throws AttemptError SLUICE_PARKED
   */
  async requestTogether(requests: readonly GrantRequest[]): Promise<StoreAnswer[]> {
    const [{ buckets, units, job }] = requests as [GrantRequest]
    const { clock } = this.#store
    const requestedAt = readMoment(clock)
    const sentMs = requestedAt.monotonicMs
    const wants = requests.map(({ pending, back, taker }) => {
      return {
        ...taker,
        id: pending.id,
        requested_ago: pending.requestedAt && Math.ceil(agoMs(clock, pending.requestedAt) * 1_000),
        back: back?.id,
        back_units: back?.units,
      }
    })
    const isFirst = requests.map(({ pending }) => pending.requestedAt === undefined)
    for (const { pending } of requests) pending.requestedAt ??= requestedAt
    const cap = this.#storeClock.cap(sentMs)
    const params = [JSON.stringify(wants), buckets, units, cap, job?.id ?? null, job?.claim ?? null]
    const rows = await failIfParked(this.#store, buckets, () => this.#store.call<Row>('acquire_grants', params))
    const answeredMs = clock.monotonicMs()
    return requests.map(({ pending }, i) => {
      const row = rows.find(({ ord }) => ord === i + 1)
      if (row === undefined) throw new StoreError('SLUICE_STORE_UNREACHABLE', 'a grant was answered without a row')
      const decided = decidedBetween({ waited_us: row.waited_us, took_us: null }, sentMs, answeredMs)
      const [firstMs, lastMs] = this.#storeClock.recordReading(Number(row.now_us), decided)
      // A repeated request may have been granted the first time.
      const decidedMs = isFirst[i] === true ? firstMs : (pending.requestedAt ?? requestedAt).monotonicMs
      const aheadMs = Number(row.ahead_us ?? 0) / 1_000
      const notBeforeMs = aheadMs > 0 ? lastMs + aheadMs : undefined
      return { ...row, requestedAt, decidedMs, fromMs: decidedMs + aheadMs, notBeforeMs }
    })
  }

  /** Keeps takers in the store's line while their requests wait here to be sent. */
  async renewTakers(requests: readonly GrantRequest[]): Promise<void> {
    const lines = requests.flatMap(({ taker }) => taker?.line ?? [])
    await this.#store.call('renew_takers', [lines, this.#storeClock.cap(this.#store.clock.monotonicMs())])
  }

  /** Requests that the second limiter confirms a grant of the store. */
  async confirm({ pending, buckets, units, job }: GrantRequest, answer: StoreAnswer): Promise<PeerAnswer> {
    const { redis_epoch: epoch, decidedMs, fromMs, notBeforeMs, fresh_us: lifeUs } = answer
    if (this.#peer === undefined) return { fromMs, notBeforeMs, waitMs: 0, id: undefined }
    const wishes = [{ buckets, units, count: 1, lifeMs: Number(lifeUs ?? 0) / 1_000, notBeforeMs }]
    const isFurther = job !== undefined
    const peerRequest = {
      wishes,
      epoch: epoch ?? undefined,
      sentMs: decidedMs,
      requestedAt: pending.requestedAt,
      isFurther,
    }
    const { id, decisions } = await this.#peer.confirm(peerRequest)
    const decision = decisions[0] as PeerDecision
    if (decision.granted === 0) {
      await decision.held
      return { fromMs: undefined, waitMs: decision.waitMs, id }
    }
    const latestMs = Math.max(decision.notBeforeMs ?? 0, notBeforeMs ?? 0)
    return { fromMs: decision.fromMs ?? fromMs, notBeforeMs: latestMs, waitMs: 0, id }
  }

  /**
   * Records a bad answer of the vendor's, which holds the buckets that it concerns. A refusal holds them at once. A
   * failure holds them when there are enough in a row (takes/circuit.ts), or when the request was a trial.
   * @returns for how long buckets are held, in ms; undefined: none is
   */
  async recordRefusal(request: Sent, refusal: Refusal): Promise<number | undefined> {
    const { buckets, requestedAt } = request
    const { retryAfterMs, cause = 'refused', answer, host = null } = refusal
    const { concerned, others } = splitByRefusal(buckets, refusal.limit, request.limits)
    if (cause === 'refused') this.#peer?.hold(concerned, retryAfterMs ?? minWaitMs)
    // A vendor that refuses a request, or rejects its credential, is not down.
    if (cause !== 'down') this.recordServed(request, requestedAt, 'credential')
    if (cause === 'credential' && request.isTrial)
      await this.recordAccepted(request, requestedAt, host ?? undefined, cause)
    const opened: Opened | undefined =
      cause === 'refused' ? { concerned, others } : await this.#countFailure(request, refusal.limit, cause)
    if (opened === undefined) return undefined
    const waitUs = retryAfterMs === undefined ? null : Math.ceil(retryAfterMs * 1_000)
    const names = [hashAll(opened.concerned), hashAll(opened.others)]
    const refuse = () => {
      const params = [...names, waitUs, ...this.#ageAndCap(requestedAt), answer, cause, host, opened.isAgain === true]
      return this.#store.call<{ held: string[]; wait_us: string }>('refuse_buckets', params)
    }
    const [row] = await repeatAfterParking(this.#store, buckets, refuse)
    const held = buckets.filter((bucket) => row?.held.includes(hash64(bucket)))
    if (held.length === 0) return undefined
    const waitMs = Number(row?.wait_us ?? 0) / 1_000
    this.#peer?.hold(held, waitMs)
    this.#store.report.emit('held', { limits: held, forMs: waitMs, why: answer, cause })
    return waitMs
  }

  /** Counts a failure; returns the buckets that it opens the circuit of, undefined if none. */
  async #countFailure(request: Sent, limit: string | undefined, cause: Failing): Promise<Opened | undefined> {
    const { buckets, requestedAt, who, isTrial } = request
    const watched = bucketsWithCircuit(request)
    if (watched.length === 0) return undefined
    const { concerned } = splitByRefusal(watched, limit)
    const leastOf = (bucket: string) => circuitOfBucket(request, bucket)
    const failed = { cause, buckets, concerned, who, least: Math.min(...concerned.map(leastOf)), requestedAt }
    const opens = await this.#circuit.recordFailure(failed, this.#storeClock.cap(this.#store.clock.monotonicMs()))
    if (opens === 'own') return { concerned, others: [] }
    return opens === 'all' || isTrial ? { concerned: watched, others: [], isAgain: opens === 'none' } : undefined
  }

  /** Remembers that the vendor served a request, which ends a row of failures. */
  recordServed(request: Limited, requestedAt: Moment | undefined, but?: Cause): void {
    if (!this.#circuit.isWatching) return
    const watched = bucketsWithCircuit(request)
    if (watched.length > 0) this.#circuit.recordServed(request.buckets, ownOf(watched), requestedAt, but)
  }

  /**
   * Records that the vendor accepted a request, after it had refused others: see `recordRefusal`.
   * @param host who answered; undefined: not known
   * @param but it shows nothing about this cause
   */
  async recordAccepted(request: Limited, requested: Moment | undefined, host?: string, but?: Cause): Promise<void> {
    const { buckets } = request
    const params = [hashAll(buckets), ...this.#ageAndCap(requested), host ?? null, but ?? null]
    await repeatAfterParking(this.#store, buckets, () => this.#store.call('accept_buckets', params))
    await this.#circuit.endFailures(buckets, ownOf(bucketsWithCircuit(request)), but)
  }

  /** Charges these buckets, now and then, for units that somebody else has used, as a vendor's counts show. */
  recordCounts(buckets: readonly string[], limits: readonly Counted[], counts: readonly Count[]): void {
    const { clock } = this.#store
    othersUseOf(this.#store).recordCounts(buckets, limits, counts, () => this.#storeClock.cap(clock.monotonicMs()))
  }

  /** Charges the buckets of these limits once more, for a request that may have arrived later than their margins allow. */
  async chargeAgain(buckets: readonly string[], units: readonly number[], limits: ReadonlySet<string>): Promise<void> {
    const charged = buckets.flatMap((bucket, i) =>
      limits.has(limitOf(bucket)) ? [[bucket, units[i] ?? 1] as const] : [],
    )
    const some = charged.filter(([, count]) => count > 0)
    if (some.length === 0) return
    const [names, counts] = [some.map(([bucket]) => bucket), some.map(([, count]) => count)]
    const capUs = this.#storeClock.cap(this.#store.clock.monotonicMs())
    // First here: the state of an epoch that begins meanwhile is built from the ledger.
    const params = [names.map(hash64), counts, capUs]
    const charge = () => this.#store.call<{ charge_again: string | null }>('charge_again', params)
    const [row] = await repeatAfterParking(this.#store, names, charge)
    await this.#peer?.chargeAgain(names, counts, row?.charge_again ?? undefined)
  }

  /** Returns the age of a grant in microseconds, and the latest time that the store's clock can show. */
  #ageAndCap(requested: Moment | undefined): [number, number | null] {
    const { clock } = this.#store
    const ageMs = requested === undefined ? ageMsMax : agoMs(clock, requested)
    return [Math.ceil(Math.min(ageMsMax, ageMs) * 1_000), this.#storeClock.cap(clock.monotonicMs())]
  }

  /** As the function of the same name. */
  repeatUntilGranted<G>(loop: GrantLoop<G>, unused: G | undefined, signal: AbortSignal | undefined): Promise<G> {
    return repeatUntilGranted(this.#store.clock, loop, unused, signal)
  }
}

/** Returns how long ago a moment was, in ms. */
const agoMs = (clock: Clock, moment: Moment) => caughtUpMs(clock, moment) - moment.monotonicMs
