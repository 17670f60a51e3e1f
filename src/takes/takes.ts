/** Takes of one limit or of several, outside of jobs, from the same buckets as jobs: `tryTake`, `take` (waits), and `fetch`. */
import { randomUUID } from 'node:crypto'
import { setMaxListeners } from 'node:events'
import { StoreClock } from '../core/clock.ts'
import { closedError, SluiceError, StoreError } from '../core/errors.ts'
import type { Store } from '../db/store.ts'
import { StoreEpoch } from '../claim/definitions/clock.ts'
import { hash64, newId } from '../core/hash.ts'
import { Acquirer, type GrantLine } from './acquire.ts'
import type { GrantLoop, GrantResult, PendingGrant } from './grant-loop.ts'
import { isTransient } from '../claim/claim.ts'
import type { Definitions } from '../claim/definitions/define.ts'
import { type Margins, marginsOf } from '../claim/definitions/margins.ts'
import type { Limit } from '../limits/limit.ts'
import type { PeerLimiter } from '../limits/peer.ts'
import type { Lease, Taker, TakeOptions, Tried, Used, WaitOptions } from '../limits/take.ts'
import { LeaseHolder, lifeUs } from './lease-holder.ts'
import type { TakenGrant } from './lease.ts'
import { freshMs, isHalfOver, Leases } from './leases.ts'
import { createPatience, rejectOnAbort } from './patience.ts'
import { StoreOutage } from './store-outage.ts'
import { lateMsMax, redisAwayError, silentStoreError, takeTimeoutError, tooLateError } from './take-errors.ts'
import { Fetches } from './fetches.ts'
import { type Standing, Turnstile } from './turnstile.ts'
import { type Denied, Waiters } from './waiters.ts'
import { type TakeRequest, takeRequestOf } from './take-request.ts'

/** Parameters of `Takes`; see the fields. */
export interface TakesOptions {
  readonly store: Store
  readonly definitions: Definitions
  /** Addresses beyond the public ones that `fetch` may call. */
  readonly allowPrivate: readonly string[]
  /** Limits that are shared in Redis; undefined: none are. */
  readonly peer: PeerLimiter | undefined
}

/** How long a take that waits retries while the store does not answer; `tryTake` retries once. */
const awayMs = 2_000
/** How often the store's epoch is checked, while there are takes. */
const lookMs = 2_000
/** How often takers are kept in the store's line while their requests wait here (takes/renew_takers.sql). */
const renewMs = 2_000
/** The takes of one Sluice. */
export class Takes implements Taker {
  readonly #options: TakesOptions
  readonly #acquirer: Acquirer
  readonly #turnstile: GrantLine
  readonly #epoch: StoreEpoch
  #lookedMs = -Infinity
  #looking: Promise<void> | undefined
  #renewedMs = -Infinity
  readonly #holder: LeaseHolder
  readonly #outage: StoreOutage
  readonly #waiters: Waiters
  readonly #leases: Leases
  readonly #fetches: Fetches
  readonly #margins: Margins
  readonly #closed = new AbortController()
  /** Takes under way, and what they leave behind: `close` waits for them. */
  readonly #underway = new Set<Promise<unknown>>()

