/** The wiring: the one file that imports every module. A Sluice is one store with everything that uses it. */
import { type Clock, systemClock } from './core/clock.ts'
import { closedError, type StoreError } from './core/errors.ts'
import { checkSignal, present } from './core/fields.ts'
import type { JobId, ResultOf } from './core/result.ts'
import type { Db, Tx } from './db/db.ts'
import { env, type Opened } from './db/open.ts'
import { restoreFunctions } from './db/migrate.ts'
import { type Sql, type Store, storeOn } from './db/store.ts'
import { vacuumUntil } from './db/vacuum.ts'
import { Definitions } from './claim/definitions/define.ts'
import { Estimates } from './tasks/estimate.ts'
import { Limits } from './operations/limits.ts'
import { Rulebook } from './tasks/rule.ts'
import { busOf, type RabbitBus } from './bus/rabbit-bus.ts'
import { Events } from './events/events.ts'
import type { Work } from './events/groups.ts'
import type { EventName, Listener } from './report/events.ts'
import { reportOf } from './report/options.ts'
import type { Report } from './report/report.ts'
import { alike, type SendRowsOptions, type Sent } from './tasks/send-rows.ts'
import { type Pauses, pausesOn } from './operations/pauses.ts'
import { type Parking, parkingOn } from './claim/parking/parked.ts'
import type { Sendable, SendManyOptions, SendOptions } from './tasks/send-options.ts'
import type { AnyTask, Given, Sender, Task } from './tasks/task.ts'
import { type Verification, verify, type VerifyOptions } from './operations/verify.ts'
import { type Why, why } from './operations/why.ts'
import { Takes } from './takes/takes.ts'
import type { RedisConnection } from './redis/connect.ts'
import { Schedules } from './schedule/schedules.ts'
import { RedisPeerLimiter } from './redis/peer.ts'
import { sharingOf } from './redis/sharing.ts'
import { checkId, type Job, type JobLine, Jobs, type ListOptions } from './operations/jobs.ts'
import { waitFor, type WaitForOptions } from './operations/wait.ts'
import { checkOptions, schemaOf, type SluiceOptions } from './options.ts'
import { opening } from './opening.ts'
import type { FleetWorker } from './outlet/fleet-worker.ts'
import { celeryPlaces } from './worker/celery-work.ts'
import { mostOf, type WorkOptions } from './worker/options.ts'
import type { Worker } from './worker/worker.ts'
import { Sending } from './sending.ts'
import { Workers } from './workers.ts'
import { Alarms } from './fleet/alarms.ts'
import { RetentionSettings, retentionSettings } from './fleet/retention.ts'
import { Maintenance, type Pruned, type PruneOptions } from './fleet/maintenance.ts'

/** One store, open. */
export class Sluice implements Sender {
  /** Statements on the store itself. */
  readonly db: Db
  /** Find, list, cancel and retry jobs. */
  readonly jobs: Jobs
  /** See limits, and change them while everything runs. */
  readonly limits: Limits
  /** Keeps jobs of a queue or task from starting, or a limit from granting, on all workers at once (docs/order.md). */
  readonly pause: Pauses['pause']
  /** Ends a pause. */
  readonly resume: Pauses['resume']
  /** Lists pauses, and gates with hours. */
  readonly pauses: Pauses['pauses']
  /** Lists what is set aside because the database cannot compute with its data (docs/operations.md). */
  readonly parked: Parking['parked']
  /** Lets what was parked run again. */
  readonly release: Parking['release']
  /** List, trigger, pause, resume and remove schedules. */
  readonly schedules: Schedules
  /** Takes of limits outside of jobs, from this store. `limit.take` and the like use the Sluice that `task.send` uses. */
  readonly takes: Takes
  /** Emit events, and see who emits and handles them. `event.emit` uses the Sluice that `task.send` uses. */
  readonly events: Events
  /**
   * Resolves with the reason when the store has failed for good (the embedded engine does, when a disk fails or is full),
   * its workers have stopped, and its directory is unlocked. Open it again then, best in a new process. Never resolves
   * after `close`.
   */
  readonly ended: Promise<StoreError>
  readonly #opened: Opened
  // The store with connections of its own, and on the users' pool; see `Store.on`.
  readonly #store: Store
  readonly #sql: Sql
  readonly #clock: Clock
  readonly #report: Report
  readonly #allowPrivate: readonly string[]
  readonly #sending: Sending
  readonly #retention: RetentionSettings
  readonly #peer: RedisPeerLimiter | undefined
  readonly #alarms: Alarms
  readonly #bus: RabbitBus | undefined
  readonly #workers: Workers
  readonly #end = new AbortController()
  #closed: Promise<void> | undefined
  #failure: StoreError | undefined
  /** `send` fails from now on: closed, and the last attempt, which may still send jobs, has ended. */
  #isShut = false

