/**
 * The loop of a dispatcher: claim what is allowed now, hand it to the outlet, sleep until more is allowed or
 * something arrives. There is no leader: every process that can execute claims for itself.
 */
import { AsyncResource } from 'node:async_hooks'
import { type Moment, readMoment } from '../core/clock.ts'
import { reach } from '../core/test-points.ts'
import type { KeptSlot } from '../store/send.ts'
import { type Claimed, type Claimer, type Claims, WorkerLostError } from './claim.ts'
import type { ClaimedJob } from './claimed-job.ts'
import { InHand, type InHandOptions } from './in-hand.ts'
import type { KindSlots } from './free-slots.ts'

/** Parameters of `Dispatcher`; see the fields, and those of InHandOptions. */
export interface DispatchOptions extends InHandOptions {
  claims: Claims
  /** Returns who claims. Called before each claim, because a worker that was given up registers anew. */
  registerClaimer(): Promise<Claimer>
  /** Returns whether an idle worker is woken for all of its work: LISTEN works, and nothing that its tasks need is away. */
  isListening(): boolean
  /** This worker was given up as lost: its jobs are no longer its own. */
  onLost(worker: string): void
}

/** Why a sleep ends. Without a reason an abort makes an error with its stack, which nothing reads, while a job waits. */
const woken = 'woken'

/** The purpose of one claim. */
interface TaskChoice {
  tasks: readonly string[]
  want: number
  /** It leaves out the kinds of tasks with fewer slots than it wants; the next claim includes them. */
  isPart: boolean
}

/** One claim; `claimed` undefined: it was not made. */
interface ClaimResult extends TaskChoice {
  claimed: Claimed | undefined
}

/** A job that is being sent. */
export interface Offered {
  queue: string
  task: string
  /** JSON text. */
  input: string
}

/** The longest sleep while `isListening` is false. */
const unnotifiedSleepMs = 1_500
/**
 * The longest sleep while it is true. Every 2 s one worker of the fleet wakes sleepers for work whose NOTIFY was missed; it
 * does not see work that was due long ago, which a claim after this sleep finds.
 */
const notifiedSleepMs = 20_000
/** How soon to look once more after the last job: a sender that committed meanwhile did not see this worker registered as idle. */
const secondLookMs = 25
/**
 * The most that a claim gets, with jobs that are to wait for their instants without a slot: a claim of 1,219 jobs took 190 ms
 * on two busy cores, so the grants of all of them were old when it was answered.
 */
const aheadMost = 500
/** How long claims wait at most, with a backlog, until a fair part of the slots is free: then they move many jobs at once. */
const gatherMs = 10

/**
 * How many jobs to claim at once: no more than can be started while their grants are young. It begins with one, because a
 * cold process (code not compiled, no connection open) is slow. It doubles after a claim whose jobs all began, if that
 * claim got as many jobs as it requested, or got fewer though there were more. (A claim looks at few more lanes than it
 * requests jobs.) It halves after a claim of which jobs came back because their grants were old. After that it grows by
 * an eighth at a time, so that it comes near the same bound again only slowly.
 */
export class ClaimSize {
  readonly #hand: Pick<InHand, 'lateReturns' | 'slots'>
  #size = 1
  /** It doubles up to this, and grows slowly from there. */
  #doublesUpTo = Infinity
  #last = 0
  /** The last claim left some jobs, so what it got does not show how many there are. */
  #leftSome = false
  #lateReturns: number

  constructor(hand: Pick<InHand, 'lateReturns' | 'slots'>) {
    this.#hand = hand
    this.#lateReturns = hand.lateReturns
  }

  /** The most to claim now. */
  adapt(): number {
    if (this.#hand.lateReturns > this.#lateReturns) {
      // It halves the number that was claimed, because half of a size that was never filled would change nothing.
      const claimed = this.#last > 0 ? Math.min(this.#size, this.#last) : this.#size
      this.#size = this.#doublesUpTo = Math.max(1, Math.floor(claimed / 2))
    } else if (this.#last >= this.#size || (this.#last > 0 && this.#leftSome)) {
      const more =
        this.#size < this.#doublesUpTo
          ? Math.min(this.#doublesUpTo, this.#size * 2)
          : this.#size + Math.ceil(this.#size / 8)
      // An outlet may have lost all of its slots since there was room. From 0 it would never grow again.
      this.#size = Math.max(1, Math.min(this.#hand.slots, more))
    }
    this.#last = 0
    this.#lateReturns = this.#hand.lateReturns
    return this.#size
  }

  /** Records how many jobs were claimed; `more`: the claim left others. */
  recordClaim(count: number, more: boolean): void {
    this.#last = count
    this.#leftSome = more
  }
}

/** Runs one dispatcher until `stop`. */
export class Dispatcher {
  /** The jobs that it has claimed. */
  readonly hand: InHand
  readonly #options: DispatchOptions
  readonly #stop = new AbortController()
  readonly #scope = new AsyncResource('sluice.dispatcher')
  /** Ends one sleep: by a wake, or the stop. Made for each sleep, because listeners of a lasting signal would never be freed. */
  #nudge = new AbortController()
  readonly #claimSize: ClaimSize
  #running: Promise<void> | undefined
  /** The registration that claimed last. */
  #claimer: Claimer | undefined
  #isAsleep = false
  /** The last claim got as many jobs as there were slots for: the next one may be for the kinds of tasks with more slots only. */
  #isNextPart = false
  /** The kinds of tasks that the last claim left out because they had no free slot. */
  #fullKinds: KindSlots[] = []
  /** Lists without tasks that were left out. The same list each time, because `Claims` knows them apart by identity. */
  readonly #taskLists = new Map<string, readonly string[]>()
  #allTasks: readonly string[] = []

