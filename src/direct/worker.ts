/** A worker without a store: executes tasks of Celery producers, and takes their grants itself, in Redis. */
import type { CallInHand } from '../absorb/inspection.ts'
import { Presence } from '../absorb/presence.ts'
import { Results } from '../absorb/results.ts'
import type { CeleryBroker } from '../absorb/broker.ts'
import { delayMaxMs } from '../amqp/delays.ts'
import { PatientStart } from '../amqp/patient-start.ts'
import { logTraffic } from '../amqp/traffic.ts'
import { enter } from '../celery/redis-transport.ts'
import type { Clock } from '../core/clock.ts'
import type { Reports } from '../claim/outlet.ts'
import type { RedisConnection } from '../redis/connect.ts'
import type { Report } from '../report/report.ts'
import { Rulebook } from '../tasks/rule.ts'
import { type AnyTask, tasksByName } from '../tasks/task.ts'
import { AttemptEvents } from '../worker/attempt-events.ts'
import { Shutdown } from '../worker/shutdown.ts'
import type { Labels } from '../worker/labels.ts'
import { LocalOutlet } from '../worker/local-outlet.ts'
import { TaskSet } from '../worker/task-set.ts'
import { Bookings } from './bookings.ts'
import type { DirectBroker } from './broker.ts'
import { Ends } from './ends.ts'
import { DirectGrantSource } from './grants.ts'
import { Hand } from './hand.ts'
import type { Entry } from './intake.ts'
import { DirectLimiter } from './limiter.ts'
import { type DirectCounts, ReadAhead } from './read-ahead.ts'

/** Parameters of `DirectWorker`; see the fields. `ended` closes the connections. */
export interface DirectWorkerOptions {
  tasks: readonly AnyTask[]
  /** Celery's queues. */
  queues: readonly string[]
  broker: DirectBroker
  /** The Redis that has the limits; undefined: no task has one. */
  redis: RedisConnection | undefined
  /** Beginning of every key in Redis. */
  prefix: string
  /** Where results go; undefined: to the queues that the calls name (rpc). */
  results: RedisConnection | undefined
  /** The queue of a task that follows another one and names none; undefined: that of the call. */
  queueOf(task: string): string | undefined
  /** Attempts at once. */
  concurrency: number
  /** Messages that are read ahead for each slot. */
  prefetchMultiplier: number
  /** Messages are acknowledged when their attempts begin. */
  acksEarly: boolean
  graceMs: number
  labels: Labels
  /** Addresses beyond the public ones that every task may call. */
  allowPrivate: readonly string[]
  /** Messages that fail for good are also put into the queue of parked ones. */
  parks: boolean
  /** Producers get the state STARTED. */
  tracksStarted: boolean
  /** Sends events from the start; else from when a program of Celery wants them. */
  sendsEvents: boolean
  clock: Clock
  report: Report
  /** Called when it has stopped. */
  ended(): Promise<void>
}

/** Executes until it is stopped. */
export class DirectWorker {
  readonly #options: DirectWorkerOptions
  readonly #local: LocalOutlet
  readonly #hand: Hand
  readonly #limiter: DirectLimiter | undefined
  readonly #shutdown: Shutdown
  readonly #presence: Presence
  readonly #opening: PatientStart
  readonly #ahead: ReadAhead

