/**
 * Watches whether Redis answers and has the state of the epoch that counts. If it has lost that state, it begins
 * another epoch.
 */
import type { Reading } from '../core/clock.ts'
import { StoreError, UsageError, textOfError } from '../core/errors.ts'
import type { Store } from '../db/store.ts'
import type { RedisConnection } from './connect.ts'
import type { RedisLimiter } from './limiter.ts'
import { hasLostReply, isOfReplica } from './client.ts'
import { checkServer, judgeServer, type ServerCheck } from './server.ts'
import { clockStepUs, readServerClock } from './server-clock.ts'
import type { SharedDefinitions } from './definitions.ts'
import { OthersBeginError, type SharedEpochs } from './epochs.ts'

/** Parameters of `RedisHealth`. */
export interface RedisHealthOptions {
  store: Store
  connection: RedisConnection
  limiter: RedisLimiter
  definitions: SharedDefinitions
  epochs: SharedEpochs
  /** Called when Redis answers again, or has another epoch. */
  onRestored(): void
  /** Called every few seconds while Redis answers. */
  onLook(): void
  /** Called with what Redis's clock shows. */
  onClockRead(reading: Reading): void
}

/** Ms between two reads of the definitions and of Redis's clock; the server is checked every sixth time. */
const lookMs = 5_000
const looksPerServer = 6
/** Outages shorter than this (ms) are not logged as errors. */
const quietMs = 1_000
const retryMsMax = 500
const warnMs = 60_000

/** One process's watch over Redis. */
export class RedisHealth {
  readonly #options: RedisHealthOptions
  readonly #closed = new AbortController()
  readonly #listeners = new Set<() => void>()
  #healing: Promise<void> | undefined
  /** The epoch whose state can no longer be trusted. */
  #forced: string | undefined
  /** The epochs that counted when Redis's clock, and the server, were last looked at. */
  #clockOf: string | undefined
  #lookOf: string | undefined
  #healedMs = -Infinity
  #warnedMs = -Infinity
  #rounds: Promise<void> | undefined
  #reading: Reading | undefined
  #lastCheck: ServerCheck | undefined
  /** Why limits may not be in this server; undefined: they may. */
  #unfit: string | undefined
  #isReplica = false

  constructor(options: RedisHealthOptions) {
    this.#options = options
  }

  /** True while nothing is sent to Redis. */
  get isAway(): boolean {
    return this.#healing !== undefined
  }

  get isClosed(): boolean {
    return this.#closed.signal.aborted
  }

  /** Makes the watch build the state of an epoch again, whatever Redis answers, unless another process does it. */
  force(of = this.#options.epochs.current): void {
    this.#forced = of
    this.recordFailure(undefined)
  }

  /** Calls `changed` when Redis goes away, and when it is back; the returned function ends it. */
  onChange(changed: () => void): () => void {
    this.#listeners.add(changed)
    return () => void this.#listeners.delete(changed)
  }

  /** Starts the watch. */
  start(): void {
    this.recordFailure(undefined)
    this.#rounds ??= this.#run()
  }

