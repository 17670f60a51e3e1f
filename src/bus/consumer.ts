/** A service's end of the bus in one process: takes events from the queues of its groups, and runs their handlers. */
import type { Broker, Delivery } from '../amqp/broker.ts'
import type { Consumer } from '../amqp/consumer.ts'
import type { ClaimedJob } from '../claim/claimed-job.ts'
import type { Outcome } from '../claim/finish/finish.ts'
import type { Outlet } from '../claim/outlet.ts'
import type { Watch } from '../claim/watch.ts'
import type { CloudEvent } from '../events/envelope.ts'
import { handlerFor } from '../events/handler.ts'
import { matches } from '../events/names.ts'
import { Elsewhere, type ElsewhereOptions } from './elsewhere.ts'
import { jobOf } from './job.ts'
import { eventOf, keyOf, type Progress, progressOf } from './message.ts'
import { forward, leftBehind, type Move, type Place, placesOf, sentOn } from './moves.ts'
import type { Source } from './source.ts'
import { Suspects } from './suspects.ts'

/** What it needs; see the fields. */
export interface ConsumerOptions extends ElsewhereOptions {
  broker: Broker
  sources: readonly Source[]
  takesPlain: boolean
  /** Attempts at once. */
  concurrency: number
  /** Executes attempts, and reports each end to `ended`. */
  outlet(ended: (job: ClaimedJob, outcome: Outcome) => void): Outlet
  watch: Watch
}

/** A message that was received. */
interface Read {
  readonly key: string | undefined
  readonly isSuspect: boolean
  readonly source: Source
  /** In which it was: the source's, or one that the source has had. */
  readonly queue: string
  delivery: Delivery
}

/** A message in hand. It is acknowledged when all handlers have had it, or have it in a chain of their own. */
interface Held extends Read {
  readonly progress: Progress
  readonly event: CloudEvent
  open: number
}

/** A message for one handler. */
interface Turn {
  readonly held: Held
  readonly handler: string
}

/** How long another process has time to take an event, in ms. */
const elsewhereMs = 1_000
/** Between two tries to publish what became of an event. */
const insistMs = 1_000
/** How many messages are remembered, to recognise those that arrive again. */
const knownMax = 10_000

/** Consumes for one service. */
export class ServiceConsumer {
  readonly #options: ConsumerOptions
  readonly #outlet: Outlet
  readonly #consumers = new Map<string, Consumer>()
  readonly #suspects: Suspects
  readonly #elsewhere: Elsewhere
  readonly #held = new Map<string, Held>()
  readonly #turns: Turn[] = []
  readonly #running = new Map<ClaimedJob, Turn>()
  #moves: readonly Move[] = []
  /** Groups that are gone, and whose queues are not. */
  readonly #gone: Source[] = []
  /** Keys of messages that were handled here. */
  readonly #known = new Set<string>()
  #settling = 0
  #cancelled: Promise<unknown> | undefined
  readonly #aborted = new AbortController()
  #idle: (() => void)[] = []

  constructor(options: ConsumerOptions) {
    this.#options = options
    this.#outlet = options.outlet((job, outcome) => this.#ended(job, outcome))
    this.#elsewhere = new Elsewhere(options)
    const { broker, mail, store } = options
    this.#suspects = new Suspects({
      broker,
      names: mail.names,
      log: store.log,
      isFree: () => this.#outlet.free() > 0,
      take: (delivery, queue) => this.#counted(this.#takeSuspect(delivery, queue)),
      synced: () => Promise.all([...this.#consumers.values()].map((consumer) => consumer.synced())),
    })
  }

  /** Messages in hand. */
  get running(): number {
    return this.#turns.length + this.#running.size + this.#settling
  }

  /** Begins to consume. @param moves what is to go from former queues to present ones. May be repeated if it fails. */
  async open(moves: readonly Move[]): Promise<void> {
    const { sources } = this.#options
    this.#moves = moves
    for (const source of sources) await this.consume(source, source.queue)
    this.#suspects.look()
  }

  /** Consumes the queue of a group that is gone: what is there goes to the queues where its handlers are now. */
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

  /** Looks for messages whose worker was lost. */
  look(): void {
    this.#suspects.look()
  }

