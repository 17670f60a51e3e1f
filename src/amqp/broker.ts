/** The entry to a RabbitMQ: one connection that publishes, and, from the first consumer on, one that consumes. */
import { createHash } from 'node:crypto'
import type { Channel } from 'amqplib'
import { systemClock } from '../core/clock.ts'
import { SluiceError, StoreError, UsageError } from '../core/errors.ts'
import type { Log } from '../core/log.ts'
import { addressOf } from './address.ts'
import { Subscription, type ConsumeOptions, type Consumer, type Incoming } from './consumer.ts'
import { Link } from './link.ts'
import { Publisher, type Message } from './publisher.ts'
import { causeOf, lossOf, refusalOf, type Session } from './session.ts'
import { noTraffic, type Traffic } from './traffic.ts'
import { Declarations, type Topology } from './topology.ts'

export type { Incoming } from './consumer.ts'

/** A RabbitMQ. Lost connections are opened again until it is closed. */
export interface Broker {
  /** Messages can be published and received: no connection is lost, and the server takes messages. */
  readonly isUp: boolean
  /** What it has published and received so far, and consumers have settled. */
  readonly traffic: Readonly<Traffic>
  /** Resolves when the server has confirmed the message (`Publisher.publish` lists the errors). */
  publish(message: Message): Promise<void>
  /**
   * For a stream, which leaves half of the space to others: resolves when there may be space for a body of so many
   * bytes. Other streams may take the space first, so call it again then. Undefined: there is space now.
   */
  waitForSpace(bytes: number): Promise<void> | undefined
  /**
   * Receives the messages of a queue.
   * @throws UsageError SLUICE_BROKER_REFUSED (there is no such queue, for example); StoreError SLUICE_BROKER_UNREACHABLE
   */
  consume(queue: string, options: ConsumeOptions, onMessage: (incoming: Incoming) => unknown): Promise<Consumer>
  /**
   * Declares objects, and again on each new connection.
   * @throws UsageError SLUICE_BROKER_REFUSED (it exists with other arguments, for example); StoreError SLUICE_BROKER_UNREACHABLE
   */
  declare(topology: Topology): Promise<void>
  /**
   * Runs commands on a channel of their own, once. Messages that they received and did not settle are in their queue
   * again afterwards.
   * @throws UsageError SLUICE_BROKER_REFUSED (there is no such queue, for example); StoreError SLUICE_BROKER_UNREACHABLE
   */
  use<T>(commands: (channel: Channel) => Promise<T>): Promise<T>
  /**
   * Resolves to how many messages and consumers a queue has; undefined: there is no such queue.
   * @throws StoreError SLUICE_BROKER_UNREACHABLE
   */
  findQueue(queue: string): Promise<{ messageCount: number; consumerCount: number } | undefined>
  /** Resolves to a short name that all who are connected to this virtual host of this cluster share. */
  identity(): Promise<string>
  /** Resolves to how many channels the server allows on one connection. */
  channelsMax(): Promise<number>
  /** @throws StoreError SLUICE_BROKER_UNREACHABLE: there is no connection now, or the server takes nothing from it */
  checkThere(): void
  /**
   * Waits for confirmations, for 5 s at most, and closes the connections. Messages that consumers have in hand are
   * delivered again.
   */
  close(): Promise<void>
}

const readyMaxMs = 30_000
const flushMaxMs = 5_000

/** How to connect. */
export interface BrokerOptions {
  url: string
  /** Is shown in the server's tools. */
  name: string
  log: Log
  /** Declared before anything else. */
  topology?: Topology
  /** True: a server that is away is waited for; until then messages wait, as after a lost connection. Default false: it is an error. */
  isPatient?: boolean
}

/**
 * Connects to a RabbitMQ.
 * @throws UsageError SLUICE_BAD_URL, SLUICE_MISSING_PEER, SLUICE_BROKER_REFUSED; StoreError SLUICE_BROKER_UNREACHABLE
 */
export async function openBroker(options: BrokerOptions): Promise<Broker> {
  const connections = new Connections(options)
  try {
    await connections.open(options.topology)
    return connections
  } catch (error) {
    await connections.close()
    throw error
  }
}

class Connections implements Broker {
  readonly traffic = noTraffic()
  readonly #publishing: Link
  readonly #consuming: Link
  readonly #isPatient: boolean
  readonly #publisher: Publisher
  readonly #declarations: Declarations
  readonly #log: Log
  readonly #vhost: string
  readonly #consumers = new Set<Subscription>()
  #opened: Promise<void> | undefined
  #isClosed = false

