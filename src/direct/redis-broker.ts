/** A Redis as the broker of a worker without a store: what waits is in a sorted set (`celery/put-off.lua`). */
import { setMaxListeners } from 'node:events'
import { RedisCeleryBroker } from '../absorb/redis-broker.ts'
import { runOnRedis } from '../absorb/redis-command.ts'
import { consumeRedis, type RedisConsumer, type RedisIncoming } from '../celery/redis-consumer.ts'
import { carrierOn, enter, type RedisPlace } from '../celery/redis-transport.ts'
import type { WireMessage } from '../celery/wire.ts'
import type { Clock } from '../core/clock.ts'
import { SluiceError, StoreError } from '../core/errors.ts'
import { openRedis, type RedisConnection } from '../redis/connect.ts'
import type { Incoming, DirectBroker, Receiving } from './broker.ts'
import { againHeader } from './message.ts'

/** Parameters of `openRedisBroker`; see the fields. */
export interface RedisBrokerOptions extends RedisPlace {
  /** The workers' `visibility_timeout`. */
  visibleAfterMs: number
  clock: Clock
}

/** For so long a message is kept for a process that is gone. */
const heldForMs = 30_000
/** Between two tries to settle a message, in ms. */
const againMs = 200

/** Opens the Redis of a URL; it connects when it receives. @throws UsageError SLUICE_BAD_URL, SLUICE_MISSING_PEER */
export async function openRedisBroker(options: RedisBrokerOptions): Promise<DirectBroker> {
  const redis = openRedis(options.url) as RedisConnection
  await redis.load()
  return new RedisBroker(redis, options)
}

class RedisBroker implements DirectBroker {
  readonly celery: RedisCeleryBroker
  readonly #redis: RedisConnection
  readonly #options: RedisBrokerOptions
  readonly #end = new AbortController()
  readonly #settling = new Set<Promise<void>>()
  #consumer: RedisConsumer | undefined

  constructor(redis: RedisConnection, options: RedisBrokerOptions) {
    this.#redis = redis
    this.#options = options
    setMaxListeners(Infinity, this.#end.signal)
    this.celery = new RedisCeleryBroker(carrierOn(redis, options), options)
  }

  async receive({ queues, prefetch, signal, take }: Receiving): Promise<void> {
    await enter(this.#redis)
    if (signal.aborted) return
    const onMessage = (incoming: RedisIncoming) => take(new RedisMessage(incoming, this.#settle), incoming.queue)
    this.#consumer ??= await consumeRedis({
      ...this.#options,
      traffic: this.celery.traffic,
      queues,
      prefetch,
      heldForMs,
      onMessage,
    })
    if (signal.aborted) await this.#consumer.stop()
    // It was connecting while this was closed.
    if (this.#end.signal.aborted) await this.#consumer.close()
  }

  setPrefetch(prefetch: number): void {
    this.#consumer?.setPrefetch(prefetch)
  }

  async stop(): Promise<void> {
    await this.#consumer?.stop()
  }

  async flush(): Promise<void> {
    // From now on each is tried once more.
    this.#end.abort()
    await Promise.all(this.#settling)
  }

  async sendLater(incoming: Incoming, copy: WireMessage, _: string, ms: number): Promise<void> {
    await (incoming as RedisMessage).sendLater(copy, ms)
  }

  async close(): Promise<void> {
    this.#end.abort()
    await this.#consumer?.close()
    await this.celery.close()
  }

  /** Settles a message, again and again until Redis has answered: what is not taken off would be executed again. */
  readonly #settle = (act: () => Promise<boolean>): void => {
    const settled = this.#insist(act).finally(() => this.#settling.delete(settled))
    this.#settling.add(settled)
  }

  async #insist(act: () => Promise<boolean>): Promise<void> {
    const { clock, log } = this.#options
    for (;;)
      try {
        return void (await act())
      } catch (error) {
        log.debug('a message of Celery cannot be settled in Redis now', { err: error })
        if (this.#end.signal.aborted) return
        await clock.sleep(againMs, this.#end.signal, false)
      }
  }
}

/** A message in hand. */
class RedisMessage implements Incoming {
  readonly body: Buffer
  readonly properties: Incoming['properties']
  readonly isRedelivered: boolean
  isElsewhere = false
  readonly #incoming: RedisIncoming
  readonly #settle: (act: () => Promise<boolean>) => void
  #isSettled = false
  /** It was to be sent later and had been acknowledged before, so that it may be there already. */
  #mayBeThere = false

  constructor(incoming: RedisIncoming, settle: (act: () => Promise<boolean>) => void) {
    const { message, isRedelivered } = incoming
    const { body, ...properties } = message
    this.body = body
    this.properties = properties as Incoming['properties']
    this.isRedelivered = isRedelivered
    this.#incoming = incoming
    this.#settle = settle
  }

  get isInHand(): boolean {
    return !this.#isSettled && this.#incoming.isHeld
  }

  ack(): void {
    this.#end(() => this.#incoming.ack())
  }

  reject(): void {
    this.#end(() => this.#incoming.requeue())
  }

  /**
   * Both in one step: it is there again, and it is taken off. A repetition changes nothing then. But if it was taken off before, when
   * its attempt began, it may be there twice.
   */
  async sendLater(copy: WireMessage, ms: number): Promise<void> {
    const headers = this.#mayBeThere ? { ...copy.headers, [againHeader]: true } : copy.headers
    this.#mayBeThere = this.#isSettled
    const isDone = await reachBroker(() => this.#incoming.putOff({ ...copy, headers }, ms))
    this.#isSettled = true
    this.isElsewhere = !isDone
  }

  #end(act: () => Promise<boolean>): void {
    if (this.#isSettled) return
    this.#isSettled = true
    this.#settle(act)
  }
}

/**
 * Calls Redis. What it refuses has an error of the store, as what it does not answer, so that it is tried again: no message is at fault.
 * @throws StoreError SLUICE_REDIS_REFUSED, SLUICE_REDIS_UNREACHABLE, SLUICE_REDIS_SILENT, SLUICE_REDIS_ANSWER
 */
async function reachBroker<T>(command: () => Promise<T>): Promise<T> {
  try {
    return await runOnRedis(command)
  } catch (error) {
    if (SluiceError.is(error) || error instanceof RangeError) throw error
    throw new StoreError('SLUICE_REDIS_REFUSED', `Redis refused: ${String(error)}`, { cause: error })
  }
}
