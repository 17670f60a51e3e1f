/** Limits shared in Redis, which must confirm what the store granted before it is used. */
import { caughtUpMs, type Clock } from '../core/clock.ts'
import { StoreError } from '../core/errors.ts'
import { hash64 } from '../core/hash.ts'
import type { Store } from '../db/store.ts'
import { marginsOf } from '../claim/definitions/margins.ts'
import { parkUnreadable } from '../claim/parking/parked.ts'
import type { PeerDecision, PeerRequest, PeerLimiter } from '../limits/peer.ts'
import type { RedisConnection } from './connect.ts'
import type { Granted, Superseded } from './call.ts'
import { RedisLimiter } from './limiter.ts'
import { SharedDefinitions } from './definitions.ts'
import { confirmMs, SharedEpochs } from './epochs.ts'
import { GrantReports, leaseUs } from './grant-reports.ts'
import { createGrantId } from './settlements.ts'
import { RedisHealth } from './health.ts'
import { decisionsOf, unanswered, storeDecision, type Hold, type PeerCall, callOf } from './peer-call.ts'
import { countsUnits } from '../limits/kind.ts'

/** Parameters of `RedisPeerLimiter`; see the fields. */
export interface RedisSharedOptions {
  store: Store
  connection: RedisConnection
  /** Beginning of every key. */
  prefix: string
  /** Number of databases that share the limits. */
  stores: number
}

/** Ms after which a request without an answer is sent again, under the same id. */
const answerMs = 400
/**
 * How far ahead Redis grants, in microseconds, beyond the time for which the store has granted. The time between the
 * store's decision and Redis's varies, so the second of two grants mostly arrives a few ms too early, and grants of a slow process
 * may arrive after those that the store gave to another one for later.
 */
const aheadUs = 200_000
/** As `aheadUs`, if several databases share the limits: each of them requests as much as all of them get. */
const aheadOfManyUs = 50_000
/** The latest time from now for which the store grants what Redis is to confirm, in microseconds, as reserve.lua has it. */
const afterUs = 250_000
/**
 * While other programs take from a limit, nothing is granted ahead, because they would never get a turn. A request that is
 * denied by less than this is sent again, at a random moment after the time at which there is room.
 */
const againUs = 20_000
const againMsMax = 10
/** If the clock of an answer is this far behind the latest time that it could show, the clock was set back. */
const setBackUs = 3_000_000

/**
 * Returns for how many ms Redis may take to answer. The seeds of a new epoch count from `confirmMs` after the store's decision on, and
 * what Redis grants here must not be used later than that.
 */
function leftMsOf({ wishes, sentMs, requestedAt }: PeerRequest, clock: Clock): number {
  const nowMs = caughtUpMs(clock, requestedAt)
  const lastMs = Math.max(nowMs, ...wishes.map(({ notBeforeMs = nowMs }) => notBeforeMs))
  return sentMs + confirmMs - aheadUs / 1_000 - lastMs
}

/** The result of `confirm`. */
interface Confirmed {
  id: string | undefined
  decisions: PeerDecision[]
}

/** How a request is sent next, while it has no result. */
interface Sending {
  /** Undefined: the epoch that this process knows when it sends. */
  epoch: string | undefined
  /** Undefined: it gets a new id. */
  id: string | undefined
  /** When it was first sent under this id, in monotonic ms. */
  firstMs: number | undefined
  /** Redis may have carried it out in a state that is lost. */
  isLost: boolean
  /** It was denied once as a whole, a moment before it could be granted. */
  isSecond: boolean
}

/** One process's second limiter, in Redis. */
export class RedisPeerLimiter extends GrantReports implements PeerLimiter {
  readonly #options: RedisSharedOptions
  readonly #limiter: RedisLimiter
  readonly #definitions: SharedDefinitions
  readonly #epochs: SharedEpochs
  readonly #health: RedisHealth
  #isStarted = false
  #ready: Promise<void> = Promise.resolve()

