/**
 * The places that this process holds outside of jobs. One statement renews the lease of all places. A place ends when
 * it is given back, or lost.
 */
import { caughtUpMs, type Moment, readMoment, type StoreClock } from '../core/clock.ts'
import { isTransient } from '../claim/claim.ts'
import { repeatAfterParking } from '../claim/parking/parked.ts'
import { AttemptError, StoreError } from '../core/errors.ts'
import { newId } from '../core/hash.ts'
import { retryPauseMs } from '../core/retry.ts'
import type { Store } from '../db/store.ts'

/** How long the lease of a process that holds places lasts after each renewal, in microseconds. */
export const lifeUs = 15_000_000
const renewMs = 5_000
/** How soon, at the earliest, a renewal follows one that failed, or whose reply came late. */
const againSoonMs = 500
/** How much earlier a lease ends here than in the store, because work under it needs time to stop, and clocks differ. */
const skewMs = 1_000
/** How long giving back is retried while the store is away; the store frees the places before that by itself. */
const endMs = 60_000
/** How long a settlement is retried while the store is away. */
const settleMs = 2_000

interface Ending {
  readonly buckets: readonly string[]
  readonly unused: readonly number[]
  readonly untilMs: number
}

/** The units that were used of one bucket of a grant. */
export interface Settlement {
  readonly bucket: string
  readonly took: number
  readonly used: number
  readonly isFull: boolean
}

interface Kept {
  now_us: string
  life_us: string | null
  held: string[] | null
}

/** All places of one process. */
export class LeaseHolder {
  /** The id of this process in the store; it gets a new one after it was given up. */
  id = newId()
  readonly #store: Store
  readonly #storeClock: StoreClock
  /** The grants that hold a place, each with the callback for its loss. */
  readonly #held = new Map<string, (reason: Error) => void>()
  readonly #requesting = new Set<string>()
  readonly #ending = new Map<string, Ending>()
  #deadlineMs = -Infinity
  /** The time just before the last successful renewal was sent. */
  #requestedAt: Moment | undefined
  #disarm: (() => void) | undefined
  #rounds: Promise<void> | undefined
  #isRenewing = false
  #flushing: Promise<void> | undefined
  readonly #closed = new AbortController()

  constructor(store: Store, storeClock: StoreClock) {
    this.#store = store
    this.#storeClock = storeClock
  }

  /**
   * Notes that a place may be granted under this id from now on. Call the returned function when nothing is requested under it
   * any more: a place whose reply was lost must not be given back before its request is repeated.
   */
  expect(grant: string): () => void {
    this.#requesting.add(grant)
    return () => void this.#requesting.delete(grant)
  }

