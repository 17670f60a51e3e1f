/** Handles a service's events from RabbitMQ, in this process: its groups' queues, and what executes attempts. */
import { marginsOf } from '../claim/definitions/margins.ts'
import { localReports } from '../claim/outlet.ts'
import { StoreClock } from '../core/clock.ts'
import { UsageError } from '../core/errors.ts'
import type { Broker } from '../amqp/broker.ts'
import { PatientStart } from '../amqp/patient-start.ts'
import type { Alarms } from '../fleet/alarms.ts'
import type { Group } from '../events/groups.ts'
import type { AnyTask, Sender } from '../tasks/task.ts'
import { AttemptEvents } from '../worker/attempt-events.ts'
import { Shutdown } from '../worker/shutdown.ts'
import { createAttemptParts } from '../worker/grant-source.ts'
import { LocalOutlet } from '../worker/local-outlet.ts'
import type { ExecutionOptions } from '../worker/options.ts'
import { TaskSet } from '../worker/task-set.ts'
import { ServiceConsumer } from './consumer.ts'
import { watchQueues } from './queue-watch.ts'
import { Republisher } from './republisher.ts'
import type { ServiceNames } from './names.ts'
import { entryOf, replaceEntry } from './entries.ts'
import { divide, isOfLast, type Move, movesOf, replacingMs, unbind } from './moves.ts'
import { namesOf, type RabbitBus } from './rabbit-bus.ts'
import { type Source, sourcesOf } from './source.ts'

/** Parameters of `ServiceWorker`; see the fields. */
export interface ServiceWorkerOptions extends Omit<ExecutionOptions, 'tasks'> {
  bus: RabbitBus
  service: string
  groups: readonly Group[]
  alarms: Pick<Alarms, 'evaluate'>
  sender: Pick<Sender, 'send'>
}

/** Time between two tries to remove bindings, in ms. */
const finishEveryMs = 60_000

/** One worker of one service. */
export class ServiceWorker {
  readonly #options: ServiceWorkerOptions
  readonly #sources: readonly Source[]
  readonly #taskSet: TaskSet
  readonly #local: LocalOutlet
  readonly #shutdown: Shutdown
  #consumer: ServiceConsumer | undefined
  #starting: Promise<void> | undefined
  #taking: PatientStart | undefined