  constructor({ url, name, log, isPatient = false }: BrokerOptions) {
    const address = addressOf(url)
    this.#isPatient = isPatient
    this.#log = log
    this.#vhost = address.vhost
    this.#publisher = new Publisher(name, this.traffic)
    this.#declarations = new Declarations(log)
    this.#publishing = new Link({
      address,
      name: `${name}, publishing`,
      log,
      onUp: async (session) => {
        await this.#declarations.repeat(session, 'shared')
        await this.#publisher.useConnection(session)
      },
      onDown: (cause) => this.#publisher.holdUnconfirmed(cause),
    })
    this.#consuming = new Link({
      address,
      name: `${name}, consuming`,
      log,
      onUp: (session) => this.#declarations.repeat(session, 'own'),
      onDown: () => {},
    })
  }

  async open(topology: Topology | undefined): Promise<void> {
    await this.#publishing.open(this.#isPatient)
    if (topology === undefined) return
    if (this.#publishing.lostAtMs === undefined) await this.declare(topology)
    else this.#declarations.remember(topology)
  }

  publish(message: Message): Promise<void> {
    if (this.#isClosed) return Promise.reject(closedError())
    return this.#publisher.publish(message)
  }

  waitForSpace(bytes: number): Promise<void> | undefined {
    return this.#publisher.waitForSpace(bytes)
  }

  async consume(queue: string, options: ConsumeOptions, onMessage: (incoming: Incoming) => unknown): Promise<Consumer> {
    if (this.#isClosed) throw closedError()
    const subscription: Subscription = new Subscription(queue, options, onMessage, {
      log: this.#log,
      traffic: this.traffic,
      ready: (withinMs) => this.#waitUntilOpen(true, withinMs),
      redeclare: (session) => this.#declarations.repeat(session, 'all'),
      cancelled: () => void this.#consumers.delete(subscription),
    })
    await subscription.open(readyMaxMs)
    // The broker was closed meanwhile. Otherwise the subscription would be tried again for ever.
    if (this.#isClosed) {
      await subscription.cancel()
      throw closedError()
    }
    this.#consumers.add(subscription)
    return subscription
  }

  async declare(topology: Topology): Promise<void> {
    if (this.#isClosed) throw closedError()
    const isConsuming = Declarations.isExclusive(topology)
    const untilMs = systemClock.monotonicMs() + readyMaxMs
    for (;;) {
      const session = await this.#waitUntilOpen(isConsuming, untilMs - systemClock.monotonicMs())
      try {
        return await this.#declarations.declare(topology, session, isConsuming)
      } catch (error) {
        if (error instanceof UsageError || this.#isClosed) throw error
        // It is safe to declare an object twice. On a connection that stands, no channel is left for that.
        if ((await lossOf(session)) === undefined) throw undoneError(error as Error)
      }
    }
  }

  async use<T>(commands: (channel: Channel) => Promise<T>): Promise<T> {
    if (this.#isClosed) throw closedError()
    const session = await this.#waitUntilOpen(false, readyMaxMs)
    let channel: Channel | undefined
    try {
      const opened = (channel = await session.model.createChannel())
      const failed = new Promise<never>((_, reject) => {
        opened.on('error', reject)
        // Code that waits for messages of a closed channel would wait for ever.
        opened.on('close', () => reject(new Error('the channel was closed')))
      })
      failed.catch(() => {})
      return await Promise.race([commands(opened), failed])
    } catch (error) {
      if (error instanceof SluiceError) throw error
      const cause = await causeOf(error, session)
      const undone = undoneError(cause)
      if (refusalOf(cause) !== undefined) throw new UsageError('SLUICE_BROKER_REFUSED', undone.message, { cause })
      throw undone
    } finally {
      // Its unsettled messages are in their queue only after the close. A lost connection does not answer.
      await Promise.race([channel?.close().catch(() => {}), session.lost])
    }
  }

  async findQueue(queue: string): Promise<{ messageCount: number; consumerCount: number } | undefined> {
    try {
      return await this.use((channel) => channel.checkQueue(queue))
    } catch (error) {
      if (error instanceof UsageError) return undefined
      throw error
    }
  }

  async identity(): Promise<string> {
    const { model } = await this.#waitUntilOpen(false, readyMaxMs)
    const { cluster_name: cluster = '' } = model.connection.serverProperties as { cluster_name?: string }
    return createHash('sha256')
      .update(JSON.stringify([cluster, this.#vhost]))
      .digest('hex')
      .slice(0, 12)
  }

  async channelsMax(): Promise<number> {
    const { model } = await this.#waitUntilOpen(false, readyMaxMs)
    // amqplib's types do not show this field.
    return (model.connection as unknown as { channelMax: number }).channelMax
  }

  get isUp(): boolean {
    const isThere = ({ lostAtMs }: Link) => lostAtMs === undefined
    return isThere(this.#publishing) && isThere(this.#consuming) && this.#publisher.blocked === undefined
  }

  checkThere(): void {
    if (this.#publishing.lostAtMs !== undefined) throw this.#publishing.unreachableError()
    const { blocked } = this.#publisher
    if (blocked !== undefined)
      throw new StoreError('SLUICE_BROKER_UNREACHABLE', `RabbitMQ takes nothing from this process now (${blocked})`)
  }

  async close(): Promise<void> {
    if (this.#isClosed) return
    this.#isClosed = true
    // It is not awaited, because a server that is silent would hold up the end.
    for (const consumer of this.#consumers) void consumer.cancel()
    await Promise.race([this.#publisher.flush(), systemClock.sleep(flushMaxMs, undefined, false)])
    this.#publisher.close()
    await Promise.all([this.#publishing.close(), this.#consuming.close()])
  }

  async #waitUntilOpen(isConsuming: boolean, withinMs = Infinity): Promise<Session> {
    if (!isConsuming) return this.#publishing.waitUntilOpen(withinMs)
    this.#opened ??= this.#consuming.open(this.#isPatient)
    await this.#opened.catch((error: unknown) => {
      this.#opened = undefined
      throw error
    })
    return this.#consuming.waitUntilOpen(withinMs)
  }
}

const undoneError = (cause: Error) =>
  new StoreError('SLUICE_BROKER_UNREACHABLE', `RabbitMQ did not carry out a command: ${cause.message}`, { cause })
const closedError = () => new StoreError('SLUICE_CLOSED', 'this connection to RabbitMQ was closed before')