  constructor(options: TakesOptions) {
    this.#options = options
    const { store, peer } = options
    const storeClock = new StoreClock()
    this.#acquirer = new Acquirer(store, storeClock, peer)
    this.#turnstile = new Turnstile({
      most: 4,
      mostOfKind: 2,
      together: 10,
      clock: store.clock,
      patienceMs: awayMs,
      send: async (requests) => {
        this.#checkOpen()
        this.#renewTakers()
        return this.#acquirer.requestTogether(requests)
      },
      isOld: (answer) => isHalfOver(answer, store.clock.monotonicMs()),
    })
    this.#margins = marginsOf(store)
    this.#holder = new LeaseHolder(store, storeClock)
    this.#leases = new Leases({
      clock: store.clock,
      peer,
      holder: this.#holder,
      acquirer: this.#acquirer,
      margins: this.#margins,
    })
    this.#fetches = new Fetches({
      store,
      allowPrivate: options.allowPrivate,
      acquirer: this.#acquirer,
      margins: this.#margins,
      leases: this.#leases,
      take: (want, how, unused) => this.#take(want, how, unused),
      checkOpen: () => this.#checkOpen(),
    })
    this.#epoch = new StoreEpoch(store, storeClock)
    this.#outage = new StoreOutage(store.clock, store.log)
    this.#waiters = new Waiters(store.db, `${store.schema}.take`, store.clock)
  }

  /** How often a limit with `onStoreError: 'open'` has granted without the store so far. */
  get uncharged(): number {
    return this.#outage.uncharged
  }

  /** See {@link Limit.tryTake}. */
  async tryTake(limits: Limit | readonly Limit[], options: TakeOptions = {}): Promise<Tried> {
    const want = takeRequestOf(limits, options)
    const result = await this.#openWithoutStore(want, () => this.#track(this.#try(want)))
    const { grant: lease, waitMs = 0 } = result
    if (lease === undefined) {
      await result.unused?.giveBack()
      return { granted: false, retryAfterMs: Math.ceil(waitMs) }
    }
    const { freshForMs } = lease
    lease.checked(freshForMs)
    if (freshForMs > 0) return this.#applyStatedMargin(want, { granted: true, retryAfterMs: 0, lease })
    // The reply came too late for the grant to be used.
    await lease.giveBack()
    return { granted: false, retryAfterMs: 0 }
  }

  /** See {@link Limit.take}. */
  async take(limits: Limit | readonly Limit[], options: WaitOptions = {}): Promise<Lease> {
    const want = takeRequestOf(limits, options)
    return this.#applyStatedMargin(want, await this.#take(want, options))
  }

  /** It is not known what the caller does with the grant, so the way of its request cannot be measured. */
  #applyStatedMargin<T>({ limits }: TakeRequest, granted: T): T {
    this.#margins.applyStatedMargin(limits)
    return granted
  }

  /** See {@link Limit.fetch}. */
  async fetch(
    limits: Limit | readonly Limit[],
    input: string | URL | Request,
    init: RequestInit & WaitOptions = {},
  ): Promise<Response> {
    // `maxWait` is what jobs call it: as an option of `fetch` it would be ignored.
    const { key, cost, maxWaitMs, maxWait, ...rest } = init as RequestInit & WaitOptions & { maxWait?: unknown }
    const given = { key, cost, maxWaitMs, maxWait }
    return this.#fetches.fetch(takeRequestOf(limits, given), input, rest)
  }

  /** See {@link Taker.observe}. */
  async observe(
    limits: Limit | readonly Limit[],
    response: object,
    options: Pick<TakeOptions, 'key'> = {},
  ): Promise<boolean> {
    return this.#fetches.observe(takeRequestOf(limits, options), response)
  }

  /** See {@link Taker.settle}. */
  async settle(response: Response, used: Used): Promise<void> {
    return this.#fetches.settle(response, used)
  }

  /** Checks the store's epoch (restored, failed over), because a process that only takes has no worker that does it. */
  async #look(): Promise<void> {
    const nowMs = this.#options.store.clock.monotonicMs()
    if (nowMs - this.#lookedMs >= lookMs) {
      this.#lookedMs = nowMs
      this.#looking ??= this.#epoch.check().finally(() => (this.#looking = undefined))
    }
    // The first takes of a process may begin at one time.
    await this.#looking
  }

  /** Requests wait for their turn to be sent only while others are sent, so each of these is an occasion. */
  #renewTakers(): void {
    const { clock, log } = this.#options.store
    if (clock.monotonicMs() - this.#renewedMs < renewMs) return
    const waiting = this.#turnstile.placed
    if (waiting.length === 0) return
    this.#renewedMs = clock.monotonicMs()
    const renewing = this.#track(this.#acquirer.renewTakers(waiting))
    renewing.catch((error: unknown) => log.debug('takers could not be kept in line', { err: error }))
  }

  /** Ends takes that wait, and gives back all places. */
  async close(): Promise<void> {
    this.#closed.abort(closedError())
    this.#fetches.abort(closedError())
    await this.#waiters.close()
    while (this.#underway.size > 0) await Promise.allSettled(this.#underway)
    await this.#leases.close()
    await this.#holder.close()
    // It is not awaited, so that responses in progress can be read to their end.
    void this.#fetches.close()
  }

  /** @throws StoreError SLUICE_CLOSED */
  #checkOpen(): void {
    if (this.#closed.signal.aborted) throw closedError()
  }

  /** Requests a grant, and once more if the reply is lost. */
  async #try(want: TakeRequest): Promise<GrantResult<TakenGrant>> {
    const wish = this.#newGrant()
    const over = this.#holder.expect(wish.id)
    try {
      return await this.#request(want, wish).catch((error: unknown) => {
        if (!(error instanceof StoreError)) throw error
        return this.#request(want, wish)
      })
    } catch (error) {
      if (isTransient(error)) return { soonestMs: 100, waitMs: 100 }
      throw error
    } finally {
      over()
    }
  }

  /** Waits for a grant that is young enough to be used. */
  async #take(want: TakeRequest, { signal }: Pick<WaitOptions, 'signal'>, unused?: TakenGrant): Promise<TakenGrant> {
    const result = await this.#openWithoutStore(want, async () => ({
      grant: await this.#repeatUntilGranted(want, signal, unused),
    }))
    const lease = result.grant as TakenGrant
    // The store was not called, so the unused grant was not given back.
    if (lease.isUncharged) void unused?.giveBack()
    return lease
  }

  #newGrant(): PendingGrant {
    return { id: randomUUID(), holder: this.#holder.id }
  }

  #repeatUntilGranted(
    want: TakeRequest,
    given: AbortSignal | undefined,
    unused: TakenGrant | undefined,
  ): Promise<TakenGrant> {
    const { clock } = this.#options.store
    // One signal may end any number of takes.
    if (given !== undefined) setMaxListeners(Infinity, given)
    const { signal, end } = createPatience(clock, given, want.maxWaitMs, () => silentStoreError(want))
    const line = newId()
    const untilMs = clock.monotonicMs() + want.maxWaitMs
    let isInLine = false
    let denied: Denied = { who: line, buckets: [], sentMs: Infinity, place: Infinity }
    let isRepeat = false
    let over = () => {}
    const loop: GrantLoop<TakenGrant> = {
      untilMs,
      awayMs: Math.min(awayMs, want.maxWaitMs),
      givesBackAgain: true,
      newGrant: () => {
        over()
        const wish = this.#newGrant()
        over = this.#holder.expect(wish.id)
        return wish
      },
      request: async (wish, back) => {
        const how = { line, place: back?.place ?? denied.place, waitMs: untilMs - clock.monotonicMs(), back, signal }
        const result = await this.#request(want, wish, how)
        const { grant, unused, lacking = want.buckets, sentMs = Infinity, place = Infinity } = result
        isInLine = grant === undefined && unused === undefined
        denied = { who: line, buckets: grant === undefined ? lacking.map(hash64) : [], sentMs, place }
        this.#waiters.next(want.buckets.map(hash64).filter((bucket) => !denied.buckets.includes(bucket)))
        return result
      },
      isFresh: ({ freshForMs }) => freshForMs > 0,
      wait: async (ms) => {
        // Once in a row: where units are given back all the time, a later notification wakes it.
        if (isRepeat) denied = { ...denied, sentMs: Infinity }
        isRepeat = await this.#waiters.wait(denied, ms, signal)
      },
      onLate: (lease, _, sinceMs) => {
        lease.checked(0)
        lease.reportUnused()
        if (clock.monotonicMs() - sinceMs > lateMsMax) throw tooLateError(want)
      },
      createTimeoutError: (soonestMs) => takeTimeoutError(want, soonestMs),
      onFailed: async (back) => {
        if (back !== undefined) void this.#track(back.giveBack())
        if (isInLine) void this.#track(this.#leave(line))
        // It may have been woken for room that it does not request any more.
        this.#waiters.next(denied.buckets)
      },
    }
    const taking = this.#track(this.#acquirer.repeatUntilGranted(loop, unused, signal).finally(() => over()))
    return signal === undefined ? taking : rejectOnAbort(taking, signal).finally(end)
  }

  #track<T>(work: Promise<T>): Promise<T> {
    const over = () => void this.#underway.delete(work)
    this.#underway.add(work)
    work.then(over, over)
    return work
  }

  async #leave(line: string): Promise<void> {
    // If this fails, the others in the line wait a little longer.
    await this.#options.store.run('takes/delete_taker', [line]).catch(() => {})
  }

  /** Requests a grant from the store, and then from Redis if the limit is shared there. */
  async #request(
    want: TakeRequest,
    pending: PendingGrant,
    how: { line?: string; waitMs?: number; back?: TakenGrant | undefined } & Pick<Standing, 'place' | 'signal'> = {},
  ): Promise<GrantResult<TakenGrant>> {
    const { store, definitions, peer } = this.#options
    this.#checkOpen()
    store.db.checkOutside('a take')
    await definitions.define(want.limits)
    await this.#margins.join(want.limits)
    void this.#margins.renew().catch(() => {})
    // The first take of a process waits until Redis is known.
    peer?.start()
    await peer?.waitUntilReady()
    if (peer?.isAway === true && !peer.isOpenFor(want.limits)) throw redisAwayError()
    await this.#look()
    const { line = null, waitMs = Infinity, place = Infinity, back, signal } = how
    back?.reportUnused()
    const waitUs = Math.floor(waitMs * 1_000)
    // The store counts in 64 bits.
    const wait = Number.isSafeInteger(waitUs) ? waitUs : null
    const taker = { line, n: place, wait, holder: pending.holder ?? null, life: lifeUs }
    const request = { pending, buckets: want.buckets, units: want.costs, back, taker }
    const standing = { place, signal, ms: Math.max(waitMs, awayMs), late: () => takeTimeoutError(want, 0) }
    // Those that do not wait for a grant are a kind of their own: no line of others should delay their answer.
    const kind = JSON.stringify([want.buckets, want.costs, line !== null])
    const answer = await this.#turnstile.pass(kind, request, standing)
    back?.handOver()
    const result = this.#leases.read(want, pending, answer)
    if (result.grant === undefined) return { ...result, sentMs: answer.requestedAt.monotonicMs }
    const { fromMs, notBeforeMs, waitMs: againMs, id } = await this.#acquirer.confirm(request, answer)
    if (fromMs === undefined) return { soonestMs: againMs, waitMs: againMs, unused: result.grant }
    if (id !== undefined) result.grant.recordConfirmed(id, fromMs + freshMs(answer))
    const ahead = { buckets: want.buckets, requestedMs: answer.requestedAt.monotonicMs, atMs: notBeforeMs }
    const isDue = await this.#waiters.waitForInstant(ahead, signal)
    if (!this.#closed.signal.aborted) return isDue ? result : { unused: result.grant }
    await result.grant.giveBack()
    throw closedError()
  }

  /** Calls `send`; if the store is away and each limit has `onStoreError: 'open'`, resolves to a lease without a charge. */
  async #openWithoutStore(
    want: TakeRequest,
    request: () => Promise<GrantResult<TakenGrant>>,
  ): Promise<GrantResult<TakenGrant>> {
    if (!want.limits.every((limit) => limit.isOpenWithoutStore)) return request()
    const open = () => {
      this.#checkOpen()
      this.#outage.recordGrant(want.limits.map(({ name }) => name))
      return { grant: this.#leases.make(want, randomUUID(), 0) }
    }
    if (this.#outage.isOn) return open()
    try {
      const result = await request()
      this.#outage.over()
      return result
    } catch (error) {
      if (!SluiceError.is(error) || error.code !== 'SLUICE_STORE_UNREACHABLE') throw error
      this.#outage.begun(error)
      return open()
    }
  }
}