  constructor(options: ServiceWorkerOptions) {
    const { store, groups, service, bus, labels, graceMs } = options
    const names = namesOf(service, bus.settings)
    this.#options = options
    this.#sources = sourcesOf(groups, names)
    this.#taskSet = new TaskSet(this.#tasks, labels)
    this.#local = new LocalOutlet({
      ...options,
      ...createAttemptParts({ ...options, storeClock: new StoreClock() }),
      taskSet: this.#taskSet,
      isPrompt: true,
      worker: () => undefined,
      changed: () => this.#consumer?.begin(),
    })
    this.#shutdown = new Shutdown({
      store,
      graceMs,
      what: 'events',
      running: () => this.#consumer?.running ?? 0,
      handBack: (reason) => void this.#consumer?.abort(reason),
      signOff: () => this.#signOff(),
    })
  }

  get #tasks(): AnyTask[] {
    return [...new Set(this.#sources.map(({ task }) => task))]
  }

  /**
   * Declares the service's queues, and takes events. While RabbitMQ is away it resolves all the same, and takes events as soon as it is
   * back. @throws UsageError of the broker
   */
  start(): Promise<void> {
    this.#starting ??= this.#begin()
    return this.#starting
  }

  /** Takes no more events, and waits for the attempts under way, as long as its grace. */
  stop(): Promise<void> {
    return this.#shutdown.stop()
  }

  /** Stops at once: the signals of attempts under way abort, and their events are tried elsewhere. */
  abort(): Promise<void> {
    return this.#shutdown.abort()
  }

  async #begin(): Promise<void> {
    const { bus, store, service, groups } = this.#options
    // RabbitMQ keeps no event that was handled.
    for (const { name, since } of groups.flatMap(({ handlers }) => handlers))
      if (since !== undefined)
        store.log.warn(
          `handler "${name}" has \`since\`: over RabbitMQ it gets events from its first start on; earlier ones come from the store alone`,
        )
    bus.others.add(groups.flatMap(({ handlers }) => handlers))
    const tasks = this.#tasks
    await this.#local.open(tasks)
    await marginsOf(store).join(tasks.flatMap(({ limits }) => limits))
    const broker = await bus.broker()
    const republisher = this.#republisher(broker)
    this.#consumer = this.#consumerOf(broker, republisher)
    const { clock, log } = store
    const start = () => this.#takeEvents(broker, republisher)
    this.#taking = new PatientStart({ who: `service "${service}"`, clock, log, start })
    await this.#taking.begin()
  }

  #republisher(broker: Broker): Republisher {
    const { bus, store, service } = this.#options
    return new Republisher({ broker, names: namesOf(service, bus.settings), clock: store.clock, log: store.log })
  }

  #consumerOf(broker: Broker, republisher: Republisher): ServiceConsumer {
    const { bus, store, service, sender } = this.#options
    const { clock, report } = store
    return new ServiceConsumer({
      store,
      broker,
      service,
      sources: this.#sources,
      republisher,
      takesPlain: bus.settings.takesPlain,
      concurrency: this.#local.slots,
      outlet: (ended) => this.#local.outlet(localReports(ended)),
      lost: (job) => this.#taskSet.lost(job, 0),
      listener: new AttemptEvents(report, clock, () => undefined),
      sender,
    })
  }

  /** May be repeated if it fails. @throws StoreError SLUICE_BROKER_UNREACHABLE; UsageError SLUICE_BROKER_REFUSED */
  async #takeEvents(broker: Broker, republisher: Republisher): Promise<void> {
    const { store, alarms } = this.#options
    const { names } = republisher
    const consumer = this.#consumer
    const { signal } = this.#shutdown
    if (consumer === undefined || signal.aborted) return
    broker.checkThere()
    const topologies = this.#sources.map(({ topology }) => topology)
    for (const topology of topologies) await broker.declare(topology)
    await this.#declareArchive(broker, names)
    const moves = await this.#move(broker, republisher)
    await consumer.open(moves)
    for (const source of this.#sources) await this.#adopt(source, broker, consumer)
    for (const queue of new Set(moves.map(({ from }) => from.queue)))
      if ((await broker.findQueue(queue)) !== undefined) await consumer.adopt(queue)
    if (moves.some(({ isBindingKept }) => isBindingKept)) void this.#finishMoves(broker, republisher, consumer)
    void watchQueues({ store, broker, names, republisher, alarms, look: () => consumer.look() }, signal)
  }

  /**
   * Writes the service's entry, and removes the bindings of handlers that have moved from their former queues. Without
   * an archive a service has no entry. Celery's queues do not change with groups, and Python may serve them.
   */
  async #move(broker: Broker, republisher: Republisher, isLater = false): Promise<readonly Move[]> {
    const { bus, store } = this.#options
    const { clock, log } = store
    const { names } = republisher
    const sources = this.#sources
    if (names.archiveTopology === undefined) return []
    let moves: readonly Move[] = []
    const replaced = replaceEntry(broker, names.service, async (earlier) => {
      if (isLater && earlier !== undefined && !isOfLast(earlier, sources)) return earlier
      bus.others.warnOf(
        names.service,
        (earlier?.handlers ?? []).map(({ handler }) => handler),
      )
      const all = movesOf(earlier, sources, clock.wallMs())
      if (!names.hasOwnQueues) {
        moves = all.moves
        await unbind(broker, all)
        await divide(broker, republisher, sources, moves)
      }
      return entryOf(names, sources, all, clock)
    })
    await replaced.catch((error: unknown) => {
      // A service also works without an entry.
      if (!(error instanceof UsageError)) throw error
      log.warn('the entry of the service could not be written', { err: error })
    })
    return moves
  }

  /** Removes the bindings that were kept for processes of the release before, when those should have ended. */
  async #finishMoves(broker: Broker, republisher: Republisher, consumer: ServiceConsumer): Promise<void> {
    const { clock, log } = this.#options.store
    const { signal } = this.#shutdown
    for (let delayMs = replacingMs; ; delayMs = finishEveryMs) {
      await clock.sleep(delayMs, signal, false)
      if (signal.aborted) return
      try {
        return await consumer.open(await this.#move(broker, republisher, true))
      } catch (error) {
        log.debug('the bindings of handlers that have moved could not be removed', { err: error })
      }
    }
  }

  /** Consumes the queues of earlier settings, too: messages wait there, or come back there, but no new ones arrive. */
  async #adopt(source: Source, broker: Broker, consumer: ServiceConsumer): Promise<void> {
    for (const queue of source.formerQueues) {
      if ((await broker.findQueue(queue)) === undefined) continue
      const { bindings = [] } = source.topology
      await broker.use(async (channel) => {
        for (const { exchange, routingKey = '' } of bindings) await channel.unbindQueue(queue, exchange, routingKey)
      })
      await consumer.consume(source, queue)
    }
  }

  /** An archive that has other bounds is declared anew when it is empty; until then it keeps them. */
  async #declareArchive(broker: Broker, names: ServiceNames): Promise<void> {
    const topology = names.archiveTopology
    if (topology === undefined) return
    try {
      await broker.declare(topology)
    } catch (error) {
      if (!(error instanceof UsageError)) throw error
      const isGone = await broker
        .use((channel) => channel.deleteQueue(names.archive, { ifEmpty: true }))
        .then(() => true)
        .catch(() => false)
      if (isGone) return broker.declare(topology)
      const text = `the archive of service "${names.service}" keeps its earlier bounds until it is empty (\`sluice events discard\`, \`replay\`)`
      this.#options.store.log.warn(text, { err: error })
    }
  }

  async #signOff(): Promise<void> {
    // A start that waits for RabbitMQ has its consumer, and consumes nothing once that has stopped.
    if (this.#consumer === undefined) await this.#starting?.catch(() => {})
    void this.#taking?.end()
    await this.#consumer?.stop()
    await this.#local.close()
  }
}
