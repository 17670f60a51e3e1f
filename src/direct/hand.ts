/** The messages in one worker's hands: from their delivery to their acknowledgement. */
import { setMaxListeners } from 'node:events'
import type { TaskMessage } from '../celery/task-message.ts'
import type { AttemptListener } from '../claim/attempt-listener.ts'
import type { ClaimedJob } from '../claim/claimed-job.ts'
import type { Outcome } from '../claim/finish/outcome.ts'
import { type Outlet, type Reports, localReports } from '../claim/outlet.ts'
import type { Clock } from '../core/clock.ts'
import { AttemptError, StoreError, codeOf } from '../core/errors.ts'
import type { Log } from '../core/log.ts'
import { isPromise, type MaybePromise } from '../core/maybe-promise.ts'
import { reach } from '../core/probe.ts'
import { BriefMap } from '../core/brief-map.ts'
import { RecentMap } from '../core/recent-map.ts'
import { Waiters } from '../core/waiters.ts'
import type { AnyTask } from '../tasks/task.ts'
import type { Labels } from '../worker/labels.ts'
import type { Bookings } from './bookings.ts'
import type { Delivery } from './broker.ts'
import type { Ends } from './ends.ts'
import { StartQueue } from './start-queue.ts'
import { Inbox } from './inbox.ts'
import { type Entry, findSeen, type GrantOf, jobOf, keyOf, type PartialEntry, readEntry } from './intake.ts'
import { progressOf } from './message.ts'
import type { DirectLimiter } from './limiter.ts'
import type { DirectCounts } from './read-ahead.ts'

/** Parameters of `Hand`; see the fields. */
export interface HandOptions {
  clock: Clock
  log: Log
  tasks: ReadonlyMap<string, AnyTask>
  labels: Labels
  /** Messages are acknowledged when their attempts begin. */
  acksEarly: boolean
  /** Undefined: no task has limits. */
  limits: { limiter: DirectLimiter; bookings: Bookings } | undefined
  ends: Ends
  /** Called when a message was read for the first time. */
  onReceived(message: TaskMessage): void
  /** Called when a message was denied, with its size in bytes. */
  onDenied(bytes: number): void
  listener: AttemptListener
  outlet(reports: Reports): Outlet
}

/** Time between two tries to send the end of a message, in ms. */
const retryMs = 1_000
/** While the ends of so many attempts wait to be sent, none begins: what was acknowledged early has no other bound. */
const endingMax = 1_000
/** How many messages are remembered, to recognise those that arrive again or were called off. */
const keysMax = 10_000
/**
 * After a lost connection the broker delivers messages again. For so many ms after the first of them, a message like one that was lost
 * here unbegun is taken for the same one. Later it may be another message of the same content, which a worker has begun and lost.
 */
const droppedMs = 60_000

/** An attempt under way. */
interface Running {
  readonly entry: Entry
  readonly job: ClaimedJob
  readonly sinceMs: number
  isRevoked?: true
}

/** All messages in hand. */
export class Hand {
  readonly counts: DirectCounts = { delivered: 0, denied: 0, begun: 0, done: 0 }
  readonly #options: HandOptions
  readonly #outlet: Outlet
  readonly #startQueue: StartQueue
  readonly #held = new BriefMap<string, Entry>()
  /** By the `seq` of their jobs. */
  readonly #running = new BriefMap<number, Running>()
  /** Messages that were carried out here, because the server may miss an acknowledgement even while the connection stands. */
  readonly #known = new RecentMap<string, true>(keysMax)
  readonly #revoked = new RecentMap<string, true>(keysMax)
  /** Messages that arrived here, were not begun, and went back when their connection was lost. */
  readonly #dropped = new RecentMap<string, true>(keysMax)
  /** When the first message arrived after those went back, in monotonic ms. */
  #backMs: number | undefined
  readonly #end = new AbortController()
  readonly #inbox: Inbox
  #open = 0
  /** Attempts whose ends are not sent yet. */
  #ending = 0
  /** Messages whose ends could not be sent, and are tried again. */
  #unsent = 0
  #isStopping = false
  readonly #settled = new Waiters()

