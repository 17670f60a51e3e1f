/** Receives the messages of one queue, across lost connections, closed channels and deleted queues. */
import type { Channel, ConsumeMessage, GetMessage } from 'amqplib'
import { systemClock } from '../core/clock.ts'
import { UsageError } from '../core/errors.ts'
import type { Log } from '../core/log.ts'
import { retryPauseMs } from '../core/retry.ts'
import { Waiters } from '../core/waiters.ts'
import { typeHeaders, type Headers } from './headers.ts'
import { causeOf, refusalOf, type Session } from './session.ts'
import type { Traffic } from './traffic.ts'

/** How to receive. */
export interface ConsumeOptions {
  /** How many messages the server sends ahead of acknowledgements; 1 to 65,535. */
  prefetch: number
  /** The server forgets each message as it sends it; `ack` and `prefetch` mean nothing. Default false. */
  noAck?: boolean
  arguments?: Headers
  /** Called whenever it begins to receive messages, and when it no longer does. */
  onAttached?: (isAttached: boolean) => void
}

/** A message that was received. */
export interface Incoming {
  readonly body: Buffer
  /** AMQP's properties, as amqplib reads them: `headers`, `correlationId`, `replyTo`, … */
  readonly properties: ConsumeMessage['properties']
  readonly exchange: string
  readonly routingKey: string
  /** It was delivered before, to this consumer or another one. */
  readonly isRedelivered: boolean
  /** False once it is settled, or its connection is lost: then it comes again, here or elsewhere. */
  readonly isInHand: boolean
  /** Takes it off the queue. False: its connection is lost, or it was settled before; in the first case it comes again. */
  ack(): boolean
  /** Refuses it: it goes to the queue's dead-letter exchange, or with `requeue` back to the queue. False: as for `ack`. */
  reject(how?: { requeue?: boolean }): boolean
}

/** A subscription to a queue. */
export interface Consumer {
  /** Messages that were received and are not settled. */
  readonly inHand: number
  /** It receives messages now. */
  readonly isAttached: boolean
  /** Changes the prefetch. Messages in hand from before do not count in the new one. */
  setPrefetch(prefetch: number): Promise<void>
  /** Resolves when the server has carried out all settlements so far, or the channel is lost. */
  flushAcks(): Promise<void>
  /** Stops receiving. Messages in hand can still be settled. */
  cancel(): Promise<void>
  /** Stops receiving, and resolves when no message is in hand. */
  drain(): Promise<void>
}

/** The parts of its broker that a subscription uses. */
export interface Source {
  log: Log
  traffic: Traffic
  /** Resolves to the connection. @throws StoreError SLUICE_BROKER_UNREACHABLE after `withinMs`, default: never */
  ready(withinMs?: number): Promise<Session>
  /** Declares everything again, since the queue may be gone. */
  redeclare(session: Session): Promise<void>
  /** The subscription is not made again. */
  cancelled(): void
}

const warnEveryMs = 60_000
/** A message whose handler threw goes back after this time, so that it is not tried without a pause. */
const thrownDelayMs = 1_000

/** A subscription that is made again until it is cancelled. */
export class Subscription implements Consumer {
  readonly queue: string
  #options: ConsumeOptions
  readonly #onMessage: (incoming: Incoming) => unknown
  readonly #source: Source
  /** Tags of messages, in the order in which they came. A channel has a set of its own, because each counts from 1. */
  #inHand = new Set<number>()
  /** Acknowledged, and not written yet. */
  readonly #acked: ConsumeMessage[] = []
  readonly #stop = new AbortController()
  #channel: Channel | undefined
  #tag: string | undefined
  #over: ((cause: Error) => void) | undefined
  /** Resolves when the channel is over. */
  #ended: Promise<unknown> | undefined
  #warnedAtMs = -Infinity
  readonly #settled = new Waiters()

  constructor(queue: string, options: ConsumeOptions, onMessage: (incoming: Incoming) => unknown, source: Source) {
    this.queue = queue
    this.#options = checkOptions(options)
    this.#onMessage = onMessage
    this.#source = source
  }

  get inHand(): number {
    return this.#inHand.size
  }

  get isAttached(): boolean {
    return this.#tag !== undefined
  }

