/** Publishes messages, and keeps each until the server has confirmed it. */
import type { ConfirmChannel, Message as Returned, Options } from 'amqplib'
import { systemClock } from '../core/clock.ts'
import { type SluiceError, StoreError, UsageError } from '../core/errors.ts'
import { Waiters } from '../core/waiters.ts'
import { typeHeaders, type Headers } from './headers.ts'
import { internalError, refusalOf, type Session } from './session.ts'
import type { Traffic } from './traffic.ts'

/** AMQP's properties of a message. */
export interface Properties {
  contentType?: string
  contentEncoding?: string
  headers?: Headers
  /** Outlives a restart of the server, in a durable queue. Default true. */
  persistent?: boolean
  priority?: number
  correlationId?: string
  replyTo?: string
  /** The message is dropped, or dead-lettered, after this time in its queue, in ms. */
  expirationMs?: number
  messageId?: string
  /** In s since 1970. */
  timestamp?: number
  type?: string
  appId?: string
}

/** A message to be published. */
export interface Message {
  /** Default: the one in which the routing key is the name of a queue. */
  exchange?: string
  routingKey: string
  body: Buffer
  properties?: Properties
  /** Further headers for a message that is sent again, and so may arrive twice. */
  again?: Headers
  /** True: a message that no queue takes is an error; false: it is dropped. Default true. */
  mandatory?: boolean
  /** Gives up after this time, in ms, and does not send it again. Default 30,000. */
  withinMs?: number
  /** True: it is never sent again, so that it arrives at most once; a lost connection is SLUICE_BROKER_SILENT. Default false. */
  isOnce?: boolean
}

/** A message that is not confirmed yet. */
interface Entry {
  readonly message: Message
  /** As the client takes them; without the headers of a message that is sent again. */
  readonly options: Options.Publish
  readonly id: string
  readonly untilMs: number
  readonly resolve: () => void
  readonly reject: (error: SluiceError) => void
  /** The server may have it. */
  wasSent: boolean
  /** It was sent on an earlier connection, and may have arrived over that. */
  isAgain: boolean
  /** A channel was closed because of this message or another one. It is sent alone, to find out which. */
  isSuspect: boolean
}

/** Messages that are not confirmed, at most, and their bytes. */
const entriesMax = 5_000
const bytesMax = 16 * 2 ** 20
const withinUsualMs = 30_000
const sweepEveryMs = 100

/** The messages of one broker that are under way. */
export class Publisher {
  readonly #name: string
  readonly #traffic: Traffic
  /** Messages that were not sent on the present channel; the first is sent next. */
  #waiting: Entry[] = []
  readonly #sent = new Set<Entry>()
  #bytes = 0
  #count = 0
  #channel: ConfirmChannel | undefined
  /** The channel's buffer is full, and will drain. */
  #isFull = false
  #blocked: string | undefined
  #disarm: (() => void) | undefined
  readonly #ends = new Waiters()
  /** Streams that wait for space. */
  #streams: { bytes: number; resolve: () => void }[] = []

  constructor(name: string, traffic: Traffic) {
    this.#name = name
    this.#traffic = traffic
  }

  /** Messages that are not confirmed. */
  get unconfirmed(): number {
    return this.#waiting.length + this.#sent.size
  }

  /** Why the server takes no messages now, in its words; undefined: it does. */
  get blocked(): string | undefined {
    return this.#blocked
  }

