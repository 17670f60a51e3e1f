/** The stock Celery workers of some queues: which tasks they can take, whether they live, and how far their clocks are off. */
import type { Broker } from '../amqp/broker.ts'
import { eventExchange, readEvents, type CeleryEvent } from '../celery/event.ts'
import type { Answers, Control } from '../celery/remote.ts'
import { readIncoming } from '../celery/transport.ts'
import { isRecord } from '../celery/json.ts'
import type { Clock } from '../core/clock.ts'
import type { Log } from '../core/log.ts'
import { reportingIn, seemsOtherBackend, taskItems } from './reporting.ts'
import { type Clocks, Skew } from './skew.ts'

/** Parameters of `StockWorkers`; see the fields. */
export interface StockWorkersOptions {
  broker: Broker
  control: Pick<Control, 'request'>
  /** False: what workers report cannot be read now. */
  canRead(): boolean
  /** The tasks that matter, with their queues. */
  tasks: ReadonlyMap<string, string>
  /** Where results are read: `rpc://`, or the URL of a Redis. */
  backend: string
  clock: Clock
  log: Log
  /** The workers, or what they can take, may have changed. */
  onChange(): void
  /** Called when the broker, or what workers report, is away or back. Unread reports may be lost: Celery's are not kept on disk. */
  onCut(): void
  /** This worker was silent for too long, while it was reachable, or has ended. */
  onLost(worker: string): void
}

/** One worker. */
interface StockWorker {
  readonly name: string
  pid: number
  slots: number
  queues: ReadonlySet<string>
  /** Tasks that it has, and whose calls it reports where results are read. */
  tasks: ReadonlySet<string>
  readonly skew: Skew
  version: string
  silentMs: number
  /** The process that had its name before; undefined: none of which this dispatcher knows. */
  formerPid: number | undefined
  /** The last fault that was logged about it. */
  loggedFault: string
}

/** A worker that has sent an event and has not reported its queues, or that serves none of these queues. */
interface Newcomer {
  readonly skew: Skew
  readonly version: string
  readonly formerPid: number | undefined
  lastSeenMs: number
  isForeign: boolean
}

/** A quarter of the longest life of a grant: a worker whose clock is further off gets nothing. */
const skewMostMs = 250
const tickMs = 500
const lookMs = 4_000
const answerMs = 1_000
const lostMs = 10_000
/** For how long after a loss, or a gap in the reports, a worker may have been lost together with a dispatcher. */
const lateMs = 3 * lostMs
/** How long a worker may be silent before it gets no more jobs. Celery's own heartbeats come every 2 s. */
const quietMs = 5_000

/** The workers of one broker. */
export class StockWorkers {
  readonly #options: StockWorkersOptions
  readonly #queues: ReadonlySet<string>
  readonly #workers = new Map<string, StockWorker>()
  readonly #newcomers = new Map<string, Newcomer>()
  #isClosed = false
  #isLooking = false
  #wasUp = true
  /** For how many ticks the broker has been there, and what workers report could not be read. */
  #deafTicks = 0
  #lookedMs = -Infinity
  #tickedMs: number
  /** It has received all events since then. */
  #gaplessMs = Infinity
  #lostMs = -Infinity

  constructor(options: StockWorkersOptions) {
    this.#options = options
    this.#queues = new Set(options.tasks.values())
    this.#tickedMs = options.clock.monotonicMs()
  }

  /** Listens to the workers, and learns for the first time what they can take. */
  async open(queue: string): Promise<void> {
    const { broker, log } = this.#options
    await broker.declare({
      exchanges: [{ name: eventExchange, type: 'topic' }],
      queues: [{ name: queue, durable: false, exclusive: true }],
      bindings: [{ exchange: eventExchange, to: { queue }, routingKey: 'worker.#' }],
    })
    await broker.consume(queue, { prefetch: 1, noAck: true }, async (incoming) => {
      try {
        for (const event of await readEvents(readIncoming(incoming))) this.#handleEvent(event)
      } catch (error) {
        log.warn('an event of a Celery worker cannot be read; it is dropped', { err: error })
      }
    })
    this.#gaplessMs = this.#options.clock.monotonicMs()
    await this.#look()
    this.#tick()
  }