  /**
   * Subscribes, and from then on again after each loss.
   * @throws UsageError SLUICE_BROKER_REFUSED if that is refused now; StoreError SLUICE_BROKER_UNREACHABLE without a connection for `withinMs`
   */
  async open(withinMs: number): Promise<void> {
    const session = await this.#source.ready(withinMs)
    const first = await this.#attach(session).catch(async (error: Error) => {
      const cause = await causeOf(error, session)
      if (refusalOf(cause) === undefined) return undefined
      const text = `RabbitMQ refuses a consumer of the queue "${this.queue}": ${cause.message}`
      throw new UsageError('SLUICE_BROKER_REFUSED', text, { cause })
    })
    void this.#keep(first)
  }

  async setPrefetch(prefetch: number): Promise<void> {
    this.#options = checkOptions({ ...this.#options, prefetch })
    const [channel, tag] = [this.#channel, this.#tag]
    if (channel === undefined || tag === undefined) return
    // A channel that fails meanwhile is replaced by one that has the new prefetch.
    await channel.cancel(tag).catch(() => {})
    await this.#consume(channel).catch(() => {})
  }

  async flushAcks(): Promise<void> {
    this.#writeAcks()
    // A channel that is lost never answers.
    await Promise.race([this.#channel?.checkQueue(this.queue).catch(() => {}), this.#ended])
  }

  async cancel(): Promise<void> {
    this.#stop.abort()
    this.#source.cancelled()
    const [channel, tag] = [this.#channel, this.#tag]
    this.#tag = undefined
    if (channel !== undefined && tag !== undefined) await channel.cancel(tag).catch(() => {})
  }

  async drain(): Promise<void> {
    await this.cancel()
    await this.#settled.waitUntil(() => this.#inHand.size === 0)
    this.#writeAcks()
    // A channel that is lost never answers.
    await Promise.race([this.#channel?.close().catch(() => {}), this.#ended])
  }

  /** Subscribes again whenever the subscription is over. */
  async #keep(first: { over: Promise<Error> } | undefined): Promise<void> {
    let attached = first
    let lost: Error | undefined
    for (let failures = 0; ;) {
      let cause = lost
      if (attached !== undefined) {
        cause = await attached.over
        failures = 0
      }
      await systemClock.sleep(retryPauseMs(failures++, systemClock.random(), 50), this.#stop.signal, false)
      if (this.#stop.signal.aborted) return
      attached = await this.#consumeAgain(cause).catch((error: Error) => {
        this.#warn(error)
        lost = error
        return undefined
      })
    }
  }

  async #consumeAgain(cause: Error | undefined): Promise<{ over: Promise<Error> } | undefined> {
    const session = await this.#source.ready()
    if (this.#stop.signal.aborted) return undefined
    // A new connection has declared everything; if the channel alone is over, the queue may have been deleted.
    if (cause instanceof Cancelled || refusalOf(cause) !== undefined) {
      this.#warn(cause as Error)
      await this.#source.redeclare(session)
    }
    return this.#attach(session)
  }

  /** Subscribes on a channel of its own. `over` resolves to the cause when the subscription ends. */
  async #attach({ model, lost }: Session): Promise<{ over: Promise<Error> }> {
    const channel = await model.createChannel()
    let failed: Error | undefined
    const over = new Promise<Error>((resolve) => {
      this.#over = resolve
      channel.on('error', (error) => (failed = error))
      channel.on('close', () => resolve(failed ?? new Error('the channel was closed')))
      void lost.then(resolve)
    })
    this.#channel = channel
    this.#inHand = new Set()
    const ended = over.then((cause) => {
      if (this.#channel === channel) this.#forget()
      if (cause instanceof Cancelled) void channel.close().catch(() => {})
      return cause
    })
    this.#ended = ended
    await this.#consume(channel)
    return { over: ended }
  }

  async #consume(channel: Channel): Promise<void> {
    const { prefetch, noAck = false, arguments: given = {} } = this.#options
    if (!noAck) await channel.prefetch(prefetch)
    // A message that arrived now would be in nobody's hand.
    if (this.#stop.signal.aborted) return
    const { consumerTag } = await channel.consume(
      this.queue,
      (message) => {
        if (message !== null) this.#receive(channel, message, noAck)
        else this.#over?.(new Cancelled(`the server ended the consumer of the queue "${this.queue}"`))
      },
      { noAck, arguments: typeHeaders(given) },
    )
    if (this.#stop.signal.aborted) await channel.cancel(consumerTag)
    else if (this.#channel === channel) {
      this.#tag = consumerTag
      this.#options.onAttached?.(true)
    }
  }

  /** Forgets the messages in hand, because the server delivers them again. */
  #forget(): void {
    this.#channel = undefined
    this.#tag = undefined
    this.#inHand.clear()
    this.#acked.length = 0
    this.#options.onAttached?.(false)
    this.#settled.recheck()
  }

  /**
   * Writes the acknowledgements of one time together: one frame for all messages that arrived before the first one
   * still in hand. With a frame for each message RabbitMQ settles a quarter fewer a second.
   */
  #writeAcks(): void {
    const acked = this.#acked.splice(0).toSorted((a, b) => a.fields.deliveryTag - b.fields.deliveryTag)
    const [first] = this.#inHand
    const upTo = acked.findLast(({ fields }) => first === undefined || fields.deliveryTag < first)
    const others = acked.slice(upTo === undefined ? 0 : acked.indexOf(upTo) + 1)
    try {
      if (upTo !== undefined) this.#channel?.ack(upTo, true)
      for (const message of others) this.#channel?.ack(message)
    } catch {
      // The channel is over: the server delivers them again.
    }
  }

  #receive(channel: Channel, message: ConsumeMessage, noAck: boolean): void {
    const { traffic } = this.#source
    traffic.delivered++
    const write = (verdict: Verdict) => {
      if (verdict !== 'ack') channel.reject(message, verdict === 'requeue')
      else if (this.#acked.push(message) === 1) process.nextTick(() => this.#writeAcks())
      traffic.settled++
    }
    const received = new Received(this.#inHand, message, write, this.#settled.recheck)
    if (!noAck) this.#inHand.add(message.fields.deliveryTag)
    const requeueFailed = (error: unknown) => {
      this.#source.log.error(`a message of the queue "${this.queue}" could not be handled`, { err: error })
      systemClock.after(thrownDelayMs, () => received.reject({ requeue: true }))
    }
    try {
      const handled = this.#onMessage(received)
      if (handled instanceof Promise) handled.catch(requeueFailed)
    } catch (error) {
      requeueFailed(error)
    }
  }

  /** At once, and then once a minute. */
  #warn(cause: Error): void {
    const nowMs = systemClock.monotonicMs()
    if (nowMs - this.#warnedAtMs < warnEveryMs) return
    this.#warnedAtMs = nowMs
    this.#source.log.warn(`the consumer of the queue "${this.queue}" was ended: ${cause.message}; subscribing again`)
  }
}

/** The server ended a consumer: mostly because its queue was deleted. */
class Cancelled extends Error {}

/** How a message is settled. */
export type Verdict = 'ack' | 'reject' | 'requeue'

/**
 * A message that is in hand while `inHand` has its tag. The tag, because V8 keeps what a busy set had for long: each set of
 * messages would outlive their sweep as garbage.
 */
export class Received implements Incoming {
  readonly body: Buffer
  readonly properties: ConsumeMessage['properties']
  readonly exchange: string
  readonly routingKey: string
  readonly isRedelivered: boolean
  readonly #tag: number
  readonly #inHand: Set<number>
  readonly #write: (verdict: Verdict) => void
  readonly #settled: () => void

  /**
   * @param inHand the tags of one channel: the server numbers what it delivers there, from 1
   * @param write sends the verdict to the server; if it throws, the channel is over, and the message comes again
   * @param settled called when the message is no longer in hand
   */
  constructor(
    inHand: Set<number>,
    { content, properties, fields }: ConsumeMessage | GetMessage,
    write: (verdict: Verdict) => void,
    settled: () => void,
  ) {
    this.body = content
    this.properties = properties
    this.exchange = fields.exchange
    this.routingKey = fields.routingKey
    this.isRedelivered = fields.redelivered
    this.#tag = fields.deliveryTag
    this.#inHand = inHand
    this.#write = write
    this.#settled = settled
  }

  get isInHand(): boolean {
    return this.#inHand.has(this.#tag)
  }

  ack(): boolean {
    return this.#settle('ack')
  }

  reject({ requeue = false }: { requeue?: boolean } = {}): boolean {
    return this.#settle(requeue ? 'requeue' : 'reject')
  }

  #settle(verdict: Verdict): boolean {
    if (!this.#inHand.delete(this.#tag)) return false
    try {
      this.#write(verdict)
      return true
    } catch {
      return false
    } finally {
      this.#settled()
    }
  }
}

function checkOptions(options: ConsumeOptions): ConsumeOptions {
  const { prefetch } = options
  if (Number.isInteger(prefetch) && prefetch >= 1 && prefetch <= 65_535) return options
  const text = `prefetch is a whole number from 1 to 65535 (0 would mean all messages at once), not ${prefetch}`
  throw new UsageError('SLUICE_BAD_OPTION', text)
}
