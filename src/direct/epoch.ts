/** The epoch of the limits in Redis, which workers without a store begin and watch. */
import type { Clock, Reading } from '../core/clock.ts'
import { UsageError } from '../core/errors.ts'
import { newId } from '../core/hash.ts'
import { enter } from '../celery/redis-transport.ts'
import type { Log } from '../core/log.ts'
import { hasLostReply, isOfReplica } from '../redis/client.ts'
import type { RedisConnection } from '../redis/connect.ts'
import type { RedisLimiter } from '../redis/limiter.ts'
import { checkServer, judgeServer, type ServerCheck } from '../redis/server.ts'
import { clockStepUs, readServerClock } from '../redis/server-clock.ts'
import type { DirectDefinitions } from './definitions.ts'

/** Parameters of `EpochWatch`; see the fields. */
export interface EpochOptions {
  limiter: RedisLimiter
  redis: RedisConnection
  definitions: DirectDefinitions
  clock: Clock
  log: Log
  /** There is an epoch again. */
  onBack(): void
  /** Redis's clock was read on purpose. */
  onReading(reading: Reading): void
}

/** All workers without a store begin epochs under this name; databases have other names. */
const owner = 'direct'
const lookMs = 5_000
const checkMs = 30_000
/** Time between two checks, in ms, while there is no state to grant from. */
const retryMs = 250

/** Checks which epoch is in force: now and then, and whenever Redis has not answered as it should. */
export class EpochWatch {
  readonly #options: EpochOptions
  readonly #end = new AbortController()
  #current: string | undefined
  #looking: Promise<void> | undefined
  #lookedMs = -Infinity
  /** The last reading of Redis's clock, and the epoch in force then. */
  #past: (Reading & { epoch: string | undefined }) | undefined
  #check: ServerCheck | undefined
  #checkedMs = -Infinity
  /** The epoch whose state cannot be relied on, though it is in force: until another one has begun, whatever fails meanwhile. */
  #untrusted: string | undefined
  #isAway = false
  #hasDefined = false

  constructor(options: EpochOptions) {
    this.#options = options
  }

  /** Its id; undefined: Redis is away, or has lost the state of limits. */
  get current(): string | undefined {
    return this.#current
  }

  /**
   * Resolves when there is an epoch, and then checks now and then until `close`.
   * @throws UsageError SLUICE_BAD_REDIS, SLUICE_NO_SUCH_LIMIT, SLUICE_NEEDS_STORE; the errors of Redis: it may be called again
   */
  async start(): Promise<void> {
    const { redis, definitions } = this.#options
    await enter(redis)
    await this.#checkServer(undefined)
    await this.#look()
    if (this.#current !== undefined) await definitions.refresh()
    void this.#watch()
  }

  close(): void {
    this.#end.abort()
  }

  /** Stops grants until the next check, because Redis has not answered as it should. */
  recordFailure(error: unknown): void {
    this.#warn(error)
    this.#current = undefined
    if (hasLostReply(error) || isOfReplica(error)) this.#options.redis.reset()
  }

  /** Checks which epoch is in force, unless that was done a moment ago; never rejects. */
  look(): Promise<void> {
    const { clock } = this.#options
    if (this.#looking === undefined && clock.monotonicMs() - this.#lookedMs < retryMs) return Promise.resolve()
    this.#looking ??= this.#look()
      .catch((error: unknown) => this.recordFailure(error))
      .finally(() => (this.#looking = undefined))
    return this.#looking
  }

  #warn(error: unknown): void {
    if (this.#isAway || this.#end.signal.aborted) return
    this.#isAway = true
    this.#options.log.warn('Redis is away: tasks with limits are put off until it is back', { err: error })
  }

  async #watch(): Promise<void> {
    const { clock } = this.#options
    const { signal } = this.#end
    while (!signal.aborted) {
      await clock.sleep(this.#current === undefined ? retryMs : lookMs, signal, false)
      if (signal.aborted) return
      await this.look()
    }
  }

  /**
   * Checks whether limits may be in this server; if not, the next look checks again.
   * @param epoch the one in force @throws UsageError SLUICE_BAD_REDIS
   */
  async #checkServer(epoch: string | undefined): Promise<void> {
    const { redis, clock, log } = this.#options
    const past = this.#check
    this.#check = await checkServer(redis, past, clock)
    const { hasEvicted, unfit } = judgeServer(this.#check)
    if (hasEvicted) this.#distrust(epoch)
    // The address may lead to another server by now.
    if (unfit?.code === 'replica') redis.reset()
    if (unfit !== undefined) throw new UsageError('SLUICE_BAD_REDIS', unfit.text)
    this.#checkedMs = clock.monotonicMs()
    if (past === undefined) for (const { text } of this.#check.findings) log.warn(text)
  }

  #distrust(epoch: string | undefined): void {
    if (epoch === this.#untrusted) return
    this.#untrusted = epoch
    this.#options.log.warn('the clock of Redis has stepped, or it has evicted keys: limits begin anew')
  }

  async #look(): Promise<void> {
    const { limiter, clock, definitions, log } = this.#options
    const { answer: inRedis, reading } = await readServerClock(clock, () => limiter.readEpoch(owner))
    if (this.#hasStepped(reading, inRedis.id)) this.#distrust(inRedis.id)
    this.#past = { ...reading, epoch: inRedis.id }
    this.#options.onReading(reading)
    this.#lookedMs = clock.monotonicMs()
    if (this.#lookedMs - this.#checkedMs >= checkMs) await this.#checkServer(inRedis.id)
    const isOthers = inRedis.owner !== undefined && inRedis.owner !== owner
    if (inRedis.isWhole && (inRedis.id !== this.#untrusted || isOthers)) {
      if (!isOthers) await this.#publish()
      else await definitions.refresh()
      this.#setEpoch(inRedis.id)
    } else if (isOthers) {
      this.#current = undefined
      this.#warn('a database owns the state of limits, and has to begin it anew')
    } else {
      // Nothing is granted from what is there while the beginning is under way.
      this.#current = undefined
      await this.#publish()
      const epoch = newId()
      const begun = await limiter.begin({ epoch, owner, instead: inRedis.id })
      this.#lookedMs = -Infinity
      if (!begun.isDecided) return
      log.info('limits in Redis begin: they are closed for as long as they look back')
      this.#setEpoch(epoch)
    }
  }

  /** Two readings show a step only within one epoch; a new epoch may have begun because another worker saw the step. */
  #hasStepped(reading: Reading, epoch: string | undefined): boolean {
    const past = this.#past
    return past !== undefined && past.epoch === epoch && clockStepUs(past, reading) !== undefined
  }

  #setEpoch(epoch: string | undefined): void {
    if (this.#isAway) this.#options.log.info('Redis is back')
    this.#isAway = false
    const isNew = this.#current === undefined
    this.#current = epoch
    if (isNew) this.#options.onBack()
  }

  /** Publishes the definitions that a flush has deleted. The worker that started last defines the limits. */
  async #publish(): Promise<void> {
    const { definitions } = this.#options
    await (this.#hasDefined ? definitions.restore() : definitions.define())
    this.#hasDefined = true
  }
}
