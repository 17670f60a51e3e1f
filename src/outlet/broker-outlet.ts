/**
 * The outlet over a broker. It gives each job to a worker that has announced a free slot for it, and workers report how
 * attempts end. The broker may lose and repeat messages: a worker's announcements show which jobs it has, and after a
 * job's deadline it is certain that no worker will take it.
 */
import type { Clock } from '../core/clock.ts'
import { newId } from '../core/hash.ts'
import type { Log } from '../core/log.ts'
import { reach } from '../core/test-points.ts'
import { version } from '../core/version.ts'
import type { Sql } from '../db/store.ts'
import type { ClaimedJob } from '../claim/claimed-job.ts'
import { locateOutcome, type Outcome } from '../claim/finish/outcome.ts'
import type { JobKey, Kind, Outlet, Reports } from '../claim/outlet.ts'
import { batchesOf, type GrantBatch } from './batches.ts'
import { Lender } from './lending.ts'
import {
  checkAnnouncement,
  type Announcement,
  latestArrivalMs,
  type Grants,
  keyOf,
  createReceiver,
  type ToDispatcher,
  type ToRun,
  type ToWorker,
} from './messages.ts'
import { type GivenJob, type RosterWorker, Roster } from './roster.ts'
import { UnsentError, type Wire } from './wire.ts'

/** Parameters of `BrokerOutlet`; see the fields. */
export interface BrokerOutletOptions {
  wire: Wire
  /** The name of the fleet, under which its workers find it. */
  fleet: string
  /** The store that it claims from, with a name, for workers without one; default: it gives them no jobs. */
  store?: { name: string; sql: Sql }
  /** The tasks that it claims. */
  tasks: readonly string[]
  clock: Clock
  log: Log
}

const tickMs = 500
/** How long a worker may be silent, while it is reachable, before it is lost. */
const lostMs = 10_000
/** How long a worker has to report the end of an attempt that was stopped. */
const stopMs = 3_000
/** For how long after its deadline a message may still arrive: the worker that refuses it measures how late it is. */
const overdueMs = 1_000

/** Executes jobs on workers elsewhere. */
export class BrokerOutlet implements Outlet {
  /** Its name, and that of its queue. */
  readonly id: string
  readonly #options: BrokerOutletOptions
  readonly #roster: Roster
  readonly #lender: Lender | undefined
  /** The worker that has each job in hand. */
  readonly #workerOf = new Map<ClaimedJob, RosterWorker>()
  /** Stints whose end is being recorded. */
  readonly #ending = new Set<string>()
  /** How many jobs were sent to workers. */
  given = 0
  #reports: Reports | undefined
  #claimer: () => string | undefined = () => undefined
  /** It gives no more jobs. */
  #isRetired = false
  #isClosed = false
  #lookedMs: number

  constructor(options: BrokerOutletOptions) {
    this.#options = options
    this.id = `${options.fleet}.dispatcher.${newId()}`
    this.#roster = new Roster(options.tasks)
    this.#lender = options.store && new Lender({ ...options.store, clock: options.clock, from: this.id })
    this.#lookedMs = options.clock.monotonicMs()
  }

  /** Sets where it reports. @param claimer returns the worker of the store that claims */
  readonly for = (reports: Reports, claimer: () => string | undefined): Outlet => {
    this.#reports = reports
    this.#claimer = claimer
    return this
  }

