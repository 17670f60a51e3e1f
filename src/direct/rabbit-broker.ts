/** A RabbitMQ as the broker of a worker without a store: what waits is in delay queues (`amqp/delays.ts`). */
import { RabbitCeleryBroker } from '../absorb/rabbit-broker.ts'
import { type Broker, openBroker } from '../amqp/broker.ts'
import type { Consumer } from '../amqp/consumer.ts'
import { delayTopology, publishLater } from '../amqp/delays.ts'
import { publishOrDeclare } from '../amqp/publish-errors.ts'
import { messageOf } from '../celery/transport.ts'
import type { WireMessage } from '../celery/wire.ts'
import type { Log } from '../core/log.ts'
import type { Incoming, DirectBroker, Receiving } from './broker.ts'
import { againHeader } from './message.ts'

/** Opens the RabbitMQ of a URL; if it is away, later. @throws the errors of `openBroker` */
export async function openRabbit(url: string, log: Log): Promise<DirectBroker> {
  return new RabbitBroker(await openBroker({ url, name: 'sluice direct', log, isPatient: true }))
}

class RabbitBroker implements DirectBroker {
  readonly celery: RabbitCeleryBroker
  readonly #broker: Broker
  readonly #consumers: Consumer[] = []

  constructor(broker: Broker) {
    this.#broker = broker
    this.celery = new RabbitCeleryBroker(broker)
  }

  async receive({ queues, prefetch, signal, take }: Receiving): Promise<void> {
    const broker = this.#broker
    broker.checkThere()
    await broker.declare(delayTopology())
    for (const consumer of this.#consumers.splice(0)) await consumer.cancel()
    for (const queue of queues) {
      // If no program of Celery has declared it yet, it is made as Celery makes it.
      if ((await broker.findQueue(queue)) === undefined) await broker.declare({ queues: [{ name: queue }] })
      if (signal.aborted) return
      const consumer = await broker.consume(queue, { prefetch }, (incoming) => take(incoming, queue))
      if (signal.aborted) await consumer.cancel()
      this.#consumers.push(consumer)
    }
  }

  setPrefetch(prefetch: number): Promise<unknown> {
    return Promise.all(this.#consumers.map((consumer) => consumer.setPrefetch(prefetch)))
  }

  async stop(): Promise<void> {
    await Promise.all(this.#consumers.map((consumer) => consumer.cancel()))
  }

  async flush(): Promise<void> {
    // A connection that is closed at once may take the last acknowledgements with it.
    await Promise.all(this.#consumers.map((consumer) => consumer.flushAcks()))
  }

  sendLater(_: Incoming, copy: WireMessage, queue: string, ms: number): Promise<void> {
    const broker = this.#broker
    // Sent again after a lost connection, it may be there twice.
    const message = { ...messageOf(copy), again: { [againHeader]: true } }
    return publishOrDeclare(
      () => publishLater(broker, message, queue, ms),
      async () => {
        // Somebody has deleted the queues in which messages wait, or its own queue.
        await (ms > 0 ? broker.declare(delayTopology()) : broker.use((channel) => channel.assertQueue(queue)))
      },
    )
  }

  close(): Promise<void> {
    return this.#broker.close()
  }
}
