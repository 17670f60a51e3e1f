/** Redis as the carrier of the codec's messages, as kombu uses it. */
import { randomUUID } from 'node:crypto'
import { systemClock } from '../core/clock.ts'
import { StoreError, UsageError } from '../core/errors.ts'
import type { Log } from '../core/log.ts'
import { addressOf } from '../redis/address.ts'
import { openRedis, type RedisConnection } from '../redis/connect.ts'
import type { Address, Carrier, Inbox } from './carrier.ts'
import {
  bindingsKey,
  boundQueues,
  channelOf,
  listOf,
  listsOf,
  readEnvelope,
  writeBinding,
  writeEnvelope,
} from './kombu.ts'
import { callRedis } from './redis-call.ts'
import type { WireMessage } from './wire.ts'

/** How to reach a Redis that is a broker; `prefix` stands before all keys (Celery's `global_keyprefix`). */
export interface RedisPlace {
  url: string
  prefix: string
  log: Log
}

/** Redis answers by then, with a message or without; so that a connection that is gone is noticed. */
const waitS = '1'
const againAfterMs = 200

/** Connects to a Redis that workers of Celery use as their broker. @throws UsageError SLUICE_BAD_URL, SLUICE_MISSING_PEER */
export async function redisCarrier(place: RedisPlace): Promise<Carrier> {
  const redis = await openPlace(place.url)
  return new RedisCarrier(redis, place)
}

/** A connection that its owner opens. */
export const carrierOn = (redis: RedisConnection, place: RedisPlace): Carrier => new RedisCarrier(redis, place)

/** How Redis refuses a user. */
const refusals = /\b(WRONGPASS|NOAUTH|NOPERM)\b/

/** Opens a connection. @throws UsageError SLUICE_BAD_URL, SLUICE_MISSING_PEER, SLUICE_BAD_REDIS; StoreError SLUICE_REDIS_UNREACHABLE */
export async function openPlace(url: string): Promise<RedisConnection> {
  const redis = openRedis(url) as RedisConnection
  try {
    await enter(redis)
    return redis
  } catch (error) {
    await redis.close()
    throw error
  }
}

/**
 * Opens a connection; that may be repeated if it fails.
 * @throws UsageError SLUICE_MISSING_PEER, SLUICE_BAD_REDIS; StoreError SLUICE_REDIS_UNREACHABLE
 */
export async function enter(redis: RedisConnection): Promise<void> {
  try {
    await redis.open()
  } catch (error) {
    const { message } = error as Error
    if (!refusals.test(message)) throw error
    throw new UsageError('SLUICE_BAD_REDIS', `Redis refuses the user, or the password, of its URL: ${message}`, {
      cause: error,
    })
  }
}

class RedisCarrier implements Carrier {
  readonly #redis: RedisConnection
  readonly #place: RedisPlace
  readonly #db: number
  readonly #stops = new Set<() => Promise<void>>()

  constructor(redis: RedisConnection, place: RedisPlace) {
    this.#redis = redis
    this.#place = place
    this.#db = addressOf(place.url).db
  }

  async publish(message: WireMessage, address: Address): Promise<void> {
    const text = writeEnvelope(message, address, randomUUID())
    const queues = address.exchange === '' ? [address.routingKey] : await this.#bound(address)
    await Promise.all(queues.map((queue) => this.#call('LPUSH', listOf(queue, message.priority), text)))
  }

  async broadcast(message: WireMessage, exchange: string, routingKey = ''): Promise<void> {
    const text = writeEnvelope(message, { exchange, routingKey }, randomUUID())
    const channel = channelOf(exchange, this.#db)
    await this.#call('PUBLISH', routingKey === '' ? channel : `${channel}/${routingKey}`, text)
  }

  async receive({ queue, binding }: Inbox, onMessage: (message: WireMessage) => unknown): Promise<() => Promise<void>> {
    // A connection of its own, because Redis answers one command after the other.
    const redis = await openPlace(this.#place.url)
    const lists = listsOf(queue).map((list) => this.#place.prefix + list)
    const ends = new AbortController()
    const member = binding === undefined ? undefined : writeBinding(binding.routingKey, queue)
    // A Redis that has lost its data, in a restart perhaps, has to know the binding again.
    const bind = async () => {
      if (member !== undefined) await this.#call('SADD', bindingsKey(binding?.exchange ?? ''), member)
    }
    const next = async () => {
      await bind()
      return redis.send('BRPOP', [...lists, waitS])
    }
    await bind().catch(async (error: unknown) => {
      await redis.close()
      throw error
    })
    const done = this.#listen(next, ends.signal, onMessage)
    const stop = async () => {
      this.#stops.delete(stop)
      ends.abort()
      await redis.close()
      await done
      if (member !== undefined) await this.#call('SREM', bindingsKey(binding?.exchange ?? ''), member)
      await this.#redis.send('DEL', lists)
    }
    this.#stops.add(stop)
    return stop
  }

  async close(): Promise<void> {
    const { log } = this.#place
    // A list of replies stays behind, which nobody reads.
    const left = (error: unknown) => log.warn('a queue for replies of Celery workers stays in Redis', { err: error })
    await Promise.all([...this.#stops].map((stop) => stop().catch(left)))
    await this.#redis.close()
  }

  async #listen(
    next: () => Promise<unknown>,
    ended: AbortSignal,
    onMessage: (message: WireMessage) => unknown,
  ): Promise<void> {
    let isLost = false
    while (!ended.aborted)
      try {
        const found = await next()
        isLost = false
        if (Array.isArray(found)) await this.#read(String(found[1]), onMessage)
      } catch (error) {
        if (ended.aborted) return
        if (!isLost) this.#place.log.warn('replies of Celery workers cannot be received from Redis now', { err: error })
        isLost = true
        await systemClock.sleep(againAfterMs, ended)
      }
  }

  async #read(text: string, onMessage: (message: WireMessage) => unknown): Promise<void> {
    try {
      await onMessage(readEnvelope(text).message)
    } catch (error) {
      this.#place.log.warn('a reply of a Celery worker cannot be read; it is left out', { err: error })
    }
  }

  async #bound({ exchange, routingKey }: Address): Promise<string[]> {
    const bindings = await this.#call('SMEMBERS', bindingsKey(exchange))
    const queues = boundQueues((bindings as unknown[]).map(String), routingKey)
    if (queues.length > 0) return queues
    const text = `no queue takes the routing key "${routingKey}" of the exchange "${exchange}": start the worker that serves it`
    throw new StoreError('SLUICE_BROKER_UNROUTED', text)
  }

  #call(command: string, key: string, ...args: readonly string[]): Promise<unknown> {
    return callRedis(this.#redis, command, [this.#place.prefix + key, ...args])
  }
}
