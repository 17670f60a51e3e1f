/** What a process reports to Redis about the grants that it has there; it renews the leases of its places. */
import { type Clock, type Reading, StoreClock } from '../core/clock.ts'
import { HeldPlaces } from './held-places.ts'
import { type SettlementOptions, SettlementQueue } from './settlements.ts'

/** How long after its last renewal a process's places are free again, in us: longer than the outages that a job outlives. */
export const leaseUs = 30_000_000

/** The reports of one limiter. */
export abstract class GrantReports {
  readonly #clock: Clock
  readonly #places = new HeldPlaces()
  protected readonly settlements: SettlementQueue
  /** Redis's clock, as far as answers have shown it. */
  protected readonly redisClock = new StoreClock()

  constructor({ limiter, definitions, clock }: Pick<SettlementOptions, 'limiter' | 'definitions' | 'clock'>) {
    this.#clock = clock
    this.settlements = new SettlementQueue({
      limiter,
      definitions,
      clock,
      current: () => this.current,
      cap: () => this.cap(),
      onFailure: (error) => this.onFailure(error),
    })
  }

  /** The epoch that counts; undefined: none is known. */
  protected abstract get current(): string | undefined
  /** Called when Redis does not answer, or has lost its state. */
  protected abstract onFailure(error: unknown): void

  /** Records that a grant used `more` units than granted (negative: fewer), in one bucket. */
  settle(grant: string, bucket: string, more: number): void {
    if (more !== 0) this.settlements.add({ bucket, epoch: this.current ?? '', grant, more })
  }

  /** Gives back the units of one of a call's grants, under which nothing was sent. */
  refund(grant: string, buckets: readonly string[], units: readonly number[]): void {
    for (const [i, bucket] of buckets.entries()) this.settle(grant, bucket, -(units[i] ?? 1))
  }

  /** Frees the places of one of a call's grants. */
  freePlaces(grant: string, buckets: readonly string[]): void {
    for (const bucket of this.#places.end(grant, buckets)) this.settlements.add({ bucket, grant, ended: 1 })
  }

  /** Holds buckets for so many ms, because the vendor refused. */
  hold(buckets: readonly string[], ms: number): void {
    const untilMs = this.#clock.monotonicMs() + ms
    for (const bucket of new Set(buckets)) this.settlements.add({ bucket, untilMs })
  }

  /** Gives back all that a call may have been granted, because its answer was lost. */
  protected giveUp(grant: string, epoch: string, buckets: readonly string[]): void {
    for (const bucket of buckets) this.settlements.add({ bucket, epoch, grant, isUnused: true })
  }

  /** Leases the places of what was granted, until they have ended. */
  protected lease(...granted: Parameters<HeldPlaces['add']>): void {
    this.#places.add(...granted)
  }

  /** Renews the leases, of one grant or of all, and sends the reports that wait. */
  protected renew(grant?: string): void {
    for (const held of this.#places.listPlaces(grant)) this.settlements.add({ ...held, renewUs: leaseUs })
    this.settlements.sendWaiting()
  }

  /** The latest time that Redis's clock can show, if it is known. */
  protected cap(): { capUs?: number } {
    const capUs = this.redisClock.cap(this.#clock.monotonicMs())
    return capUs === null ? {} : { capUs }
  }

  /** Replaces what is known of Redis's clock by a reading that was made on purpose: answers may be from before a step. */
  protected replaceClock({ us, sentMs, receivedMs }: Reading): void {
    this.redisClock.forget()
    this.redisClock.recordReading(us, [sentMs, receivedMs])
  }
}
