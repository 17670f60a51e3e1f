/**
 * The outlet of stock Celery workers. It publishes each job to the queue of its task, with the life of its grant, and
 * reads from the states that workers report how the job goes on.
 */
import type { Broker } from '../amqp/broker.ts'
import { isUnrouted, isUnsent } from '../amqp/publish-errors.ts'
import type { Control } from '../celery/remote.ts'
import type { TaskResult } from '../celery/result.ts'
import type { Results } from '../celery/results.ts'
import { writeTask } from '../celery/task-message.ts'
import { publish } from '../celery/transport.ts'
import type { ClaimedJob } from '../claim/claimed-job.ts'
import { unitsOf } from '../claim/peer-grants.ts'
import { marginsOf } from '../claim/definitions/margins.ts'
import type { Outcome } from '../claim/finish/outcome.ts'
import type { Estate, Kind, Outlet, OutletFor, Reports } from '../claim/outlet.ts'
import { caughtUpMs } from '../core/clock.ts'
import { reach } from '../core/test-points.ts'
import type { Store } from '../db/store.ts'
import { createOpeningReader } from '../gates/gates.ts'
import type { PeerLimiter } from '../limits/peer.ts'
import { validate } from '../tasks/admit.ts'
import type { Rulebook } from '../tasks/rule.ts'
import type { AnyTask } from '../tasks/task.ts'
import { newPlace } from '../worker/admission.ts'
import { GiveBackCounter } from '../worker/give-backs.ts'
import type { Throttling } from '../worker/verdict.ts'
import { type Call, readMeaning, unknownWorker } from './call.ts'
import { InheritedJobs } from './inherited-jobs.ts'
import { Inquiry, overdueMs } from './inquiry.ts'
import { errorOf, messageOf, resultOf, silentError } from './job-message.ts'
import { failedOutcome, type RunFacts, runFactsOf, stoppedOutcome } from './outcome.ts'
import { QueueRoom } from './queue-room.ts'
import { claimMs, queueOf, type Sent, sentOf } from './sent.ts'
import { StockWorkers } from './stock-workers.ts'
import { VendorAnswers } from './vendor-answers.ts'

/** Parameters of `CeleryOutlet`; see the fields. */
export interface CeleryOutletOptions {
  store: Store
  rulebook: Rulebook
  peer: PeerLimiter | undefined
  broker: Broker
  control: Pick<Control, 'request' | 'revoke'>
  results: Results
  /** Where results are read: `rpc://`, or the URL of a Redis. */
  backend: string
  /** Tasks that stock workers execute. */
  tasks: readonly AnyTask[]
  /** Tasks that another outlet of the same dispatcher executes. */
  others: ReadonlySet<string>
  /** The prefix of the names of dispatchers in front of the same workers. */
  kin: string
}

/** How long reports may be under way. */
const reportMs = 1_000
const stopMs = 3_000
/** Executes jobs on stock Celery workers. */
export class CeleryOutlet implements Outlet {
  readonly #options: CeleryOutletOptions
  readonly #workers: StockWorkers
  readonly #inquiry: Inquiry<Sent>
  readonly #inheritedJobs: InheritedJobs
  readonly #answers: VendorAnswers
  readonly #tasks: ReadonlyMap<string, AnyTask>
  readonly #room: QueueRoom
  readonly #sent = new Map<ClaimedJob, Sent>()
  readonly #admitting
  /** How many jobs were sent to workers. */
  given = 0
  #reports: Reports | undefined