  constructor(options: DispatchOptions) {
    this.#options = options
    this.hand = new InHand(options, () => this.wake())
    this.#claimSize = new ClaimSize(this.hand)
  }

  /** Starts the loop; a second call changes nothing. */
  start(): void {
    this.#running ??= this.#run()
  }

  /** Ends the loop after the claim under way; jobs handed out go on. */
  async stop(): Promise<void> {
    this.#stop.abort()
    this.#nudge.abort()
    await this.#running
  }

  /** Ends the loop's sleep, because something arrived. */
  wake(): void {
    this.#nudge.abort(woken)
  }

  /**
   * Keeps a slot for a job that this process is sending. Undefined: the loop does not sleep, the job is not for it, Redis is
   * away, or only one slot is free: that stays for claims, because other senders may wake this worker, which is still
   * registered as idle.
   */
  offer({ queue, task, input }: Offered): KeptSlot | undefined {
    const { hand } = this
    const { claims, clock, peer } = this.#options
    const who = this.#claimer
    if (
      who === undefined ||
      peer?.isAway === true ||
      !this.#isAsleep ||
      this.#nudge.signal.aborted ||
      hand.freeSlots.kept > 0 ||
      hand.freeSlots.count() < 2
    )
      return undefined
    if (!who.tasks.includes(task) || who.queues?.includes(queue) === false) return undefined
    if (hand.freeSlots.countByKind().some(({ tasks, free }) => tasks.has(task) && free < 2)) return undefined
    const requestedAt = readMoment(clock)
    const start = hand.keepSlot()
    return claims.offer(who, input, (jobs) => {
      const begin = () => {
        stampJobs(jobs, requestedAt)
        start(jobs)
      }
      // In a turn of its own, after `send` has resolved; and with the context of the worker, not of the sender.
      setImmediate(() => this.#scope.runInAsyncScope(begin))
    })
  }

  /** Claims and starts up to `most` jobs, without the loop. Resolves to how many; 0: there are none now. */
  async claimOnce(most: number, signal: AbortSignal): Promise<number> {
    const { clock } = this.#options
    for (;;) {
      await this.hand.freeSlots.waitFor(1, signal)
      const { claimed, isPart } = await this.#claim(Math.min(most, this.#claimSize.adapt()), false, signal)
      const count = claimed?.jobs.length ?? 0
      if (count > 0 || signal.aborted) return count
      if (claimed === undefined || claimed.again) await clock.sleep(2 + clock.random() * 3, signal)
      else if (isPart) continue
      else if (this.#fullKinds.length > 0) await this.#waitForFullKinds(signal)
      else return 0
    }
  }

  async #run(): Promise<void> {
    const { clock } = this.#options
    const { signal } = this.#stop
    // No sender knew of this worker before its first claim: a second look, as after work, finds a job that was sent meanwhile.
    let hadWork = true
    while (!signal.aborted) {
      try {
        await this.#waitForSlots(hadWork)
        if (signal.aborted) return
        this.#nudge = new AbortController()
        const { claimed, want, isPart } = await this.#claim(this.#claimSize.adapt(), true, signal)
        if (claimed === undefined) continue
        const count = claimed.jobs.length
        const ranOut = hadWork && count === 0
        if (!isPart || count > 0) hadWork = count > 0
        if (claimed.again) await clock.sleep(count > 0 ? 0 : 2 + clock.random() * 3, signal)
        else if ((count < want || claimed.wakeMs !== undefined) && !isPart) await this.#sleep(claimed, ranOut)
      } catch (error) {
        if (signal.aborted) return
        this.#options.onError(error)
        await clock.sleep(500 + clock.random() * 500, signal)
      }
    }
  }

  /** Waits for a free slot. With a backlog it waits for a good part of the slots, so that one claim moves many jobs. */
  async #waitForSlots(hadWork: boolean): Promise<void> {
    const { hand } = this
    const { clock } = this.#options
    await hand.freeSlots.waitFor(1, this.#stop.signal)
    const many = Math.ceil(hand.slots / 4)
    if (!hadWork || hand.freeSlots.count() >= many) return
    // So short that a stop waits for it.
    const enough = new AbortController()
    await Promise.race([clock.sleep(gatherMs, enough.signal), hand.freeSlots.waitFor(many, enough.signal)])
    enough.abort()
  }

  /** Claims up to `most` jobs and takes them into hand. */
  async #claim(most: number, idle: boolean, signal: AbortSignal): Promise<ClaimResult> {
    const { claims, clock, registerClaimer, onLost, throttle } = this.#options
    const all = await registerClaimer()
    const openSlots = Math.min(this.hand.freeSlots.count(), most)
    const choice = this.#chooseTasks(all.tasks, openSlots)
    const { tasks, want, isPart } = choice
    // An outlet of a fleet may have lost its slots meanwhile.
    if (signal.aborted || openSlots === 0) return { ...choice, claimed: undefined }
    const claimer = tasks === all.tasks ? all : { ...all, tasks }
    // The worker's own rate counts what starts now.
    const mayWait = idle && !isPart && throttle === undefined
    // A process that is slow takes no more than it is known to begin in time.
    const waitable = most < this.hand.slots ? 0 : this.hand.freeSlots.countAhead()
    const ahead = mayWait ? Math.max(want, Math.min(want + waitable, aheadMost)) : 0
    try {
      const requestedAt = readMoment(clock)
      const claimed = await claims.claim(claimer, want, { idle: idle && !isPart, ahead }, signal)
      this.#claimer = claimer
      this.#isNextPart = !isPart && claimed.jobs.length >= want
      // A claim that the slots of a kind of task have reduced does not show how many jobs can be started in time.
      if (want === openSlots) this.#claimSize.recordClaim(claimed.jobs.length, claimed.again)
      stampJobs(claimed.jobs, requestedAt)
      this.hand.take(claimed.jobs)
      return { ...choice, claimed }
    } catch (error) {
      if (!(error instanceof WorkerLostError)) throw error
      onLost(all.worker)
      return { ...choice, claimed: undefined }
    }
  }