  close(): void {
    this.#isClosed = true
  }

  /** True if the broker is there, and what workers report can be read. */
  get isUp(): boolean {
    return this.#options.broker.isUp && this.#options.canRead()
  }

  /** Returns the names of the workers of a queue. */
  namesOf(queue: string): string[] {
    return this.#workersOf(queue).map(({ name }) => name)
  }

  versionOf(worker: string): string {
    return this.#workers.get(worker)?.version ?? ''
  }

  /**
   * How many attempts the workers of a queue make at once; 0 while the clock of one of them is off, or not known, or while
   * nothing can be sent to them.
   */
  slots(queue: string): number {
    if (!this.isUp || this.skewMs(queue) > skewMostMs) return 0
    return this.#workersOf(queue).reduce((sum, { slots, silentMs }) => sum + (silentMs < quietMs ? slots : 0), 0)
  }

  /** Returns whether every worker of a queue has this task, and reports when it begins. */
  hasTask(queue: string, task: string): boolean {
    const all = this.#workersOf(queue)
    return all.length > 0 && all.every(({ tasks }) => tasks.has(task))
  }

  /** Returns whether every live worker is known: it has had time to send an event, and has reported its queues. */
  isWhole(): boolean {
    const nowMs = this.#options.clock.monotonicMs()
    const isUnknown = ({ lastSeenMs, isForeign }: Newcomer) => !isForeign && nowMs - lastSeenMs < lostMs
    return nowMs - this.#gaplessMs > lostMs && ![...this.#newcomers.values()].some(isUnknown)
  }

  /**
   * Returns whether a worker that had begun something by `sinceMs` is certainly gone. That is certain only when every
   * live worker is known, and a worker that has just started may not have sent an event yet.
   */
  isGone(worker: string, sinceMs: number): boolean {
    const lastSeenMs = Math.max(sinceMs, this.#newcomers.get(worker)?.lastSeenMs ?? -Infinity)
    return this.isWhole() && !this.#workers.has(worker) && this.#options.clock.monotonicMs() - lastSeenMs > lostMs
  }

  /** True if a worker may have been lost of late. */
  mayHaveLost(): boolean {
    return this.#options.clock.monotonicMs() - Math.max(this.#gaplessMs, this.#lostMs) < lateMs
  }

  /** How far the clocks of the workers of a queue are off at most, in ms; Infinity: that is not known. */
  skewMs(queue: string): number {
    return Math.max(0, ...this.#workersOf(queue).map(({ skew }) => Math.abs(skew.aheadMs(this.#now()) ?? Infinity)))
  }

  #now(): Clocks {
    const { clock } = this.#options
    return { wallMs: clock.wallMs(), monotonicMs: clock.monotonicMs() }
  }

  #workersOf(queue: string): StockWorker[] {
    return [...this.#workers.values()].filter(({ queues }) => queues.has(queue))
  }

  #handleEvent({ type, hostname, pid, atMs, fields }: CeleryEvent): void {
    const { onChange } = this.#options
    const now = this.#now()
    const former = this.#workers.get(hostname)
    if (former !== undefined && former.pid !== pid) this.#lose(former, restartWarning(former, pid))
    const known = this.#workers.get(hostname)
    const version = typeof fields['sw_ver'] === 'string' ? fields['sw_ver'] : ''
    const lastSeenMs = now.monotonicMs
    const anew = { skew: new Skew(), version, formerPid: former?.pid, lastSeenMs, isForeign: false }
    const newcomer = this.#newcomers.get(hostname) ?? anew
    newcomer.lastSeenMs = lastSeenMs
    const { skew } = known ?? newcomer
    skew.recordEvent(atMs, now)
    if (known === undefined) {
      if (!this.#newcomers.has(hostname)) this.#lookedMs = -Infinity
      this.#newcomers.set(hostname, newcomer)
      return
    }
    known.version = version
    // An ending worker sends this, and also one that has lost its connection, which comes back.
    known.silentMs = type === 'worker-offline' ? Math.max(known.silentMs, quietMs) : 0
    this.#logSkew(known)
    onChange()
  }

  /** Logs what is wrong with a worker, once. */
  #logSkew(worker: StockWorker): void {
    const aheadMs = worker.skew.aheadMs(this.#now())
    const isOff = aheadMs !== undefined && Math.abs(aheadMs) > skewMostMs
    const text = !isOff ? '' : aheadMs > 0 ? 'ahead' : 'behind'
    if (worker.loggedFault === text) return
    worker.loggedFault = text
    if (isOff)
      this.#options.log.error(
        `the clock of a Celery worker is ${text}: its queues get nothing until it is set right, or stops to consume`,
        { worker: worker.name, byMs: Math.round(Math.abs(aheadMs)), most: skewMostMs },
      )
  }

