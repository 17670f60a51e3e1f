/** A Redis as the broker of Celery producers. */
import { noTraffic } from '../amqp/traffic.ts'
import { isUnrouted } from '../amqp/publish-errors.ts'
import type { Address, Carrier } from '../celery/carrier.ts'
import { requestExchange } from '../celery/control.ts'
import { eventExchange } from '../celery/event.ts'
import { channelOf, readEnvelope } from '../celery/kombu.ts'
import { consumeRedis, type RedisConsumer, type RedisIncoming } from '../celery/redis-consumer.ts'
import { redisCarrier, type RedisPlace } from '../celery/redis-transport.ts'
import type { WireMessage } from '../celery/wire.ts'
import { addressOf } from '../redis/address.ts'
import { listenRedis } from '../redis/connect.ts'
import type { IncomingCall, CeleryBroker, Receiving } from './broker.ts'
import { runOnRedis } from './redis-command.ts'

/** Messages that are read ahead. */
const prefetch = 500
/** For so long a message is kept for a process that is gone: what it held is not lost, and not done twice, as its id is known. */
const heldForMs = 30_000

/** Opens the Redis of a URL. `visibleAfterMs`: the workers' `visibility_timeout`. The errors are those of `redisCarrier` */
export async function openRedisBroker(place: RedisPlace & { visibleAfterMs: number }): Promise<CeleryBroker> {
  return new RedisCeleryBroker(await redisCarrier(place), place)
}

/** Uses a Redis, which it closes in the end. */
export class RedisCeleryBroker implements CeleryBroker {
  readonly lowerFirst = true
  readonly traffic = noTraffic()
  readonly #carrier: Carrier
  readonly #place: RedisPlace & { visibleAfterMs: number }
  #consumer: RedisConsumer | undefined
  #listening: { close(): void } | undefined

  constructor(carrier: Carrier, place: RedisPlace & { visibleAfterMs: number }) {
    this.#carrier = carrier
    this.#place = place
  }

  async consume(queues: readonly string[], onMessage: (incoming: IncomingCall) => void): Promise<Receiving> {
    const take = (incoming: RedisIncoming) => onMessage(incomingCallOf(incoming))
    const consumer = await consumeRedis({
      ...this.#place,
      traffic: this.traffic,
      queues,
      prefetch,
      heldForMs,
      onMessage: take,
    })
    this.#consumer = consumer
    return { stop: () => consumer.stop() }
  }

  send(message: WireMessage, address: Address): Promise<void> {
    this.traffic.published++
    return runOnRedis(() => this.#carrier.publish(message, address))
  }

  async reply(message: WireMessage, address: Address): Promise<void> {
    await this.send(message, address).catch((error: unknown) => {
      if (!isUnrouted(error)) throw error
    })
  }

  announce(message: WireMessage, routingKey: string): Promise<void> {
    this.traffic.published++
    return this.#carrier.broadcast(message, eventExchange, routingKey)
  }

  async listen(onRequest: (message: WireMessage) => unknown): Promise<void> {
    const { url, prefix, log } = this.#place
    const channel = prefix + channelOf(requestExchange, addressOf(url).db)
    this.#listening = await listenRedis(url, channel, (text) => {
      this.traffic.delivered++
      try {
        onRequest(readEnvelope(text).message)
      } catch (error) {
        log.warn('a request of Celery to its workers cannot be read; it is dropped', { err: error })
      }
    })
  }

  async close(): Promise<void> {
    this.#listening?.close()
    await this.#consumer?.close()
    await this.#carrier.close()
  }
}

function incomingCallOf(incoming: RedisIncoming): IncomingCall {
  const { queue, message } = incoming
  let isInHand = true
  const settle = (act: () => Promise<boolean>) => {
    isInHand = false
    // A message that is not taken off comes again, and is known.
    act().catch(() => {})
  }
  return {
    queue,
    message,
    get isInHand() {
      return isInHand
    },
    ack: () => settle(incoming.ack),
    requeue: () => settle(incoming.requeue),
  }
}
