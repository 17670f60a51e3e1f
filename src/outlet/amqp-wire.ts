/** The outlet's messages over RabbitMQ. They are transient, because what is lost is noticed by both ends. */
import type { Broker } from '../amqp/broker.ts'
import type { Consumer } from '../amqp/consumer.ts'
import { isUnsent } from '../amqp/publish-errors.ts'
import { UnsentError, type Wire } from './wire.ts'

/** A queue is deleted with its consumer, or after this time, so that a message to a process that has ended comes back. */
const expiresMs = 60_000
/** A message without a deadline of its own is of no use after this time. */
const withinMs = 10_000

const exchangeOf = (name: string) => ({ name, type: 'fanout' }) as const

/** Carries messages over a broker, whose owner closes it. */
export class AmqpWire implements Wire {
  readonly #broker: Broker
  readonly #consumers = new Map<string, Consumer>()
  /** The exchanges of fleets that it has declared. */
  readonly #fleets = new Set<string>()

  constructor(broker: Broker) {
    this.#broker = broker
  }

  get isUp(): boolean {
    return this.#broker.isUp
  }

  send(to: string, message: string, ttlMs = withinMs): Promise<void> {
    return this.#publish({ routingKey: to }, message, ttlMs)
  }

  async call(fleet: string, message: string): Promise<void> {
    // Before the first dispatcher of the fleet there is none, and RabbitMQ ends a channel that publishes to it.
    if (!this.#fleets.has(fleet)) await this.#broker.declare({ exchanges: [exchangeOf(fleet)] })
    this.#fleets.add(fleet)
    await this.#publish({ exchange: fleet, routingKey: '', mandatory: false }, message, withinMs)
  }

  async receive(name: string, take: (message: string) => void, fleet?: string): Promise<void> {
    this.#broker.checkThere()
    await this.#broker.declare({
      exchanges: fleet === undefined ? [] : [exchangeOf(fleet)],
      queues: [{ name, autoDelete: true, arguments: { 'x-expires': expiresMs } }],
      bindings: fleet === undefined ? [] : [{ exchange: fleet, to: { queue: name } }],
    })
    const options = { prefetch: 1, noAck: true }
    this.#consumers.set(name, await this.#broker.consume(name, options, ({ body }) => take(body.toString())))
  }

  async leave(name: string): Promise<void> {
    await this.#consumers.get(name)?.cancel()
    this.#consumers.delete(name)
  }

  async #publish(
    to: { exchange?: string; routingKey: string; mandatory?: boolean },
    message: string,
    ttlMs: number,
  ): Promise<void> {
    try {
      const properties = { contentType: 'application/json', persistent: false, expirationMs: ttlMs }
      await this.#broker.publish({ ...to, body: Buffer.from(message), properties, withinMs: ttlMs })
    } catch (error) {
      throw isUnsent(error) ? new UnsentError('the broker did not take it', { cause: error }) : error
    }
  }
}
