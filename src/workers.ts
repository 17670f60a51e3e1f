/** Makes what executes jobs: workers in this process, dispatchers in front of a fleet, and workers of a fleet. */
import type { CallSender } from './absorb/absorber.ts'
import { type Absorbing, createAbsorbing } from './absorb/open.ts'
import type { Broker } from './amqp/broker.ts'
import { PatientStart } from './amqp/patient-start.ts'
import { logTraffic } from './amqp/traffic.ts'
import type { Definitions } from './claim/definitions/define.ts'
import type { OutletFor } from './claim/outlet.ts'
import { UsageError } from './core/errors.ts'
import { version } from './core/version.ts'
import type { Store } from './db/store.ts'
import type { Alarms } from './fleet/alarms.ts'
import type { RetentionSettings } from './fleet/retention.ts'
import { AmqpWire } from './outlet/amqp-wire.ts'
import { BrokerOutlet } from './outlet/broker-outlet.ts'
import { nameFleet, nameStore, FleetWorker } from './outlet/fleet-worker.ts'
import { labelsOfFleet, localTasksOf, openFleet, startSafely } from './outlet/open.ts'
import { OutletsByTask, type Part } from './outlet/by-task.ts'
import { celeryOutlet } from './remote/open.ts'
import type { CeleryOutlet } from './remote/celery-outlet.ts'
import { queueOf } from './remote/sent.ts'
import type { RabbitBus } from './bus/rabbit-bus.ts'
import { ServiceWorker } from './bus/service-worker.ts'
import type { Events } from './events/events.ts'
import type { Work } from './events/groups.ts'
import { type RedisConnection, warnOfSharing } from './redis/connect.ts'
import type { RedisPeerLimiter } from './redis/peer.ts'
import type { Rulebook } from './tasks/rule.ts'
import type { AnyTask } from './tasks/task.ts'
import { labelsOf } from './worker/labels.ts'
import { celeryWork } from './worker/celery-work.ts'
import { watchDepth } from './worker/queue-depth.ts'
import { type Companion, checkWork, graceMsOf, type WorkOptions } from './worker/options.ts'
import { TaskSet } from './worker/task-set.ts'
import { Worker } from './worker/worker.ts'

/** Parameters of `Workers`; see the fields. */
export interface WorkersOptions {
  store: Store
  definitions: Definitions
  rulebook: Rulebook
  retention: RetentionSettings
  alarms: Alarms
  peer: RedisPeerLimiter | undefined
  redis: RedisConnection | undefined
  events: Events
  /** The transport of events, if it is not the store. */
  bus: RabbitBus | undefined
  sender: CallSender
  allowPrivate: readonly string[]
  /** The URL of the broker. */
  amqp: string | undefined
  /** The URL of the broker of Celery producers. */
  celeryBroker: string | undefined
  /** Where Celery workers put results. */
  celeryResults: string | undefined
  /** Returns where a heartbeat's thread connects. */
  beatUrl(): string | undefined
  /** @throws if no worker may be made any more */
  checkOpen(): void
}

/** An outlet of a dispatcher, and how many jobs it has sent. */
interface FleetPart extends Part {
  close(): Promise<void>
  given(): number
}

/** The workers of one Sluice. */
export class Workers {
  /** The workers that claim. */
  readonly claiming = new Set<Worker>()
  readonly #executing = new Set<FleetWorker>()
  readonly #options: WorkersOptions

  constructor(options: WorkersOptions) {
    this.#options = options
  }