  /** Lets workers find it. */
  async open(): Promise<void> {
    const { wire, fleet, log } = this.#options
    await wire.receive(
      this.id,
      createReceiver<ToDispatcher>(log, (message) => this.#receive(message)),
      fleet,
    )
    this.#tick()
  }

  async close(): Promise<void> {
    this.#isClosed = true
    await Promise.all(this.#roster.workers.map((worker) => this.#takeLeave(worker)))
    await this.#options.wire.leave(this.id)
  }

  retire(): void {
    this.#isRetired = true
    // If this message is lost, the worker's next announcement shows that it still offers its slots here.
    for (const worker of this.#roster.workers) void this.#takeLeave(worker)
  }

  get slots(): number {
    return this.#roster.slots()
  }

  get kinds(): readonly Kind[] {
    return this.#roster.kinds()
  }

  free(): number {
    return this.#options.wire.isUp ? this.#roster.free() : 0
  }

  enlist(): readonly string[] {
    const nowMs = this.#options.clock.monotonicMs()
    return this.#roster.workers.flatMap((worker) => {
      if (worker.stint === null || this.#ending.has(worker.stint)) return []
      worker.enlist(nowMs)
      return [worker.stint]
    })
  }

  start(jobs: readonly ClaimedJob[]): void {
    const jobsByWorker = new Map<RosterWorker, ClaimedJob[]>()
    for (const job of jobs) {
      const worker = this.#roster.choose(job.task, job.requestedAt?.monotonicMs ?? job.grantedMs)
      if (worker === undefined) {
        // In a later turn, because this call is still giving out its jobs.
        queueMicrotask(() => this.#reports?.refused(job))
        continue
      }
      worker.jobs.set(keyOf(job), {
        job,
        arriveByMs: latestArrivalMs(job),
        isAnnounced: false,
        isBegun: false,
        isStopped: false,
      })
      this.#workerOf.set(job, worker)
      this.given++
      const assigned = jobsByWorker.get(worker)
      if (assigned === undefined) jobsByWorker.set(worker, [job])
      else assigned.push(job)
    }
    for (const [worker, assigned] of jobsByWorker)
      for (const batch of batchesOf(assigned, this.#options.clock)) void this.#sendBatch(worker, batch)
  }

  abort(job: ClaimedJob): void {
    const worker = this.#workerOf.get(job)
    const given = worker?.jobs.get(keyOf(job))
    if (worker === undefined || given === undefined) return
    given.isStopped = true
    this.#stop(worker, [keyOf(job)])
    this.#awaitEnd(job, worker)
  }

  /** Reports a job as lost if its worker, which is to stop it, announces nothing for `stopMs`. */
  #awaitEnd(job: ClaimedJob, worker: RosterWorker): void {
    const { clock } = this.#options
    const [{ n }, sinceMs] = [worker, clock.monotonicMs()]
    clock.after(stopMs, () => {
      if (this.#isClosed || this.#workerOf.get(job) !== worker) return
      // If this process stood still, announcements may wait to be read.
      const stoodStill = clock.monotonicMs() - sinceMs > stopMs + tickMs
      if (worker.n === n && !stoodStill) this.#reports?.lost(job, worker.by)
      else this.#awaitEnd(job, worker)
    })
  }

  #stop(worker: RosterWorker, keys: string[]): void {
    if (keys.length > 0) void this.#trySend(worker, { type: 'abort', from: this.id, keys })
  }

  async #sendBatch(worker: RosterWorker, { at, leftMs, jobs, texts }: GrantBatch): Promise<void> {
    const head: Omit<Grants, 'jobs'> = {
      type: 'grants',
      from: this.id,
      at,
      claimer: this.#claimer() ?? '',
      stint: worker.stint,
      recorded: worker.recorded.splice(0),
    }
    try {
      if (leftMs <= 0) throw new UnsentError('too old')
      await this.#publish(
        worker,
        `${JSON.stringify(head).slice(0, -1)},"jobs":[${texts.join(',')}]}`,
        leftMs + overdueMs,
      )
      void reach('outlet.confirmed')
    } catch (error) {
      // After any other error the message may have arrived: the worker's announcements show that, or it arrives too
      // late.
      if (!(error instanceof UnsentError)) return
      // It gets no more jobs until its next announcement.
      worker.stopGiving()
      for (const job of jobs) this.#refuse(worker, keyOf(job))
    }
  }

  #takeLeave(worker: RosterWorker): Promise<void> {
    return this.#trySend(worker, { type: 'left', from: this.id })
  }

  /** Sends a message that may be lost. */
  #trySend(worker: Pick<RosterWorker, 'id'>, message: ToWorker): Promise<void> {
    return this.#publish(worker, JSON.stringify(message)).catch(() => {})
  }

