/** Where a worker's attempts get their grants. */
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
  /** Settles what the attempt has really used, by limit; a number alone if only one limit has costs. @throws UsageError SLUICE_BAD_COST */
  settle(actual: number | RequestCost, signal: AbortSignal): Promise<void>
  /** The attempt has ended: the vendor `served` what it sent last, or the job is `done` although the vendor did not. */
  ended(shown: 'served' | 'done'): void
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
  /** True while it matters that a request was served (`AttemptGrants.ended`). */
  readonly isWatching: boolean
  /** Resolves when attempts of tasks with these limits may begin. */
  ready(limits: readonly Limit[]): Promise<unknown>
  grantsOf(granted: Granted): AttemptGrants
  /** The grant that an attempt was to begin with is not used. */
  unused(job: ClaimedJob): void
  /** A handler may be called at this age of its grant, in ms; `isLate`: it was too old for that. */
  aged(limits: readonly Limit[], ageMs: number, isLate: boolean): void
  /** A handler may have sent something in a way that is not measured. */
  unmeasured(limits: readonly Limit[]): void
}

/** The parts of a store that attempts use themselves. */
export type Surroundings = Pick<Store, 'clock' | 'log' | 'report'> & { db: Pick<Db, 'checkOutside'> }

/** What a worker with a store has for its attempts. */
interface StoreSide {
  store: Store
  storeClock: StoreClock
  /** Limits whose state is in Redis. */
  shared: PeerLimiter | undefined
  rulebook: Rulebook
}

/** Returns what the attempts of a worker with a store need of it. */
export function attemptsOn(side: StoreSide): { store: Store; source: GrantSource; opens: OpeningReader } {
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

  async ready(limits: readonly Limit[]): Promise<void> {
    await this.#options.shared?.ready()
    await marginsOf(this.#options.store).join(limits)
  }

  grantsOf(granted: Granted): AttemptGrants {
    const { store, storeClock, shared, rulebook } = this.#options
    return new StoreGrants({ store, storeClock, shared, estimates: rulebook.estimates, ...granted })
  }

  /** The store refunds its own when it records the outcome. */
  unused(job: ClaimedJob): void {
    const { takes, units } = unitsOf(job)
    if (job.grant !== undefined) this.#options.shared?.unused(job.grant, takes, units)
  }

  aged(limits: readonly Limit[], ageMs: number, isLate: boolean): void {
    marginsOf(this.#options.store).aged(limits, ageMs, isLate)
  }

  unmeasured(limits: readonly Limit[]): void {
    marginsOf(this.#options.store).unmeasured(limits)
  }
}