  /**
   * True if the store may have given the places to others. It is true even if the timer for that stopped while the
   * machine slept.
   */
  get isOver(): boolean {
    return caughtUpMs(this.#store.clock, this.#requestedAt) >= this.#deadlineMs - skewMs
  }

  /** Holds a place that was granted: for `lifeMs` from `requestedAt` on, and longer by renewals. Calls `lost` if it is lost. */
  hold(grant: string, requestedAt: Moment, lifeMs: number, lost: (reason: Error) => void): void {
    this.#held.set(grant, lost)
    this.#extend(requestedAt, lifeMs)
    this.#go()
  }

  /** Stops renewing a place, because another statement gives it back. */
  forget(grant: string): void {
    this.#held.delete(grant)
  }

  /** Ends a grant: frees its places, and refunds `unused` units of each bucket. Resolves when the store has done so, or is away; then it is retried. */
  async end(grant: string, buckets: readonly string[], unused: readonly number[]): Promise<void> {
    this.#held.delete(grant)
    this.#ending.set(grant, { buckets, unused, untilMs: this.#store.clock.monotonicMs() + endMs })
    // A flush that is under way may not include this grant.
    await this.#flushing
    await this.#flush()
  }

  /** Settles what was used of a grant. @throws StoreError when the store stays away for 2 s */
  async settle(grant: string, used: readonly Settlement[]): Promise<void> {
    const { clock } = this.#store
    const buckets = used.map(({ bucket }) => bucket)
    const units = [
      buckets,
      used.map(({ took }) => took),
      used.map((each) => each.used),
      used.map(({ isFull }) => isFull),
    ]
    const untilMs = clock.monotonicMs() + settleMs
    for (let failures = 0; ;) {
      try {
        const params = [grant, ...units, this.#storeClock.cap(clock.monotonicMs())]
        await repeatAfterParking(this.#store, buckets, () => this.#store.call('settle_take', params))
        return
      } catch (error) {
        const isAway = error instanceof StoreError
        if ((!isAway && !isTransient(error)) || (isAway && clock.monotonicMs() > untilMs)) throw error
        await clock.sleep(retryPauseMs(failures++, clock.random()))
      }
    }
  }

  /** Ends all places as lost, because the store gave this process up, which continues under a new id. */
  dropLost(): void {
    this.id = newId()
    this.#deadlineMs = -Infinity
    this.#disarm?.()
    const all = [...this.#held.values()]
    this.#held.clear()
    if (all.length > 0)
      this.#store.log.warn('places held outside of jobs are lost: their lease was not renewed in time', {
        places: all.length,
      })
    for (const lose of all) lose(placeLostError('this process did not renew its lease in time'))
  }

  /** Ends grants that the store no longer has as lost, because it may have given their places to others. */
  #dropForgotten(grants: readonly string[]): void {
    if (grants.length === 0) return
    this.#store.log.warn('places held outside of jobs are lost: the store does not have them any more', {
      places: grants.length,
    })
    for (const grant of grants) {
      const lose = this.#held.get(grant)
      this.#held.delete(grant)
      lose?.(placeLostError('the store was restored from a backup, or failed over'))
    }
  }

  /** Stops renewing, and gives back what has ended. */
  async close(): Promise<void> {
    this.#closed.abort()
    this.#disarm?.()
    await this.#flush()
    await this.#rounds
  }

  #extend(requestedAt: Moment, lifeMs: number): void {
    const { clock } = this.#store
    const deadlineMs = requestedAt.monotonicMs + lifeMs
    if (deadlineMs >= this.#deadlineMs) [this.#deadlineMs, this.#requestedAt] = [deadlineMs, requestedAt]
    this.#disarm?.()
    this.#disarm = clock.after(Math.max(0, this.#deadlineMs - skewMs - clock.monotonicMs()), () => this.dropLost())
  }

  #go(): void {
    if (this.#isRenewing) return
    this.#isRenewing = true
    this.#rounds = this.#renew()
  }

  /** Renews the lease while this process holds places, and gives back places that the store lists but this process does not know. */
  async #renew(): Promise<void> {
    const { clock, log } = this.#store
    for (;;) {
      // Set in the same step as the decision to stop, so that a later `hold` starts the loop again.
      this.#isRenewing = (this.#held.size > 0 || this.#ending.size > 0) && !this.#closed.signal.aborted
      if (!this.#isRenewing) return
      await clock.sleep(this.#pauseMs(), this.#closed.signal, false)
      if (this.#closed.signal.aborted) continue
      // Not awaited: a silent connection must not delay the renewal.
      void this.#flush()
      if (this.#held.size === 0) continue
      const { id } = this
      const requestedAt = readMoment(clock)
      const sentMs = requestedAt.monotonicMs
      try {
        const sure = [...this.#held.keys()]
        const known = new Set([...sure, ...this.#requesting, ...this.#ending.keys()])
        const [row] = await this.#store.call<Kept>('renew_holder', [id, lifeUs, this.#storeClock.cap(sentMs)])
        if (row === undefined || id !== this.id) continue
        this.#storeClock.recordReading(Number(row.now_us), [sentMs, clock.monotonicMs()])
        if (row.life_us === null) this.dropLost()
        else {
          this.#extend(requestedAt, Number(row.life_us) / 1_000)
          const held = new Set(row.held)
          this.#dropForgotten(sure.filter((grant) => !held.has(grant) && this.#held.has(grant)))
        }
        // Grants made while the renewal was under way are known by now, or in flight.
        const isStray = (grant: string) =>
          !known.has(grant) && !this.#held.has(grant) && !this.#requesting.has(grant) && !this.#ending.has(grant)
        await this.#giveBackStrays((row.held ?? []).filter(isStray))
      } catch (error) {
        log.debug('places held outside of jobs could not be renewed', { err: error })
      }
    }
  }

  /** The lease counts from when the request was sent, so the pause does, too: the reply may have come late, or not at all. */
  #pauseMs(): number {
    if (this.#held.size === 0 || this.#requestedAt === undefined) return renewMs
    return Math.max(againSoonMs, this.#requestedAt.monotonicMs + renewMs - this.#store.clock.monotonicMs())
  }

  /** Gives back places whose reply was lost: the store would keep them as long as this process is alive. */
  async #giveBackStrays(grants: readonly string[]): Promise<void> {
    if (grants.length === 0) return
    const params = [grants, grants.map(() => null), grants.map(() => 0)]
    await repeatAfterParking(this.#store, undefined, () => this.#store.call('end_takes', params))
  }

  /** Sends all grants that have ended to the store, in one statement. */
  #flush(): Promise<void> {
    this.#flushing ??= this.#lose().finally(() => (this.#flushing = undefined))
    return this.#flushing
  }

  async #lose(): Promise<void> {
    const { clock, log } = this.#store
    const batch = [...this.#ending]
    if (batch.length === 0) return
    const buckets = batch.flatMap(([, ending]) => ending.buckets)
    const params = [
      batch.flatMap(([grant, ending]) => ending.buckets.map(() => grant)),
      buckets,
      batch.flatMap(([, ending]) => ending.unused),
    ]
    try {
      await repeatAfterParking(this.#store, buckets, () => this.#store.call('end_takes', params))
      for (const [grant, ending] of batch) if (this.#ending.get(grant) === ending) this.#ending.delete(grant)
    } catch (error) {
      log.debug('grants outside of jobs could not be given back yet', { err: error })
      const nowMs = clock.monotonicMs()
      for (const [grant, { untilMs }] of batch) if (untilMs < nowMs) this.#ending.delete(grant)
      // The loop retries, even if this process holds nothing else.
      this.#go()
    }
  }
}

function placeLostError(why: string): AttemptError {
  const message = `the place was lost: ${why}, so another process may have it now`
  return new AttemptError('SLUICE_LEASE_LOST', message, { retryable: true })
}
