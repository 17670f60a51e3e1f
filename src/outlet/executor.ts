/**
 * A worker of a fleet. It takes jobs from a dispatcher, executes them in this process, and repeats its reports of how
 * attempts ended until it knows that they are recorded. It claims nothing.
 */
import { hostname } from 'node:os'
import { type Clock, readMoment } from '../core/clock.ts'
import { newId } from '../core/hash.ts'
import { version } from '../core/version.ts'
import type { Log } from '../core/log.ts'
import { Waiters } from '../core/waiters.ts'
import type { ClaimedJob } from '../claim/claimed-job.ts'
import type { AttemptReport } from '../claim/finish/attempt-report.ts'
import type { Outcome } from '../claim/finish/outcome.ts'
import { type JobKey, type Outlet, type OutletFor, localReports } from '../claim/outlet.ts'
import {
  type Answer,
  latestArrivalMs,
  type Capacity,
  type Grants,
  keyOf,
  type SharedSlots,
  createReceiver,
  type SentJob,
  type ToDispatcher,
  type ToRun,
  type ToWorker,
} from './messages.ts'
import type { BorrowedStore } from './borrowed-store.ts'
import { type Dispatcher, type JobInHand, jobOf, newDispatcher } from './jobs-in-hand.ts'
import { Outbox } from './outbox.ts'
import { doubtMost } from './peer-clock.ts'
import type { Wire } from './wire.ts'

/** Parameters of `Executor`; see the fields. */
export interface ExecutorOptions {
  wire: Wire
  /** The name that its dispatchers have, too. */
  fleet: string
  /** The store whose jobs it executes, by the name that its dispatchers give it; default: that of its first dispatcher. */
  store?: string
  /** The store of a worker that has none. */
  borrowed?: BorrowedStore | undefined
  /** Executes in this process. */
  outlet: OutletFor
  tasks: readonly string[]
  kinds: readonly SharedSlots[]
  /**
   * Called when a job with limits arrived too late, with the age of its grant; the lives of grants are adapted to such
   * ages.
   */
  onLate(task: string, ageMs: number): void
  clock: Clock
  log: Log
}

const tickMs = 1_000
/** How long a dispatcher may be silent, while it is reachable, before it is given up for another one. */
const silentMax = 3_500
/** How long a worker goes on announcing itself to a silent dispatcher. */
const forgetMs = 60_000
const repeatMs = 1_500

/** One worker. */
export class Executor {
  readonly id: string
  /** Where it runs. */
  readonly #by: NonNullable<AttemptReport['by']>
  readonly #options: ExecutorOptions
  readonly #outlet: Outlet
  readonly #inHand = new Map<string, JobInHand>()
  readonly #dispatchers = new Map<string, Dispatcher>()
  /** The dispatcher that this worker's slots are for. */
  #own: Dispatcher | undefined
  readonly #outbox: Outbox
  /** Keys of jobs that arrived, and until when they may arrive again, in the clock of their dispatcher. */
  readonly #seen = new Map<string, { from: Dispatcher; untilMs: number }>()
  /** The jobs that began in stints that are over, until that is recorded. */
  readonly #stints = new Map<string, JobKey[]>()
  #running = 0
  #isStopping = false
  #isClosed = false
  /** Messages to its dispatcher and back take too long. */
  #isFar = false
  #lookedMs: number
  readonly #waiters = new Waiters()