  /** Consumes another queue as if it were the source's own: what is retried goes there. */
  async consume(source: Source, queue: string): Promise<void> {
    const { broker, concurrency } = this.#options
    if (this.#cancelled !== undefined || this.#consumers.has(queue)) return
    const take = (delivery: Delivery) => this.#counted(this.#take(source, delivery, queue, false))
    const consumer = await broker.consume(queue, { prefetch: concurrency }, take)
    this.#consumers.set(queue, consumer)
    if (this.#cancelled !== undefined) await consumer.cancel()
  }

  /** Takes no more, and resolves when nothing is in hand. */
  async stop(): Promise<void> {
    await this.#cancel()
    while (this.running > 0) await new Promise<void>((resolve) => this.#idle.push(resolve))
    // A connection that is closed at once may take the last acknowledgements with it.
    await Promise.all([...this.#consumers.values()].map((consumer) => consumer.synced()))
  }

  /** Takes no more, and gives back what is in hand: what runs is stopped. */
  async abort(reason: Error): Promise<void> {
    // Else what is given back would come here again.
    await this.#cancel()
    this.#aborted.abort()
    for (const turn of this.#turns.splice(0)) void this.#settle(turn, (now) => this.#again(turn, now, 0))
    for (const job of this.#running.keys()) this.#outlet.abort(job, reason)
  }

  /** What goes elsewhere without an attempt is in hand until it is there. */
  #counted(taken: Promise<void> | undefined): Promise<void> | undefined {
    return taken && this.#whileSettling(taken)
  }

  async #whileSettling(taken: Promise<void>): Promise<void> {
    this.#settling++
    try {
      await taken
    } finally {
      this.#settled()
    }
  }

  #settled(): void {
    this.#settling--
    this.#tellIdle()
  }

  #tellIdle(): void {
    if (this.running === 0) for (const idle of this.#idle.splice(0)) idle()
  }

  #cancel(): Promise<unknown> {
    this.#suspects.cancel()
    this.#cancelled ??= Promise.all([...this.#consumers.values()].map((consumer) => consumer.cancel()))
    return this.#cancelled
  }

  /** Takes a message whose worker was lost before. */
  #takeSuspect(delivery: Delivery, queue: string): Promise<void> | undefined {
    const sources = [...this.#options.sources, ...this.#gone]
    const source = sources.find((one) => one.queue === queue || one.formerQueues.includes(queue))
    return source === undefined ? this.#elsewhere.strange(delivery, queue) : this.#take(source, delivery, queue, true)
  }

  /** @param queue in which it was */
  #take(source: Source, delivery: Delivery, queue: string, isSuspect: boolean): Promise<void> | undefined {
    const progress = progressOf(delivery)
    const key = keyOf(source.queue, delivery, progress)
    const held = key === undefined ? undefined : this.#held.get(key)
    const isBack = delivery.isRedelivered || isSuspect
    if (held !== undefined && isBack && !held.delivery.isInHand) {
      // Its connection was lost, but not this process.
      held.delivery = delivery
      return undefined
    }
    const isAgain = key !== undefined && this.#known.has(key)
    if (isBack && isAgain) {
      // The server did not get to know.
      delivery.ack()
      return undefined
    }
    const seen = isAgain || held !== undefined ? { ...progress, isDoubtful: true } : progress
    const read = { source, delivery, queue, isSuspect, key: held === undefined ? key : undefined }
    const nowMs = this.#options.store.clock.wallMs()
    const left = leftBehind(seen, { source, queue, isBack }, this.#moves, nowMs)
    return left.length === 0 ? this.#admit(read, seen) : this.#divide(read, seen, left)
  }

  /** Handlers that have left its queue would have got it there. */
  async #divide(read: Read, progress: Progress, places: readonly Place[]): Promise<void> {
    await forward(this.#options.mail, { delivery: read.delivery, event: undefined }, progress, places)
    await this.#admit(read, sentOn(progress, places))
  }

  #admit({ source, delivery, queue, isSuspect, key }: Read, seen: Progress): Promise<void> | undefined {
    if (source.task.limits.length === 0) {
      if (isSuspect && delivery.isRedelivered) return this.#elsewhere.crashed(source, delivery, seen)
      // suspects.ts has why that matters.
      if (!isSuspect && (delivery.isRedelivered || seen.crashes > 0)) return this.#suspects.add(delivery, seen, queue)
    }
    let event: CloudEvent
    try {
      const { takesPlain, store } = this.#options
      event = eventOf(delivery, seen, { takesPlain, nowMs: store.clock.wallMs() })
    } catch (error) {
      return this.#elsewhere.refused(source, delivery, seen, error)
    }
    return this.#deliver({ key, isSuspect, source, queue, progress: seen, event, delivery, open: 0 })
  }

  #deliver(held: Held): Promise<void> | undefined {
    const { source, progress, event, key } = held
    const { handlers } = source
    const { service } = this.#options
    const found = handlers
      .filter(({ pattern }) => progress.handler === undefined && matches(pattern, event.type))
      .map(({ name }) => name)
    if (progress.handler !== undefined && handlerFor(handlers, { service, handler: progress.handler, event }))
      found.push(progress.handler)
    if (found.length === 0) return this.#missing(held)
    if (source.task.limits.length > 0) return this.#elsewhere.toStore(held, found)
    held.open = found.length
    if (key !== undefined) this.#held.set(key, held)
    const turns = found.map((handler) => ({ held, handler }))
    if (held.isSuspect) this.#start(turns)
    else {
      this.#turns.push(...turns)
      this.#begin()
    }
    return undefined
  }

  /** No handler of its queue is for it. */
  async #missing(held: Held): Promise<void> {
    const { progress, queue, delivery } = held
    const places = placesOf(progress, queue, this.#options.sources, this.#moves)
    if (places.length === 0) return this.#elsewhere.stray(held)
    await forward(this.#options.mail, held, progress, places)
    delivery.ack()
  }

  #begin(): void {
    const turns: Turn[] = []
    for (let free = this.#outlet.free(); free > 0;) {
      const turn = this.#turns.shift()
      if (turn === undefined) break
      // What its connection has lost meanwhile comes again, here or elsewhere.
      if (!turn.held.delivery.isInHand) this.#forget(turn.held)
      else {
        turns.push(turn)
        free--
      }
    }
    if (turns.length > 0) this.#start(turns)
    this.#suspects.wake()
    this.#tellIdle()
  }

  #start(turns: readonly Turn[]): void {
    const { clock } = this.#options.store
    const jobs = turns.map((turn) => {
      const job = this.#job(turn, clock.monotonicMs())
      this.#running.set(job, turn)
      return job
    })
    this.#options.watch.begun(jobs)
    this.#outlet.start(jobs)
  }

