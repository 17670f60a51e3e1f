/** The leases of one Sluice: what the store's answers grant to takes. */
import type { Clock, Moment } from '../core/clock.ts'
import { closedError } from '../core/errors.ts'
import { RecentMap } from '../core/recent-map.ts'
import type { Margins } from '../claim/definitions/margins.ts'
import type { PeerLimiter } from '../limits/peer.ts'
import type { Acquirer, StoreAnswer } from './acquire.ts'
import type { GrantResult, PendingGrant } from './grant-loop.ts'
import type { LeaseHolder } from './lease-holder.ts'
import { TakenGrant } from './lease.ts'
import { aboveCapacityError } from './take-errors.ts'
import type { TakeRequest } from './take-request.ts'

/** Parameters of `Leases`; see the fields. */
export interface LeasesOptions {
  readonly clock: Clock
  readonly peer: PeerLimiter | undefined
  readonly holder: LeaseHolder
  readonly acquirer: Acquirer
  readonly margins: Margins
}

const neverUs = '9007199254740991'
/** How many buckets on trial are remembered: the newest. */
const bucketsMax = 10_000

/** Returns how long a request may begin under a grant, in ms. */
export const freshMs = ({ fresh_us }: StoreAnswer) => (fresh_us === null ? Infinity : Number(fresh_us) / 1_000)

/** Returns whether more than half of a grant's life is over. */
export const isHalfOver = (answer: StoreAnswer, nowMs: number) =>
  answer.granted && nowMs - answer.decidedMs > freshMs(answer) / 2

/** Makes leases, and records which of them hold places. */
export class Leases {
  readonly #options: LeasesOptions
  /** For each bucket whose requests the vendor has refused, when the newest grant for a trial was requested. */
  readonly #trials = new RecentMap<string, Moment>(bucketsMax)
  readonly #held = new Set<TakenGrant>()

  constructor(options: LeasesOptions) {
    this.#options = options
  }

  /** Returns when the newest grant for a trial of these buckets was requested; undefined: there is none. */
  trialOf(buckets: readonly string[]): Moment | undefined {
    return buckets.map((bucket) => this.#trials.get(bucket)).findLast((moment) => moment !== undefined)
  }

  /** Forgets the trials of these buckets, because the vendor accepts requests again. */
  recordAccepted(buckets: readonly string[]): void {
    for (const bucket of buckets) this.#trials.delete(bucket)
  }

  /** Ends all leases that hold places. */
  async close(): Promise<void> {
    const held = [...this.#held]
    for (const lease of held) lease.lose(closedError())
    await Promise.all(held.map((lease) => lease.release()))
  }

  /** Reads the store's answer to a request: the lease that it grants, or when to try again. */
  read(want: TakeRequest, pending: PendingGrant, answer: StoreAnswer): GrantResult<TakenGrant> {
    // The grant belongs to a holder that was given up meanwhile, so nothing renews its places. An answer of `lost` does
    // not concern the present holder.
    const isOld = pending.holder !== this.#options.holder.id
    if (answer.lost) {
      if (!isOld) this.#options.holder.dropLost()
      return {}
    }
    if (!answer.granted) {
      if (answer.capacity !== null) throw aboveCapacityError(want, Number(answer.capacity))
      const soonestMs = answer.soonest_us === neverUs ? 0 : Number(answer.soonest_us ?? 0) / 1_000
      const lacking = want.buckets.filter((_, i) => answer.lacking?.[i] !== false)
      const waitMs = Math.max(1, Number(answer.wait_us ?? 1_000_000) / 1_000)
      return { soonestMs, waitMs, lacking, place: Number(answer.n ?? Infinity) }
    }
    if (isOld && answer.life_us !== null) {
      void this.#options.holder.end(pending.id, want.buckets, want.costs)
      return {}
    }
    for (const bucket of want.buckets)
      if (answer.on_trial !== true) this.#trials.delete(bucket)
      else if (pending.requestedAt !== undefined) this.#trials.set(bucket, pending.requestedAt)
    const lease = this.make(want, pending.id, answer.fromMs, answer, pending.requestedAt)
    if (answer.life_us !== null) {
      this.#held.add(lease)
      this.#options.holder.hold(lease.id, answer.requestedAt, Number(answer.life_us) / 1_000, (reason) =>
        lease.lose(reason),
      )
    }
    return { grant: lease }
  }

  /** Makes the lease of a grant; without `row` of a grant for which nothing was charged. */
  make(want: TakeRequest, id: string, fromMs: number, row?: StoreAnswer, requestedAt?: Moment): TakenGrant {
    const { margins, acquirer } = this.#options
    const lifeMs = row === undefined ? Infinity : freshMs(row)
    const lease = new TakenGrant({
      id,
      want,
      clock: this.#options.clock,
      holder: this.#options.holder,
      deadlineMs: fromMs + lifeMs,
      lifeMs,
      requestedAt,
      hasPlace: row !== undefined && row.life_us !== null,
      isUncharged: row === undefined,
      isTrial: row?.on_trial === true,
      place: Number(row?.n ?? Infinity),
      recordAge: (ageMs, isLate) => margins.recordAge(want.limits, ageMs, isLate),
      way: margins.measureWay(want.limits, (limits) => acquirer.chargeAgain(want.buckets, want.costs, limits)),
      onEnd: () => {
        this.#held.delete(lease)
        if (lease.peerGrant !== undefined) this.#options.peer?.freePlaces(lease.peerGrant, want.buckets)
      },
      refund: ({ peerGrant }) => peerGrant && this.#options.peer?.refund(peerGrant, want.buckets, want.costs),
      settled: ({ peerGrant }, bucket, more) => peerGrant && this.#options.peer?.settle(peerGrant, bucket, more),
    })
    return lease
  }
}