  constructor(options: ExecutorOptions) {
    const { fleet, clock } = options
    const worker = newId()
    this.#options = options
    this.id = `${fleet}.worker.${worker}`
    this.#by = { worker, host: hostname(), version }
    this.#lookedMs = clock.monotonicMs()
    const publish = (to: Dispatcher, message: ToDispatcher) => void this.#publish(to, message).catch(() => {})
    this.#outbox = new Outbox({
      clock,
      inHand: () => (this.#isClosed ? [] : this.#inHand.values()),
      sendBegun: (to, keys) => publish(to, { type: 'began', worker: this.id, keys }),
      sendEnds: (to, ends) => publish(to, { type: 'ended', worker: this.id, ends }),
    })
    options.borrowed?.connect((statement) => this.#sendStatement(statement))
    const reports = localReports((job, outcome) => this.#endAttempt(job, outcome))
    this.#outlet = options.outlet(reports, () => undefined)
  }

  /** Attempts under way. */
  get running(): number {
    return this.#running
  }

  /** True if a dispatcher gives it jobs. */
  get isAttached(): boolean {
    return this.#own !== undefined
  }

  async open(): Promise<void> {
    await this.#options.wire.receive(
      this.id,
      createReceiver<ToWorker>(this.#options.log, (message) => this.#receive(message)),
    )
    this.#tick()
  }

  /** Takes no more jobs; resolves when all ends are recorded, or `signal` is aborted. */
  async stop(signal: AbortSignal): Promise<void> {
    this.#isStopping = true
    for (const dispatcher of this.#dispatchers.values()) this.#announce(dispatcher)
    await this.#waiters.waitUntil(() => this.#inHand.size === 0, signal)
  }

  /** Resolves when no attempt is under way. */
  waitUntilIdle(): Promise<void> {
    return this.#waiters.waitUntil(() => this.running === 0)
  }

  /** Stops the attempts under way. */
  abort(reason: Error): void {
    for (const { job, outcome } of this.#inHand.values()) if (outcome === undefined) this.#outlet.abort(job, reason)
  }

  /** Signs off, and stops receiving. */
  async close(): Promise<void> {
    this.#isClosed = true
    this.#options.borrowed?.close()
    await this.#options.wire.leave(this.id)
    if (this.#inHand.size > 0) return
    const bye: ToDispatcher = { type: 'bye', worker: this.id }
    await Promise.allSettled([...this.#dispatchers.values()].map((dispatcher) => this.#publish(dispatcher, bye)))
  }

  /** Sends a statement to its dispatcher; while there is none, to another one that lives. */
  async #sendStatement(statement: ToRun): Promise<void> {
    const to = this.#own ?? [...this.#dispatchers.values()].find(({ silentMs }) => silentMs <= silentMax)
    if (to === undefined) throw new Error('none has written lately')
    await this.#publish(to, { type: 'run', worker: this.id, ...statement })
  }

  #receive(message: ToWorker): void {
    if (this.#isClosed) return
    if (message.type === 'offer' && this.#options.borrowed?.accepts(message) === false) return
    const dispatcher = this.#getOrCreateDispatcher(message.from)
    dispatcher.silentMs = 0
    if (message.type === 'offer') this.#attach(dispatcher)
    else if (message.type === 'grants') this.#takeJobs(dispatcher, message)
    else if (message.type === 'abort') this.#stopAttempts(dispatcher, message.keys, false)
    else if (message.type === 'left') this.#handleLeave(dispatcher)
    else if (message.type === 'result') this.#options.borrowed?.receive(message)
    else this.#handleAnswer(dispatcher, message)
  }

  #handleAnswer(from: Dispatcher, { echo, at, recorded, strangers, inherited }: Answer): void {
    const isFirst = from.time.since === undefined
    const announcedAt = from.announced.get(echo)
    if (announcedAt !== undefined) from.time.recordAnswer(announcedAt, at)
    for (const earlier of from.announced.keys()) if (earlier <= echo) from.announced.delete(earlier)
    for (const key of inherited) {
      const inHand = this.#inHand.get(key)
      if (inHand?.to === from) inHand.isOrphan = false
      if (inHand?.outcome !== undefined) this.#outbox.reportEnd(inHand)
    }
    this.#forgetRecorded(recorded)
    this.#stopAttempts(from, strangers, true)
    // The ages of its grants can be computed from now on.
    if (isFirst) this.#announce(from)
  }

  #handleLeave(dispatcher: Dispatcher): void {
    if (this.#own !== dispatcher) return
    this.#detach(dispatcher)
    this.#seek()
  }

  #getOrCreateDispatcher(id: string): Dispatcher {
    const known = this.#dispatchers.get(id)
    if (known !== undefined) return known
    const dispatcher = newDispatcher(id, this.#options.clock)
    this.#dispatchers.set(id, dispatcher)
    return dispatcher
  }

  /** Offers the slots of this worker to a dispatcher, unless another one has them, so that no two count on the same slot. */
  #attach(dispatcher: Dispatcher): void {
    if (this.#own !== undefined || this.#isStopping) return
    this.#own = dispatcher
    // The command line finds the queue of a worker by the name of its stint.
    dispatcher.stint = `${this.id}.${newId()}`
    this.#announce(dispatcher)
  }

  /** Stops taking jobs of its dispatcher. The next dispatcher records which jobs began in this stint. */
  #detach(own: Dispatcher): void {
    const began = [...this.#inHand.values()].filter(({ from }) => from === own)
    if (own.stint !== null)
      this.#stints.set(
        own.stint,
        began.map(({ job: { claim, seq } }) => ({ claim, seq })),
      )
    own.stint = null
    this.#own = undefined
  }

  /** Takes the jobs that it can begin in time, and refuses the others at once. */
  #takeJobs(dispatcher: Dispatcher, { at, claimer, stint, jobs, recorded }: Grants): void {
    const { clock } = this.#options
    this.#forgetRecorded(recorded)
    dispatcher.time.recordTime(at)
    const latestMs = dispatcher.time.latestMs()
    const begun: ClaimedJob[] = []
    const taken: JobInHand[] = []
    for (const sent of jobs) {
      const key = keyOf(sent)
      if (this.#seen.has(key) || this.#inHand.has(key)) continue
      this.#seen.set(key, { from: dispatcher, untilMs: latestArrivalMs(sent) })
      const isLate = latestMs > latestArrivalMs(sent)
      if (isLate && sent.buckets !== null && latestMs !== Infinity)
        this.#options.onLate(sent.task, latestMs - sent.grantedMs)
      if (isLate || stint === null || stint !== dispatcher.stint || !this.#hasRoom(sent, begun)) {
        this.#outbox.refuse(dispatcher, key)
        continue
      }
      const job = jobOf(sent, clock.monotonicMs() - (latestMs - sent.grantedMs), dispatcher.time.since)
      const roles = { from: dispatcher, to: dispatcher, isOrphan: false, isReportedBegun: false }
      taken.push({ key, job, claimer, ...roles, sentMs: 0, sinceMs: clock.monotonicMs() })
      begun.push(job)
    }
    // They begin only now: if a part of a message cannot be read, none of its jobs may begin.
    for (const one of taken) this.#inHand.set(one.key, one)
    this.#running += begun.length
    if (begun.length > 0) {
      this.#outlet.start(begun)
      this.#outbox.reportBegun()
    }
  }

  #hasRoom({ task }: SentJob, begun: readonly ClaimedJob[]): boolean {
    if (this.#isStopping || !this.#options.tasks.includes(task)) return false
    const kind = this.#outlet.kinds.find(({ tasks }) => tasks.has(task))
    const taken = begun.filter((job) => kind?.tasks.has(job.task)).length
    return this.#outlet.free() > begun.length && (kind === undefined || kind.free() > taken)
  }

  #endAttempt(job: ClaimedJob, outcome: Outcome): void {
    const inHand = this.#inHand.get(keyOf(job))
    if (inHand === undefined || inHand.outcome !== undefined) return
    inHand.outcome = outcome
    this.#running--
    this.#outbox.reportEnd(inHand)
    this.#waiters.recheck()
  }

  #forgetRecorded(keys: readonly string[]): void {
    for (const key of keys) {
      this.#stints.delete(key)
      if (this.#inHand.get(key)?.outcome !== undefined) this.#inHand.delete(key)
    }
    this.#waiters.recheck()
  }

  /**
   * Stops attempts. Attempts that another dispatcher has taken over continue. `areUnknown`: the dispatcher does not know them, so it
   * wants no report of their ends.
   */
  #stopAttempts(from: Dispatcher, keys: readonly string[], areUnknown: boolean): void {
    for (const key of keys) {
      const inHand = this.#inHand.get(key)
      if (inHand?.to !== from) continue
      if (inHand.outcome === undefined) this.#outlet.abort(inHand.job, new Error('the job was taken from this worker'))
      else if (areUnknown) this.#forgetRecorded([key])
    }
  }

  #publish(to: Dispatcher, message: ToDispatcher): Promise<void> {
    return this.#options.wire.send(to.id, JSON.stringify(message))
  }

  #announce(to: Dispatcher): void {
    const { clock } = this.#options
    const now = readMoment(clock)
    const at = now.monotonicMs
    to.announced.set(at, now)
    // The dispatcher that sent a job may come back, and must not conclude that it was not begun.
    const mine = [...this.#inHand.values()].filter((inHand) => inHand.to === to || inHand.from === to)
    const orphans = mine
      .filter((inHand) => inHand.isOrphan && inHand.to === to)
      .map(({ job, claimer }) => ({ job: { ...job, input: null }, from: claimer }))
    void this.#publish(to, {
      type: 'announce',
      worker: this.id,
      n: ++to.n,
      by: this.#by,
      at,
      asOf: to.time.promiseLatestMs(),
      holds: mine.map(({ key }) => key),
      orphans,
      left: [...this.#stints].map(([stint, begun]) => ({ stint, begun })),
      ...this.#computeCapacity(to),
    }).catch(() => {})
  }