  #publish(worker: Pick<RosterWorker, 'id'>, message: string, ttlMs?: number): Promise<void> {
    return this.#options.wire.send(worker.id, message, ttlMs)
  }

  /** Reports that a job was not begun, and will not be. */
  #refuse(worker: RosterWorker, key: string): void {
    const given = worker.jobs.get(key)
    if (given === undefined) return
    this.#removeJob(worker, key, given)
    this.#reports?.refused(given.job)
  }

  #removeJob(worker: RosterWorker, key: string, { job }: GivenJob): void {
    worker.jobs.delete(key)
    this.#workerOf.delete(job)
  }

  #receive(message: ToDispatcher): void {
    if (this.#isClosed) return
    if (message.type === 'seek') {
      const name = this.#options.store?.name
      if (this.#isRetired || (message.store ?? name) !== name) return
      return void this.#trySend({ id: message.worker }, { type: 'offer', from: this.id, store: name, version })
    }
    if (message.type === 'run') return void this.#lend(message.worker, message)
    if (message.type === 'announce') return this.#handleAnnouncement(message)
    const worker = this.#roster.find(message.worker)
    if (worker === undefined) return
    worker.silentMs = 0
    if (message.type === 'ended') for (const [key, outcome] of message.ends) this.#handleEnd(worker, key, outcome)
    else if (message.type === 'began') this.#reportBegun(worker, message.keys)
    else if (message.type === 'bye') this.#removeWorker(worker)
  }

  async #lend(to: string, statement: ToRun): Promise<void> {
    const result = await this.#lender?.lend(statement)
    if (result !== undefined) await this.#publish({ id: to }, result).catch(() => {})
  }

  #handleAnnouncement(message: Announcement): void {
    checkAnnouncement(message)
    const { clock } = this.#options
    const at = clock.monotonicMs()
    if (message.n <= (this.#roster.find(message.worker)?.n ?? 0)) return
    const worker = this.#roster.setCapacity(message.worker, message)
    worker.n = message.n
    worker.by = message.by
    worker.silentMs = 0
    const inherited = message.orphans.map(({ job, from }) =>
      this.#inherit(worker, { ...job, grantedMs: -Infinity }, from),
    )
    for (const { stint, begun } of message.left) this.#endStint(worker, stint, begun)
    const holds = new Set(message.holds)
    this.#reportBegun(worker, message.holds)
    const asOfMs = message.asOf ?? -Infinity
    for (const [key, given] of worker.jobs) {
      if (holds.has(key)) given.isAnnounced = true
      // Another dispatcher has recorded its end. The round of this dispatcher then finds that the store has no such
      // claim.
      else if (given.isAnnounced) this.#removeJob(worker, key, given)
      // From now on the worker would refuse it.
      else if (asOfMs > given.arriveByMs) this.#refuse(worker, key)
    }
    const strangers = message.holds.filter((key) => !worker.jobs.has(key) && !worker.ending.has(key))
    // What was sent to stop them was lost.
    this.#stop(
      worker,
      message.holds.filter((key) => worker.jobs.get(key)?.isStopped),
    )
    const recorded = worker.recorded.splice(0)
    void this.#trySend(worker, { type: 'answer', from: this.id, echo: message.at, at, recorded, strangers, inherited })
    if (this.#isRetired && worker.stint !== null) void this.#takeLeave(worker)
    this.#reports?.changed()
  }

  /**
   * Reports as begun jobs that a worker has. They do not count as announced, because an announcement from before them may
   * still arrive.
   */
  #reportBegun(worker: RosterWorker, keys: readonly string[]): void {
    const begun = keys.flatMap((key) => {
      const given = worker.jobs.get(key)
      if (given === undefined || given.isBegun) return []
      given.isBegun = true
      return [given.job]
    })
    if (begun.length > 0) void this.#reports?.begun(begun)
  }

  /** Takes over a job of a lost dispatcher that the worker executes. */
  #inherit(worker: RosterWorker, job: ClaimedJob, from: string): string {
    const key = keyOf(job)
    if (worker.jobs.has(key) || worker.ending.has(key)) return key
    worker.jobs.set(key, { job, arriveByMs: Infinity, isAnnounced: true, isBegun: true, isStopped: false })
    this.#workerOf.set(job, worker)
    this.#reports?.inherited(job, from)
    void this.#reports?.begun([job])
    return key
  }

  /** Reports that a stint is over, with this dispatcher or another one, until that is recorded: its worker may be gone. */
  #endStint(worker: RosterWorker, stint: string | null, begun: readonly JobKey[]): void {
    if (stint === null || this.#ending.has(stint) || worker.recorded.includes(stint)) return
    this.#ending.add(stint)
    const recorded = () => {
      this.#ending.delete(stint)
      worker.recorded.push(stint)
    }
    const report = (): void => {
      if (this.#isClosed) return
      const failed = () => void this.#options.clock.after(tickMs, report)
      void this.#reports?.left(stint, begun).then(recorded, failed)
    }
    report()
  }

  #handleEnd(worker: RosterWorker, key: string, outcome: Outcome | null): void {
    const given = worker.jobs.get(key)
    if (given === undefined) {
      // The end was reported before, or the job was given up.
      if (!worker.ending.has(key)) worker.recorded.push(key)
      return
    }
    if (outcome === null) {
      worker.recorded.push(key)
      return this.#refuse(worker, key)
    }
    // Before anything is changed: what another version wrote may be no outcome.
    const located = locateOutcome(outcome, worker.by)
    this.#removeJob(worker, key, given)
    worker.ending.set(key, given.job)
    const recorded = () => {
      worker.ending.delete(key)
      worker.recorded.push(key)
    }
    const failed = (error: unknown) =>
      this.#options.log.error('the end of an attempt cannot be read', { err: error, worker: worker.id })
    void this.#reports?.ended(given.job, located).then(recorded, failed)
  }

  /** Removes a worker that has signed off: it has no jobs, and takes none. */
  #removeWorker(worker: RosterWorker): void {
    // Jobs that it had begun have ended with another dispatcher.
    for (const [key, given] of worker.jobs)
      if (given.isAnnounced) this.#removeJob(worker, key, given)
      else this.#refuse(worker, key)
    this.#roster.remove(worker)
    this.#endStint(worker, worker.lastStint, [])
  }

  #tick(): void {
    if (this.#isClosed) return
    const { clock, wire } = this.#options
    const nowMs = clock.monotonicMs()
    // Time in which nothing can be received, or this process does not run, does not count as silence.
    const passedMs = wire.isUp ? Math.min(nowMs - this.#lookedMs, 2 * tickMs) : 0
    this.#lookedMs = nowMs
    for (const worker of this.#roster.workers) {
      worker.silentMs += passedMs
      if (worker.silentMs > lostMs) this.#loseWorker(worker)
      else if (worker.silentMs > lostMs / 3 && worker.slots > 0) worker.stopGiving()
    }
    clock.after(tickMs, () => this.#tick())
  }

  #loseWorker(worker: RosterWorker): void {
    this.#roster.remove(worker)
    const { log } = this.#options
    const jobs = [...worker.jobs]
    const text = 'a worker is lost: it has been silent for 10 s; its jobs run again, marked `ambiguous`'
    log.warn(text, { worker: worker.id, jobs: jobs.length })
    for (const [key, given] of jobs) {
      this.#removeJob(worker, key, given)
      this.#reports?.lost(given.job, worker.by)
    }
    // All of them may have begun; those whose ends wait for the store have.
    const begun = [...jobs.map(([, { job }]) => job), ...worker.ending.values()]
    this.#endStint(worker, worker.lastStint, begun)
  }
}