  async #look(): Promise<void> {
    const { control, clock, log } = this.#options
    this.#isLooking = true
    this.#lookedMs = clock.monotonicMs()
    try {
      const [stats, active] = await Promise.all([
        control.request('stats', {}, { within: answerMs }),
        control.request('active_queues', {}, { within: answerMs }),
      ])
      const serving = Object.keys(stats).filter((name) =>
        queuesIn(active[name]).some((queue) => this.#queues.has(queue)),
      )
      const unknown = serving.filter((name) => this.#workers.get(name)?.pid !== pidIn(stats[name]))
      const [tasks, confs] = unknown.length === 0 ? [{}, {}] : await this.#requestTasks(unknown)
      for (const name of serving)
        this.#registerWorker(name, stats[name], queuesIn(active[name]), [tasks[name], confs[name]])
      for (const [name, newcomer] of this.#newcomers) newcomer.isForeign = name in active && !serving.includes(name)
      for (const [name, worker] of this.#workers)
        if (name in active && !serving.includes(name)) worker.queues = new Set()
      this.#options.onChange()
      // Its clock is not known before its first event, which comes within 2 s.
      const isUnknown = [...this.#workers.values()].some(({ skew }) => skew.aheadMs(this.#now()) === undefined)
      if (isUnknown) await control.request('heartbeat', {}, { within: 0 })
    } catch (error) {
      log.warn('the Celery workers cannot be queried for what they can take; it is tried again', { err: error })
    }
    this.#isLooking = false
  }

  /** Resolves to the tasks of workers, and, if results are in Redis, to their settings. */
  #requestTasks(workers: readonly string[]): Promise<[Answers, Answers]> {
    const { control, backend } = this.#options
    const how = { workers, within: 2 * answerMs }
    return Promise.all([
      control.request('registered', { taskinfoitems: taskItems }, how),
      backend === 'rpc://' ? {} : control.request('conf', {}, how),
    ])
  }

  #registerWorker(
    name: string,
    stats: unknown,
    queues: readonly string[],
    [registered, conf]: [unknown, unknown],
  ): void {
    const known = this.#workers.get(name)
    const isNew = known === undefined || known.pid !== pidIn(stats)
    // The next look tries again.
    if (isNew && !Array.isArray(registered)) return
    if (isNew && known !== undefined) this.#lose(known, restartWarning(known, pidIn(stats)))
    const tasks = isNew ? this.#checkReporting(name, queues, [registered as unknown[], conf]) : known.tasks
    const newcomer = this.#newcomers.get(name)
    this.#newcomers.delete(name)
    this.#workers.set(name, {
      name,
      pid: pidIn(stats),
      slots: slotsIn(stats),
      queues: new Set(queues),
      tasks,
      skew: known?.skew ?? newcomer?.skew ?? new Skew(),
      version: known?.version ?? newcomer?.version ?? '',
      silentMs: 0,
      formerPid: isNew ? (known?.pid ?? newcomer?.formerPid) : known.formerPid,
      loggedFault: known?.loggedFault ?? '',
    })
  }