  /**
   * Chooses the tasks of the next claim. A claim gets jobs of any of its tasks, so it wants no more than the kind of task with
   * the fewest slots can take. When it got that many, a claim for the kinds with more slots follows, so that those do not wait.
   */
  #chooseTasks(all: readonly string[], most: number): TaskChoice {
    const kinds = this.hand.freeSlots.countByKind()
    this.#fullKinds = kinds.filter(({ free }) => free === 0)
    const want = Math.min(most, ...kinds.flatMap(({ free }) => (free > 0 ? [free] : [])))
    const part =
      this.#isNextPart && want < most
        ? this.#listTasksWithout(
            all,
            kinds.filter(({ free }) => free < most),
          )
        : []
    if (part.length > 0) return { tasks: part, want: most, isPart: true }
    return { tasks: this.#listTasksWithout(all, this.#fullKinds), want, isPart: false }
  }

  #listTasksWithout(all: readonly string[], kinds: readonly KindSlots[]): readonly string[] {
    if (this.#allTasks !== all) this.#taskLists.clear()
    this.#allTasks = all
    if (kinds.length === 0) return all
    const rest = all.filter((task) => !kinds.some(({ tasks }) => tasks.has(task)))
    const known = this.#taskLists.get(rest.join())
    if (known === undefined) this.#taskLists.set(rest.join(), rest)
    return known ?? rest
  }

  /** Resolves when a kind of task that the last claim left out has a free slot, or `signal` is aborted. */
  #waitForFullKinds(signal: AbortSignal): Promise<void> {
    const full = this.#fullKinds.map(({ tasks }) => tasks)
    const isFull = (task: string) => full.some((tasks) => tasks.has(task))
    return this.hand.waitUntil(
      () => this.hand.freeSlots.countByKind().some(({ tasks, free }) => free > 0 && [...tasks].some(isFull)),
      signal,
    )
  }

  async #sleep(claimed: Claimed, ranOut: boolean): Promise<void> {
    const { clock, isListening } = this.#options
    const { signal } = this.#nudge
    await reach('idle', claimed.wakeMs)
    // A worker with a time to wake claims nothing before it, because it would take jobs for which another worker was
    // woken.
    const wakesLate = claimed.wakeMs === undefined || claimed.wakeMs > notifiedSleepMs
    const longest =
      ranOut && wakesLate
        ? secondLookMs
        : (isListening() ? notifiedSleepMs : unnotifiedSleepMs) * (0.75 + clock.random() / 2)
    const awake = this.#fullKinds.length > 0 ? new AbortController() : undefined
    if (awake !== undefined) void this.#waitForFullKinds(awake.signal).then(() => awake.signal.aborted || this.wake())
    this.#isAsleep = true
    await clock.sleep(Math.min(claimed.wakeMs ?? longest, longest), signal)
    this.#isAsleep = false
    awake?.abort(woken)
  }
}

/** Records in jobs when their claim was requested. Apart, because V8 compiles the whole of a function whose loop is hot. */
function stampJobs(jobs: readonly ClaimedJob[], requestedAt: Moment): void {
  for (const job of jobs) job.requestedAt = requestedAt
}
