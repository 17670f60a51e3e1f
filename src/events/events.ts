/** The events of one store: emitting them, and subscribing a service's handlers. */
import { UsageError } from '../core/errors.ts'
import { checkFields } from '../core/fields.ts'
import { isPromise } from '../core/maybe-promise.ts'
import type { Sql, Store } from '../db/store.ts'
import type { TxLike } from '../db/tx.ts'
import type { Sendable } from '../tasks/send-options.ts'
import type { AnyTask } from '../tasks/task.ts'
import type { EventArchive } from './archive.ts'
import { Catalogue, type EventLine, type EventRecord } from './catalogue.ts'
import type { AnyEvent, EmitOptions, Emitter } from './event.ts'
import { type Group, groupsOf, oldTasksOf, subscriptionsOf, tasksIn, type Work } from './groups.ts'
import { checkNameOf, matches, regexOf, unrouted } from './names.ts'
import { OtherHandlers } from './other-handlers.ts'
import { EventOutbox } from './outbox.ts'
import { type EventRow, eventRow } from './row.ts'
import { jsonSchemaOf } from './json-schema.ts'
import type { ServiceLine, Transport } from './transport.ts'

/** The parts of a Sluice that events use. */
export interface EventsContext {
  store: Store
  /** The name of this process's service; undefined: it has none. */
  service: string | undefined
  /** The transport of events; undefined: the store. */
  transport: Transport | undefined
  /** Returns the caller's transaction; undefined: none is open. @throws StoreError SLUICE_CLOSED */
  enter: (options: { tx?: TxLike | undefined }) => Sql | undefined
  /** Returns the queue that routes give a task; undefined: none. */
  routeOf: (task: string) => string | undefined
}

/** For how long new handlers catch up before their worker begins, in ms; what is left then follows in its rounds. */
const beginMs = 5_000
/** For how long they catch up in a round, which ends only then, in ms. */
const renewMs = 500

/** Emits events, subscribes handlers, and shows both. */
export class Events extends Catalogue implements Emitter {
  readonly #context: EventsContext
  readonly #store: Store
  readonly #transport: Transport
  readonly #source: string
  /** Definitions that are still to be stored, and stored ones. */
  readonly #unstored = new Map<string, AnyEvent>()
  readonly #stored = new Set<AnyEvent>()
  /** Ends when the definitions noted last are stored. */
  #storing: Promise<void> | undefined
  #isSubscribed = false
  /** A renewal that is under way. */
  #renewing: Promise<boolean> | undefined
  readonly #others: OtherHandlers

  /** @throws UsageError SLUICE_BAD_HANDLER for a bad name of the service */
  constructor(context: EventsContext) {
    super(context.store)
    const { store, service, enter } = context
    this.#context = context
    this.#store = store
    this.#others = new OtherHandlers(store.log)
    this.#transport = context.transport ?? new EventOutbox(store, (tx) => enter({ tx }) ?? store)
    this.#source = service === undefined ? '/sluice' : `/services/${checkNameOf('service', service)}`
  }

  /** The name of this process's service; undefined: it has none. */
  get service(): string | undefined {
    return this.#context.service
  }

