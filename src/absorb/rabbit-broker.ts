/** A RabbitMQ as the broker of Celery producers. */
import { randomUUID } from 'node:crypto'
import type { Broker } from '../amqp/broker.ts'
import type { Consumer, Incoming } from '../amqp/consumer.ts'
import type { Address } from '../celery/carrier.ts'
import { requestExchange } from '../celery/control.ts'
import { eventExchange } from '../celery/event.ts'
import { publish, readIncoming } from '../celery/transport.ts'
import type { WireMessage } from '../celery/wire.ts'
import { publishOrDeclare } from '../amqp/publish-errors.ts'
import { type DepthOptions, watchDepth } from '../worker/queue-depth.ts'
import type { IncomingCall, CeleryBroker, Receiving } from './broker.ts'

/** Messages of a queue that are read ahead. */
const prefetch = 200
/** A result or an event is worth no longer wait: the caller tries again. */
const withinMs = 10_000

/** Uses a RabbitMQ, which it closes in the end. */
export class RabbitCeleryBroker implements CeleryBroker {
  readonly lowerFirst = false
  readonly #broker: Broker
  #hasExchange: Promise<void> | undefined

  constructor(broker: Broker) {
    this.#broker = broker
  }

  get traffic(): Broker['traffic'] {
    return this.#broker.traffic
  }

  async consume(queues: readonly string[], onMessage: (incoming: IncomingCall) => void): Promise<Receiving> {
    const consumers: Consumer[] = []
    for (const queue of queues) {
      if ((await this.#broker.findQueue(queue)) === undefined) await this.#broker.declare({ queues: [{ name: queue }] })
      const take = (incoming: Incoming) => onMessage(incomingCallOf(incoming, queue))
      consumers.push(await this.#broker.consume(queue, { prefetch }, take))
    }
    return {
      async stop() {
        await Promise.all(consumers.map((consumer) => consumer.cancel()))
      },
    }
  }

  async send(message: WireMessage, address: Address): Promise<void> {
    const send = () => publish(this.#broker, message, { ...address, withinMs })
    if (address.exchange !== '') return send()
    await publishOrDeclare(send, () => this.#broker.use((channel) => channel.assertQueue(address.routingKey)))
  }

  reply(message: WireMessage, address: Address): Promise<void> {
    return publish(this.#broker, message, { ...address, mandatory: false, withinMs })
  }

  async announce(message: WireMessage, routingKey: string): Promise<void> {
    this.#hasExchange ??= this.#broker.declare({ exchanges: [{ name: eventExchange, type: 'topic' }] })
    await this.#hasExchange.catch((error: unknown) => {
      this.#hasExchange = undefined
      throw error
    })
    await this.reply(message, { exchange: eventExchange, routingKey })
  }

  async listen(onRequest: (message: WireMessage) => unknown): Promise<void> {
    const queue = `${randomUUID()}.${requestExchange}`
    await this.#broker.declare({
      exchanges: [{ name: requestExchange, type: 'fanout', durable: false }],
      queues: [{ name: queue, durable: false, exclusive: true }],
      bindings: [{ exchange: requestExchange, to: { queue } }],
    })
    await this.#broker.consume(queue, { prefetch: 1, noAck: true }, (incoming) => onRequest(readIncoming(incoming)))
  }

  watch(options: Omit<DepthOptions, 'broker'>, signal: AbortSignal): Promise<void> {
    return watchDepth({ ...options, broker: this.#broker }, signal)
  }

  close(): Promise<void> {
    return this.#broker.close()
  }
}

function incomingCallOf(incoming: Incoming, queue: string): IncomingCall {
  return {
    queue,
    message: readIncoming(incoming),
    get isInHand() {
      return incoming.isInHand
    },
    ack: () => incoming.ack(),
    requeue: () => incoming.reject({ requeue: true }),
  }
}
