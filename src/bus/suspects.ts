/**
 * Messages whose worker was lost. It is not known which of them that worker had begun, so no attempt is counted. They
 * wait in a queue of their own. A process takes one message from it when it can begin it, and the next one only when it
 * has begun the first. So a message that comes back to that queue had begun, and an attempt is counted. If it does not begin at
 * once, because other replicas get a question about it, it takes a slot meanwhile, so that no process fetches more than it has slots.
 */
import type { Channel } from 'amqplib'
import type { Broker, Incoming } from '../amqp/broker.ts'
import { Received, type Verdict } from '../amqp/consumer.ts'
import { publishOrDeclare } from '../amqp/publish-errors.ts'
import { codeOf } from '../core/errors.ts'
import type { Log } from '../core/log.ts'
import { copyOf, type Progress } from './message.ts'
import type { ServiceNames } from './names.ts'

/** Parameters of `Suspects`; see the fields. */
export interface SuspectsOptions {
  broker: Broker
  names: ServiceNames
  log: Log
  /** Returns how many could begin now. */
  free(): number
  /** Begins one of them; `queue`: that of its group. */
  take(incoming: Incoming, queue: string): Promise<void> | undefined
  /** Resolves when the server has carried out all acknowledgements so far. */
  synced(): Promise<unknown>
}

/** The header with the queue of a message's group. */
const queueHeader = 'sluice-queue'

/** The suspects of one service, as one process sees them. */
export class Suspects {
  readonly #options: SuspectsOptions
  /** The queues that it reads now. */
  readonly #reading = new Set<string>()
  /** Those of them that may have more than that read finds. */
  readonly #unread = new Set<string>()
  /** How many messages are being put into the queue of suspects. */
  #adding = 0
  /** How many were taken from it, and have not begun. */
  #taking = 0
  #isCancelled = false
  #wakers: (() => void)[] = []

  constructor(options: SuspectsOptions) {
    this.#options = options
  }

  /** Puts a message into the queue of suspects, and acknowledges it where it was. */
  async add(incoming: Incoming, progress: Progress, queue: string): Promise<void> {
    const { broker, names, synced } = this.#options
    this.#adding++
    try {
      const known = { ...progress, copy: (progress.copy ?? 0) + 1, isDoubtful: true }
      const message = copyOf(incoming, undefined, known, { routingKey: names.suspects }, { [queueHeader]: queue })
      await publishOrDeclare(
        () => broker.publish(message),
        () => broker.declare(names.suspectsTopology),
      )
      incoming.ack()
      // If the message began before that, it could crash this process while the server has both copies.
      await synced()
    } finally {
      this.#adding--
    }
    this.look()
  }

  /** Begins the suspects that wait. Other processes may have put some there, or have been lost with some. */
  look(): void {
    const { names } = this.#options
    this.wake()
    for (const queue of [names.suspects, names.formerSuspects]) if (queue !== undefined) this.#lookAt(queue)
  }

  #lookAt(queue: string): void {
    if (this.#isCancelled) return
    if (this.#reading.has(queue)) return void this.#unread.add(queue)
    this.#reading.add(queue)
    void this.#read(queue)
      .catch((error: unknown) => this.#options.log.debug('the queue of suspects could not be read', { err: error }))
      .finally(() => {
        this.#reading.delete(queue)
        if (this.#unread.delete(queue)) this.#lookAt(queue)
      })
  }

  /** To be called when there may be room again. */
  wake(): void {
    for (const waker of this.#wakers.splice(0)) waker()
  }

  /** Takes no more. */
  cancel(): void {
    this.#isCancelled = true
    this.wake()
  }

  async #read(queue: string): Promise<void> {
    const { broker } = this.#options
    const inHand = new Set<number>()
    try {
      await broker.use((channel) => this.#readAll(queue, channel, inHand)).catch(ignoreMissing)
    } finally {
      inHand.clear()
    }
  }

  /** Reads a queue; resolves when it is empty, and the messages that came from it are settled. */
  async #readAll(queue: string, channel: Channel, inHand: Set<number>): Promise<void> {
    const { free, take } = this.#options
    for (;;) {
      while (!this.#isCancelled && (this.#adding > 0 || free() <= this.#taking)) await this.#waitForWake()
      const message = this.#isCancelled ? false : await channel.get(queue)
      if (message === false) {
        if (inHand.size === 0) return
        await this.#waitForWake()
        continue
      }
      const write = (verdict: Verdict) =>
        verdict === 'ack' ? channel.ack(message) : channel.reject(message, verdict === 'requeue')
      const received = new Received(inHand, message, write, () => this.wake())
      inHand.add(message.fields.deliveryTag)
      const group: unknown = message.properties.headers?.[queueHeader]
      void this.#count(received, take(received, typeof group === 'string' ? group : ''))
      // By then the handler has done the work of its first run.
      await new Promise<void>((resolve) => setImmediate(resolve))
    }
  }

  async #count(received: Incoming, taken: Promise<void> | undefined): Promise<void> {
    if (taken === undefined) return
    this.#taking++
    try {
      await taken
    } catch {
      received.reject({ requeue: true })
    } finally {
      this.#taking--
      this.wake()
    }
  }

  #waitForWake(): Promise<void> {
    return new Promise((resolve) => this.#wakers.push(resolve))
  }
}

/** Returns undefined for the error of a queue that does not exist. @throws any other error */
function ignoreMissing(error: unknown): undefined {
  if (codeOf(error) === 'SLUICE_BROKER_REFUSED') return undefined
  throw error
}