  /** Resolves when Redis is there, or after `ms`. */
  async waitUntilPresent(ms: number): Promise<void> {
    if (this.#healing === undefined) return
    const enough = new AbortController()
    const sleeping = this.#options.store.clock.sleep(ms, AbortSignal.any([enough.signal, this.#closed.signal]))
    await Promise.race([this.#healing, sleeping])
    enough.abort()
  }

  /**
   * Treats Redis as away until it answers and has the state that counts.
   * @param error the error, if there was one
   */
  recordFailure(error: unknown): void {
    if (this.#closed.signal.aborted || this.#healing !== undefined) return
    this.#warn(error)
    if (hasLostReply(error)) this.#options.connection.reset()
    this.#healing = this.#heal(error).finally(() => {
      this.#healing = undefined
      // The state was found untrustworthy meanwhile, so what is restored is not used.
      if (this.#forced !== undefined && this.#forced === this.#options.epochs.current)
        return this.recordFailure(undefined)
      for (const changed of this.#listeners) changed()
    })
    for (const changed of this.#listeners) changed()
  }

  /** Logs a failed call as a warning, at most once a minute; an outage that lasts is logged as an error (`#heal`). */
  #warn(error: unknown): void {
    const nowMs = this.#options.store.clock.monotonicMs()
    if (error === undefined || nowMs - this.#warnedMs < warnMs) return
    this.#warnedMs = nowMs
    this.#options.store.log.warn('a call to Redis failed; checking whether Redis is there and has its state', {
      err: error,
    })
  }

  async close(): Promise<void> {
    this.#closed.abort()
    await this.#healing
    await this.#rounds
  }

  async #heal(cause: unknown): Promise<void> {
    const { store, onRestored } = this.#options
    const { clock, report } = store
    const { signal } = this.#closed
    const sinceMs = clock.monotonicMs()
    let isReported = false
    // A fault that returns at once would make this a busy loop.
    if (sinceMs - this.#healedMs < 1_000) await clock.sleep(50 + clock.random() * 50, signal, false)
    for (let tries = 0; !signal.aborted; tries++) {
      try {
        await this.#restore()
        if (isReported) report.emit('connection', { to: 'redis', isLost: false, forMs: clock.monotonicMs() - sinceMs })
        this.#healedMs = clock.monotonicMs()
        return onRestored()
      } catch (error) {
        if (!(error instanceof OthersBeginError)) cause = error
        this.#resetConnection(error, tries)
        if (!isReported && clock.monotonicMs() - sinceMs > quietMs) {
          isReported = true
          await this.#reportAway(cause ?? error)
        }
      }
      await clock.sleep(Math.min(retryMsMax, 20 * 2 ** Math.min(tries, 6)) * (0.5 + clock.random()), signal, false)
    }
  }

  /** Checks the server, and has it hold the state that counts. Rejects while Redis is away, or may not have limits. */
  async #restore(): Promise<void> {
    const { store, epochs, limiter } = this.#options
    // If the server is silent, this fails sooner than a look at it.
    if (this.#unfit === undefined && this.#lastCheck !== undefined) await limiter.write()
    // What is evicted from now on may be of the epoch that begins.
    await this.#lookAtServer()
    if (this.#unfit !== undefined) throw new UsageError('SLUICE_REDIS_UNFIT', this.#unfit)
    await limiter.write()
    const forced = this.#forced
    await epochs.restore(forced)
    if (this.#forced === forced) this.#forced = undefined
    this.#lookOf = epochs.current
    // Two readings show a step of the clock only within one epoch.
    if (epochs.current !== this.#clockOf) this.#reading = undefined
    await this.#readClock()
    // Also if the outage was recorded by another process that is gone.
    await store.run('limits/redis/record_redis_back')
  }

  /** Opens another connection if this error, after so many tries, shows that the present one is of no use. */
  #resetConnection(error: unknown, tries: number): void {
    const { connection } = this.#options
    if (hasLostReply(error)) connection.reset()
    // The address may lead to another server by now: that of a proxy, a name, or sentinels.
    if (tries % 4 === 3 && (this.#isReplica || isOfReplica(error))) connection.reset()
  }

  async #reportAway(why: unknown): Promise<void> {
    const { store } = this.#options
    store.report.emit('connection', { to: 'redis', isLost: true, error: why })
    await store.run('limits/redis/record_redis_away', [textOfError(why).slice(0, 500)]).catch(() => {})
  }

  async #run(): Promise<void> {
    const { clock, log } = this.#options.store
    const { signal } = this.#closed
    for (let n = 1; ; n++) {
      await clock.sleep(lookMs * (0.75 + clock.random() / 2), signal, false)
      if (signal.aborted) return
      if (this.#healing !== undefined) continue
      try {
        await this.#lookAtAll(n)
      } catch (error) {
        log.debug('a look at Redis failed', { err: error })
        if (!(error instanceof StoreError && error.code === 'SLUICE_STORE_UNREACHABLE')) this.recordFailure(error)
      }
    }
  }

  async #lookAtAll(n: number): Promise<void> {
    await this.#options.definitions.publish()
    await this.#readClock()
    this.#options.onLook()
    if (n % looksPerServer === 0) await this.#lookAtServer()
    if (this.#unfit !== undefined) this.recordFailure(undefined)
  }

  /**
   * Reads Redis's clock. If the clock stepped, the state is built again from the ledger, because a step would free
   * units too early, or stop all grants.
   */
  async #readClock(): Promise<void> {
    const { store, epochs } = this.#options
    const { clock, log } = store
    const { answer, reading } = await readServerClock(clock, () => epochs.readEpoch())
    const [past, of] = [this.#reading, this.#clockOf]
    this.#reading = reading
    this.#clockOf = epochs.current
    if (past === undefined) return this.#options.onClockRead(reading)
    const stepUs = clockStepUs(past, reading)
    if (stepUs === undefined) {
      this.#options.onClockRead(reading)
      // Another process has begun an epoch.
      if (answer.mine !== epochs.current) this.recordFailure(undefined)
      return
    }
    this.force(of)
    log.warn("Redis's clock stepped: limits in it continue from the ledger; repair that clock", {
      seconds: Math.round(stepUs / 1e6),
    })
  }

  async #lookAtServer(): Promise<void> {
    const { connection, store } = this.#options
    const look = await checkServer(connection, this.#lastCheck, store.clock)
    const logged = new Set(this.#lastCheck?.findings.map(({ code }) => code))
    for (const { code, isError, text } of look.findings)
      if (!logged.has(code)) store.log[isError ? 'error' : 'warn'](text)
    const { hasEvicted, unfit } = judgeServer(look)
    const of = this.#lookOf
    this.#lookOf = this.#options.epochs.current
    this.#lastCheck = look
    this.#isReplica = look.findings.some(({ code }) => code === 'replica')
    this.#unfit = unfit?.text
    if (hasEvicted && of !== undefined) this.force(of)
  }
}
