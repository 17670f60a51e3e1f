/** Grants of attempts that a worker without a store takes in Redis. */
import { limitOf } from '../core/bucket.ts'
import { caughtUpMs, type Clock, type Moment } from '../core/clock.ts'
import { StoreError } from '../core/errors.ts'
import type { ClaimedJob } from '../claim/claimed-job.ts'
import { unitsOf } from '../claim/peer-grants.ts'
import type { RequestCost } from '../http/allowance.ts'
import type { Refusal } from '../http/feedback.ts'
import type { Grant } from '../http/send-check.ts'
import type { Limit } from '../limits/limit.ts'
import { splitByRefusal } from '../takes/concerned-buckets.ts'
import { minWaitMs } from '../vendors/time.ts'
import type { AttemptGrants, Granted, GrantSource } from '../worker/grant-source.ts'
import { lateMax, tooLateError } from '../worker/attempt-errors.ts'
import { requestUnits } from '../worker/named-units.ts'
import type { DirectLimiter } from './limiter.ts'

/** A grant in Redis. */
interface DirectGrant extends Grant {
  readonly id: string
  readonly lifeMs: number
  /** Units of each bucket; 0 for a limit that was settled. */
  readonly units: number[]
}

/** How long a further request waits for a Redis that is away, in ms. */
const awayMsMax = 5_000
const retryMs = 250
const waitMsMax = 5_000

/** Redis as the source of attempts' grants; without a limiter no task has limits. */
export class DirectGrantSource implements GrantSource {
  readonly isWatching = false
  readonly #limiter: DirectLimiter | undefined
  readonly #clock: Clock

  constructor(limiter: DirectLimiter | undefined, clock: Clock) {
    this.#limiter = limiter
    this.#clock = clock
  }

  async waitUntilReady(): Promise<void> {}

  grantsOf(granted: Granted): AttemptGrants {
    return new DirectGrants(granted, this.#limiter, this.#clock)
  }

  refund(job: ClaimedJob): void {
    const { buckets, units } = unitsOf(job)
    if (job.grant !== undefined) this.#limiter?.refund(job.grant, buckets, units)
  }

  recordAge(): void {}

  applyStatedMargin(): void {}
}

class DirectGrants implements AttemptGrants {
  readonly own: DirectGrant | undefined
  readonly #limits: readonly Limit[]
  readonly #limiter: DirectLimiter | undefined
  readonly #clock: Clock
  readonly #buckets: readonly string[]
  readonly #costs: readonly number[]
  readonly #used: DirectGrant[] = []

  constructor({ job, limits, grantMs }: Granted, limiter: DirectLimiter | undefined, clock: Clock) {
    this.#limits = limits
    this.#limiter = limiter
    this.#clock = clock
    const { buckets, units } = unitsOf(job)
    this.#buckets = buckets
    this.#costs = units
    if (grantMs === undefined || job.grant === undefined) return
    this.own = this.#createGrant(job.grant, job.grantedMs, grantMs, job.requestedAt, units)
    this.#used.push(this.own)
  }

  #createGrant(
    id: string,
    fromMs: number,
    lifeMs: number,
    requestedAt: Moment | undefined,
    units: readonly number[],
  ): DirectGrant {
    return { id, deadlineMs: fromMs + lifeMs, lifeMs, requestedAt, units: [...units] }
  }

  async take(
    signal: AbortSignal,
    beforeWait: (waitMs: number) => void,
    unused?: Grant,
    cost?: RequestCost,
  ): Promise<DirectGrant | undefined> {
    const units = requestUnits(cost, this.#limits, this.#buckets.map(limitOf), this.#costs)
    if (this.own === undefined) return undefined
    if (unused !== undefined) await this.giveBack(unused)
    let awaySinceMs: number | undefined
    for (let late = 0; ; signal.throwIfAborted()) {
      const { grant, waitMs } = await this.#requestGrant(units)
      if (grant !== undefined && caughtUpMs(this.#clock, grant.requestedAt) < grant.deadlineMs) {
        this.#used.push(grant)
        return grant
      }
      if (grant !== undefined) {
        await this.giveBack(grant)
        if (++late >= lateMax) throw tooLateError(grant.lifeMs, 'Redis')
        continue
      }
      const nowMs = this.#clock.monotonicMs()
      awaySinceMs = waitMs === undefined ? (awaySinceMs ?? nowMs) : undefined
      if (awaySinceMs !== undefined && nowMs - awaySinceMs > awayMsMax) throw awayError()
      beforeWait(waitMs ?? retryMs)
      await this.#clock.sleep(Math.min(waitMs ?? retryMs, waitMsMax), signal)
    }
  }

  /** Requests a grant once. `waitMs` undefined: Redis is away. */
  async #requestGrant(units: readonly number[]): Promise<{ grant?: DirectGrant; waitMs?: number }> {
    const answer = await this.#limiter?.take([{ buckets: this.#buckets, units, count: 1 }], true)
    const [got] = answer?.got ?? []
    if (answer === undefined || got === undefined) return {}
    if (got.granted === 0) return { waitMs: Math.max(1, got.waitMs) }
    return {
      grant: this.#createGrant(answer.id, answer.requestedAt.monotonicMs, got.lifeMs, answer.requestedAt, units),
    }
  }

  async giveBack(unused: Grant): Promise<void> {
    const { id, units } = unused as DirectGrant
    const at = this.#used.indexOf(unused as DirectGrant)
    if (at >= 0) this.#used.splice(at, 1)
    this.#limiter?.refund(id, this.#buckets, units)
  }

  async recordRefusal(refusal: Refusal): Promise<number | undefined> {
    // A failure of the vendor holds nothing: only a store counts how many there are in a row.
    if (this.#buckets.length === 0 || refusal.cause !== undefined) return undefined
    const waitMs = refusal.retryAfterMs ?? minWaitMs
    this.#limiter?.hold(splitByRefusal(this.#buckets, refusal.limit, this.#limits).concerned, waitMs)
    return waitMs
  }

  recordAccepted(): void {}

  recordCounts(): void {}

  recordEnd(): void {}

  usage(): Record<string, never> {
    return {}
  }

  async settle(used: RequestCost): Promise<void> {
    for (const [name, units] of Object.entries(used)) this.#settleOne(name, units)
  }

  /** Reductions are taken from the oldest grants first, as the store does. */
  #settleOne(name: string, units: number): void {
    const at = this.#buckets.findIndex((bucket) => limitOf(bucket) === name)
    const bucket = this.#buckets[at]
    if (bucket === undefined) return
    let left = units - this.#used.reduce((sum, grant) => sum + (grant.units[at] ?? 0), 0)
    for (const grant of this.#used) {
      const part = Math.max(left, -(grant.units[at] ?? 0))
      this.#limiter?.settle(grant.id, bucket, part)
      grant.units[at] = 0
      left -= part
    }
  }
}

function awayError(): StoreError {
  return new StoreError(
    'SLUICE_REDIS_UNREACHABLE',
    'Redis is away, so no grant for a further request can be taken; another attempt may succeed',
  )
}