  constructor(options: RedisSharedOptions) {
    const { store, connection, prefix, stores } = options
    const { clock } = store
    const limiter = new RedisLimiter(connection, { prefix, timeoutMs: answerMs, clock })
    const definitions = new SharedDefinitions(store, limiter, stores)
    super({ limiter, definitions, clock })
    this.#options = options
    this.#limiter = limiter
    this.#definitions = definitions
    this.#epochs = new SharedEpochs({ store, limiter, definitions })
    // Until then, this process would request what the narrower margin allows.
    const read = async () => void (this.#isStarted && (await definitions.readNow()))
    marginsOf(store).follow((afterUs + aheadUs) / 1_000, read)
    this.#health = new RedisHealth({
      store,
      connection,
      limiter,
      definitions,
      epochs: this.#epochs,
      onRestored: () => this.renew(),
      onLook: () => this.renew(),
      onClockRead: (reading) => this.replaceClock(reading),
    })
  }

  start(): void {
    if (this.#isStarted) return
    this.#isStarted = true
    void this.#options.connection.open().catch(() => {})
    this.#health.start()
    this.#ready = this.#health.waitUntilPresent(confirmMs)
  }

  waitUntilReady(): Promise<void> {
    return this.#ready
  }

  /** Sends the reports that wait, and closes the connection. */
  async close(): Promise<void> {
    await this.settlements.waitUntilSent()
    await this.#health.close()
    await this.#options.connection.close()
  }

  get isAway(): boolean {
    return this.#health.isAway
  }

  isOpenFor(limits: Parameters<PeerLimiter['isOpenFor']>[0]): boolean {
    return limits.every(({ rules, isOpenWithoutStore }) => isOpenWithoutStore || !rules.some(countsUnits))
  }

  onChange(changed: () => void): () => void {
    return this.#health.onChange(changed)
  }

  async confirm(request: PeerRequest): Promise<Confirmed> {
    try {
      return await this.#confirm(request)
    } catch (error) {
      // The store failed, so the definitions could not be read; nothing was sent.
      this.#options.store.log.debug('the store failed, so Redis could not confirm grants', { err: error })
      return { id: undefined, decisions: request.wishes.map(() => unanswered) }
    }
  }

  async #confirm(request: PeerRequest): Promise<Confirmed> {
    const { clock } = this.#options.store
    const { wishes } = request
    const all = () => wishes.map(({ count }) => storeDecision(count))
    await this.#definitions.know(wishes.flatMap(({ buckets }) => buckets))
    const call = callOf(request, (bucket) => this.#definitions.bucket(bucket) !== undefined)
    if (call.items.length === 0) return { id: undefined, decisions: all() }
    const isOpen = call.buckets.every((bucket) => this.#definitions.isOpen(bucket))
    // The epoch that this process knows may be older than the epoch under which the store granted, so it is not used.
    const now: Sending = { epoch: request.epoch, id: undefined, firstMs: undefined, isLost: false, isSecond: false }
    let leftMs: number
    while ((leftMs = leftMsOf(request, clock)) > 0 && !this.#health.isClosed) {
      if (this.#health.isAway) {
        if (isOpen) return { id: undefined, decisions: all() }
        await this.#health.waitUntilPresent(leftMs)
        continue
      }
      // A limit may have lost its units meanwhile. Then the positions of the others in the call are wrong.
      if (call.buckets.some((bucket) => this.#definitions.bucket(bucket) === undefined)) break
      // A grant that was sent to a lost state is not part of the state that replaced it, so it gets a new id.
      if (now.isLost) Object.assign(now, { epoch: undefined, id: undefined, isLost: false })
      now.epoch ??= this.#epochs.current ?? ''
      // The new state was built from a ledger that has the grant at another time, so the grant is given back there,
      // too.
      if (request.epoch !== undefined && request.epoch !== now.epoch && this.#isOwnOnly(call)) break
      try {
        const confirmed = await this.#send(request, call, now, leftMs)
        if (confirmed !== undefined) return confirmed
      } catch (error) {
        this.#health.recordFailure(error)
      }
    }
    this.#giveUp(request, call, now)
    return { id: undefined, decisions: wishes.map(() => unanswered) }
  }

  /** Sends a request once. Resolves to undefined if it has to be sent again, as `now` then has it. */
  async #send(request: PeerRequest, call: PeerCall, now: Sending, leftMs: number): Promise<Confirmed | undefined> {
    const { wishes, isFurther = false } = request
    const { clock } = this.#options.store
    const { epoch = '' } = now
    const id = (now.id ??= createGrantId(epoch))
    const firstMs = (now.firstMs ??= clock.monotonicMs())
    // It uses the definitions that are sent to Redis now, because others may have been read before the answer.
    const late = wishes.map(({ buckets, lifeMs }) => this.#definitions.lateMs(buckets, lifeMs))
    const answer = await this.#reserve({ id, epoch, isFurther, leftMs }, call)
    if (!answer.isDecided && answer.why === 'superseded') {
      await this.#supersede(call, answer)
      return undefined
    }
    if (!answer.isDecided || this.#isOfAnotherTime(answer, epoch, firstMs)) {
      // It waits first, so that the next check is not older than this answer.
      await this.#health.waitUntilPresent(leftMs)
      this.#health.recordFailure(undefined)
      now.isLost = true
      return undefined
    }
    this.redisClock.recordReading(answer.nowUs, [firstMs, clock.monotonicMs()])
    // The store returned an epoch that this process did not know.
    if (epoch !== this.#epochs.current) this.#health.recordFailure(undefined)
    if (!now.isSecond && (await this.#isWorthAgain(call, answer.results, leftMs))) {
      Object.assign(now, { id: undefined, firstMs: undefined, isSecond: true })
      return undefined
    }
    const decisions = this.#decide(request, call, answer.results, firstMs, late)
    if (!isFurther) {
      const items = wishes.map(({ buckets }, i) => ({ buckets, count: decisions[i]?.granted ?? 0 }))
      this.lease(id, items, (bucket) => this.#definitions.isLeased(bucket))
    }
    return { id, decisions }
  }

  /** Gives back what Redis may have charged for grants of the store that are not used. */
  #giveUp(request: PeerRequest, call: PeerCall, { id, epoch }: Sending): void {
    const { buckets } = call
    // An answer may have been lost, so it is not known whether Redis granted.
    if (id !== undefined && epoch !== undefined) this.giveUp(id, epoch, buckets)
    const { current } = this.#epochs
    if (request.epoch === undefined || current === undefined || current === request.epoch || !this.#isOwnOnly(call))
      return
    for (const wish of request.wishes)
      this.refund(
        current,
        wish.buckets,
        wish.units.map((units) => units * wish.count),
      )
  }

  /** Reads the definitions: Redis has a newer one. If the store lacks it (it was restored), Redis's state is built again. */
  async #supersede({ buckets }: PeerCall, { bucket, version }: Superseded): Promise<void> {
    const of = this.#epochs.current
    await this.#definitions.readNow()
    const known = this.#definitions.bucket(buckets[bucket] ?? '')?.version
    if (known !== undefined && known < version) this.#health.force(of)
  }

  #reserve(
    { leftMs, ...call }: { id: string; epoch: string; isFurther: boolean; leftMs: number },
    { buckets: names, items }: PeerCall,
  ) {
    const buckets = names.flatMap((name) => this.#definitions.bucket(name) ?? [])
    const nowMs = this.#options.store.clock.monotonicMs()
    return this.#limiter.reserve({
      ...call,
      buckets,
      items: items.map(({ notBeforeMs = nowMs, ...item }) => {
        return { ...item, afterUs: Math.max(0, Math.ceil((notBeforeMs - nowMs) * 1_000)) }
      }),
      aheadUs: this.#aheadUs(names),
      leaseUs,
      withinMs: Math.min(leftMs, answerMs),
      ...this.cap(),
    })
  }

  /** Returns whether a request that was denied as a whole may be granted now; waits if that is only a moment away. */
  async #isWorthAgain({ buckets }: PeerCall, results: readonly Granted[], leftMs: number): Promise<boolean> {
    const { clock } = this.#options.store
    if (!results.every(({ granted }) => granted === 0)) return false
    const versions = () => buckets.map((bucket) => this.#definitions.bucket(bucket)?.version).join()
    const before = versions()
    // The store has granted it: maybe by a newer definition.
    await this.#definitions.refresh()
    if (versions() !== before) return true
    const soonUs = Math.max(...results.map(({ waitUs }) => waitUs))
    if (results.some(({ cause }) => cause !== 'used') || soonUs > againUs || soonUs / 1_000 + againMsMax >= leftMs)
      return false
    await clock.sleep(soonUs / 1_000 + clock.random() * againMsMax)
    return true
  }

  #aheadUs(buckets: string[]): number {
    if (this.#isAlone()) return aheadUs
    // Other programs would get no turn if several databases granted ahead.
    return this.#isOwnOnly({ buckets }) ? aheadOfManyUs : 0
  }

  /** True if no other database shares the limits. */
  #isAlone(): boolean {
    return this.#definitions.sharing?.stores === 1
  }

  /** True if only Sluice's own processes take from these buckets. */
  #isOwnOnly({ buckets }: Pick<PeerCall, 'buckets'>): boolean {
    return buckets.every((bucket) => this.#definitions.bucket(bucket)?.isOwn === true)
  }

  /**
   * True if nothing was granted, and Redis decided by a clock that was set back, or in an epoch whose clock this process does not
   * know (the cap that it sent may be far behind): Redis might deny for an hour, and the store would wait as long.
   */
  #isOfAnotherTime(
    { nowUs, results }: { nowUs: number; results: readonly Granted[] },
    epoch: string,
    requestedMs: number,
  ) {
    if (results.some(({ granted }) => granted > 0)) return false
    const capUs = this.redisClock.cap(requestedMs)
    return epoch !== this.#epochs.current || (capUs !== null && nowUs < capUs - setBackUs)
  }

  /** Returns the result of each wish. If others have used up a bucket, the store holds it, too. */
  #decide(
    request: PeerRequest,
    call: PeerCall,
    results: readonly Granted[],
    requestedMs: number,
    late: readonly number[],
  ): PeerDecision[] {
    const receivedMs = this.#options.store.clock.monotonicMs()
    const times = { requestedMs, receivedMs, late }
    const isQuick = (bucket: string) => this.#definitions.isQuick(bucket)
    const { decisions, holds } = decisionsOf(request, call, results, times, { isQuick, isAlone: this.#isAlone() })
    if (holds.size === 0) return decisions
    // It is not awaited here, because the grants beside it would grow old.
    const held = Promise.all([...holds].map(([bucket, hold]) => this.#holdStore(bucket, hold))).then(() => {})
    return decisions.map((decision) => ({ ...decision, held }))
  }

  /**
   * Holds a bucket in the store for as long as Redis would deny it, stops what the store grants of it ahead of time, or parks it until
   * somebody has deleted what is under its key.
   */
  async #holdStore(bucket: string, { us, cause }: Hold): Promise<void> {
    const { store } = this.#options
    try {
      if (cause === 'unreadable') await parkUnreadable(store, bucket, this.#limiter.keyOf(bucket))
      else if (cause === 'others') await store.run('limits/redis/pause_grants_ahead', [[hash64(bucket)]])
      else await store.call('hold_buckets', [[hash64(bucket)], us, null, cause])
    } catch (error) {
      // The store then grants what Redis denies, until the next answer.
      if (!(error instanceof StoreError))
        store.log.debug('a limit that is used up in Redis could not be marked in the store', { bucket, err: error })
    }
  }

  protected get current(): string | undefined {
    return this.#epochs.current
  }

  protected onFailure(error: unknown): void {
    this.#health.recordFailure(error)
  }

  async takePlaces(buckets: readonly string[]): Promise<string> {
    const grant = createGrantId(this.current ?? '')
    // If the store is away, what is known already has to do.
    await this.#definitions.know(buckets).catch(() => {})
    this.lease(grant, [{ buckets, count: 1 }], (bucket) => this.#definitions.isLeased(bucket))
    this.renew(grant)
    return grant
  }

  /** Ends what vendors' bad answers hold of buckets in Redis. Logs it if that may go on. */
  async endHolds(buckets: readonly string[]): Promise<void> {
    if (buckets.length === 0) return
    this.start()
    await this.#ready
    try {
      await this.settlements.confirm(buckets.map((bucket) => ({ bucket, untilMs: 0 })))
    } catch (error) {
      const words = 'limits are held in Redis for as long as the vendor stated, because Redis does not answer'
      this.#options.store.log.warn(words, { limits: buckets, err: error })
    }
  }

  override settle(grant: string, bucket: string, more: number): void {
    if (this.current !== undefined) super.settle(grant, bucket, more)
  }

  async chargeAgain(buckets: readonly string[], units: readonly number[], epoch: string | undefined): Promise<void> {
    if (this.#health.isAway) throw new Error('Redis is away')
    const reports = buckets.map((bucket, i) => ({ bucket, again: units[i] ?? 1 }))
    await this.settlements.confirm(reports, epoch)
  }
}