  constructor(options: CeleryOutletOptions) {
    const { store, rulebook, broker, control, tasks } = options
    const { clock, log } = store
    this.#options = options
    this.#tasks = new Map(tasks.map((task) => [task.name, task]))
    this.#admitting = { rulebook, opens: createOpeningReader(store), patience: new GiveBackCounter() }
    this.#workers = new StockWorkers({
      broker,
      control,
      canRead: () => options.results.canRead,
      tasks: new Map(tasks.map((task) => [task.name, queueOf(task)])),
      backend: options.backend,
      clock,
      log,
      onChange: () => this.#reportChange(),
      onCut: () => this.#markDoubtful(),
      onLost: (worker) => clock.after(reportMs, () => this.#loseWorker(worker, clock.monotonicMs() - reportMs)),
    })
    this.#room = new QueueRoom({
      tasks: [...this.#tasks.values()],
      workers: this.#workers,
      sent: () => this.#sent.values(),
    })
    this.#inquiry = new Inquiry({
      control,
      clock,
      log,
      workers: this.#workers,
      sent: () => [...this.#sent.values()].filter(({ isPublished, hasFailed }) => isPublished && !hasFailed),
      onFound: (sent, by) => this.#recordBegun(sent, by),
      onMissing: (sent) => this.#endUnreported(sent),
    })
    options.results.watchGaps(() => this.#markDoubtful())
    this.#answers = new VendorAnswers(store, options.peer)
    this.#inheritedJobs = new InheritedJobs({
      results: options.results,
      workers: this.#workers,
      clock,
      log,
      tasks: this.#tasks,
      others: options.others,
      take: (sent) => {
        this.#sent.set(sent.job, sent)
        this.#watch(sent)
      },
    })
  }

  /** Reports there from now on. */
  readonly for: OutletFor = (reports) => {
    this.#reports = reports
    return this
  }

  /** Looks for workers. Their queues are theirs to declare. */
  async open(): Promise<void> {
    await this.#workers.open(`${this.#options.results.replyTo}.events`)
    this.#inquiry.open()
  }

  async close(): Promise<void> {
    this.#inquiry.close()
    this.#workers.close()
    await this.#inheritedJobs.close()
    await this.#options.results.close()
  }

  get slots(): number {
    return this.#room.slots
  }

  free(): number {
    return this.#room.free()
  }

  get kinds(): readonly Kind[] {
    return this.#room.kinds
  }

  /**
   * It returns one name, which is also the queue of its results. The name is given up when another dispatcher has taken
   * over all jobs of this one.
   */
  enlist(): readonly string[] {
    return [this.#options.results.replyTo]
  }

  get kin(): string {
    return this.#options.kin
  }

  inherit(estate: Estate): void {
    this.#inheritedJobs.inherit(estate, this.#reports)
  }

  start(jobs: readonly ClaimedJob[]): void {
    const { clock } = this.#options.store
    for (const job of jobs) {
      const sent = sentOf(job, this.#tasks.get(job.task) as AnyTask, clock.monotonicMs())
      this.#sent.set(job, sent)
      void this.#begin(sent).catch((error: unknown) => this.#endFailed(sent, error))
    }
  }

  abort(job: ClaimedJob, reason: Error): void {
    const sent = this.#sent.get(job)
    if (sent === undefined || sent.stopped !== undefined) return
    sent.stopped = reason
    if (!sent.isPublished) return
    this.#revoke(sent, true)
    // Celery reports what it has stopped; a pool that cannot stop tasks reports nothing.
    this.#options.store.clock.after(stopMs, () => this.#endStopped(sent))
  }

  #reportChange(): void {
    this.#room.forgetKinds()
    this.#reports?.changed()
  }

  async #begin(sent: Sent): Promise<void> {
    const { job, task } = sent
    const place = await newPlace(job, task, this.#admitting)
    if (place !== undefined) {
      const { buckets, units } = unitsOf(job)
      if (job.grant !== undefined) this.#options.peer?.refund(job.grant, buckets, units)
      return this.#end(sent, place)
    }
    const { value } = await validate(task, job.input)
    await this.#publish(sent, value)
  }

  async #publish(sent: Sent, input: unknown): Promise<void> {
    const { store, broker, results } = this.#options
    const { job, task, id, queue, untilMs } = sent
    const { clock } = store
    const nowMs = caughtUpMs(clock, job.requestedAt)
    const leftMs = Math.floor(untilMs - nowMs)
    // A quarter of the life (`untilMs`, sent.ts) is reserved for the error of the worker's clock.
    if (leftMs <= 0 || this.#workers.skewMs(queue) * 3 > untilMs - job.grantedMs || sent.stopped !== undefined)
      return this.#endUncalled(sent, nowMs)
    const wallMs = clock.wallMs()
    const message = messageOf(job, task, input, { id, expiresMs: wallMs + leftMs, replyTo: results.replyTo })
    const wire = await writeTask(message, { nowMs: wallMs - overdueMs })
    this.#watch(sent)
    sent.isPublished = true
    this.given++
    try {
      await publish(broker, wire, { exchange: '', routingKey: queue, withinMs: leftMs, isOnce: true })
      void reach('outlet.confirmed')
    } catch (error) {
      if (isUnsent(error)) this.#endUncalled(sent, nowMs)
      if (isUnrouted(error)) store.log.error('the queue of Celery workers is gone', { queue })
      // After any other error it may have arrived.
    }
  }

  /**
   * Reads the results of a job. A result stays in its queue until its meaning is recorded, so that the next dispatcher
   * finds it if this one is killed.
   */
  #watch(sent: Sent): void {
    this.#options.results.watch(sent.id, async (result) => {
      await this.#report(sent, result)
      await sent.recorded
    })
  }

  /** Reports what a result means; resolves when that is recorded. */
  #report(sent: Sent, result: TaskResult): Promise<unknown> | void {
    if (this.#sent.get(sent.job) !== sent) return
    const { log, clock } = this.#options.store
    const nowMs = clock.monotonicMs()
    const meaning = readMeaning(sent, result)
    const about = { task: sent.task.name, job: sent.job.id, queue: sent.queue }
    if (meaning === 'begun') {
      sent.begunMs = nowMs
      this.#recordAge(sent, nowMs, false)
      return this.#reports?.begun([sent.job])
    } else if (meaning === 'begun again')
      log.warn('a message was delivered to Celery workers again, and began twice on one grant: acks_late', about)
    else if (meaning === 'ungranted')
      log.warn('a task has sent itself again, and made a call that no limit granted: set max_retries = 0', about)
    else if (meaning === 'done') this.#endDone(sent, result)
    else if (meaning === 'failed') return this.#endCalled(sent, errorOf(sent, result))
    else if (meaning === 'retries') this.#stopRetry(sent)
    else if (meaning === 'retried') return this.#endRetried(sent)
    else if (meaning === 'uncalled') this.#endUncalled(sent, nowMs)
    else if (meaning === 'back') sent.isBack = true
    else if (meaning === 'lost') return sent.stopped === undefined ? this.#loseJob(sent) : this.#endStopped(sent)
  }

  #endDone(sent: Sent, { value }: TaskResult): void {
    // Also a call whose result cannot be stored.
    this.#answers.recordServed(sent.job, sent.task)
    try {
      this.#end(sent, { kind: 'done', result: resultOf(value, sent.task), ...this.#runFactsOf(sent) })
    } catch (error) {
      this.#endFailed(sent, error, {})
    }
  }

  /** The message that the task has sent itself must not begin; after its expiry it cannot. */
  #stopRetry(sent: Sent): void {
    const { clock } = this.#options.store
    this.#revoke(sent, false)
    const leftMs = Math.max(0, sent.untilMs - clock.monotonicMs())
    clock.after(leftMs + reportMs, () => void this.#endRetried(sent))
  }

  async #endRetried(sent: Sent): Promise<void> {
    // Two things may show that: the end of the message, and its expiry.
    if (sent.retry !== undefined && this.#sent.has(sent.job)) await this.#endCalled(sent, errorOf(sent, sent.retry))
  }

  /** Reports a call that has failed. If the vendor refused it, its limits are held. */
  async #endCalled(sent: Sent, error: unknown): Promise<void> {
    // While the store is away that takes long, and no worker has the call any more.
    sent.hasFailed = true
    const refusal = await this.#answers.recordFailure(sent.job, sent.task, error)
    this.#endFailed(sent, error, { refusal })
  }

  #endStopped(sent: Sent): void {
    const { stopped, task } = sent
    if (stopped === undefined) return
    this.#end(sent, stoppedOutcome(stopped, task, this.#runFactsOf(sent)))
  }

  /** @param called see `failedOutcome` */
  #endFailed(sent: Sent, error: unknown, called?: { refusal?: Throttling | undefined }): void {
    this.#end(sent, failedOutcome(sent, error, called, this.#runFactsOf(sent), this.#options.store.clock))
  }

  #endUncalled(sent: Sent, nowMs: number): void {
    this.#recordAge(sent, nowMs, true)
    if (this.#forget(sent)) this.#reports?.refused(sent.job)
  }

  #loseJob(sent: Sent): void {
    if (this.#forget(sent)) this.#reports?.lost(sent.job, this.#runFactsOf(sent).report?.by)
  }

  #end(sent: Sent, outcome: Outcome): void {
    if (this.#forget(sent)) sent.recorded = this.#reports?.ended(sent.job, outcome)
  }

  #forget(sent: Sent): boolean {
    if (sent.isPublished) this.#options.results.forget(sent.id)
    if (!this.#sent.delete(sent.job)) return false
    this.#inheritedJobs.recordEnd(sent, this.#reports)
    return true
  }

  /** Records the age of a grant, so that the lives of grants suit the delays, and the clocks of workers. */
  #recordAge({ job, task, queue }: Sent, nowMs: number, isLate: boolean): void {
    const skewMs = this.#workers.skewMs(queue)
    // Until the next event, if the clock here was set.
    if (job.grantUs === null || skewMs === Infinity) return
    const ageMs = Math.max(nowMs - job.grantedMs, Math.min(claimMs, skewMs * 4))
    marginsOf(this.#options.store).recordAge(task.limits, ageMs, isLate)
  }

  #runFactsOf(sent: Sent): RunFacts {
    return runFactsOf(sent, this.#options.store.clock.monotonicMs(), (worker) => this.#workers.versionOf(worker))
  }

  #revoke({ id, queue }: Sent, terminate: boolean): void {
    const workers = this.#workers.namesOf(queue)
    void this.#options.control.revoke(id, { workers, terminate }).catch(() => {})
  }

  /** Reports the jobs that a lost worker had begun. Those that were published before may have begun there without a report. */
  #loseWorker(worker: string, atMs: number): void {
    for (const sent of this.#sent.values())
      if (sent.by === undefined) sent.isDoubtful ||= sent.sinceMs <= atMs
      else if (sent.by.worker === worker && (sent.begunMs ?? Infinity) <= atMs && !sent.hasFailed) this.#loseJob(sent)
  }

  /** Reports may be lost. */
  #markDoubtful(): void {
    for (const sent of this.#sent.values()) sent.isDoubtful = true
  }

  /** Records that a worker has begun a job, whether or not it has reported that. */
  #recordBegun(sent: Sent, by: NonNullable<Call['by']>): void {
    const isNew = sent.by === undefined
    if (!isNew && sent.by?.worker !== unknownWorker) return
    sent.by = by
    sent.begunMs ??= this.#options.store.clock.monotonicMs()
    if (isNew) void this.#reports?.begun([sent.job])
  }

  /**
   * Ends a job that no worker has and of which nothing was reported: it was dropped from its queue, or ended without a
   * result.
   */
  #endUnreported(sent: Sent): void {
    const { by, begunMs = 0, isDoubtful } = sent
    const isGone = by !== undefined && (by.worker === unknownWorker || this.#workers.isGone(by.worker, begunMs))
    // A worker may have begun it, and its report was lost with the worker or the broker.
    if (isGone || isDoubtful) this.#loseJob(sent)
    else if (by !== undefined) this.#endFailed(sent, silentError(), {})
    else this.#endUncalled(sent, this.#options.store.clock.monotonicMs())
  }
}
