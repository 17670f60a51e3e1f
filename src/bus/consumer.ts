/** A service's end of the bus in one process: takes events from the queues of its groups, and runs their handlers. */
import type { Broker, Delivery } from '../amqp/broker.ts'
import type { Consumer } from '../amqp/consumer.ts'
import type { Properties } from '../amqp/publisher.ts'
import type { ClaimedJob } from '../claim/claimed-job.ts'
import type { Outcome } from '../claim/finish/finish.ts'
import type { Outlet } from '../claim/outlet.ts'
import type { Watch } from '../claim/inhand.ts'
import { SluiceError } from '../core/errors.ts'
import { delayMs } from '../core/retry.ts'
import type { Store } from '../db/store.ts'
import type { CloudEvent } from '../events/envelope.ts'
import { handlerFor } from '../events/handler.ts'
import { matches } from '../events/names.ts'
import type { Sender } from '../tasks/task.ts'
import { describe } from '../worker/verdict.ts'
import { idOf } from './celery-message.ts'
import { eventOf, type Progress, progressOf } from './message.ts'
import type { Mail } from './mail.ts'
import type { Source } from './source.ts'

/** What it needs; see the fields. */
export interface ConsumerOptions {
  store: Store
  broker: Broker
  mail: Mail
  service: string
  sources: readonly Source[]
  takesPlain: boolean
  /** Attempts at once. */
  concurrency: number
  /** Executes attempts, and reports each end to `ended`. */
  outlet(ended: (job: ClaimedJob, outcome: Outcome) => void): Outlet
  /** How an attempt ends whose worker was lost. */
  lost(job: ClaimedJob): Outcome
  watch: Watch
  /** Sends the deliveries of groups with limits to the store. */
  sender: Pick<Sender, 'send'>
}

/** A message in hand. It is acknowledged when all handlers have had it, or have it in a chain of their own. */
interface Held {
  readonly key: string | undefined
  readonly source: Source
  readonly progress: Progress
  readonly event: CloudEvent
  delivery: Delivery
  open: number
}

/** A message for one handler. */
interface Turn {
  readonly held: Held
  readonly handler: string
}

/** How long a message is put off that no handler of this process is for, in ms; doubled each time. */
const strayMs = { least: 1_000, most: 60_000 }
/** A message that nobody has had a handler for so often goes to the archive: after some three days. */
const straysMax = 4_000
/** So many messages are remembered, to recognise those that arrive again. */
const knownMax = 10_000

/** Consumes for one service. */
export class ServiceConsumer {
  readonly #options: ConsumerOptions
  readonly #outlet: Outlet
  readonly #consumers: Consumer[] = []
  readonly #held = new Map<string, Held>()
  readonly #turns: Turn[] = []
  readonly #running = new Map<ClaimedJob, Turn>()
  /** Keys of messages that were handled here; true: the server did not get to know. */
  readonly #known = new Map<string, boolean>()
  #settling = 0
  #cancelled: Promise<unknown> | undefined
  #idle: (() => void)[] = []

  constructor(options: ConsumerOptions) {
    this.#options = options
    this.#outlet = options.outlet((job, outcome) => this.#ended(job, outcome))
  }

  /** Messages in hand. */
  get running(): number {
    return this.#turns.length + this.#running.size + this.#settling
  }

  /** Begins to consume. */
  async open(): Promise<void> {
    for (const source of this.#options.sources) await this.consume(source, source.queue)
  }

  /** Consumes another queue as if it were the source's own: what is retried goes there. */
  async consume(source: Source, queue: string): Promise<void> {
    const { broker, concurrency } = this.#options
    if (this.#cancelled !== undefined) return
    const take = (delivery: Delivery) => {
      const taken = this.#take(source, delivery)
      return taken && this.#counted(taken)
    }
    this.#consumers.push(await broker.consume(queue, { prefetch: concurrency }, take))
  }

  /** Takes no more, and resolves when nothing is in hand. */
  async stop(): Promise<void> {
    await this.#cancel()
    while (this.running > 0) await new Promise<void>((resolve) => this.#idle.push(resolve))
  }

  /** Takes no more, and gives back what is in hand: what runs is stopped. */
  async abort(reason: Error): Promise<void> {
    // Else what is given back would come here again.
    await this.#cancel()
    for (const turn of this.#turns.splice(0)) void this.#settle(turn, (now) => this.#again(turn, now, 0))
    for (const job of this.#running.keys()) this.#outlet.abort(job, reason)
  }

  /** What goes elsewhere without an attempt is in hand until it is there. */
  async #counted(taken: Promise<void>): Promise<void> {
    this.#settling++
    try {
      await taken
    } finally {
      this.#settled()
    }
  }

  #settled(): void {
    this.#settling--
    if (this.running === 0) for (const idle of this.#idle.splice(0)) idle()
  }

  #cancel(): Promise<unknown> {
    this.#cancelled ??= Promise.all(this.#consumers.map((consumer) => consumer.cancel()))
    return this.#cancelled
  }

  #take(source: Source, delivery: Delivery): Promise<void> | undefined {
    const progress = progressOf(delivery)
    const id = idOf(delivery.properties as Properties)
    const key = id === undefined ? undefined : `${source.queue} ${progress.handler ?? ''} ${progress.attempt} ${id}`
    const held = key === undefined ? undefined : this.#held.get(key)
    if (held !== undefined && delivery.isRedelivered) {
      // Its connection was lost, but not this process.
      held.delivery = delivery
      return undefined
    }
    if (delivery.isRedelivered && key !== undefined && this.#known.get(key) === true) {
      delivery.ack()
      return undefined
    }
    const isAgain = key !== undefined && this.#known.has(key)
    const seen = isAgain || held !== undefined ? { ...progress, isDoubtful: true } : progress
    if (delivery.isRedelivered && source.task.limits.length === 0) return this.#crashed(source, delivery, seen)
    let event: CloudEvent
    try {
      const { takesPlain, store } = this.#options
      event = eventOf(delivery, seen, { takesPlain, nowMs: store.clock.wallMs() })
    } catch (error) {
      return this.#refused(source, delivery, seen, error)
    }
    return this.#deliver({
      key: held === undefined ? key : undefined,
      source,
      progress: seen,
      event,
      delivery,
      open: 0,
    })
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
    if (found.length === 0) return this.#stray(held)
    if (source.task.limits.length > 0) return this.#toStore(held, found)
    held.open = found.length
    if (key !== undefined) this.#held.set(key, held)
    for (const handler of found) this.#turns.push({ held, handler })
    this.#begin()
    return undefined
  }

