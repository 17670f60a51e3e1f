/** The messages that one worker has in hand: from their receipt to their acknowledgement. */
import { setMaxListeners } from 'node:events'
import type { TaskMessage } from '../celery/task-message.ts'
import type { Outcome } from '../claim/finish/outcome.ts'
import { BriefMap } from '../core/brief-map.ts'
import type { Log } from '../core/log.ts'
import { isPromise, type MaybePromise } from '../core/maybe-promise.ts'
import { RecentMap } from '../core/recent-map.ts'
import { Waiters } from '../core/waiters.ts'
import type { AnyTask } from '../tasks/task.ts'
import type { Labels } from '../worker/labels.ts'
import { Acknowledger } from './acknowledger.ts'
import { Attempts, type AttemptsOptions, type EndedAttempt } from './attempts.ts'
import type { Incoming } from './broker.ts'
import type { Ends } from './ends.ts'
import { Inbox } from './inbox.ts'
import { type Entry, findSeen, keyOf, type PartialEntry, readEntry } from './intake.ts'
import { progressOf } from './message.ts'
import type { DirectCounts } from './read-ahead.ts'
import { keysMax, Remembered } from './remembered.ts'
import { StartQueue } from './start-queue.ts'

/** Parameters of `Hand`; see the fields. */
export interface HandOptions extends AttemptsOptions {
  log: Log
  tasks: ReadonlyMap<string, AnyTask>
  labels: Labels
  ends: Ends
  /** Called when a message was read for the first time. */
  onReceived(message: TaskMessage): void
  /** Called when a message was denied, with its size in bytes. */
  onDenied(bytes: number): void
}

/** While the ends of so many attempts wait to be sent, none begins: what was acknowledged early has no other bound. */
const endingMax = 1_000

/** All messages in hand. */
export class Hand {
  readonly counts: DirectCounts = { delivered: 0, denied: 0, begun: 0, done: 0 }
  readonly #options: HandOptions
  readonly #startQueue: StartQueue
  readonly #attempts: Attempts
  readonly #acknowledger: Acknowledger
  readonly #remembered: Remembered
  /** Those that were read, by key. */
  readonly #inHand = new BriefMap<string, Entry>()
  readonly #revoked = new RecentMap<string, true>(keysMax)
  readonly #end = new AbortController()
  readonly #inbox: Inbox
  /** How many messages are in hand, also unread ones. */
  #size = 0
  /** Attempts whose ends are not sent yet. */
  #ending = 0
  #isStopping = false
  readonly #waiters = new Waiters()