  constructor(options: HandOptions) {
    this.#options = options
    const { clock, limits } = options
    // Each message that is tried again waits with it.
    setMaxListeners(Infinity, this.#end.signal)
    this.#outlet = options.outlet(localReports((job, outcome) => this.#endAttempt(job, outcome)))
    this.#inbox = new Inbox({
      clock,
      tasks: options.tasks,
      read: (delivery, queue) => this.#handleDelivery(delivery, queue),
      copy: (entry, dueMs) => this.#copy(entry, dueMs),
    })
    this.#startQueue = new StartQueue({
      limits,
      clock,
      free: () => (this.#ending < endingMax ? this.#outlet.free() : 0),
      start: (all) => this.#start(all),
      onDenied: (entry, delayMs) => {
        this.counts.denied++
        options.onDenied(entry.delivery.body.length)
        this.#inbox.addDenied(entry, clock.monotonicMs() + delayMs)
      },
      onLost: (entry) => this.#drop(entry),
      onAway: (entry, delayMs) => this.#settle(entry, () => options.ends.sendLater(entry, entry.progress, delayMs)),
      endIfCalledOff: (entry) => this.#endIfCalledOff(entry),
    })
  }

  /** Messages in hand. */
  get running(): number {
    return this.#open
  }

  /** Messages whose attempts run, or that wait for a slot. */
  inHand(kind: 'active' | 'reserved'): readonly Entry[] {
    return kind === 'active' ? this.#running.values().map(({ entry }) => entry) : this.#startQueue.waiting
  }

  /** Ids that were revoked, the latest ones. */
  get revoked(): string[] {
    return [...this.#revoked.keys()]
  }

  /** There may be more slots than before. */
  startWaiting(): void {
    this.#startQueue.startWaiting()
  }

  /** Takes a delivered message. */
  take(delivery: Delivery, queue: string): void {
    this.counts.delivered++
    this.#open++
    if (delivery.isInHand) this.#backMs ??= this.#options.clock.monotonicMs()
    this.#inbox.addDelivered(delivery, queue)
  }

  #handleDelivery(delivery: Delivery, queue: string): MaybePromise<void> {
    const key = keyOf(delivery, queue)
    // Its connection is lost, so it will be delivered again, here or elsewhere.
    if (!delivery.isInHand) {
      if (!delivery.isRedelivered) this.#remember(key)
      return this.#countClosed()
    }
    const held = this.#held.get(key)
    if (delivery.isRedelivered && held !== undefined && !held.delivery.isInHand) {
      // Its connection was lost, but not this process.
      held.delivery = delivery
      this.#countClosed()
    } else if (delivery.isRedelivered && this.#known.has(key)) {
      delivery.ack()
      this.#countClosed()
    } else if (this.#isStopping) this.#giveBack({ key, queue, delivery, progress: progressOf(delivery) })
    // A broker that was killed may have lost the records of its delivery and its acknowledgement.
    else return this.#read(delivery, { key, queue }, held !== undefined || this.#known.has(key))
  }

  /** Calls off these tasks unless they run; with `isTerminated` also those that run. */
  async revoke(ids: readonly string[], isTerminated: boolean): Promise<void> {
    for (const id of ids) {
      this.#revoked.set(id, true)
      for (const entry of this.#startQueue.remove(({ message }) => message.id === id)) this.#decide(entry)
      if (isTerminated)
        for (const running of this.#running.values())
          if (running.job.id === id) {
            running.isRevoked = true
            this.#outlet.abort(running.job, revokedError())
          }
    }
  }

  /** Takes no more messages, and resolves when none is in hand; messages that wait for a slot go back at once. */
  async stop(): Promise<void> {
    this.#giveWaitingBack()
    await this.#settled.waitUntil(() => this.#open === 0)
  }

  #giveWaitingBack(): void {
    this.#isStopping = true
    for (const entry of this.#startQueue.remove(() => true)) this.#giveBack(entry)
  }

  /** Gives back all messages in hand, and stops their attempts. */
  handBack(reason: Error): void {
    // First, or they would begin in the slots of those that are stopped.
    this.#giveWaitingBack()
    this.#end.abort(reason)
    for (const { job } of this.#running.values()) this.#outlet.abort(job, reason)
  }

  #read(delivery: Delivery, of: { key: string; queue: string }, isAgain: boolean): MaybePromise<void> {
    const { tasks, labels, clock, ends } = this.#options
    const refuse = async (error: unknown) => {
      const seen = await findSeen(delivery, of.queue)
      this.#settle({ ...of, delivery }, () => ends.parkRefused({ ...of, delivery }, error, seen))
    }
    let entry: MaybePromise<Entry>
    try {
      entry = readEntry(delivery, { ...of, isAgain, tasks, labels, nowMs: clock.wallMs() })
    } catch (error) {
      return refuse(error)
    }
    return isPromise(entry) ? entry.then((read) => this.#enter(read), refuse) : this.#enter(entry)
  }

  #enter(entry: Entry): void {
    if (this.#held.get(entry.key) === undefined) this.#held.set(entry.key, entry)
    if (entry.progress.turn === 0) this.#options.onReceived(entry.message)
    this.#decide(entry)
  }

  #decide(entry: Entry): void {
    const { clock, ends } = this.#options
    const { message, delivery, progress, task } = entry
    const [nowMs, dueMs] = [clock.wallMs(), Math.max(message.etaMs ?? 0, progress.dueMs ?? 0)]
    if (this.#endIfOver(entry)) return
    if (delivery.isRedelivered && !this.#wasDropped(entry.key)) this.#settle(entry, () => ends.handleCrash(entry))
    else if (task.isOnce && progress.isDoubtful) this.#settle(entry, () => ends.failDoubtful(entry, progress))
    else if (dueMs > nowMs) this.#settle(entry, () => ends.sendLater(entry, progress, Math.ceil(dueMs - nowMs)))
    else if (this.#isStopping) this.#giveBack(entry)
    else this.#startQueue.add(entry)
  }

  /** Ends a message if it was revoked, or if its time to begin is over; returns whether it did. */
  #endIfOver(entry: Entry): boolean {
    const { clock, ends } = this.#options
    const { id, etaMs = 0, expiresMs = Infinity } = entry.message
    const isRevoked = this.#revoked.has(id)
    if (!isRevoked && expiresMs > Math.max(clock.wallMs(), etaMs)) return false
    this.#settle(entry, () => ends.reportRevoked(entry, isRevoked ? 'revoked' : 'expired'))
    return true
  }

  /** Ends a message that waited here, and may not begin any more; returns whether it did. */
  #endIfCalledOff(entry: Entry): boolean {
    const isOver = this.#endIfOver(entry)
    if (!isOver && this.#isStopping) this.#giveBack(entry)
    return isOver || this.#isStopping
  }

  #start(all: readonly { entry: Entry; grant: GrantOf | undefined }[]): void {
    const { clock, listener, ends, acksEarly } = this.#options
    const nowMs = clock.monotonicMs()
    // If its connection is lost before that is written, it comes again, and is acknowledged at its end.
    if (acksEarly) for (const { entry } of all) entry.delivery.ack()
    const jobs = all.map(({ entry, grant }, i) => {
      const job = jobOf(entry, grant, nowMs, this.counts.begun + 1 + i)
      const running: Running = { entry, job, sinceMs: nowMs }
      this.#running.set(job.seq, running)
      return job
    })
    this.counts.begun += jobs.length
    listener.begun(jobs)
    for (const { entry } of all) ends.reportBegun(entry, clock.wallMs())
    this.#outlet.start(jobs)
  }

  #endAttempt(job: ClaimedJob, outcome: Outcome): void {
    const running = this.#running.get(job.seq)
    if (running === undefined) return
    this.#running.delete(job.seq)
    const { entry, sinceMs, isRevoked = false } = running
    const { clock, limits, listener, ends } = this.#options
    if (job.grant !== undefined && limits !== undefined) {
      limits.limiter.freePlaces(job.grant, entry.holds)
      limits.bookings.recordHeldTime(entry.holds, clock.monotonicMs() - sinceMs)
    }
    if (listener.wants(outcome)) listener.ended(job, outcome)
    if (outcome.kind === 'done') this.counts.done++
    if (isUncalled(outcome)) this.#startQueue.recordLateGrant()
    this.#ending++
    const isStopped = isRevoked && outcome.kind !== 'done'
    const ended = this.#carryOut(entry, () =>
      isStopped ? ends.reportRevoked(entry, 'terminated') : ends.endAttempt(entry, job, outcome),
    )
    void ended.then(() => void (this.#ending-- === endingMax && this.#startQueue.startWaiting()))
    this.#startQueue.startWaiting()
  }

  /** Copies a message that was denied, unless its connection is lost. */
  #copy(entry: Entry, dueMs: number): Promise<void> | undefined {
    const { clock, ends } = this.#options
    if (!entry.delivery.isInHand) {
      this.#drop(entry)
      return undefined
    }
    const progress = { ...entry.progress, denied: entry.progress.denied + 1 }
    return this.#carryOut(entry, () => ends.sendLater(entry, progress, Math.max(1, dueMs - clock.monotonicMs())))
  }

  /** Carries out the end of a message, and then acknowledges it. */
  #settle(entry: PartialEntry, carry: () => Promise<void>): void {
    void this.#carryOut(entry, carry)
  }

  async #carryOut(entry: PartialEntry, carry: () => Promise<void>): Promise<void> {
    const { clock, log, acksEarly } = this.#options
    const { signal } = this.#end
    let isUnsent = false
    for (;;) {
      try {
        await this.#carry(entry, carry)
        await reach('direct.settled', entry)
        if (entry.delivery.isElsewhere !== true) this.#known.set(entry.key, true)
        entry.delivery.ack()
        break
      } catch (error) {
        // However many messages wait, an outage has one warning, and a line at its end.
        if (!isUnsent && this.#unsent++ === 0)
          log.warn('what became of messages of Celery cannot be sent now; it is tried again', { err: error })
        isUnsent = true
        entry.mayHaveBeenSent ||= codeOf(error) === 'SLUICE_BROKER_SILENT'
        await clock.sleep(retryMs, signal)
        if (error instanceof StoreError && !signal.aborted) continue
        if (!entry.delivery.reject({ requeue: true }) && acksEarly && entry.begunMs !== undefined)
          log.error('a message of Celery that was acknowledged when it began is lost', { id: entry.message?.id })
        break
      }
    }
    if (isUnsent && --this.#unsent === 0) log.info('no end of a message of Celery waits to be sent any more')
    this.#forget(entry)
  }

  /** Carries out the end of a message, or parks it if no server will ever take it, because its headers are too long for example. */
  #carry(entry: PartialEntry, carry: () => Promise<void>): Promise<void> {
    return carry().catch((error: unknown) => {
      if (error instanceof StoreError) throw error
      return this.#options.ends.parkRefused(entry, error, entry)
    })
  }

  /** Sends a message that was not begun here to its queue again. The server would mark it as perhaps begun by a lost worker. */
  #giveBack(entry: PartialEntry & Pick<Entry, 'progress'>): void {
    const { delivery, progress } = entry
    if (!delivery.isRedelivered) return this.#settle(entry, () => this.#options.ends.sendLater(entry, progress, 0))
    delivery.reject({ requeue: true })
    this.#forget(entry)
  }

  /** Drops a message that was not begun and whose connection is lost: it is delivered again, so it would run twice. */
  #drop(entry: Entry): void {
    this.#remember(entry.key)
    this.#forget(entry)
  }

  #remember(key: string): void {
    this.#dropped.set(key, true)
    this.#backMs = undefined
  }

  /** Returns whether a message that arrives again went back from here, and was not begun. */
  #wasDropped(key: string): boolean {
    const nowMs = this.#options.clock.monotonicMs()
    return this.#dropped.delete(key) && nowMs - (this.#backMs ?? nowMs) < droppedMs
  }

  #forget(entry: PartialEntry): void {
    if (this.#held.get(entry.key) === entry) this.#held.delete(entry.key)
    this.#countClosed()
  }

  #countClosed(): void {
    this.#open--
    this.#settled.recheck()
  }
}

/** True if an attempt has sent nothing, mostly because its grant was too old. */
const isUncalled = (outcome: Outcome) => ['unused', 'return'].includes(outcome.kind) && !('delayMs' in outcome)

const revokedError = () => new AttemptError('SLUICE_CANCELLED', 'the task was revoked', { retryable: false })
