/** Takes a service's events from the queues of its groups, in one process, and decides which handlers get each. */
import type { Broker, Incoming } from '../amqp/broker.ts'
import type { Consumer } from '../amqp/consumer.ts'
import { Waiters } from '../core/waiters.ts'
import type { CloudEvent } from '../events/envelope.ts'
import { handlerFor } from '../events/handler.ts'
import { matches } from '../events/names.ts'
import { Forwarder, type ForwarderOptions } from './forwarder.ts'
import { Handling, type HandlingOptions } from './handling.ts'
import { type MessageInHand, MessagesInHand } from './messages-in-hand.ts'
import { eventOf, keyOf, type Progress, progressOf } from './message.ts'
import { forward, leftBehind, type Move, type Place, placesOf, sentOn } from './moves.ts'
import { Order } from './order.ts'
import { Replicas } from './replicas.ts'
import type { Source } from './source.ts'
import { Suspects } from './suspects.ts'

/** Parameters of `ServiceConsumer`; see the fields. */
export interface ConsumerOptions extends ForwarderOptions, Pick<HandlingOptions, 'outlet' | 'listener'> {
  broker: Broker
  sources: readonly Source[]
  takesPlain: boolean
  /** Attempts at once. */
  concurrency: number
}

/** What a delivery adds to its event in the store, at most. */
const deliveryChars = 4_096

/** A message that was received. */
interface Read extends Omit<MessageInHand, 'progress' | 'event' | 'open'> {
  readonly isSuspect: boolean
  /** The other replicas get a question about it. */
  readonly isDoubted: boolean
}

/** Consumes for one service. */
export class ServiceConsumer {
  readonly #options: ConsumerOptions
  readonly #handling: Handling
  readonly #consumers = new Map<string, Consumer>()
  readonly #suspects: Suspects
  /** Undefined without an archive: then a service needs as few queues as possible. */
  readonly #replicas: Replicas | undefined
  readonly #forwarder: Forwarder
  readonly #inHand: MessagesInHand
  /** Events of handlers with an order that are being recorded. */
  readonly #orders = new Map<Source, Order<{ message: MessageInHand; handlers: readonly string[] }>>()
  readonly #aborted = new AbortController()
  #moves: readonly Move[] = []
  /** Groups that are gone, and whose queues are not. */
  readonly #gone: Source[] = []
  /** How many messages are being forwarded. */
  #settling = 0
  #cancelled: Promise<unknown> | undefined
  readonly #settled = new Waiters()