  #begin(): void {
    const { clock } = this.#options.store
    const turns = this.#turns.splice(0, Math.max(0, this.#outlet.free()))
    if (turns.length === 0) return
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
      held.open--
      if (held.open === 0) this.#acknowledge(held)
    } catch (error) {
      this.#options.store.log.warn('what became of an event could not be published; it is delivered again', {
        err: error,
      })
      this.#forget(held)
      held.delivery.reject({ requeue: true })
    } finally {
      this.#settled()
    }
  }

  #acknowledge(held: Held): void {
    const isTold = held.delivery.ack()
    this.#forget(held)
    if (held.key === undefined) return
    this.#known.set(held.key, !isTold)
    const [oldest] = this.#known.keys()
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
        return this.#again(turn, progress, 'delayMs' in outcome ? outcome.delayMs : strayMs.least)
    }
  }

  #again({ held }: Turn, progress: Progress, delayMs: number): Promise<void> {
    return this.#options.mail.later(held, held.source, progress, delayMs)
  }

  /** A worker was lost while it had this message: that counts as an attempt, wherever it had got to. */
  async #crashed(source: Source, delivery: Delivery, progress: Progress): Promise<void> {
    const { mail, lost, store } = this.#options
    const unread = { delivery, event: undefined }
    const job = jobOf(source, progress, undefined, store.clock.monotonicMs())
    const failed = progress.failed + 1
    const known = {
      ...progress,
      attempt: progress.attempt + 1,
      failed,
      crashes: progress.crashes + 1,
      isDoubtful: true,
    }
    const outcome = lost(job)
    const error = 'error' in outcome ? outcome.error : '{}'
    const { attempts } = source.task.retry
    if (outcome.kind === 'failed' && outcome.reason === 'doubtful')
      await mail.archive(unread, source.queue, known, outcome)
    else if (failed >= attempts) await mail.archive(unread, source.queue, known, { reason: 'crashed', error })
    else await mail.later(unread, source, known, this.#backoff(source, failed))
    delivery.ack()
  }

  async #refused(source: Source, delivery: Delivery, progress: Progress, cause: unknown): Promise<void> {
    const outcome = { reason: 'refused', error: describe(cause) }
    this.#options.store.log.warn(SluiceError.is(cause) ? cause.message : String(cause), { queue: source.queue })
    await this.#options.mail.archive({ delivery, event: undefined }, source.queue, progress, outcome)
    delivery.ack()
  }

  /** In a deploy another process of the service may have the handler. */
  async #stray(held: Held): Promise<void> {
    const { source, progress, event } = held
    const { mail, store } = this.#options
    const strays = progress.strays + 1
    const text = `this process has no handler of events ${event.type} in the queue ${source.queue}; another one may have it`
    if (strays > straysMax) {
      const error = JSON.stringify({ code: 'SLUICE_EVENT_REFUSED', message: text })
      await mail.archive(held, source.queue, progress, { reason: 'refused', error })
    } else {
      if (strays === 1) store.log.warn(text)
      const delayMs = Math.min(strayMs.most, strayMs.least * 2 ** Math.min(strays - 1, 10))
      await mail.later(held, source, { ...progress, strays }, delayMs)
    }
    held.delivery.ack()
  }

  /** Groups with limits wait in the store, where waiting costs nothing; that it has them already is recognised there. */
  async #toStore({ source, progress, event, delivery }: Held, handlers: readonly string[]): Promise<void> {
    const { service, sender } = this.#options
    for (const handler of handlers) {
      // What was replayed is to be done again.
      const own =
        progress.handler === undefined ? { idempotencyKey: `${service}/${handler}/${event.id}`.slice(0, 512) } : {}
      await sender.send(source.home, { service, handler, event }, own)
    }
    delivery.ack()
  }
  #backoff({ task }: Source, failed: number): number {
    return delayMs(failed, task.retry, this.#options.store.clock.random())
  }
}

/** An attempt of a delivery, as what executes jobs takes it: it has no limits, and the store does not know it. */
function jobOf(
  { task, queue }: Source,
  { attempt, failed, throttled, crashes, isDoubtful }: Progress,
  input: { service: string; handler: string; event: CloudEvent } | undefined,
  nowMs: number,
): ClaimedJob {
  const createdMs = Date.parse(input?.event.time ?? '')
  return {
    claim: '',
    grantedMs: nowMs,
    seq: 0,
    id: input === undefined ? '' : `${input.event.id}/${input.handler}`,
    task: task.name,
    queue,
    attempt: attempt + 1,
    failed,
    throttled,
    crashes,
    ambiguous: isDoubtful,
    priority: 0,
    createdMs: Number.isFinite(createdMs) ? createdMs : 0,
    takes: null,
    costs: null,
    grantUs: null,
    holds: null,
    blocker: null,
    tags: null,
    input,
    admitted: 0,
  }
}