  #computeCapacity(to: Dispatcher): Capacity {
    const { tasks, kinds } = this.#options
    const others = [...this.#inHand.values()].filter(
      (inHand) => inHand.to !== to && inHand.from !== to && inHand.outcome === undefined,
    )
    const countOf = (of: readonly string[]) => others.filter(({ job }) => of.includes(job.task)).length
    const isReady = this.#options.borrowed?.isReady !== false
    const isOpen = to === this.#own && !this.#isStopping && to.time.isKnown && isReady
    // If no slot is free though no attempt runs, handlers that outlive their attempts hold the slots.
    const slots = this.#outlet.free() === 0 && this.running === 0 ? 0 : this.#outlet.slots - others.length
    return {
      stint: isOpen ? to.stint : null,
      slots: isOpen ? Math.max(0, slots) : 0,
      tasks: [...tasks],
      kinds: kinds.map((kind) => ({ ...kind, slots: Math.max(0, kind.slots - countOf(kind.tasks)) })),
    }
  }

  #tick(): void {
    if (this.#isClosed) return
    const { clock, wire } = this.#options
    const nowMs = clock.monotonicMs()
    const passedMs = wire.isUp ? Math.min(nowMs - this.#lookedMs, 2 * tickMs) : 0
    this.#lookedMs = nowMs
    for (const dispatcher of this.#dispatchers.values()) {
      dispatcher.silentMs += passedMs
      if (dispatcher.silentMs > silentMax && dispatcher === this.#own) this.#detach(dispatcher)
    }
    this.#logDistance()
    this.#reassign()
    if (this.#own === undefined && !this.#isStopping) this.#seek()
    for (const one of this.#inHand.values())
      if (one.outcome !== undefined && nowMs - one.sentMs > repeatMs) this.#outbox.reportEnd(one)
    const busy = new Set([...this.#inHand.values()].map(({ to }) => to))
    for (const [id, dispatcher] of this.#dispatchers)
      // A silent dispatcher may go on later, and must not conclude that this worker is lost.
      if (dispatcher.silentMs < forgetMs || busy.has(dispatcher)) this.#announce(dispatcher)
      else this.#dispatchers.delete(id)
    for (const [key, { from, untilMs }] of this.#seen) if (from.time.earliestMs() > untilMs) this.#seen.delete(key)
    clock.after(tickMs, () => this.#tick())
  }

  /** Logs once that it offers no slots, because it does not know the clock of its dispatcher well enough. */
  #logDistance(): void {
    const tookMs = this.#own?.time.doubtMs ?? Infinity
    if (tookMs === Infinity) return
    const isFar = tookMs > doubtMost
    if (isFar && !this.#isFar)
      this.#options.log.warn(
        'the worker gets no jobs while messages to its dispatcher and back take so long, because it could not compute the ages of grants: the network, or the machine, is too slow',
        { tookMs: Math.round(tookMs), most: doubtMost },
      )
    this.#isFar = isFar
  }

  #seek(): void {
    const { wire, fleet, store } = this.#options
    const seek: ToDispatcher = { type: 'seek', worker: this.id, store }
    void wire.call(fleet, JSON.stringify(seek)).catch(() => {})
  }

  /** Gives the present dispatcher the jobs whose dispatcher is silent; it waits for their ends from now on. */
  #reassign(): void {
    const own = this.#own
    if (own === undefined) return
    for (const one of this.#inHand.values()) {
      if (one.to.silentMs <= silentMax) continue
      one.to = own
      one.isOrphan = true
      one.sentMs = 0
    }
  }
}
