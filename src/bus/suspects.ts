/**
 * Messages whose worker was lost. Which of those that a worker had received it had also begun, nobody knows, so this counts for none.
 * From then on they wait in a queue of their own, from which a process gets one more only when it has begun the one before: a message
 * that comes back from there had begun, and that counts.
 */
import type { Broker, Delivery } from '../amqp/broker.ts'
import type { Consumer } from '../amqp/consumer.ts'
import { SluiceError } from '../core/errors.ts'
import type { Log } from '../core/log.ts'
import { copyOf, type Progress } from './message.ts'
import type { ServiceNames } from './names.ts'

/** What it needs; see the fields. */
export interface SuspectsOptions {
  broker: Broker
  names: ServiceNames
  log: Log
  /** Takes one of them; `queue`: that of its group. */
  take(delivery: Delivery, queue: string): unknown
}

/** The header with the queue of a message's group. */
const queueHeader = 'sluice-queue'

/** The suspects of one service, as one process sees them. */
export class Suspects {
  readonly #options: SuspectsOptions
  readonly #opening = new Map<string, Promise<void>>()
  readonly #consumers: Consumer[] = []
  #isCancelled = false
  /** Another one may come. */
  #isOpen = false

  constructor(options: SuspectsOptions) {
    this.#options = options
  }

  /** Puts a message there. Resolves when that is confirmed. */
  async add(delivery: Delivery, progress: Progress, queue: string): Promise<void> {
    const { broker, names } = this.#options
    await this.#open()
    const known = { ...progress, isDoubtful: true }
    const message = copyOf(delivery, undefined, known, { routingKey: names.suspects }, { [queueHeader]: queue })
    await broker.publish(message).catch(async (error: unknown) => {
      if (!SluiceError.is(error) || error.code !== 'SLUICE_BROKER_UNROUTED') throw error
      await broker.declare(names.suspectsTopology)
      await broker.publish(message)
    })
  }

  /** Looks whether there are any, of which other processes may have made the queue. */
  async look(): Promise<void> {
    const { broker, names } = this.#options
    for (const queue of [names.suspects, names.formerSuspects]) {
      if (queue === undefined || this.#opening.has(queue) || this.#isCancelled) continue
      const found = await broker.use((channel) => channel.checkQueue(queue)).catch(absent)
      if (found === undefined) continue
      if (queue === names.suspects) await this.#open()
      else await this.#consume(queue)
    }
  }

  /** Whether `next` would let another one come. */
  get mayCome(): boolean {
    return !this.#isOpen && !this.#isCancelled && this.#consumers.length > 0
  }

  /** Lets another one come; to be called when those that came have begun, and there is room for more. */
  next(): void {
    if (!this.mayCome) return
    this.#isOpen = true
    // What is in hand does not count in a new prefetch.
    for (const consumer of this.#consumers) void consumer.setPrefetch(1)
  }

  /** Takes no more. */
  async cancel(): Promise<void> {
    this.#isCancelled = true
    await Promise.all(this.#consumers.map((consumer) => consumer.cancel()))
  }

  async #open(): Promise<void> {
    const { broker, names } = this.#options
    const queue = names.suspects
    if (this.#isCancelled && !this.#opening.has(queue)) return broker.declare(names.suspectsTopology)
    await this.#consume(queue, () => broker.declare(names.suspectsTopology))
  }

  async #consume(queue: string, declare = async () => {}): Promise<void> {
    const { broker, take } = this.#options
    const known = this.#opening.get(queue)
    if (known !== undefined) return known
    const open = async () => {
      await declare()
      this.#isOpen = true
      const consumer = await broker.consume(queue, { prefetch: 1 }, (delivery) => {
        this.#isOpen = false
        const group: unknown = delivery.properties.headers?.[queueHeader]
        return take(delivery, typeof group === 'string' ? group : '')
      })
      if (this.#isCancelled) await consumer.cancel()
      else this.#consumers.push(consumer)
    }
    const opening = open()
    this.#opening.set(queue, opening)
    opening.catch(() => this.#opening.delete(queue))
    return opening
  }
}

/** What a check of a queue that is not there resolves to. @throws what else may have failed */
export function absent(error: unknown): undefined {
  if (SluiceError.is(error) && error.code === 'SLUICE_BROKER_REFUSED') return undefined
  throw error
}
