/** The codec's messages as those of the broker's client. */
import type { Broker, Delivery } from '../amqp/broker.ts'
import type { Headers } from '../amqp/headers.ts'
import type { WireMessage } from './wire.ts'

/** Where a message goes; `exchange` empty: the routing key is the name of a queue. */
export interface Address {
  exchange: string
  routingKey: string
  /** False: a message that no queue takes is dropped. Default true: it is an error. */
  mandatory?: boolean
  /** As of `Message`. */
  withinMs?: number
  isOnce?: boolean
}

/** Publishes a message. The errors are those of `Broker.publish`. */
export function publish(broker: Broker, message: WireMessage, address: Address): Promise<void> {
  const { body, headers, deliveryMode, expiration, ...others } = message
  const given = Object.entries(others).filter(([, value]) => value !== undefined)
  const properties = {
    ...Object.fromEntries(given),
    headers: headers as Headers,
    persistent: deliveryMode !== 1,
    ...(expiration === undefined ? {} : { expirationMs: Number(expiration) }),
  }
  return broker.publish({ ...address, body, properties })
}

/** A delivery as the codec reads it. */
export function received({ body, properties }: Delivery): WireMessage {
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
