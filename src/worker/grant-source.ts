/** The source from which a worker's attempts get their grants. */
import type { StoreClock } from '../core/clock.ts'
import type { Db } from '../db/db.ts'
import type { Store } from '../db/store.ts'
import type { ClaimedJob } from '../claim/claimed-job.ts'
import { unitsOf } from '../claim/peer-grants.ts'
import { marginsOf } from '../claim/definitions/margins.ts'
import type { AttemptReport } from '../claim/finish/attempt-report.ts'
import { createOpeningReader, type OpeningReader } from '../gates/gates.ts'
import type { Grants, RequestCost } from '../http/allowance.ts'
import type { Limit } from '../limits/limit.ts'
import type { PeerLimiter } from '../limits/peer.ts'
import { circuitOf } from '../takes/circuit.ts'
import type { Rulebook } from '../tasks/rule.ts'
import { StoreGrants } from './grants.ts'

/** The grants of one attempt. */
export interface AttemptGrants extends Grants {
  /** Settles what the attempt has really used, by limit. */
  settle(used: RequestCost, signal: AbortSignal): Promise<void>
  /**
   * Records that the attempt has ended: the vendor `served` its last request, or the job is `done` although the vendor
   * did not.
   */
  recordEnd(shown: 'served' | 'done'): void
  /** Returns what was charged and settled, as far as it differs from the job's costs. */
  usage(): Pick<AttemptReport, 'units' | 'settled'>
}

/** An attempt that has grants. */
export interface Granted {
  job: ClaimedJob
  /** The limits of the job's task. */
  limits: readonly Limit[]
  /** Life of a grant in ms; undefined when the job has no limits. */
  grantMs: number | undefined
}

/** Gives attempts their grants. */
export interface GrantSource {
  /** True while it matters that a request was served (`AttemptGrants.recordEnd`). */
  readonly isWatching: boolean
  /** Resolves when attempts of tasks with these limits may begin. */
  waitUntilReady(limits: readonly Limit[]): Promise<unknown>
  grantsOf(granted: Granted): AttemptGrants
  /** Gives back the grant with which an attempt was to begin, because it was not used. */
  refund(job: ClaimedJob): void
  /** Records the age of a grant at the call of its handler, in ms; `isLate`: it was too old for the call. */
  recordAge(limits: readonly Limit[], ageMs: number, isLate: boolean): void
  /** Records that a handler may have sent requests whose way is not measured. */
  applyStatedMargin(limits: readonly Limit[]): void
}

/** The parts of a store that attempts use themselves. */
export type Surroundings = Pick<Store, 'clock' | 'log' | 'report'> & { db: Pick<Db, 'checkOutside'> }

/** The parts of a worker with a store that its attempts use. */
interface StoreSide {
  store: Store
  storeClock: StoreClock
  /** Limits whose state is in Redis. */
  peer: PeerLimiter | undefined
  rulebook: Rulebook
}

/** Returns the parts of a store that a worker's attempts need. */
export function createAttemptParts(side: StoreSide): { store: Store; source: GrantSource; opens: OpeningReader } {
  return { store: side.store, source: new StoreGrantSource(side), opens: createOpeningReader(side.store) }
}

/** The store as the source, and a second limiter that must also grant, if there is one. */
class StoreGrantSource implements GrantSource {
  readonly #options: StoreSide

  constructor(options: StoreSide) {
    this.#options = options
  }

  get isWatching(): boolean {
    return circuitOf(this.#options.store).isWatching
  }

  async waitUntilReady(limits: readonly Limit[]): Promise<void> {
    await this.#options.peer?.waitUntilReady()
    await marginsOf(this.#options.store).join(limits)
  }

  grantsOf(granted: Granted): AttemptGrants {
    const { store, storeClock, peer, rulebook } = this.#options
    return new StoreGrants({ store, storeClock, peer, estimates: rulebook.estimates, ...granted })
  }

  /** The store refunds its own when it records the outcome. */
  refund(job: ClaimedJob): void {
    const { buckets, units } = unitsOf(job)
    if (job.grant !== undefined) this.#options.peer?.refund(job.grant, buckets, units)
  }

  recordAge(limits: readonly Limit[], ageMs: number, isLate: boolean): void {
    marginsOf(this.#options.store).recordAge(limits, ageMs, isLate)
  }

  applyStatedMargin(limits: readonly Limit[]): void {
    marginsOf(this.#options.store).applyStatedMargin(limits)
  }
}