  /** Emits an event; see `Event.emit`, which calls this. */
  async emit(event: AnyEvent, payload: unknown, options: EmitOptions = {}): Promise<string> {
    const { tx, idempotencyKey: key } = options
    this.#context.enter(options)
    const made = this.#row(event, payload, options)
    const row = isPromise(made) ? await made : made
    this.#note(event)
    if (tx === undefined && this.#unstored.size > 0) await this.#beginStoring()
    if (key !== undefined) return this.#transport.once(row, key, tx)
    await (tx === undefined ? this.#transport.add(row) : this.#transport.write([row], tx))
    return row.id
  }

  /** Emits many events; see `Event.emitMany`, which calls this. */
  async emitMany(event: AnyEvent, payloads: Sendable<unknown>, options: Pick<EmitOptions, 'tx'> = {}): Promise<number> {
    // One id for all would emit only the first.
    checkFields('SLUICE_BAD_OPTION', 'an emitMany', options, ['tx'])
    const { tx } = options
    this.#context.enter(options)
    this.#note(event)
    if (tx === undefined && this.#unstored.size > 0) await this.#beginStoring()
    return this.#transport.write(this.#rows(event, payloads, options), tx)
  }

  /** Returns the tasks of a worker: those given, and those of the groups of handlers given. @throws UsageError SLUICE_NO_SERVICE, SLUICE_BAD_HANDLER */
  tasksOf(work: readonly Work[]): AnyTask[] {
    return [...tasksIn(work), ...this.groupsOf(work).map(({ task }) => task), ...this.#transport.tasks]
  }

  /** Returns the groups of the handlers given. @throws UsageError SLUICE_NO_SERVICE, SLUICE_BAD_HANDLER */
  groupsOf(work: readonly Work[]): Group[] {
    return groupsOf(work, this.#context.service)
  }

  /**
   * Stores the handlers given, and delivers events that they lack; `renew` delivers those that take longer. Returns the tasks that
   * they had before, whose deliveries may wait.
   */
  async subscribe(work: readonly Work[]): Promise<AnyTask[]> {
    const { service, routeOf } = this.#context
    const groups = this.groupsOf(work)
    if (service === undefined || groups.length === 0 || !this.#transport.isStore) return []
    const queueOf = ({ name, queue }: AnyTask) => routeOf(name) ?? (typeof queue === 'string' ? queue : 'default')
    const rows = subscriptionsOf(groups, queueOf)
    const params = [service, JSON.stringify(rows)]
    const handlers = groups.flatMap((group) => group.handlers)
    const names = handlers.map(({ name }) => name)
    this.#others.add(handlers)
    const others = await this.#store.call<{ subscribe_handlers: string }>('subscribe_handlers', params)
    this.#others.warnOf(
      service,
      others.map((row) => row.subscribe_handlers),
    )
    this.#isSubscribed = true
    await this.#storeDefinitions()
    await this.#catchUp(beginMs)
    const old = await this.#store.run<{ task: string }>('events/find_old_tasks', [service, names])
    return oldTasksOf(
      old.map((row) => row.task),
      groups,
    )
  }

  /**
   * Delivers events that this process's handlers lack, for half a second: a round waits for it. To be repeated while it works.
   * Resolves to whether they lacked any.
   */
  renew(): Promise<boolean> {
    // Two at a time would skip what the other one is reading.
    this.#renewing ??= this.#renew().finally(() => (this.#renewing = undefined))
    return this.#renewing
  }

  async #renew(): Promise<boolean> {
    await this.#storeDefinitions()
    return this.#isSubscribed && (await this.#catchUp(renewMs))
  }

  /**
   * Delivers the events that this process's handlers lack; ends after the portion in which this time is over. Resolves to whether
   * they lacked any.
   */
  async #catchUp(mostMs: number): Promise<boolean> {
    const { clock } = this.#store
    let didLack = false
    for (const untilMs = clock.monotonicMs() + mostMs; clock.monotonicMs() < untilMs; didLack = true) {
      const params = [this.#context.service]
      const [row] = await this.#store.call<{ catch_up_service: boolean }>('catch_up_service', params)
      if (row?.catch_up_service !== true) break
    }
    return didLack
  }

  /**
   * Returns the archive of a service, default this process's, where RabbitMQ keeps events that failed for good; of
   * `sluice.unrouted`: events that no service gets, which a replay publishes once more.
   * @throws UsageError SLUICE_NO_ARCHIVE, SLUICE_NO_SERVICE
   */
  archive(service = this.service): EventArchive {
    if (service === undefined)
      throw new UsageError('SLUICE_NO_SERVICE', 'give the name of the service whose archive you mean')
    const archive = this.#transport.archiveOf?.(service === unrouted ? service : checkNameOf('service', service))
    if (archive !== undefined) return archive
    const text =
      'no archive has failed events: they are failed jobs if the store carries events (`sluice jobs --state failed`, `sluice events replay`), and not kept with `archive: false`'
    throw new UsageError('SLUICE_NO_ARCHIVE', text)
  }

  /** As for the store, and adds the handlers of services on RabbitMQ. */
  override async list(): Promise<EventLine[]> {
    const lines = await super.list()
    const services = await this.services()
    const all = services.flatMap(({ service, handlers }) => handlers.map((each) => ({ service, ...each })))
    const known = new Set(lines.map(({ type }) => type))
    for (const type of new Set(all.map(({ pattern }) => pattern)))
      if (regexOf(type) === undefined && !known.has(type))
        lines.push({ type, publishers: [], subscribers: [], lastAt: null, isUnrouted: false })
    for (const { type, subscribers } of lines)
      for (const { service, handler, pattern } of all)
        if (matches(pattern, type)) subscribers.push({ service, handler, pattern })
    return lines.toSorted((one, other) => (one.type < other.type ? -1 : 1))
  }

  /** Lists the services on RabbitMQ, with what waits in their queues; empty if the store carries events. */
  async services(): Promise<ServiceLine[]> {
    return (await this.#transport.services?.()) ?? []
  }

  /**
   * Returns the record of an event. RabbitMQ knows those that wait for a retry, are archived, or are for nobody, and workers those that
   * they handled of late; undefined: it is unknown.
   */
  override async show(id: string): Promise<EventRecord | undefined> {
    return (await super.show(id)) ?? this.#transport.find?.(id)
  }

  /** Resolves when what was emitted so far is durable, or has failed. */
  async settled(): Promise<void> {
    await Promise.all([this.#transport.settled(), this.#storing])
  }

  #row(event: AnyEvent, payload: unknown, options: EmitOptions) {
    return eventRow(event, payload, options, { source: this.#source, clock: this.#store.clock })
  }

  /** Makes the rows of payloads, one when it is read. @throws UsageError that names the index of the first bad payload */
  async *#rows(event: AnyEvent, payloads: Sendable<unknown>, options: EmitOptions): AsyncGenerator<EventRow> {
    let index = 0
    for await (const payload of payloads) {
      let row: EventRow
      try {
        const made = this.#row(event, payload, options)
        row = isPromise(made) ? await made : made
      } catch (error) {
        if (!(error instanceof UsageError)) throw error
        const text = `payload ${index}: ${error.message} (those before it are emitted)`
        throw new UsageError(error.code, text, { cause: error })
      }
      yield row
      index++
    }
  }

  #note(event: AnyEvent): void {
    if (!this.#stored.has(event)) this.#unstored.set(event.name, event)
  }

  /** Stores definitions. Resolves when that is done; if the store does not carry events, at once: it may be away. */
  async #beginStoring(): Promise<void> {
    this.#storing = this.#storeDefinitions()
    if (this.#transport.isStore) await this.#storing
  }

  /** Stores definitions for the catalogue. Not in a caller's transaction, in which it would wait for other callers. */
  async #storeDefinitions(): Promise<void> {
    if (this.#unstored.size === 0) return
    const events = [...this.#unstored.values()]
    this.#unstored.clear()
    const rows = events.map((event) => ({
      type: event.name,
      version: event.version,
      description: event.description,
      schema: jsonSchemaOf(event),
    }))
    for (const event of events) this.#stored.add(event)
    try {
      await this.#store.run('events/store_publishers', [this.#context.service ?? '', JSON.stringify(rows)])
    } catch (error) {
      // An error of the catalogue must not fail an emit.
      for (const event of events) this.#stored.delete(event)
      this.#store.log.debug('definitions of events could not be stored; the next emit tries again', { err: error })
    }
  }
}