  constructor(options: HandOptions) {
    this.#options = options
    const { clock, log, limits, ends, acksEarly } = options
    const { signal } = this.#end
    // Each message that is tried again waits with it.
    setMaxListeners(Infinity, signal)
    this.#remembered = new Remembered(clock)
    this.#acknowledger = new Acknowledger({
      clock,
      log,
      ends,
      acksEarly,
      signal,
      onDone: ({ key }) => this.#remembered.recordDone(key),
      onOver: (entry) => this.#forget(entry),
    })
    this.#attempts = new Attempts(options, this.counts, (ended) => this.#endAttempt(ended))
    this.#inbox = new Inbox({
      clock,
      tasks: options.tasks,
      read: (incoming, queue) => this.#handleIncoming(incoming, queue),
      copy: (entry, dueMs) => this.#copy(entry, dueMs),
    })
    this.#startQueue = new StartQueue({
      limits,
      clock,
      free: () => (this.#ending < endingMax ? this.#attempts.free() : 0),
      start: (all) => this.#attempts.start(all),
      onDenied: (entry, delayMs) => {
        this.counts.denied++
        options.onDenied(entry.incoming.body.length)
        this.#inbox.addDenied(entry, clock.monotonicMs() + delayMs)
      },
      onLost: (entry) => this.#drop(entry),
      onAway: (entry, delayMs) => void this.#finish(entry, () => ends.sendLater(entry, entry.progress, delayMs)),
      endIfCalledOff: (entry) => this.#endIfCalledOff(entry),
    })
  }

  /** How many messages are in hand. */
  get size(): number {
    return this.#size
  }

  /** Messages whose attempts run, or that wait for a slot. */
  entries(kind: 'active' | 'reserved'): readonly Entry[] {
    return kind === 'active' ? this.#attempts.entries() : this.#startQueue.waiting
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
  take(incoming: Incoming, queue: string): void {
    this.counts.delivered++
    this.#size++
    if (incoming.isInHand) this.#remembered.recordArrival()
    this.#inbox.addDelivered(incoming, queue)
  }

  #handleIncoming(incoming: Incoming, queue: string): MaybePromise<void> {
    const key = keyOf(incoming, queue)
    // Its connection is lost, so it will be delivered again, here or elsewhere.
    if (!incoming.isInHand) {
      if (!incoming.isRedelivered) this.#remembered.recordDropped(key)
      return this.#countGone()
    }
    const earlier = this.#inHand.get(key)
    if (incoming.isRedelivered && earlier !== undefined && !earlier.incoming.isInHand) {
      // Its connection was lost, but not this process.
      earlier.incoming = incoming
      this.#countGone()
    } else if (incoming.isRedelivered && this.#remembered.isDone(key)) {
      incoming.ack()
      this.#countGone()
    } else if (this.#isStopping) this.#giveBack({ key, queue, incoming, progress: progressOf(incoming) })
    // A broker that was killed may have lost the records that it had sent the message, and of the acknowledgement.
    else return this.#read(incoming, { key, queue }, earlier !== undefined || this.#remembered.isDone(key))
  }

  /** Calls off these tasks unless they run; with `isTerminated` also those that run. */
  async revoke(ids: readonly string[], isTerminated: boolean): Promise<void> {
    for (const id of ids) {
      this.#revoked.set(id, true)
      for (const entry of this.#startQueue.remove(({ message }) => message.id === id)) this.#decide(entry)
      if (isTerminated) this.#attempts.revoke(id)
    }
  }

  /** Takes no more messages, and resolves when none is in hand; messages that wait for a slot go back at once. */
  async stop(): Promise<void> {
    this.#giveWaitingBack()
    await this.#waiters.waitUntil(() => this.#size === 0)
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
    this.#attempts.abortAll(reason)
  }

  #read(incoming: Incoming, of: { key: string; queue: string }, isAgain: boolean): MaybePromise<void> {
    const { tasks, labels, clock, ends } = this.#options
    const refuse = async (error: unknown) => {
      const seen = await findSeen(incoming, of.queue)
      void this.#finish({ ...of, incoming }, () => ends.parkRefused({ ...of, incoming }, error, seen))
    }
    let entry: MaybePromise<Entry>
    try {
      entry = readEntry(incoming, { ...of, isAgain, tasks, labels, nowMs: clock.wallMs() })
    } catch (error) {
      return refuse(error)
    }
    return isPromise(entry) ? entry.then((read) => this.#enter(read), refuse) : this.#enter(entry)
  }

  #enter(entry: Entry): void {
    if (this.#inHand.get(entry.key) === undefined) this.#inHand.set(entry.key, entry)
    if (entry.progress.turn === 0) this.#options.onReceived(entry.message)
    this.#decide(entry)
  }

  #decide(entry: Entry): void {
    const { clock, ends } = this.#options
    const { message, incoming, progress, task } = entry
    const [nowMs, dueMs] = [clock.wallMs(), Math.max(message.etaMs ?? 0, progress.dueMs ?? 0)]
    if (this.#endIfOver(entry)) return
    if (incoming.isRedelivered && !this.#remembered.takeDropped(entry.key))
      void this.#finish(entry, () => ends.handleCrash(entry))
    else if (task.isOnce && progress.isDoubtful) void this.#finish(entry, () => ends.failDoubtful(entry, progress))
    else if (dueMs > nowMs) void this.#finish(entry, () => ends.sendLater(entry, progress, Math.ceil(dueMs - nowMs)))
    else if (this.#isStopping) this.#giveBack(entry)
    else this.#startQueue.add(entry)
  }

  /** Ends a message if it was revoked, or if its time to begin is over; returns whether it did. */
  #endIfOver(entry: Entry): boolean {
    const { clock, ends } = this.#options
    const { id, etaMs = 0, expiresMs = Infinity } = entry.message
    const isRevoked = this.#revoked.has(id)
    if (!isRevoked && expiresMs > Math.max(clock.wallMs(), etaMs)) return false
    void this.#finish(entry, () => ends.reportRevoked(entry, isRevoked ? 'revoked' : 'expired'))
    return true
  }

  /** Ends a message that waited here, and may not begin any more; returns whether it did. */
  #endIfCalledOff(entry: Entry): boolean {
    const isOver = this.#endIfOver(entry)
    if (!isOver && this.#isStopping) this.#giveBack(entry)
    return isOver || this.#isStopping
  }

  #endAttempt({ entry, job, outcome, isRevoked }: EndedAttempt): void {
    const { ends } = this.#options
    if (isUncalled(outcome)) this.#startQueue.recordLateGrant()
    this.#ending++
    const isStopped = isRevoked && outcome.kind !== 'done'
    const ended = this.#finish(entry, () =>
      isStopped ? ends.reportRevoked(entry, 'terminated') : ends.endAttempt(entry, job, outcome),
    )
    void ended.then(() => void (this.#ending-- === endingMax && this.#startQueue.startWaiting()))
    this.#startQueue.startWaiting()
  }

  /** Copies a message that was denied, unless its connection is lost. */
  #copy(entry: Entry, dueMs: number): Promise<void> | undefined {
    const { clock, ends } = this.#options
    if (!entry.incoming.isInHand) {
      this.#drop(entry)
      return undefined
    }
    const progress = { ...entry.progress, denied: entry.progress.denied + 1 }
    return this.#finish(entry, () => ends.sendLater(entry, progress, Math.max(1, dueMs - clock.monotonicMs())))
  }

  /** Sends the end of a message by `send`, and acknowledges the message; then it is not in hand any more. */
  #finish(entry: PartialEntry, send: () => Promise<void>): Promise<void> {
    return this.#acknowledger.acknowledgeAfter(entry, send)
  }

  /** Sends a message that was not begun here to its queue again. The server would mark it as perhaps begun by a lost worker. */
  #giveBack(entry: PartialEntry & Pick<Entry, 'progress'>): void {
    const { incoming, progress } = entry
    if (!incoming.isRedelivered) return void this.#finish(entry, () => this.#options.ends.sendLater(entry, progress, 0))
    incoming.reject({ requeue: true })
    this.#forget(entry)
  }

  /** Drops a message that was not begun and whose connection is lost: it is delivered again, so it would run twice. */
  #drop(entry: Entry): void {
    this.#remembered.recordDropped(entry.key)
    this.#forget(entry)
  }

  #forget(entry: PartialEntry): void {
    if (this.#inHand.get(entry.key) === entry) this.#inHand.delete(entry.key)
    this.#countGone()
  }

  #countGone(): void {
    this.#size--
    this.#waiters.recheck()
  }
}

/** True if an attempt has sent nothing, mostly because its grant was too old. */
const isUncalled = (outcome: Outcome) => ['unused', 'return'].includes(outcome.kind) && !('delayMs' in outcome)