  /** All of them. */
  get all(): readonly (Worker | FleetWorker)[] {
    return [...this.claiming, ...this.#executing]
  }

  /** Makes a worker that executes what it claims; the caller starts it. */
  async make(work: readonly Work[], options: WorkOptions): Promise<Worker> {
    const tasks = localTasksOf(await this.#prepare(work, options))
    const labels = await labelsOf(options.labels)
    const service = this.#serviceWorker(work, options, labels)
    if (options.celery === undefined) return this.#worker(tasks, options, labels, { companion: service })
    const absorber = this.#absorber(tasks, options, () => worker.running)
    const companion = joinCompanions(service === undefined ? [absorber] : [service, absorber])
    const worker: Worker = this.#worker(tasks, options, labels, { companion, ended: () => absorber.close() })
    return worker
  }

  /** Returns what turns messages of Celery producers into jobs. It connects when it starts. */
  #absorber(tasks: readonly AnyTask[], options: WorkOptions, running: () => number): Absorbing {
    const { store, sender, alarms, celeryResults: results, celeryBroker, checkOpen } = this.#options
    const broker = () => {
      checkOpen()
      if (celeryBroker !== undefined) return celeryBroker
      const text =
        'there is no broker of Celery producers: set CELERY_BROKER_URL or AMQP_URL, or the option `celeryBroker`'
      throw new UsageError('SLUICE_NO_BROKER', text)
    }
    const celery = celeryWork(options.celery ?? [])
    const slots = options.concurrency ?? 10
    return createAbsorbing({ store, sender, tasks, celery, broker, results, slots, running, alarms })
  }

  /** Returns what handles events that RabbitMQ carries; undefined: the store does, or there are no handlers. */
  #serviceWorker(
    work: readonly Work[],
    options: WorkOptions,
    labels: Readonly<Record<string, string>>,
  ): ServiceWorker | undefined {
    const { bus, events } = this.#options
    const { service } = events
    const groups = events.groupsOf(work)
    if (bus === undefined || service === undefined || groups.length === 0) return undefined
    const { concurrency = 10 } = options
    const graceMs = graceMsOf(options)
    return new ServiceWorker({ ...this.#options, bus, service, groups, labels, concurrency, graceMs })
  }

  /** Starts a dispatcher. While RabbitMQ is away it claims nothing, and does what else a worker does. */
  async dispatch(work: readonly Work[], options: WorkOptions): Promise<Worker> {
    const { store, checkOpen } = this.#options
    const { clock, log } = store
    const tasks = await this.#prepare(work, options)
    const labels = labelsOfFleet(tasks, options)
    const fleet = nameFleet(store.schema, options.queues, labels)
    const outlets = new OutletsByTask()
    let close: (() => Promise<void>) | undefined
    const start = async () => {
      close = await this.#beginOutlets(outlets, fleet, tasks, labels)
    }
    const opening = new PatientStart({ who: 'the dispatcher', clock, log, start })
    const absorber = options.celery === undefined ? undefined : this.#absorber(tasks, options, () => worker.running)
    const waiting: Companion = { start: async () => {}, stop: () => opening.end(), abort: () => opening.end() }
    const worker: Worker = this.#worker(tasks, options, labels, {
      outlet: outlets.for,
      companion: joinCompanions(absorber === undefined ? [waiting] : [waiting, absorber]),
      async ended() {
        await opening.end()
        await absorber?.close()
        await close?.()
      },
    })
    return startSafely(worker, async () => {
      await opening.begin()
      checkOpen()
      await worker.start()
    })
  }

