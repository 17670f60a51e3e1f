/** RabbitMQ as the carrier of the codec's messages. */
import { type Broker, type Incoming, openBroker } from '../amqp/broker.ts'
import type { Headers } from '../amqp/headers.ts'
import type { Message } from '../amqp/publisher.ts'
import { systemClock } from '../core/clock.ts'
import type { Log } from '../core/log.ts'
import type { Address, Carrier, Inbox } from './carrier.ts'
import type { WireMessage } from './wire.ts'

/** A reply queue without a reader goes after this time; until then a lost connection loses no result. */
const queueKeptMs = 300_000

/** Messages that a reader has at once that keeps them, as many as the protocol allows: those of others must not bar its own. */
const keptMost = 65_535

/** A message for another reader goes back after this time, so that the reader does not get it again and again without a pause. */
const foreignMs = 200

/** Connects to a RabbitMQ. The errors are those of `openBroker`. */
export async function amqpCarrier(options: { url: string; name: string; log: Log }): Promise<Carrier> {
  return new AmqpCarrier(await openBroker(options))
}

/** A RabbitMQ that is open, and that its owner closes. */
export const carrierOver = (broker: Broker): Carrier => new AmqpCarrier(broker)

/** Returns a message as RabbitMQ's client takes it. */
export function messageOf(message: WireMessage): Pick<Message, 'body' | 'properties'> {
  const { body, headers, deliveryMode, expiration, ...others } = message
  const given = Object.entries(others).filter(([, value]) => value !== undefined)
  const properties = {
    ...Object.fromEntries(given),
    headers: headers as Headers,
    persistent: deliveryMode !== 1,
    ...(expiration === undefined ? {} : { expirationMs: Number(expiration) }),
  }
  return { body, properties }
}

/** Publishes a message. @param to `withinMs`, `isOnce`, `mandatory`: as of `Message`. The errors are those of `Broker.publish` */
export function publish(
  broker: Broker,
  message: WireMessage,
  to: Address & Pick<Message, 'mandatory' | 'withinMs' | 'isOnce'>,
): Promise<void> {
  return broker.publish({ ...to, ...messageOf(message) })
}

class AmqpCarrier implements Carrier {
  readonly #broker: Broker
  readonly #fanouts = new Map<string, Promise<void>>()

  constructor(broker: Broker) {
    this.#broker = broker
  }

  publish(message: WireMessage, address: Address): Promise<void> {
    return publish(this.#broker, message, address)
  }

  async broadcast(message: WireMessage, exchange: string, routingKey = ''): Promise<void> {
    const exchanges = [{ name: exchange, type: 'fanout' as const, durable: false }]
    const declared = this.#fanouts.get(exchange) ?? this.#broker.declare({ exchanges })
    this.#fanouts.set(exchange, declared)
    await declared.catch((error: unknown) => {
      this.#fanouts.delete(exchange)
      throw error
    })
    await publish(this.#broker, message, { exchange, routingKey, mandatory: false })
  }

  async receive(
    { queue, binding, isKept = false, onAttached = () => {} }: Inbox,
    onMessage: (message: WireMessage) => unknown,
  ): Promise<() => Promise<void>> {
    await this.#broker.declare(
      binding === undefined
        ? { queues: [{ name: queue, arguments: { 'x-expires': queueKeptMs } }] }
        : {
            exchanges: [{ name: binding.exchange, type: 'direct', durable: false }],
            queues: [{ name: queue, durable: false, exclusive: true }],
            bindings: [{ exchange: binding.exchange, to: { queue }, routingKey: binding.routingKey }],
          },
    )
    const how = { prefetch: keptMost, noAck: !isKept, onAttached }
    const ends = new AbortController()
    let pause: Promise<void> | undefined
    const consumer = await this.#broker.consume(queue, how, async (incoming) => {
      const isForeign = (await onMessage(readIncoming(incoming))) === false
      if (!isKept) return
      if (!isForeign) return void incoming.ack()
      // One pause for all that arrive during it.
      pause ??= systemClock.sleep(foreignMs, ends.signal, false).then(() => (pause = undefined))
      await pause
      incoming.reject({ requeue: true })
    })
    return async () => {
      await consumer.cancel()
      ends.abort()
    }
  }

  close(): Promise<void> {
    return this.#broker.close()
  }
}

/** A received message as the codec reads it. */
export function readIncoming({ body, properties }: Pick<Incoming, 'body' | 'properties'>): WireMessage {
  const { contentType, contentEncoding, correlationId, replyTo, priority, headers } = properties as {
    contentType?: string
    contentEncoding?: string
    correlationId?: string
    replyTo?: string
    priority?: number
    headers?: Record<string, unknown>
  }
  return { contentType, contentEncoding, correlationId, replyTo, priority, headers: headers ?? {}, body }
}
