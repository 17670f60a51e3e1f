/** The jobs in a worker's hands: claimed, and not yet finished. What may start goes to the outlet; what ends, to the finisher. */
import { ownOf } from '../core/bucket.ts'
import { type Clock, sleepUntil } from '../core/clock.ts'
import { AttemptError } from '../core/errors.ts'
import type { PeerLimiter } from '../limits/peer.ts'
import { requestGrants, unitsOf } from './peer-grants.ts'
import { AheadJobs, slotWaitMs, runWhenTrue } from './ahead-jobs.ts'
import { Begins } from './begins.ts'
import type { Executor } from './finish/attempt-report.ts'
import type { Finisher } from './finish/finish.ts'
import { locateOutcome, type Outcome } from './finish/outcome.ts'
import { type ClaimedJob, mayStart } from './claimed-job.ts'
import type { Estate, JobKey, Outlet, OutletFor, Reports } from './outlet.ts'
import { FreeSlots } from './free-slots.ts'
import type { Throttle } from './throttle.ts'
import { Waiters } from '../core/waiters.ts'
import type { AttemptListener } from './attempt-listener.ts'

/** Parameters of `InHand`; see the fields. */
export interface InHandOptions {
  outlet: OutletFor
  /** Returns the worker of the store that claims. */
  claimer(): string | undefined
  finisher: Finisher
  clock: Clock
  /** Limits whose state is in Redis. */
  peer: PeerLimiter | undefined
  /** The worker's own rate. */
  throttle: Throttle | undefined
  /**
   * Returns how an attempt ends if the outlet has had it for `forMs` and has not reported its end; undefined: it may
   * still go on. Without this function the outlet itself ends every attempt.
   */
  timedOut: ((job: ClaimedJob, forMs: number) => Outcome | undefined) | undefined
  /** Returns how an attempt ends whose executing process was lost after `forMs`. */
  lostOutcome(job: ClaimedJob, forMs: number): Outcome
  /** Receives errors that should not happen; other jobs go on. */
  onError(error: unknown): void
  /** Default: nobody. */
  listener?: AttemptListener
  /** Records who executes jobs elsewhere. */
  stintRecorder: Pick<Reports, 'left'> & {
    /** Records that jobs have begun, or are about to; resolves to the ids of those of their claims that the store still has. */
    begun(jobs: readonly JobKey[]): Promise<ReadonlySet<string>>
    /** Sends a heartbeat in the name of a lost worker, so that nobody gives it up. */
    beatFor(worker: string): Promise<void>
  }
}

/** Jobs in hand. */
export class InHand {
  /** How many more jobs may be claimed. */
  readonly freeSlots: FreeSlots
  readonly #options: InHandOptions
  readonly #outlet: Outlet
  /** When each was started, in monotonic ms; Infinity: it waits for Redis, its instant, a slot, or the record that it begins. */
  readonly #jobs = new Map<ClaimedJob, number>()
  /** For each inherited job, the worker that claimed it. */
  readonly #inheritedFrom = new Map<ClaimedJob, string>()
  /** How many of the jobs in hand wait to be started. */
  #pending = 0
  readonly #ahead = new AheadJobs()
  readonly #begins: Begins
  readonly #waiters = new Waiters()
  #abortReason: Error | undefined
  /** Called when a job went back to the store, to be run again now or later. */
  readonly #wake: () => void