  /** Returns the tasks whose calls a new worker reports, and logs what keeps others that matter from it. */
  #checkReporting(
    worker: string,
    queues: readonly string[],
    [registered, conf]: [readonly unknown[], unknown],
  ): ReadonlySet<string> {
    const { backend, tasks: wanted, log } = this.#options
    const { tasks, faults } = reportingIn(registered, backend)
    const silent = [...wanted.keys()].filter((task) => faults.has(task))
    const lacking = [...wanted].flatMap(([task, queue]) =>
      queues.includes(queue) && !tasks.has(task) && !faults.has(task) ? [task] : [],
    )
    if (lacking.length > 0)
      log.error('a Celery worker lacks tasks of its queue, so no worker of the queue gets jobs of them', {
        worker,
        tasks: lacking,
      })
    const text = 'a Celery worker does not report the calls of these tasks to this dispatcher, so they get no jobs'
    for (const fault of new Set(silent.map((task) => faults.get(task))))
      log.error(`${text}: set ${fault}`, { worker, tasks: silent.filter((task) => faults.get(task) === fault) })
    if (seemsOtherBackend(conf, backend))
      log.warn(
        'a Celery worker seems to report its calls elsewhere, and each would be repeated; unless its environment overrides its settings, set result_backend, without global_keyprefix, to the Redis database that CELERY_RESULT_BACKEND names here',
        { worker },
      )
    return tasks
  }

  #tick(): void {
    if (this.#isClosed) return
    const { clock } = this.#options
    const nowMs = clock.monotonicMs()
    const { isUp } = this
    this.#logDeafness()
    // Time in which nothing can be received, or this process does not run, does not count as silence.
    const passedMs = isUp ? Math.min(nowMs - this.#tickedMs, 2 * tickMs) : 0
    this.#tickedMs = nowMs
    if (isUp !== this.#wasUp) {
      this.#options.onCut()
      this.#options.onChange()
    }
    // Workers may have come and gone meanwhile.
    if (isUp && !this.#wasUp) this.#gaplessMs = nowMs
    this.#wasUp = isUp
    // Workers have new names after each deploy.
    for (const [name, { lastSeenMs }] of this.#newcomers) if (nowMs - lastSeenMs > lateMs) this.#newcomers.delete(name)
    for (const worker of this.#workers.values()) {
      const wasQuiet = worker.silentMs >= quietMs
      worker.silentMs += passedMs
      if (worker.silentMs > lostMs) this.#lose(worker, 'has been silent for 10 s')
      else if (worker.silentMs >= quietMs !== wasQuiet) this.#options.onChange()
    }
    if (isUp && !this.#isLooking && nowMs - this.#lookedMs > lookMs) void this.#look()
    clock.after(tickMs, () => this.#tick())
  }

  /** Logs once that reports cannot be read, but not for the moment between a new connection and its consumers. */
  #logDeafness(): void {
    const { broker, backend, log } = this.#options
    this.#deafTicks = broker.isUp && !this.isUp ? this.#deafTicks + 1 : 0
    const where = backend === 'rpc://' ? 'the queue of their replies' : 'the Redis of their results'
    if (this.#deafTicks === 2) log.warn(`Celery workers get no jobs until ${where} can be read again`)
  }

  #lose(worker: StockWorker, what: string): void {
    const { log, onLost, onChange } = this.#options
    this.#workers.delete(worker.name)
    this.#lostMs = this.#options.clock.monotonicMs()
    log.warn(`a Celery worker ${what}; what it had begun runs again, marked \`ambiguous\``, { worker: worker.name })
    onLost(worker.name)
    onChange()
  }
}

/** Returns the warning about a worker's name that another process has now. */
function restartWarning({ formerPid }: StockWorker, pid: number): string {
  return formerPid === pid
    ? 'has the name of another one, so that each of them looks as if it started anew: give each a name of its own (-n one@%h)'
    : 'has started anew'
}

function pidIn(stats: unknown): number {
  return isRecord(stats) && typeof stats['pid'] === 'number' ? stats['pid'] : -1
}

function slotsIn(stats: unknown): number {
  const pool = isRecord(stats) ? stats['pool'] : undefined
  const most = isRecord(pool) ? pool['max-concurrency'] : undefined
  return typeof most === 'number' ? most : 0
}

function queuesIn(active: unknown): string[] {
  return Array.isArray(active) ? active.flatMap((one) => (isRecord(one) ? [String(one['name'])] : [])) : []
}