  constructor(options: ConsumerOptions) {
    this.#options = options
    this.#inHand = new MessagesInHand(options.store, (key) => this.#replicas?.report(key))
    this.#handling = new Handling({
      ...options,
      inHand: this.#inHand,
      freed: () => this.#suspects.wake(),
      settled: () => this.#settled.recheck(),
    })
    this.#forwarder = new Forwarder(options)
    const { broker, republisher, store } = options
    const { clock, log } = store
    const { names } = republisher
    const look = (key: string) => this.#inHand.look(key)
    const learn = (key: string) => this.#inHand.learn(key)
    const find = (id: string) => this.#inHand.find(id)
    const known = { look, learn, find }
    if (names.archiveTopology !== undefined) this.#replicas = new Replicas({ broker, names, clock, log, ...known })
    this.#suspects = new Suspects({
      broker,
      names,
      log,
      free: () => this.#handling.free,
      take: (incoming, queue) => this.#countSettling(incoming, () => this.#takeSuspect(incoming, queue)),
      synced: () => Promise.all([...this.#consumers.values()].map((consumer) => consumer.flushAcks())),
    })
  }

  /** Messages in hand. */
  get running(): number {
    return this.#handling.running + this.#settling
  }

  /**
   * Begins to consume. May be repeated if it fails.
   * @param moves the handlers whose messages go from former queues to present ones
   */
  async open(moves: readonly Move[]): Promise<void> {
    const { sources } = this.#options
    this.#moves = moves
    await this.#replicas?.open()
    for (const source of sources) await this.consume(source, source.queue)
    this.#suspects.look()
  }

  /** Consumes the queue of a group that is gone. Its messages go to the queues where their handlers are now. */
  async adopt(queue: string): Promise<void> {
    const { sources } = this.#options
    const [model] = sources
    if (
      model === undefined ||
      this.#consumers.has(queue) ||
      sources.some((one) => one.queue === queue || one.formerQueues.includes(queue))
    )
      return
    const source = { ...model, task: { ...model.task, limits: [] }, handlers: [], queue, formerQueues: [] }
    this.#gone.push(source)
    await this.consume(source, queue)
  }

  /** There may be more slots than before. */
  begin(): void {
    this.#handling.begin()
  }

  /** Looks for messages whose worker was lost. */
  look(): void {
    this.#suspects.look()
  }

  /** Consumes another queue as if it were the source's own. Retries go to the source's own queue. */
  async consume(source: Source, queue: string): Promise<void> {
    const { broker, concurrency } = this.#options
    if (this.#cancelled !== undefined || this.#consumers.has(queue)) return
    const take = (incoming: Incoming) => {
      // It has stopped before this queue was consumed.
      if (this.#cancelled !== undefined && !this.#consumers.has(queue)) return void incoming.reject({ requeue: true })
      return this.#countSettling(incoming, () => this.#take(source, incoming, queue, false))
    }
    const consumer = await broker.consume(queue, { prefetch: concurrency }, take)
    this.#consumers.set(queue, consumer)
    if (this.#cancelled !== undefined) await consumer.cancel()
  }

  /** Stops taking messages, and resolves when none is in hand. */
  async stop(): Promise<void> {
    await this.#cancel()
    await this.#settled.waitUntil(() => this.running === 0)
    // A connection that is closed at once may take the last acknowledgements with it.
    await Promise.all([...this.#consumers.values()].map((consumer) => consumer.flushAcks()))
    await this.#replicas?.close()
  }

  /** Stops taking messages, gives back those in hand, and stops attempts that run. */
  async abort(reason: Error): Promise<void> {
    // It cancels first, because messages that are given back would be delivered here again.
    await this.#cancel()
    this.#aborted.abort(reason)
    this.#handling.abort(reason)
  }

  /** Counts a message as in hand while it is forwarded without an attempt. */
  #countSettling(incoming: Incoming, take: () => Promise<void> | undefined): Promise<void> | undefined {
    const taken = take()
    return taken && this.#settle(incoming, taken, take)
  }

  async #settle(incoming: Incoming, taken: Promise<void>, take: () => Promise<void> | undefined): Promise<void> {
    this.#settling++
    try {
      await this.#repeatUntilDone(incoming, taken, take)
    } finally {
      this.#settling--
      this.#settled.recheck()
    }
  }

  /** Waits for `act`, and begins it again by `again` until it succeeds, or the message goes back. */
  async #repeatUntilDone(
    incoming: Incoming,
    act: Promise<void>,
    again: () => Promise<void> | undefined,
  ): Promise<void> {
    try {
      await act
    } catch (error) {
      const { signal } = this.#aborted
      if (!(await this.#inHand.insist(() => incoming.isInHand, again, error, signal)))
        incoming.reject({ requeue: true })
    }
  }

  #cancel(): Promise<unknown> {
    this.#suspects.cancel()
    this.#cancelled ??= Promise.all([...this.#consumers.values()].map((consumer) => consumer.cancel()))
    return this.#cancelled
  }

  /** Takes a message whose worker was lost before. */
  #takeSuspect(incoming: Incoming, queue: string): Promise<void> | undefined {
    const sources = [...this.#options.sources, ...this.#gone]
    const source = sources.find((one) => one.queue === queue || one.formerQueues.includes(queue))
    return source === undefined
      ? this.#forwarder.putOffUnknownGroup(incoming, queue)
      : this.#take(source, incoming, queue, true)
  }

  /** @param queue in which it was */
  #take(source: Source, incoming: Incoming, queue: string, isSuspect: boolean): Promise<void> | undefined {
    const progress = progressOf(incoming)
    const key = keyOf(source.queue, incoming, progress)
    const isBack = incoming.isRedelivered || isSuspect
    const isRepeat = isBack || progress.isDoubtful
    if (isRepeat && key !== undefined && this.#inHand.takeCopy(key, incoming)) return undefined
    const isInHand = key !== undefined && this.#inHand.get(key) !== undefined
    const isAgain = isInHand || (key !== undefined && this.#inHand.isKnown(key))
    const seen = isAgain ? { ...progress, isDoubtful: true } : progress
    // Other replicas have answered about a suspect before it was put aside; the question is repeated only if it was redelivered, since then
    // it had begun.
    const isDoubted = isSuspect ? incoming.isRedelivered : isRepeat
    const read = { source, incoming, queue, isSuspect, isDoubted, key: isInHand ? undefined : key }
    const nowMs = this.#options.store.clock.wallMs()
    const left = leftBehind(seen, { source, queue, isBack }, this.#moves, nowMs)
    return left.length === 0 ? this.#admit(read, seen) : this.#divide(read, seen, left)
  }

  /** Sends a message also to handlers that have left its queue, because they would have got it there. */
  async #divide(read: Read, progress: Progress, places: readonly Place[]): Promise<void> {
    await forward(this.#options.republisher, { incoming: read.incoming, event: undefined }, progress, places)
    await this.#admit(read, sentOn(progress, places))
  }

  #admit(read: Read, seen: Progress): Promise<void> | undefined {
    const { source, key, isDoubted } = read
    const replicas = source.task.limits.length === 0 && isDoubted ? this.#replicas : undefined
    return replicas === undefined || key === undefined
      ? this.#begin(read, seen)
      : this.#admitRepeat(read, seen, key, replicas)
  }

  /** Admits a message that may have been handled before, unless another replica has handled it, and RabbitMQ does not know that. */
  async #admitRepeat(read: Read, seen: Progress, key: string, replicas: Replicas): Promise<void> {
    const { incoming } = read
    const isWanted = () => incoming.isInHand && this.#cancelled === undefined
    const known = await replicas.look(key, isWanted)
    if (known === 'handled') return void incoming.ack()
    // This process stops, and the next replica that gets it looks among the others, too.
    if (known === 'in hand') return void incoming.reject({ requeue: true })
    // Its connection was lost meanwhile, so it comes again; or another copy came here meanwhile.
    if (incoming.isInHand && !this.#inHand.takeCopy(key, incoming)) await this.#begin(read, seen)
  }

  #begin(read: Read, seen: Progress): Promise<void> | undefined {
    const { source, incoming, queue, isSuspect, key } = read
    const isLost = incoming.isRedelivered || (!isSuspect && seen.crashes > 0)
    if (isLost && source.task.limits.length === 0) return this.#putAside(read, seen)
    let event: CloudEvent
    try {
      const { takesPlain, store } = this.#options
      event = eventOf(incoming, seen, { takesPlain, nowMs: store.clock.wallMs() })
    } catch (error) {
      return this.#forwarder.archiveRefused(source, incoming, seen, error)
    }
    return this.#deliver({ key, source, queue, progress: seen, event, incoming, open: 0 }, isSuspect)
  }

  /** Puts a message aside whose worker was lost: suspects.ts has why that matters. */
  async #putAside({ source, incoming, queue, isSuspect, key }: Read, seen: Progress): Promise<void> {
    await (isSuspect ? this.#forwarder.handleCrash(source, incoming, seen) : this.#suspects.add(incoming, seen, queue))
    if (key !== undefined) this.#inHand.recordHandled(key, false)
  }

  #deliver(message: MessageInHand, isSuspect: boolean): Promise<void> | undefined {
    const { source, progress, event } = message
    const { handlers } = source
    const { service } = this.#options
    const found = handlers
      .filter(({ pattern }) => progress.handler === undefined && matches(pattern, event.type))
      .map(({ name }) => name)
    if (progress.handler !== undefined && handlerFor(handlers, { service, handler: progress.handler, event }))
      found.push(progress.handler)
    if (found.length === 0) return this.#handleUnknown(message)
    if (source.task.limits.length > 0)
      return source.isOrdered ? this.#recordInOrder(message, found) : this.#record(message, found)
    this.#handling.handle(message, found, isSuspect)
    return undefined
  }

  /** Records an event in the store, however often that fails, under the same id. */
  #record(message: MessageInHand, handlers: readonly string[]): Promise<void> {
    const send = () => this.#forwarder.sendToStore(message, handlers)
    return this.#repeatUntilDone(message.incoming, send(), send)
  }

  /** Records an event when all that came before it are recorded. */
  #recordInOrder(message: MessageInHand, handlers: readonly string[]): Promise<void> {
    const { source } = message
    const order = this.#orders.get(source) ?? this.#orderOf()
    this.#orders.set(source, order)
    return order.add({ message, handlers })
  }

  #orderOf() {
    type Waiting = { message: MessageInHand; handlers: readonly string[] }
    const send = async ({ message, handlers }: Waiting) => {
      // It comes again, behind those that were before it.
      if (this.#aborted.signal.aborted) message.incoming.reject({ requeue: true })
      else if (message.incoming.isInHand) await this.#forwarder.sendToStore(message, handlers)
    }
    const repeatUntilSent = (waiting: Waiting, error: unknown) =>
      this.#repeatUntilDone(waiting.message.incoming, Promise.reject(error as Error), () => send(waiting))
    // The event is written anew, with what its delivery adds.
    const lengthOf = ({ message, handlers }: Waiting) =>
      handlers.length * (2 * message.incoming.body.length + deliveryChars)
    return new Order<Waiting>(send, repeatUntilSent, lengthOf)
  }

  /** Handles a message for which its queue has no handler. */
  async #handleUnknown(message: MessageInHand): Promise<void> {
    const { progress, queue, incoming } = message
    const places = placesOf(progress, queue, this.#options.sources, this.#moves)
    if (places.length === 0) return this.#forwarder.putOffUnhandled(message)
    await forward(this.#options.republisher, message, progress, places)
    incoming.ack()
  }
}