  constructor(options: InHandOptions, wake: () => void) {
    this.#options = options
    this.#wake = wake
    const { clock, finisher, stintRecorder } = options
    this.#begins = new Begins({
      clock,
      recordNow: () => finisher.recordNow(),
      record: (jobs) => stintRecorder.begun(jobs),
      giveBack: (job) => this.#giveBack(job),
      changed: this.recheck,
    })
    finisher.takeBeginning = () => this.#begins.takeNext()
    this.#outlet = options.outlet(
      {
        ended: (job, outcome) => this.#end(job, outcome),
        refused: (job) => void (this.#jobs.has(job) && this.#giveBack(job)),
        begun: (jobs) => options.stintRecorder.begun(jobs),
        left: (...over) => options.stintRecorder.left(...over),
        lost: (job, by) => this.#endLost(job, by),
        inherited: (job, from) => this.#takeOver(job, from),
        changed: this.recheck,
      },
      options.claimer,
    )
    this.freeSlots = new FreeSlots({
      outlet: this.#outlet,
      finisher: options.finisher,
      throttle: options.throttle,
      ahead: this.#ahead,
      waiters: this.#waiters,
      countPending: (tasks) => this.#countPending(tasks),
    })
  }

  /** How many jobs were given back uncalled so far. */
  returned = 0

  /** How many of these were not granted ahead. They mostly came back because their grants were old: claims got too many jobs. */
  lateReturns = 0

  /** How many jobs rules, or handlers, have put off so far. */
  putOff = 0

  /** How many jobs went back so far to wait for other limits than before, or for limits that other programs had used up. */
  readmitted = 0

  /** How many jobs are in hand. */
  get size(): number {
    return this.#jobs.size
  }

  /** Attempts at once. */
  get slots(): number {
    return this.#outlet.slots
  }

  /** True if the outlet enlists those who execute jobs. */
  get hasStints(): boolean {
    return this.#outlet.enlist !== undefined
  }

  /** Returns the names of those elsewhere who may begin what is claimed from now on. */
  enlist(): readonly string[] {
    return this.#outlet.enlist?.() ?? []
  }

  /** The prefix of the names of outlets whose jobs this one can take over; undefined: it takes over none. */
  get kin(): string | undefined {
    return this.#outlet.kin
  }

  /** Has the outlet retire as soon as all jobs in hand are started. To be called when nothing more is claimed. */
  retire(): void {
    void this.waitUntil(() => this.#pending === 0).then(() => this.#outlet.retire?.())
  }

  /** Takes over the jobs that a silent dispatcher has in hand. */
  inherit(estate: Estate): void {
    this.#outlet.inherit?.(estate)
  }

  /** The jobs in hand. */
  jobs(): readonly ClaimedJob[] {
    return [...this.#jobs.keys()]
  }

  /** Returns how many jobs in hand wait to be started: all, or those of these tasks. */
  #countPending(tasks: ReadonlySet<string> | undefined): number {
    if (tasks === undefined || this.#pending === 0) return this.#pending
    let pending = 0
    for (const [job, sinceMs] of this.#jobs) if (sinceMs === Infinity && tasks.has(job.task)) pending++
    return pending
  }

  /** Keeps a slot until the returned function is called, once, with the jobs that need it: one or none. */
  keepSlot(): (jobs: readonly ClaimedJob[]) => void {
    this.freeSlots.kept++
    return (jobs) => {
      this.freeSlots.kept--
      if (jobs.length > 0) this.take(jobs)
      this.recheck()
    }
  }

  /** Resolves when no job is in hand, and none is on its way. */
  waitUntilIdle(): Promise<void> {
    return this.waitUntil(() => this.#jobs.size + this.freeSlots.kept === 0)
  }

  /** Resolves when this is true of the jobs in hand, or `signal` is aborted. */
  waitUntil(isTrue: () => boolean, signal?: AbortSignal): Promise<void> {
    return this.#waiters.waitUntil(isTrue, signal)
  }

  /** Makes the callers that wait in `waitUntil` check again. */
  get recheck(): () => void {
    return this.#waiters.recheck
  }

  /** Takes claimed jobs: starts those that may start now, and the others as soon as they may. */
  take(jobs: readonly ClaimedJob[]): void {
    const { throttle, finisher, peer, clock } = this.#options
    const [most, inOutlet] = [this.freeSlots.count(), this.freeSlots.countInOutlet()]
    throttle?.chargeStarts(jobs.length, jobs.length >= most && most < inOutlet)
    finisher.registerJobs(jobs)
    this.#setSince(jobs, Infinity)
    this.#pending += jobs.length
    this.#ahead.add(jobs.filter(({ decidedMs }) => decidedMs !== undefined))
    if (peer === undefined || this.#abortReason !== undefined) return this.#startInTime(jobs)
    requestGrants(jobs, peer, clock, {
      granted: (granted) => {
        const gone = granted.filter((job) => !this.#jobs.has(job))
        for (const job of gone) this.#giveBackPlace(job)
        this.#startInTime(granted)
      },
      denied: (denied, denial) => denied.forEach((job) => void this.#end(job, denial)),
    })
  }

  /** Starts jobs that may start now, and the others when they may. */
  #startInTime(jobs: readonly ClaimedJob[]): void {
    const { clock, onError } = this.#options
    const wanted = jobs.filter((job) => !this.#ahead.isCalledBack(job))
    if (wanted.length < jobs.length) for (const job of jobs) if (!wanted.includes(job)) this.#giveBack(job)
    // Workers elsewhere report what they begin.
    if (!this.hasStints) void this.#begins.add(wanted)
    for (const atMs of new Set(wanted.map(({ notBeforeMs }) => notBeforeMs))) {
      const those = wanted.filter(({ notBeforeMs }) => notBeforeMs === atMs)
      if (atMs === undefined || this.#abortReason !== undefined) void this.#startInSlots(those).catch(onError)
      else
        void sleepUntil(clock, atMs)
          .then(() => this.#startInSlots(those))
          .catch(onError)
    }
  }

  /**
   * Starts jobs that may start now. A job without a slot, or of which it is not recorded yet that it begins, waits for that, and
   * goes back if it does not come in time. Jobs granted ahead may have begun in slots that a claim under way counted on.
   */
  async #startInSlots(jobs: readonly ClaimedJob[]): Promise<void> {
    const { clock } = this.#options
    this.#ahead.delete(jobs)
    const free = this.#mustWaitForSlots(jobs) ? this.freeSlots.countNow() : jobs.length
    const fit = jobs.some((job) => this.#begins.has(job)) ? 0 : free
    this.#start(jobs.slice(0, fit))
    for (const job of jobs.slice(fit)) {
      const isReady = () => !this.#begins.has(job) && this.freeSlots.countNow() > 0
      const isOver = () => isReady() || !this.#jobs.has(job) || this.#abortReason !== undefined
      const isStarted = await runWhenTrue(slotWaitMs(job, clock), clock, this, isOver, () => this.#start([job]))
      if (!isStarted) this.#giveBack(job)
    }
  }

  /**
   * Returns whether jobs must wait for slots here: slots are lacking, and jobs granted ahead are the reason. In any
   * other case the outlet itself makes jobs wait.
   */
  #mustWaitForSlots(jobs: readonly ClaimedJob[]): boolean {
    if (this.freeSlots.countNow() >= jobs.length || this.#abortReason !== undefined) return false
    if (jobs[0]?.decidedMs !== undefined) return true
    return [...this.#jobs].some(([job, sinceMs]) => job.decidedMs !== undefined && sinceMs !== Infinity)
  }

  /** Records when jobs were started; Infinity: they wait. Apart, because V8 compiles the whole of a function whose loop is hot. */
  #setSince(jobs: readonly ClaimedJob[], sinceMs: number): void {
    for (const job of jobs) this.#jobs.set(job, sinceMs)
  }

  /** Gives the outlet the jobs that may start, and were not given up meanwhile. */
  #start(jobs: readonly ClaimedJob[]): void {
    const nowMs = this.#options.clock.monotonicMs()
    const wanted = this.#abortReason === undefined ? jobs.filter((job) => this.#jobs.has(job) && mayStart(job)) : []
    this.#setSince(wanted, nowMs)
    this.#pending -= wanted.length
    if (wanted.length < jobs.length) for (const job of jobs) if (!wanted.includes(job)) this.#giveBack(job)
    if (wanted.length === 0) return
    this.#options.listener?.begun(wanted)
    this.#outlet.start(wanted)
    if (this.#pending === 0) this.recheck()
  }

  /** Gives back a job that may not start, or was granted too late. */
  #giveBack(job: ClaimedJob): void {
    const { grant } = job
    const { buckets, units } = unitsOf(job)
    const ending = this.#end(job, { kind: 'unused' })
    // Its instant, or a slot that it waited for, may refuse it once more.
    delete job.grant
    void ending.then((isRecorded) => {
      // Another dispatcher may have recorded that its worker did begin the job: then the grant is used.
      if (grant !== undefined && isRecorded !== false) this.#options.peer?.refund(grant, buckets, units)
    })
  }

  #endLost(job: ClaimedJob, by: Executor | undefined): void {
    const { clock, lostOutcome } = this.#options
    const sinceMs = this.#jobs.get(job) ?? Infinity
    if (sinceMs !== Infinity) void this.#end(job, locateOutcome(lostOutcome(job, clock.monotonicMs() - sinceMs), by))
  }

  #takeOver(job: ClaimedJob, from: string): void {
    this.#options.finisher.registerInherited(job)
    // It does not wait for the next round, because this dispatcher may be killed before. The round tries again.
    if (!this.lostClaimers().includes(from)) void this.#options.stintRecorder.beatFor(from).catch(() => {})
    this.#jobs.set(job, this.#options.clock.monotonicMs())
    this.#inheritedFrom.set(job, from)
    void this.#options.peer?.takePlaces(unitsOf(job).buckets).then((grant) => {
      job.grant = grant
      if (!this.#jobs.has(job)) this.#giveBackPlace(job)
    })
  }

  /** Returns the lost workers whose jobs this dispatcher has inherited and still has in hand. */
  lostClaimers(): readonly string[] {
    return [...new Set(this.#inheritedFrom.values())]
  }

  /** Stops all attempts, and gives back what is claimed from now on: the worker ends. */
  abort(reason: Error): void {
    this.#abortReason = reason
    this.recheck()
    for (const [job, sinceMs] of this.#jobs) if (sinceMs !== Infinity) this.#outlet.abort(job, reason)
  }

  /** Gives up jobs that are no longer this worker's: how their attempts end has no effect, and nothing waits for it. */
  drop(jobs: readonly ClaimedJob[], reason: Error): void {
    for (const job of jobs) {
      const sinceMs = this.#jobs.get(job)
      if (sinceMs === undefined) continue
      if (sinceMs !== Infinity) this.#outlet.abort(job, reason)
      void this.#end(job, { kind: 'interrupt', error: JSON.stringify({ message: reason.message }), tookMs: 0 })
    }
  }

  /** Ends attempts whose ends the outlet should have reported long ago. */
  endTimedOut(): void {
    const { timedOut, clock } = this.#options
    if (timedOut === undefined) return
    const nowMs = clock.monotonicMs()
    for (const [job, sinceMs] of this.#jobs) {
      const outcome = timedOut(job, nowMs - sinceMs)
      if (outcome === undefined) continue
      this.#outlet.abort(job, new AttemptError('SLUICE_TIMEOUT', 'no report of its end came', { retryable: true }))
      void this.#end(job, outcome)
    }
  }

  /** Frees the place that a job has in Redis. */
  #giveBackPlace(job: ClaimedJob): void {
    if (job.grant !== undefined) this.#options.peer?.freePlaces(job.grant, unitsOf(job).buckets)
  }

  /** Ends a job, unless it is not in hand any more: reported twice, timed out, or given up. */
  #end(job: ClaimedJob, outcome: Outcome): Promise<unknown> {
    const sinceMs = this.#jobs.get(job)
    // The outlet may have kept its slot until now.
    if (sinceMs === undefined) {
      this.recheck()
      return Promise.resolve()
    }
    this.#jobs.delete(job)
    this.#begins.delete(job)
    if (sinceMs === Infinity) this.#ahead.delete([job])
    else if (!this.#inheritedFrom.delete(job) && 'tookMs' in outcome)
      this.#ahead.recordDuration(this.#options.clock.monotonicMs() - sinceMs)
    this.#giveBackPlace(job)
    if (sinceMs === Infinity) this.#pending--
    const delayReason =
      outcome.kind === 'readmit'
        ? outcome.place.delayReason
        : 'delayReason' in outcome
          ? outcome.delayReason
          : undefined
    if (delayReason !== undefined) this.putOff++
    else if (outcome.kind === 'return' || outcome.kind === 'unused') {
      this.returned++
      if (job.decidedMs === undefined) this.lateReturns++
    } else if (outcome.kind === 'readmit' || outcome.kind === 'denied') this.readmitted++
    const { finisher, listener } = this.#options
    const ending = finisher.end(job, outcome)
    if (listener?.wants(outcome)) void ending.then((isRecorded) => isRecorded && listener.ended(job, outcome))
    this.recheck()
    if (outcome.kind === 'throttled') {
      // At once. If the store holds other buckets, too, it calls back what they have granted.
      const own = ownOf(job.buckets ?? [])
      this.giveBackAhead(({ buckets }) => buckets?.some((one) => own.includes(one)) === true)
    }
    if (outcome.kind === 'done' || outcome.kind === 'failed') void ending.then(this.recheck)
    else void ending.then(this.#wakeForReturned)
    return ending
  }

  /**
   * Gives back the jobs that were granted ahead, have not begun and are concerned by a change: the vendor refuses
   * requests, or somebody paused or changed a limit. Such jobs of a claim that is under way go back, too.
   */
  giveBackAhead(isConcerned: (job: ClaimedJob) => boolean): void {
    this.#ahead.callBack(this.#options.clock.monotonicMs(), isConcerned)
    for (const [job, sinceMs] of this.#jobs)
      if (sinceMs === Infinity && job.notBeforeMs !== undefined && isConcerned(job)) this.#giveBack(job)
  }

  /** Wakes a sleeping dispatcher: it chose its time to wake before this job went back. */
  readonly #wakeForReturned = (): void => {
    this.#wake()
    this.recheck()
  }
}