  /**
   * Resolves when the server has confirmed the message: a durable queue keeps it. A message whose connection is lost is sent
   * again on the next one, so that it can arrive twice.
   * @throws StoreError SLUICE_BROKER_FULL, SLUICE_BROKER_UNREACHABLE (it was not sent), SLUICE_BROKER_SILENT (it may have
   * arrived), SLUICE_BROKER_UNROUTED, SLUICE_BROKER_NACK; UsageError SLUICE_BROKER_REFUSED
   */
  publish(message: Message): Promise<void> {
    const size = message.body.length
    const isFull = this.unconfirmed >= entriesMax || this.#bytes + size > bytesMax
    // One message alone may be of any size.
    if (isFull && this.unconfirmed > 0) return Promise.reject(this.#fullError())
    this.#bytes += size
    return new Promise((resolve, reject) => {
      const id = message.properties?.messageId ?? `${this.#name}-${this.#count++}`
      const untilMs = systemClock.monotonicMs() + (message.withinMs ?? withinUsualMs)
      const options = optionsOf(message, id)
      const state = { wasSent: false, isAgain: false, isSuspect: false }
      this.#waiting.push({ message, options, id, untilMs, resolve, reject, ...state })
      this.#disarm ??= systemClock.after(sweepEveryMs, () => this.#sweep())
      this.#pump()
    })
  }

  /**
   * For a stream, which leaves half of the space to callers that cannot wait: resolves when there may be space for a
   * body of so many bytes. Other streams may take the space first, so call it again then. Undefined: there is space
   * now.
   */
  waitForSpace(bytes: number): Promise<void> | undefined {
    if (this.#hasSpace(bytes)) return undefined
    return new Promise((resolve) => this.#streams.push({ bytes, resolve }))
  }

  #hasSpace(bytes: number): boolean {
    return this.unconfirmed === 0 || (this.unconfirmed < entriesMax / 2 && this.#bytes + bytes <= bytesMax / 2)
  }

  /** Begins to use a new connection. */
  async useConnection({ model, drop, lost }: Session): Promise<void> {
    const channel = await model.createConfirmChannel()
    channel.on('error', (error) => drop(error))
    // Without this one channel the connection is of no use; a new connection is the one cure for every cause.
    channel.on('close', () => drop(new Error('the channel that publishes was closed')))
    channel.on('return', (returned) => this.#handleReturned(returned))
    channel.on('drain', () => {
      this.#isFull = false
      this.#pump()
    })
    model.on('blocked', (reason) => (this.#blocked = reason))
    model.on('unblocked', () => {
      this.#blocked = undefined
      this.#pump()
    })
    this.#channel = channel
    this.#isFull = false
    this.#pump()
    // If it was lost before this, nobody else calls `holdUnconfirmed`, and what was just sent would never be sent again.
    void lost.then((cause) => this.#channel === channel && this.holdUnconfirmed(cause))
  }

  /** Handles the loss of the connection: messages that were not confirmed wait for the next one. */
  holdUnconfirmed(cause: Error): void {
    this.#channel = undefined
    this.#blocked = undefined
    const sent = [...this.#sent]
    for (const entry of sent) entry.isAgain = entry.wasSent
    this.#sent.clear()
    this.#waiting = [...sent, ...this.#waiting]
    const refusal = refusalOf(cause)
    const [only, other] = sent
    const isBroken = refusal === internalError
    if (refusal !== undefined && only !== undefined && other === undefined && (!isBroken || only.isSuspect))
      return this.#end(only, isBroken ? lateError(only, cause.message) : refusedError(cause))
    for (const entry of sent) {
      entry.isSuspect ||= refusal !== undefined
      if (entry.isAgain && entry.message.isOnce) this.#end(entry, lateError(entry, 'the connection was lost'))
    }
  }

  /** Resolves when all messages are confirmed, or given up. */
  flush(): Promise<void> {
    return this.#ends.waitUntil(() => this.unconfirmed === 0)
  }

  /** Gives all messages up. */
  close(): void {
    this.#disarm?.()
    for (const entry of [...this.#sent, ...this.#waiting]) this.#end(entry, lateError(entry, 'the broker was closed'))
  }

  #pump(): void {
    while (this.#channel !== undefined && !this.#isFull && this.#blocked === undefined) {
      const [entry] = this.#waiting
      if (entry === undefined || (this.#sent.size > 0 && (entry.isSuspect || this.#hasSentSuspect()))) return
      this.#waiting.shift()
      this.#send(this.#channel, entry)
    }
  }

  #hasSentSuspect(): boolean {
    const [first] = this.#sent
    return first?.isSuspect === true
  }

  #send(channel: ConfirmChannel, entry: Entry): void {
    const { message } = entry
    const isFlagged = entry.isAgain && message.again !== undefined
    const options = isFlagged
      ? { ...entry.options, headers: typeHeaders({ ...message.properties?.headers, ...message.again }) }
      : entry.options
    this.#sent.add(entry)
    try {
      const { exchange = '', routingKey, body } = message
      this.#isFull = !channel.publish(exchange, routingKey, body, options, (error: Error | null) => {
        if (error === null) this.#end(entry)
        else if (error.message === 'message nacked') this.#end(entry, nackedError(message))
        // Otherwise the channel was closed: it waits for the next one.
      })
      entry.wasSent = true
      this.#traffic.published++
    } catch (error) {
      const cause = error as Error
      // The channel is being closed, which `holdUnconfirmed` reports.
      if (cause.name === 'IllegalOperationError') this.#isFull = true
      else this.#end(entry, refusedError(cause))
    }
  }

  /** A message that no queue takes comes back, and is confirmed right after. */
  #handleReturned({ properties, fields }: Returned): void {
    const why = 'no queue took it when it was sent again'
    for (const entry of this.#sent) {
      const { exchange = '', routingKey } = entry.message
      const isIt = entry.id === properties.messageId && exchange === fields.exchange && routingKey === fields.routingKey
      if (isIt) return this.#end(entry, entry.isAgain ? lateError(entry, why) : unroutedError(entry.message))
    }
  }

  #end(entry: Entry, error?: SluiceError): void {
    if (!this.#sent.delete(entry)) {
      const at = this.#waiting.indexOf(entry)
      if (at < 0) return
      this.#waiting.splice(at, 1)
    }
    this.#bytes -= entry.message.body.length
    if (error === undefined) entry.resolve()
    else entry.reject(error)
    while (this.#streams[0] !== undefined && this.#hasSpace(this.#streams[0].bytes)) this.#streams.shift()?.resolve()
    this.#ends.recheck()
    if (entry.isSuspect) this.#pump()
  }

  #sweep(): void {
    this.#disarm = undefined
    const nowMs = systemClock.monotonicMs()
    const why = this.#blocked === undefined ? undefined : `it takes no messages (${this.#blocked})`
    for (const entry of [...this.#sent, ...this.#waiting])
      if (entry.untilMs <= nowMs) this.#end(entry, lateError(entry, why))
    if (this.unconfirmed > 0) this.#disarm = systemClock.after(sweepEveryMs, () => this.#sweep())
  }

  #fullError(): StoreError {
    const { unconfirmed, blocked } = this
    const why = blocked === undefined ? 'it is not there, or slower than they are sent' : `it takes none (${blocked})`
    const text = `${unconfirmed} messages wait for RabbitMQ's confirmation: ${why}. This one was not sent; send it later`
    return new StoreError('SLUICE_BROKER_FULL', text)
  }
}

/** One plain object without spreads, because a message is published in microseconds. */
function optionsOf({ properties = {}, mandatory = true }: Message, messageId: string): Options.Publish {
  const { headers, expirationMs, persistent = true } = properties
  const { contentType, contentEncoding, priority, correlationId, replyTo, timestamp, type, appId } = properties
  return {
    contentType,
    contentEncoding,
    headers: headers && typeHeaders(headers),
    persistent,
    priority,
    correlationId,
    replyTo,
    expiration: expirationMs === undefined ? undefined : String(expirationMs),
    messageId,
    timestamp,
    type,
    appId,
    mandatory,
  } as Options.Publish
}

const describeMessage = ({ exchange = '', routingKey }: Message) =>
  exchange === ''
    ? `a message for the queue "${routingKey}"`
    : `a message for "${routingKey}" on the exchange "${exchange}"`

function lateError({ message, wasSent }: Entry, why?: string): StoreError {
  if (!wasSent) {
    const text = `${describeMessage(message)} was not sent: ${why ?? 'there was no connection to RabbitMQ in time'}`
    return new StoreError('SLUICE_BROKER_UNREACHABLE', text)
  }
  const text = `RabbitMQ did not confirm ${describeMessage(message)}${why === undefined ? ' in time' : `: ${why}`}; it may have arrived`
  return new StoreError('SLUICE_BROKER_SILENT', text)
}

function unroutedError(message: Message): StoreError {
  const todo = 'declare the queue and its binding, or start what declares them'
  return new StoreError('SLUICE_BROKER_UNROUTED', `no queue takes ${describeMessage(message)}: ${todo}`)
}

function nackedError(message: Message): StoreError {
  return new StoreError(
    'SLUICE_BROKER_NACK',
    `RabbitMQ did not take ${describeMessage(message)}: its queue is full, or failed`,
  )
}

function refusedError(cause: Error): UsageError {
  return new UsageError('SLUICE_BROKER_REFUSED', `RabbitMQ refuses a message: ${cause.message}`, { cause })
}