  /** Connects what executes the tasks of a dispatcher. Resolves to what closes that. */
  async #beginOutlets(
    outlets: OutletsByTask,
    fleet: string,
    tasks: readonly AnyTask[],
    labels: Readonly<Record<string, string>>,
  ): Promise<() => Promise<void>> {
    const broker = await this.#broker()
    const parts: FleetPart[] = []
    const close = async () => {
      for (const part of parts) await part.close()
      await broker.close()
      const given = parts.reduce((sum, part) => sum + part.given(), 0)
      logTraffic(this.#options.store.log, 'the dispatcher', broker.traffic, [given, 'jobs'])
    }
    try {
      const names = new TaskSet(tasks, labels).describeTasks(this.#options.rulebook).tasks
      parts.push(...(await this.#outlets(broker, fleet, tasks, names)))
      await outlets.begin(parts)
      return close
    } catch (error) {
      await close()
      throw error
    }
  }

  /** Returns what executes the tasks of a dispatcher: workers of its fleet, and Celery workers. */
  async #outlets(broker: Broker, fleet: string, tasks: readonly AnyTask[], names: readonly string[]) {
    const { store, rulebook, peer, alarms, celeryResults: backend = 'rpc://' } = this.#options
    const { clock, log } = store
    const remote = tasks.filter((task) => task.remote !== undefined)
    const far = new Set(remote.map(({ name }) => name))
    const near = names.filter((name) => !far.has(name))
    const outlets: FleetPart[] = []
    const add = (own: ReadonlySet<string>, outlet: BrokerOutlet | CeleryOutlet, filled?: ReadonlySet<string>) => {
      const end = new AbortController()
      const open = async () => {
        await outlet.open()
        if (filled !== undefined) void watchDepth({ broker, queues: filled, alarms, clock, log }, end.signal)
      }
      const close = async () => {
        end.abort()
        await outlet.close()
      }
      outlets.push({ tasks: own, outlet: outlet.for, open, close, given: () => outlet.given })
    }
    if (near.length > 0) {
      const lent = { name: await nameStore(store), sql: store }
      add(new Set(near), new BrokerOutlet({ wire: new AmqpWire(broker), fleet, store: lent, tasks: near, clock, log }))
    }
    if (remote.length > 0) {
      const how = { store, rulebook, peer, broker, backend, tasks: remote, others: new Set(near) }
      add(far, await celeryOutlet(how), new Set(remote.map(queueOf)))
    }
    return outlets
  }

  /** Starts a worker of a fleet. While RabbitMQ is away it waits. */
  async execute(work: readonly Work[], options: WorkOptions): Promise<FleetWorker> {
    const { store } = this.#options
    const tasks = localTasksOf(await this.#prepare(work, options))
    const labels = labelsOfFleet(tasks, options)
    const fleet = nameFleet(store.schema, options.queues, labels)
    const lender = await nameStore(store)
    // Only for its errors: nothing would close the broker after them.
    void new TaskSet(tasks, labels)
    const broker = await this.#broker(true)
    const worker: FleetWorker = new FleetWorker({
      ...this.#options,
      wire: new AmqpWire(broker),
      fleet,
      lender,
      tasks,
      labels,
      concurrency: options.concurrency ?? 10,
      graceMs: graceMsOf(options),
      renew: () => this.#renew(),
      ended: async () => {
        this.#executing.delete(worker)
        await broker.close()
      },
    })
    this.#executing.add(worker)
    return startSafely(worker, () => worker.start())
  }

  /** Returns the tasks of the work, ready to be executed. */
  async #prepare(work: readonly Work[], options: WorkOptions): Promise<readonly AnyTask[]> {
    const { store, definitions, events, redis, peer, checkOpen } = this.#options
    checkOpen()
    const tasks = events.tasksOf(work)
    checkWork(tasks, options)
    graceMsOf(options)
    const all = [...tasks, ...(options.schedules ?? []).map(({ task }) => task)]
    await definitions.define(all.flatMap(({ limits }) => limits))
    const oldTasks = await events.subscribe(work)
    checkOpen()
    await (redis === undefined ? warnOfSharing(store) : redis.load())
    peer?.start()
    return [...tasks, ...oldTasks]
  }

  #worker(
    tasks: readonly AnyTask[],
    options: WorkOptions,
    labels: Readonly<Record<string, string>>,
    parts: { outlet?: OutletFor; ended?: () => Promise<void>; companion?: Companion | undefined },
  ): Worker {
    const { outlet, ended, companion } = parts
    const { beatUrl, checkOpen } = this.#options
    // What was awaited since the last check may have taken long: nothing would stop a worker that is made after `close`.
    checkOpen()
    const { queues, schedules = [], rate, concurrency = 10 } = options
    const worker: Worker = new Worker({
      ...this.#options,
      tasks,
      schedules,
      queues,
      concurrency,
      rate,
      graceMs: graceMsOf(options),
      version,
      labels,
      beatUrl: beatUrl(),
      companion,
      ...(outlet === undefined ? {} : { outlet }),
      renew: () => this.#renew(),
      catchUp: () => this.#options.events.renew(),
      ended: async () => {
        this.claiming.delete(worker)
        await ended?.()
      },
    })
    this.claiming.add(worker)
    return worker
  }

  async #renew(): Promise<void> {
    const { definitions, events } = this.#options
    await Promise.all([definitions.renew(), events.renew()])
  }

  /** @throws UsageError SLUICE_NO_BROKER, SLUICE_BAD_URL, SLUICE_MISSING_PEER; StoreError SLUICE_BROKER_UNREACHABLE */
  async #broker(isPatient = false): Promise<Broker> {
    const { amqp, store, checkOpen } = this.#options
    const broker = await openFleet(amqp, store.schema, store.log, isPatient)
    try {
      checkOpen()
    } catch (error) {
      await broker.close()
      throw error
    }
    return broker
  }
}

/** Starts and stops several as one. */
function joinCompanions(all: readonly Companion[]): Companion {
  const each = async (act: (one: Companion) => Promise<void>) => void (await Promise.all(all.map(act)))
  return {
    start: () => each((one) => one.start()),
    stop: () => each((one) => one.stop()),
    abort: () => each((one) => one.abort()),
  }
}