  constructor(options: DirectWorkerOptions) {
    const { tasks, redis, prefix, clock, report, labels, broker, results, graceMs, acksEarly } = options
    const { log } = report
    this.#options = options
    const limits = [...new Map(tasks.flatMap((task) => task.limits).map((limit) => [limit.name, limit])).values()]
    const limiter = redis && limits.length > 0 ? new DirectLimiter({ limits, redis, prefix, clock, log }) : undefined
    this.#limiter = limiter
    const around = { clock, log, report, db: { checkOutside() {} } }
    const taskSet = new TaskSet(tasks, labels)
    this.#local = new LocalOutlet({
      ...options,
      store: around,
      source: new DirectGrantSource(limiter, clock),
      opens: async () => undefined,
      rulebook: new Rulebook(),
      taskSet,
      isPrompt: true,
      worker: () => undefined,
      changed: () => this.#hand.startWaiting(),
    })
    this.#ahead = new ReadAhead({
      clock,
      least: this.#prefetch,
      isWideAllowed: !tasks.some(({ isOnce }) => isOnce),
      counts: () => this.#hand.counts,
      setPrefetch: (prefetch) => broker.setPrefetch(prefetch),
    })
    const { celery } = broker
    const presence = (this.#presence = this.#createPresence(celery))
    const definition = (take: string) => limiter?.definition(take)
    const epoch = () => limiter?.current
    this.#hand = new Hand({
      clock,
      log,
      labels,
      acksEarly,
      tasks: indexByName(tasks),
      limits: limiter &&
        redis && { limiter, bookings: new Bookings({ redis, prefix, clock, epoch, definition, mostMs: delayMaxMs }) },
      ends: new Ends({
        ...options,
        celery,
        presence,
        log,
        results: new Results({ clock, log, broker: celery, redis: results, queueOf: options.queueOf }),
      }),
      onDenied: (bytes) => this.#ahead.recordDenied(bytes),
      onReceived: (message) => presence.events.sendReceived(message),
      listener: new AttemptEvents(report, clock, () => undefined),
      outlet: (reports: Reports) => this.#local.outlet(reports),
    })
    this.#opening = new PatientStart({ who: 'the worker', clock, log, start: () => this.#take() })
    this.#shutdown = new Shutdown({
      store: around,
      graceMs,
      what: 'tasks',
      running: () => this.running,
      handBack: (reason) => this.#hand.handBack(reason),
      signOff: () => this.#signOff(),
    })
  }

  /** Messages in hand. */
  get running(): number {
    return this.#hand.size
  }

  /** Its counts since it began. */
  get counts(): Readonly<DirectCounts> {
    return { ...this.#hand.counts }
  }

  /**
   * Begins to execute; while a server is away it resolves all the same, and begins later. @throws UsageError of the broker;
   * UsageError SLUICE_BAD_REDIS, SLUICE_NO_SUCH_LIMIT, SLUICE_NEEDS_STORE; other errors of Redis
   */
  async start(): Promise<void> {
    await this.#local.open(this.#options.tasks)
    await this.#opening.begin()
  }

  get #prefetch(): number {
    return this.#local.slots * this.#options.prefetchMultiplier
  }

  /** May be repeated if it fails. @throws the errors of the broker, and of Redis */
  async #take(): Promise<void> {
    const { queues, broker, results } = this.#options
    await this.#limiter?.start()
    if (results !== undefined) await enter(results)
    const { signal } = this.#shutdown
    await broker.receive({ queues, prefetch: this.#prefetch, signal, take: (...one) => this.#hand.take(...one) })
    await this.#presence.open(this.#options.sendsEvents)
  }

  #createPresence(broker: CeleryBroker): Presence {
    const { tasks, report, results } = this.#options
    return new Presence({
      ...this.#options,
      broker,
      log: report.log,
      tasks: indexByName(tasks),
      slots: this.#local.slots,
      running: () => this.#hand.entries('active').length,
      redis: results,
      acksLate: !this.#options.acksEarly,
      // Messages that are not due yet are on the broker.
      inHand: (kind) => (kind === 'scheduled' ? [] : this.#hand.entries(kind).map(shown)),
      revoked: () => this.#hand.revoked,
      revoke: (ids, isTerminated) => this.#hand.revoke(ids, isTerminated),
    })
  }

  /** Takes no more messages, and waits for the attempts under way, as long as its grace. */
  stop(): Promise<void> {
    return this.#shutdown.stop()
  }

  /** Stops at once: the signals of attempts under way abort, and their messages go back. */
  abort(): Promise<void> {
    return this.#shutdown.abort()
  }

  async #signOff(): Promise<void> {
    this.#ahead.close()
    // A try that is under way consumes nothing more, and ends when the broker is closed.
    void this.#opening.end()
    const { broker } = this.#options
    await broker.stop()
    await this.#hand.stop()
    await broker.flush()
    await this.#presence.close()
    await this.#limiter?.close()
    await this.#local.close()
    const { log } = this.#options.report
    log.info('the worker has stopped', { ...this.counts })
    logTraffic(log, 'the worker', broker.celery.traffic, [this.counts.begun, 'tasks'])
    await this.#options.ended()
  }
}

/** Returns a message as `celery inspect` shows it. */
function shown({ message, call, task, input, begunMs, incoming }: Entry): CallInHand {
  const { id, priority } = message
  return {
    id,
    call,
    task: task.name,
    input,
    priority,
    dueAt: null,
    startedAt: begunMs === undefined ? null : new Date(begunMs),
    isUnacknowledged: incoming.isInHand,
  }
}

/** Returns tasks by all their names, with those that get their failures. */
function indexByName(tasks: readonly AnyTask[]): Map<string, AnyTask> {
  const failureTasks = tasks.flatMap(({ onFailed }) =>
    onFailed === undefined ? [] : [[onFailed.name, onFailed] as const],
  )
  return new Map([...tasksByName(tasks), ...failureTasks])
}