  #job({ held: { source, progress, event }, handler }: Turn, nowMs: number): ClaimedJob {
    return jobOf(source, progress, { service: this.#options.service, handler, event }, nowMs)
  }

  #ended(job: ClaimedJob, outcome: Outcome): void {
    const turn = this.#running.get(job)
    if (turn === undefined) return
    this.#running.delete(job)
    void this.#settle(turn, (progress) => this.#end(job, turn, progress, outcome))
    this.#begin()
  }

  /** Carries out what becomes of a turn, and then acknowledges its message, if it was the last one. */
  async #settle(turn: Turn, carry: (progress: Progress) => Promise<void> | undefined): Promise<void> {
    const { held, handler } = turn
    this.#settling++
    try {
      const carried = carry({ ...held.progress, handler })
      if (carried !== undefined) await carried
    } catch (error) {
      if (!(await this.#insist(turn, carry, error))) {
        this.#forget(held)
        held.delivery.reject({ requeue: true })
        return
      }
    } finally {
      this.#settled()
    }
    held.open--
    if (held.open === 0) this.#acknowledge(held)
  }

  /**
   * Goes on until it is carried out, while the message is in hand: given back, it would also go to handlers that have had it. Resolves to
   * whether it was.
   */
  async #insist(
    { held, handler }: Turn,
    carry: (progress: Progress) => Promise<void> | undefined,
    first: unknown,
  ): Promise<boolean> {
    const { log, clock } = this.#options.store
    for (let error = first; ;) {
      log.warn('what became of an event could not be published; trying again', { err: error })
      await clock.sleep(insistMs, this.#aborted.signal, false)
      if (this.#aborted.signal.aborted || !held.delivery.isInHand) return false
      try {
        // It may have arrived before.
        await carry({ ...held.progress, handler, isDoubtful: true })
        return true
      } catch (next) {
        error = next
      }
    }
  }

  #acknowledge(held: Held): void {
    held.delivery.ack()
    this.#forget(held)
    if (held.key === undefined) return
    this.#known.add(held.key)
    const [oldest] = this.#known
    if (this.#known.size > knownMax && oldest !== undefined) this.#known.delete(oldest)
  }

  #forget({ key }: Held): void {
    if (key !== undefined) this.#held.delete(key)
  }

  #end(job: ClaimedJob, turn: Turn, progress: Progress, outcome: Outcome): Promise<void> | undefined {
    const { watch } = this.#options
    if (watch.wants(outcome)) watch.ended(job, outcome)
    const { held } = turn
    const counted = { ...progress, attempt: progress.attempt + 1 }
    switch (outcome.kind) {
      case 'done':
      case 'discard':
        return undefined
      case 'retry':
        return this.#again(turn, { ...counted, failed: progress.failed + 1 }, outcome.delayMs)
      case 'throttled':
        return this.#again(turn, { ...counted, throttled: progress.throttled + 1 }, outcome.delayMs)
      case 'interrupt':
        return this.#again(turn, { ...counted, isDoubtful: true }, 0)
      case 'failed':
        return this.#options.mail.archive(held, held.source.queue, counted, outcome)
      default:
        // A snooze, or a handler that another process has.
        return this.#again(turn, progress, 'delayMs' in outcome ? outcome.delayMs : elsewhereMs)
    }
  }

  #again({ held }: Turn, progress: Progress, delayMs: number): Promise<void> {
    return this.#options.mail.later(held, held.source, progress, delayMs)
  }
}