  private constructor(opened: Opened, redis: RedisConnection | undefined, options: SluiceOptions, report: Report) {
    this.#opened = opened
    this.db = opened.db
    this.#clock = options.clock ?? systemClock
    this.#report = report
    const schema = schemaOf(options)
    const restore = options.migrate === false ? undefined : () => restoreFunctions(this.db, schema)
    const store = storeOn(this.db, { schema, clock: this.#clock, report, ...present({ restore }) })
    this.#store = store
    this.#sql = store.on(this.db)
    this.#allowPrivate = options.allowPrivate ?? env('SLUICE_ALLOW_PRIVATE')?.split(',') ?? []
    this.jobs = new Jobs(this.#sql)
    this.limits = new Limits(this.#sql, this.#clock, async (buckets) => this.#peer?.endHolds(buckets))
    ;({ pause: this.pause, resume: this.resume, pauses: this.pauses } = pausesOn(this.#sql))
    ;({ parked: this.parked, release: this.release } = parkingOn(this.#sql))
    this.schedules = new Schedules(this.#sql, this)
    const definitions = new Definitions(store, this.#clock, (disagreement) => report.emit('versions', disagreement))
    const rulebook = new Rulebook(options.rules, options.routes, new Estimates(store))
    this.#sending = new Sending({ store, isEmbedded: opened.embedded, definitions, rulebook })
    this.#sending.outbox.slotFor = (job) => {
      for (const worker of this.#workers.claiming) {
        const slot = worker.offer(job)
        if (slot !== undefined) return slot
      }
    }
    this.#retention = new RetentionSettings(store, retentionSettings(options))
    this.#alarms = new Alarms(store, options.alarms)
    this.#peer = redis && new RedisPeerLimiter({ store, connection: redis, ...sharingOf(options) })
    this.takes = new Takes({
      store,
      definitions,
      allowPrivate: this.#allowPrivate,
      peer: this.#peer,
    })
    const amqp = options.amqp ?? env('AMQP_URL')
    this.#bus = busOf(options.events ?? env('SLUICE_EVENTS'), { store, amqp, sender: this })
    this.events = new Events({
      store,
      service: options.service ?? env('SLUICE_SERVICE'),
      transport: this.#bus,
      enter: (given) => (this.#checkOpen(this.#isShut), this.#sending.within(given)),
      routeOf: (task) => rulebook.route(task).queue,
    })
    this.#workers = new Workers({
      store,
      definitions,
      rulebook,
      retention: this.#retention,
      alarms: this.#alarms,
      peer: this.#peer,
      redis,
      events: this.events,
      allowPrivate: this.#allowPrivate,
      bus: this.#bus,
      sender: this.#sending,
      amqp,
      ...celeryPlaces(options, amqp),
      beatUrl: () => opened.directUrl,
      checkOpen: () => this.#checkOpen(),
    })
    this.ended = opened.db.ended.then((error) => this.#fail(error))
  }

  /**
   * Opens a store and brings its schema up to date.
   * @throws StoreError SLUICE_STORE_UNREACHABLE; UsageError SLUICE_BAD_OPTION, SLUICE_BAD_URL, SLUICE_BAD_SCHEMA, SLUICE_STORE_OWNED,
   * SLUICE_NOT_MIGRATED (only with `migrate: false`), SLUICE_NO_PRIVILEGE, SLUICE_MISSING_PEER (of Redis), SLUICE_BAD_REDIS
   */
  static async open(options: SluiceOptions = {}): Promise<Sluice> {
    checkOptions(options)
    const report = reportOf(options, options.clock ?? systemClock)
    const sluice = await opening(options, report, (...all) => new Sluice(...all, options, report))
    if (sluice.embedded) void vacuumUntil(sluice.#end.signal, sluice.#store, () => sluice.owner)
    report.log.debug('the store is open', { store: sluice.db.where, schema: sluice.#store.schema })
    return sluice
  }

  /**
   * A URL for further connections to the same data. Undefined in memory, and in the process that owns an embedded
   * directory: use `transaction` there.
   */
  get url(): string | undefined {
    return this.#opened.url
  }

  /** True if the store is the embedded engine, in this process or in another one. */
  get embedded(): boolean {
    return this.#opened.embedded
  }

  /** True if this process owns the embedded data. It takes over when the owner ends. */
  get owner(): boolean {
    return this.#opened.owner
  }

  /**
   * Runs `body` in one transaction of the store and commits, or rolls back when it throws. Give its `tx` to `send`, and
   * to each of your own statements: the embedded engine has only this one transaction at a time.
   */
  transaction<T>(body: (tx: Tx) => Promise<T>): Promise<T> {
    return this.db.transaction(body)
  }

  /** Sends a job; see `Task.send`, which calls this. */
  async send<Input, Result = unknown>(
    task: Task<Input, Result>,
    input: Given<Input>,
    options: SendOptions<NoInfer<Input>> = {},
  ): Promise<JobId<Result>> {
    this.#checkOpen(this.#isShut)
    return this.#sending.send(task, input, options)
  }

  /** Sends many jobs; see `Task.sendMany`, which calls this. */
  async sendMany<Input, Result = unknown>(
    task: Task<Input, Result>,
    inputs: Sendable<Given<Input>>,
    options: SendManyOptions<NoInfer<Input>> = {},
  ): Promise<JobId<Result>[]> {
    const all: JobId<Result>[] = []
    await this.sendRows(task, inputs, { ...alike(options), onProgress: (_, ids) => void all.push(...ids) })
    return all
  }

  /**
   * Sends a job for each row of a stream, in batches, in order. Unlike with `sendMany` each row may have its own options
   * (above all an idempotency key, which makes the call repeatable), `onBad` lets it go on after a bad row, and no ids are kept:
   * those of a million jobs take some 60 MB.
   * @throws UsageError for the first bad row, with its index, unless `onBad` is given; the rows before it are sent
   */
  async sendRows<Input, Row, Result = unknown>(
    task: Task<Input, Result>,
    rows: Sendable<Row>,
    options: SendRowsOptions<Row, Given<Input>, Result>,
  ): Promise<Sent> {
    this.#checkOpen(this.#isShut)
    return this.#sending.sendRows(task, rows, options)
  }

  /** Starts a worker for these tasks, and handlers of events, in this process. */
  async work(work: readonly Work[], options: WorkOptions = {}): Promise<Worker> {
    const worker = await this.#workers.make(work, options)
    await worker.start()
    return worker
  }

  /**
   * Starts a dispatcher: it claims as many jobs as the workers of its fleet have free slots for, and gives them to those over
   * RabbitMQ (docs/fleets.md). Several may run. @throws UsageError SLUICE_NO_BROKER, SLUICE_BAD_LABEL
   */
  dispatch(work: readonly Work[], options: Omit<WorkOptions, 'concurrency'> = {}): Promise<Worker> {
    return this.#workers.dispatch(work, options)
  }

  /**
   * Starts a worker of a fleet: it executes what a dispatcher of the same queues and labels gives it.
   * @throws UsageError SLUICE_NO_BROKER, SLUICE_BAD_LABEL
   */
  execute(work: readonly Work[], options: Omit<WorkOptions, 'schedules' | 'rate'> = {}): Promise<FleetWorker> {
    return this.#workers.execute(work, options)
  }

  /** Runs the jobs that may start now, at most `max` (default: no bound); resolves to how many. `signal` stops it early. Safe from cron. */
  async dispatchOnce(
    work: readonly Work[],
    options: WorkOptions & { max?: number; signal?: AbortSignal } = {},
  ): Promise<number> {
    const { max, signal, ...how } = options
    checkSignal(signal)
    const most = mostOf(max)
    const ran = await (await this.#workers.make(work, how)).once(most, signal)
    if (this.#failure !== undefined) throw this.#failure
    return ran
  }

  /**
   * Lists every reason why a job waits, the binding one first; undefined if there is no such unfinished job.
   * @throws UsageError SLUICE_BAD_ID
   */
  async why(id: string): Promise<Why | undefined> {
    return why(this.#sql, checkId(id))
  }

  /** Proves from the ledger that no limit was exceeded, or shows where. @throws UsageError SLUICE_NO_SUCH_LIMIT, SLUICE_BAD_OPTION */
  verify(options: VerifyOptions = {}): Promise<Verification> {
    return verify(this.#sql, options)
  }

  /**
   * Resolves to the job's record once it is done, failed or cancelled.
   * @throws UsageError SLUICE_NO_SUCH_JOB; StoreError SLUICE_WAIT_TIMEOUT after `timeout`; the reason of `signal`
   */
  async waitFor<Id extends string>(id: Id, options: WaitForOptions = {}): Promise<Job<ResultOf<Id>>> {
    return waitFor(this.jobs, this.#clock, id, options)
  }

  /** Lists jobs, newest first. */
  list(options?: ListOptions): Promise<JobLine[]> {
    return this.jobs.list(options)
  }

  /**
   * Puts the limits of these tasks in force in the database. Sending and working do this by themselves.
   * @throws UsageError SLUICE_LIMIT_CONFLICT when one of them was defined differently before; key functions are not
   * compared
   */
  async define(tasks: readonly AnyTask[]): Promise<void> {
    await this.#sending.define(tasks)
  }

  /**
   * Deletes history whose retention is over, expired idempotency keys, ledger rows older than a week and rows that dispatch
   * no longer needs, and creates the partitions of the next days. Takes at most five minutes; the next call does the rest.
   * With `dryRun` it only reports what it would delete.
   * @throws UsageError SLUICE_BAD_OPTION
   */
  async prune(options: PruneOptions = {}): Promise<Pruned> {
    return new Maintenance(this.#store, this.#retention).prune(options)
  }

  /**
   * Calls `listener` at each such event from now on (docs/logs.md); the returned function ends that. What a listener throws
   * is logged, and nothing waits for a promise that it returns.
   * @throws UsageError SLUICE_BAD_OPTION for a name that no event has
   * @example sluice.on('exhausted', ({ task, job, error }) => page(`${task} ${job}: ${error.message}`))
   */
  on<Name extends EventName>(name: Name, listener: Listener<Name>): () => void {
    return this.#report.on(name, listener)
  }

  /** Stops workers after their attempts (`WorkOptions.grace`), waits for pending sends (some 10 s if the store is away), and closes the store. */
  close(): Promise<void> {
    this.#closed ??= (async () => {
      this.#end.abort()
      await Promise.allSettled(this.#workers.all.map((worker) => worker.stop()))
      this.#isShut = true
      await this.takes.close()
      await this.#peer?.close()
      await this.#sending.outbox.settled()
      await this.events.settled()
      await this.#bus?.close()
      await this.#alarms.settled()
      await this.db.close()
      this.#report.end()
    })()
    return this.#closed
  }

  /** Closes it at the end of a block: `await using sluice = await Sluice.open()`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  /** Stops workers, which would retry for ever, and unlocks the directory. */
  async #fail(error: StoreError): Promise<StoreError> {
    this.#failure = error
    const text = 'the store has failed for good, and this process can do no more work: check the disk, then restart it'
    this.#report.log.error(text, { err: error })
    await Promise.allSettled(this.#workers.all.map((worker) => worker.abandon()))
    await this.db.close().catch(() => {})
    void this.close().catch(() => {})
    return error
  }

  #checkOpen(isClosed = this.#closed !== undefined): void {
    if (this.#failure !== undefined) throw this.#failure
    if (isClosed) throw closedError()
  }
}
