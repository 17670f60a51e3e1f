/** The grants of one attempt: the grant of its claim, and one for each further request. */
import { limitOf } from '../core/bucket.ts'
import { caughtUpMs, type Moment, readMoment, sleepUntil, type StoreClock } from '../core/clock.ts'
import { AttemptError, StoreError } from '../core/errors.ts'
import { newId } from '../core/hash.ts'
import { retryPauseMs } from '../core/retry.ts'
import type { Store } from '../db/store.ts'
import { Acquirer } from '../takes/acquire.ts'
import type { GrantLoop, GrantResult, PendingGrant } from '../takes/grant-loop.ts'
import { isTransient } from '../claim/claim.ts'
import { marginsOf } from '../claim/definitions/margins.ts'
import { repeatAfterParking } from '../claim/parking/parked.ts'
import type { ClaimedJob } from '../claim/claimed-job.ts'
import type { AttemptReport } from '../claim/finish/attempt-report.ts'
import type { Estimates } from '../tasks/estimate.ts'
import type { Grants, RequestCost } from '../http/allowance.ts'
import type { Refusal } from '../http/feedback.ts'
import type { Grant } from '../http/send-check.ts'
import type { Cause } from '../limits/circuit.ts'
import type { Limit } from '../limits/limit.ts'
import type { PeerLimiter } from '../limits/peer.ts'
import type { ChargeAgain } from '../limits/samples.ts'
import type { Count } from '../vendors/answer.ts'
import { lateMax, noRedisError, staleWithoutRedisError, tooLateError } from './attempt-errors.ts'
import { requestUnits } from './named-units.ts'

/** Parameters of `StoreGrants`; see the fields. */
export interface GrantsOptions {
  store: Store
  storeClock: StoreClock
  job: ClaimedJob
  /** The limits of the job's task. */
  limits: readonly Limit[]
  /** Life of a grant in ms; undefined when the job has no limits. */
  grantMs: number | undefined
  /** A second limiter that must also grant; default none. */
  peer?: PeerLimiter | undefined
  /** Learns what attempts really use. */
  estimates?: Estimates | undefined
}

interface StoreGrant extends Grant {
  /** How long it lives, in ms. */
  readonly lifeMs: number
  /** Its id in the ledger. */
  readonly id: string
  /** Units that it took of each of the job's buckets; 0 for a limit that was settled. */
  readonly units: number[]
  /** Its id in the second limiter. */
  readonly peerGrant?: string | undefined
  /** The vendor has refused requests before: this one shows whether it accepts them again. */
  readonly isTrial: boolean
}

function jobLostError(): AttemptError {
  return new AttemptError('SLUICE_JOB_LOST', 'the job was taken from this worker; no further calls are made', {
    retryable: false,
  })
}

/** Longest sleep while waiting for a grant, in ms: meanwhile the limit may be changed, or its bucket released. */
const waitMostMs = 5_000

/** Grants of a job from the store. */
export class StoreGrants implements Grants {
  readonly own: StoreGrant | undefined
  readonly #options: GrantsOptions
  readonly #acquirer: Acquirer
  readonly #buckets: readonly string[]
  /** The names of the limits of `#takes`. */
  readonly #names: readonly string[]
  readonly #costs: readonly number[]
  /** Grants under which requests were sent, or may be. */
  readonly #used: StoreGrant[] = []
  /** Units charged for each bucket by all requests, and what was settled: for the job's record. */
  readonly #charged: number[]
  readonly #settled: (number | null)[]
  /** Buckets whose use was reported to the second limiter. */
  readonly #reported = new Set<number>()

  constructor(options: GrantsOptions) {
    const { store, storeClock, peer, job, grantMs } = options
    this.#options = options
    this.#acquirer = new Acquirer(store, storeClock, peer)
    this.#buckets = job.chargedBuckets ?? job.buckets ?? []
    this.#names = this.#buckets.map(limitOf)
    this.#costs = job.costs?.slice(0, -1) ?? this.#buckets.map(() => 1)
    this.#charged = [...this.#costs]
    this.#settled = this.#buckets.map(() => null)
    this.own =
      grantMs === undefined
        ? undefined
        : this.#addMeters({
            id: job.claim,
            deadlineMs: job.grantedMs + grantMs,
            lifeMs: grantMs,
            requestedAt: job.requestedAt,
            units: [...this.#costs],
            peerGrant: job.grant,
            isTrial: job.isTrial === true,
          })
    if (this.own !== undefined) this.#used.push(this.own)
  }

  /** Adds the callbacks to a grant that measure the margins of its limits. */
  #addMeters(grant: StoreGrant): StoreGrant {
    const { store, limits } = this.#options
    const margins = marginsOf(store)
    grant.checked = (leftMs) => margins.recordAge(limits, grant.lifeMs - leftMs, leftMs <= 0)
    grant.way = margins.measureWay(limits, this.#chargeAgain(grant))
    return grant
  }

  /** Returns what charges a request of the grant once more; undefined: a second limiter would have to, too, that this process lacks. */
  #chargeAgain({ peerGrant, units }: StoreGrant): ChargeAgain | undefined {
    if (this.#options.peer === undefined && peerGrant !== undefined) return undefined
    // A copy, because a settlement while the answer is under way sets the grant's units to 0.
    const charged = [...units]
    return (limits) => this.#acquirer.chargeAgain(this.#buckets, charged, limits)
  }

  /**
   * Settles what the attempt has really used, by limit.
   * @throws AttemptError SLUICE_JOB_LOST, SLUICE_NO_REDIS
   */
  async settle(used: RequestCost, signal: AbortSignal): Promise<void> {
    const { limits } = this.#options
    this.#checkPeer()
    for (const [name, units] of Object.entries(used)) {
      const at = this.#names.indexOf(name)
      // The job was sent by a version of the task that did not have this limit yet.
      if (at < 0) continue
      const isFull = limits.find((limit) => limit.name === name)?.refund === 'full'
      await this.#settleOne(name, at, units, isFull, signal)
    }
  }

  async #settleOne(name: string, at: number, units: number, isFull: boolean, signal: AbortSignal): Promise<void> {
    const { store, storeClock, job } = this.#options
    const { clock } = store
    // Copied now: later grants are not part of this settlement, and units that are refunded later must not count twice.
    const took = this.#used.map(({ id, peerGrant, units: all }) => ({ id, peerGrant, units: all[at] ?? 0 }))
    // A limit with a share has two buckets.
    for (const grant of this.#used) for (const [i, own] of this.#names.entries()) if (own === name) grant.units[i] = 0
    const sum = took.reduce((all, one) => all + one.units, 0)
    this.#reportUse(at, units - sum, took)
    const ids = took.map(({ id }) => id)
    const params = [job.id, job.claim, name, units, ids, took.map((one) => one.units), isFull]
    for (let failures = 0; ;) {
      signal.throwIfAborted()
      try {
        const capUs = storeClock.cap(clock.monotonicMs())
        const settle = () => store.call<{ lost: boolean }>('settle_attempt', [...params, capUs])
        const [row] = await repeatAfterParking(store, this.#buckets, settle)
        if (row?.lost !== false) throw jobLostError()
        const isFirst = this.#settled[at] === null
        for (const [i, own] of this.#names.entries()) if (own === name) this.#settled[i] ??= units
        if (isFirst) this.#learn(name, at, units, sum)
        return
      } catch (error) {
        if (!isTransient(error) && !(error instanceof StoreError)) throw error
        await clock.sleep(retryPauseMs(failures++, clock.random()), signal)
      }
    }
  }

  /**
   * Reports the use of a bucket to the second limiter. A reduction is taken from the oldest grants first, as in the
   * store.
   */
  #reportUse(at: number, more: number, grants: readonly { peerGrant: string | undefined; units: number }[]): void {
    const { peer } = this.#options
    const bucket = this.#buckets[at] ?? ''
    // The store ignores a second settlement of a bucket.
    if (this.#reported.has(at)) return
    this.#reported.add(at)
    let left = more
    for (const { peerGrant, units } of grants) {
      if (peerGrant === undefined || left === 0) continue
      const part = Math.max(left, -units)
      peer?.settle(peerGrant, bucket, part)
      left -= part
    }
  }

  /**
   * Learns the cost of a job's input from the first settlement of a limit. If there were several requests, each is
   * assumed to have used the same part.
   */
  #learn(name: string, at: number, units: number, took: number): void {
    const { estimates, limits, job } = this.#options
    const limit = limits.find((each) => each.name === name)
    if (limit?.learn !== undefined && took > 0)
      estimates?.recordUse(job.task, limit, job.input, (units * (this.#costs[at] ?? 1)) / took)
  }

  /** Returns what was charged and settled, as far as it differs from the job's costs. */
  usage(): Pick<AttemptReport, 'units' | 'settled'> {
    const isMore = this.#charged.some((units, i) => units !== this.#costs[i])
    const isSettled = this.#settled.some((units) => units !== null)
    return { ...(isMore && { units: this.#charged }), ...(isSettled && { settled: this.#settled }) }
  }

  async take(
    signal: AbortSignal,
    beforeWait: (waitMs: number) => void,
    unused?: Grant,
    cost?: RequestCost,
  ): Promise<StoreGrant | undefined> {
    const { store, grantMs, limits } = this.#options
    const { clock } = store
    const units = requestUnits(cost, limits, this.#names, this.#costs)
    if (grantMs === undefined) return undefined
    const first = unused as StoreGrant | undefined
    if (first !== undefined) this.#isUnused(first)
    // If nothing was sent under the first one, the job goes back.
    this.#checkPeer(first === undefined ? noRedisError : staleWithoutRedisError)
    const loop: GrantLoop<StoreGrant> = {
      untilMs: Infinity,
      awayMs: Infinity,
      // The grant of the claim has the same id as the grants of the claim's other jobs.
      givesBackAgain: false,
      newGrant: () => ({ id: newId() }),
      request: (wish, back) => this.#request(wish, units, back, grantMs),
      isFresh: (grant) => caughtUpMs(clock, grant.requestedAt) < grant.deadlineMs,
      wait: async (waitMs) => {
        beforeWait(waitMs)
        await clock.sleep(Math.min(waitMs, waitMostMs), signal)
      },
      onLate: (grant, n) => {
        marginsOf(store).recordAge(
          limits,
          caughtUpMs(clock, grant.requestedAt) - (grant.deadlineMs - grant.lifeMs),
          true,
        )
        this.#isUnused(grant)
        if (n === lateMax) throw tooLateError(grantMs, 'the store')
      },
      createTimeoutError: () => tooLateError(grantMs, 'the store'),
      // A grant that the caller passed in is the caller's to refund.
      onFailed: async (back) => {
        if (back !== undefined && back !== first) await this.#giveBack(back).catch(() => {})
      },
    }
    const grant = await this.#acquirer.repeatUntilGranted(loop, first, signal)
    this.#used.push(grant)
    for (const [i, more] of grant.units.entries()) this.#charged[i] = (this.#charged[i] ?? 0) + more
    return grant
  }

  /** @throws AttemptError SLUICE_NO_REDIS: the dispatcher shares the limits in Redis, and this worker does not */
  #checkPeer(createError = noRedisError): void {
    const { job, peer } = this.#options
    if (job.grant !== undefined && peer === undefined) throw createError()
  }

  async giveBack(unused: Grant): Promise<void> {
    this.#isUnused(unused as StoreGrant)
    await this.#giveBack(unused as StoreGrant)
  }

  /** Records that nothing was sent under this grant. Call it before the grant is refunded to the store. */
  #isUnused(grant: StoreGrant): void {
    const at = this.#used.indexOf(grant)
    if (at >= 0) {
      this.#used.splice(at, 1)
      for (const [i, back] of grant.units.entries()) this.#charged[i] = (this.#charged[i] ?? 0) - back
    }
    const { peer } = this.#options
    if (grant.peerGrant !== undefined) peer?.refund(grant.peerGrant, this.#buckets, grant.units)
  }

  /**
   * Refunds a grant: a request with an id that has been charged already takes nothing, so only its refund has an effect.
   */
  async #giveBack({ id, units }: StoreGrant): Promise<void> {
    const { job } = this.#options
    await this.#acquirer.request({ pending: { id }, buckets: this.#buckets, units, back: { id, units }, job })
  }

  async recordRefusal(refusal: Refusal, grant: Grant | undefined): Promise<number | undefined> {
    const { job, limits } = this.#options
    if (this.#buckets.length === 0) return undefined
    const isTrial = ((grant as StoreGrant | undefined) ?? this.own)?.isTrial === true
    if (refusal.cause === undefined) marginsOf(this.#options.store).applyStatedMargin(limits)
    // The oldest grant is that of the claim.
    const { requestedAt } = grant ?? job
    return this.#acquirer.recordRefusal({ buckets: this.#buckets, limits, requestedAt, who: job.id, isTrial }, refusal)
  }

  recordAccepted(grant: Grant | undefined, host?: string): void {
    this.#acquirer.recordServed({ buckets: this.#buckets, limits: this.#options.limits }, grant?.requestedAt)
    this.#endTrial(grant, grant?.requestedAt, host)
  }

  /**
   * Records that the attempt has ended: the vendor `served` its last request, or the job is `done` although the vendor
   * did not, so that a failure of the vendor no longer matters.
   */
  recordEnd(shown: 'served' | 'done'): void {
    this.#acquirer.recordServed({ buckets: this.#buckets, limits: this.#options.limits }, this.#options.job.requestedAt)
    if (shown === 'served') this.#endTrial(this.own, this.own?.requestedAt)
    else this.#endTrial(this.own, readMoment(this.#options.store.clock), undefined, 'refused')
  }

  #endTrial(grant: Grant | undefined, requestedAt: Moment | undefined, host?: string, but?: Cause): void {
    if ((grant as StoreGrant | undefined)?.isTrial !== true) return
    // If the store does not receive it, the next accepted request does the same.
    void this.#acquirer
      .recordAccepted({ buckets: this.#buckets, limits: this.#options.limits }, requestedAt, host, but)
      .catch(() => {})
  }

  recordCounts(counts: readonly Count[]): void {
    this.#acquirer.recordCounts(this.#buckets, this.#options.limits, counts)
  }

  /** Requests a grant from the store, then from the second limiter. */
  async #request(
    pending: PendingGrant,
    units: readonly number[],
    back: StoreGrant | undefined,
    grantMs: number,
  ): Promise<GrantResult<StoreGrant>> {
    const { job } = this.#options
    const request = { pending, buckets: this.#buckets, units, back, job }
    const answer = await this.#acquirer.request(request)
    if (answer.lost) throw jobLostError()
    if (!answer.granted) return { waitMs: Math.max(1, Number(answer.wait_us ?? 1_000) / 1_000) }
    const { fromMs, notBeforeMs, waitMs, id } = await this.#acquirer.confirm(request, answer)
    await sleepUntil(this.#options.store.clock, notBeforeMs)
    // The definition that granted it may not be the one of the attempt's own grant.
    const lifeMs = Number(answer.fresh_us ?? grantMs * 1_000) / 1_000
    const deadlineMs = (fromMs ?? answer.fromMs) + lifeMs
    const isTrial = answer.on_trial === true
    const grant = {
      id: pending.id,
      deadlineMs,
      lifeMs,
      requestedAt: pending.requestedAt,
      units: [...units],
      isTrial,
      peerGrant: id,
    }
    if (fromMs === undefined) return { waitMs: Math.max(1, waitMs), unused: { ...grant, peerGrant: undefined } }
    return { grant: this.#addMeters(grant) }
  }
}
