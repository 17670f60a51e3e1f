/** A worker: claims jobs, runs their handlers in this process, and takes part in the work of the fleet. */
import { hostname } from 'node:os'
import { StoreClock } from '../core/clock.ts'
import { AttemptError } from '../core/errors.ts'
import { span } from '../core/figures.ts'
import { statementIn } from '../db/store.ts'
import { Claims } from '../claim/claim.ts'
import { Dispatcher, type Offered } from '../claim/dispatcher.ts'
import { readCallBack } from '../claim/ahead-jobs.ts'
import { Finisher } from '../claim/finish/finish.ts'
import { StoreEpoch } from '../claim/definitions/clock.ts'
import { marginsOf } from '../claim/definitions/margins.ts'
import { renewRuleGates } from '../gates/gates.ts'
import type { InHand } from '../claim/in-hand.ts'
import { Estates } from '../fleet/estates.ts'
import { beatMs, Membership } from '../fleet/membership.ts'
import { Throttle } from '../claim/throttle.ts'
import { ScheduleRunner } from '../schedule/schedule-runner.ts'
import type { KeptSlot } from '../store/send.ts'
import { reportNotice } from '../fleet/fleet-events.ts'
import { Heartbeat } from '../fleet/heartbeat.ts'
import { Maintenance } from '../fleet/maintenance.ts'
import { AttemptEvents } from './attempt-events.ts'
import { createAttemptParts } from './grant-source.ts'
import { LocalOutlet } from './local-outlet.ts'
import { claimAllOnce } from './once.ts'
import type { WorkerOptions } from './options.ts'
import { Shutdown } from './shutdown.ts'
import { TaskSet } from './task-set.ts'
import { createRound, repeatEveryBeat, takeSteps } from './round.ts'
import { warmClaims } from './warm.ts'

/** How long `once`, and a worker that is to stop, wait for a store that is away; a worker that runs waits for ever. */
const onceAwayMs = 60_000
const stopAwayMs = 10_000
/** How many tasks a line of the log names. */
const namedMax = 5

/** One worker in this process. */
export class Worker {
  readonly #options: WorkerOptions
  readonly #claims: Claims
  readonly #storeClock = new StoreClock()
  readonly #finisher: Finisher
  readonly #hand: InHand
  readonly #taskSet: TaskSet
  /** Undefined: another outlet executes its jobs. */
  readonly #here: LocalOutlet | undefined
  readonly #member: Membership
  readonly #dispatcher: Dispatcher
  readonly #schedules: ScheduleRunner
  readonly #shutdown: Shutdown
  /** Aborted when it is to stop. */
  readonly #stop = new AbortController()
  /** Aborted when its last attempt has ended. */
  readonly #end = new AbortController()
  /** Its start, or its only round. */
  #underway: Promise<unknown> | undefined
  #isOnce = false
  #heartbeat: Heartbeat | undefined
  #rounds: Promise<unknown> | undefined
  /** These end what `start` began: the receipt of notifications and of events, and the watch over Redis. */
  #stopListening: (() => Promise<void>) | undefined
  #stopReporting: (() => Promise<void>) | undefined
  #stopWatching: (() => void) | undefined

  constructor(options: WorkerOptions) {
    const { store, tasks, schedules, queues, concurrency, version, rulebook, peer } = options
    const { db, clock, log } = store
    const taskSet = (this.#taskSet = new TaskSet(tasks, options.labels))
    this.#options = options
    this.#schedules = new ScheduleRunner({ store, schedules, rulebook })
    const storeClock = this.#storeClock
    this.#claims = new Claims(store, storeClock)
    // This is a call of the system, so it is not made for each attempt.
    const host = hostname()
    this.#finisher = new Finisher(store, () => ({ worker: this.#member.id, host, version }), {
      slots: () => this.slots,
      isPressing: ({ task }) => taskSet.isPressing(task),
    })
    const worker = () => this.#member.id
    const { outlet: elsewhere } = options
    const here = (this.#here = elsewhere === undefined ? this.#localOutlet() : undefined)
    const hasStints = () => this.#hand.hasStints
    const member = { queues, ...taskSet.describeTasks(rulebook), slots: concurrency, hasStints, version }
    this.#member = new Membership(store, member, new StoreEpoch(store, storeClock))
    this.#dispatcher = new Dispatcher({
      claims: this.#claims,
      finisher: this.#finisher,
      outlet: elsewhere ?? ((reports) => (here as LocalOutlet).outlet(reports)),
      claimer: worker,
      timedOut: elsewhere === undefined ? undefined : (job, forMs) => taskSet.timedOut(job, forMs, clock),
      lostOutcome: (job, forMs) => taskSet.lost(job, forMs),
      clock,
      peer,
      stintRecorder: this.#member,
      listener: new AttemptEvents(store.report, clock, worker),
      throttle: options.rate === undefined ? undefined : new Throttle(options.rate, clock, log),
      registerClaimer: () => this.#enter(),
      // No notification shows that what a task needs (Redis, a broker) is back, so it has to look.
      isListening: () => db.listening() && taskSet.areOpen,
      onLost: (id) => this.#handleLoss(id),
      onError: (error) => log.error('dispatch failed; it goes on', { err: error }),
    })
    this.#hand = this.#dispatcher.hand
    const { graceMs } = options
    this.#shutdown = new Shutdown({
      store,
      graceMs,
      what: 'jobs',
      running: () => this.running,
      handBack: (reason) => this.#hand.abort(reason),
      signOff: () => this.#signOff().finally(() => this.#options.ended()),
    })
  }

  /** The outlet that executes its attempts in this process. */
  #localOutlet(): LocalOutlet {
    const { store, concurrency, rate } = this.#options
    return new LocalOutlet({
      ...this.#options,
      ...createAttemptParts({ ...this.#options, storeClock: this.#storeClock }),
      taskSet: this.#taskSet,
      worker: () => this.#member.id,
      changed: (isTooMany) => {
        if (isTooMany && this.#isOnce) this.#stop.abort()
        this.#hand.recheck()
      },
      concurrency,
      // With a store in this process the next claim would run first, and a worker's own rate counts from the claim on.
      isPrompt: store.db.kind !== 'pg' || rate !== undefined,
    })
  }

  /** Jobs in hand: attempts under way, and jobs that are to start. */
  get running(): number {
    return this.#hand.size
  }

  /** Attempts at once: in this process, or in the fleet that it dispatches to. */
  get slots(): number {
    return this.#hand.slots
  }

  /**
   * How many handlers go on though their attempt ended (timed out, cancelled, lost, given up) more than 5 s ago. When
   * there are as many as slots, the worker claims nothing until one of them ends; restart it then.
   */
  get stuck(): number {
    return this.#here?.stuck ?? 0
  }

  /** Keeps a slot for a job that is being sent; undefined: this worker does not idle, or the job is not for it. */
  offer(job: Offered): KeptSlot | undefined {
    return this.#dispatcher.offer(job)
  }

  /** Registers, and begins to claim. If the worker is stopped meanwhile, it resolves as soon as it can. */
  async start(): Promise<void> {
    if (this.#shutdown.signal.aborted) return
    this.#underway = this.#begin()
    try {
      await this.#underway
    } catch (error) {
      await this.stop().catch(() => {})
      throw error
    }
  }

  async #begin(): Promise<void> {
    const { db, schema } = this.#options.store
    this.#beginRounds()
    await this.#renewGates()
    const called = (notice: string) => this.#handleNotice(notice)
    // While the connection was lost, a call-back may have been missed.
    this.#stopListening = await db.listen(`${schema}.wake`, called, () => ['!', '*'].forEach(called))
    this.#stopReporting = await db.listen(`${schema}.event`, (notice) => this.#reportNotice(notice))
    this.#stopWatching = this.#options.peer?.onChange(() => this.#dispatcher.wake())
    await this.#schedules.define()
    await this.#prepare()
    // If the worker stops meanwhile, its dispatcher is stopped only after this start, and would claim once more.
    if (!this.#stop.signal.aborted) this.#dispatcher.start()
    this.#schedules.start(this.#stop.signal)
    await this.#options.companion?.start()
  }

  /** Handles a notification: a call-back of grants, or a call to claim. */
  #handleNotice(notice: string): void {
    const isConcerned = readCallBack(notice)
    if (isConcerned !== undefined) this.#hand.giveBackAhead(isConcerned)
    if (this.#member.isCalled(notice)) this.#dispatcher.wake()
  }

  /** Makes everything ready that a first grant would otherwise wait for. */
  async #prepare(): Promise<void> {
    const { store, tasks, peer } = this.#options
    await (this.#here === undefined ? peer?.waitUntilReady() : this.#here.open(tasks))
    await warmClaims({
      db: store.db,
      claims: this.#claims,
      clock: store.clock,
      enter: () => this.#enter(),
      lost: (id) => this.#handleLoss(id),
      signal: this.#stop.signal,
    })
  }

  /**
   * Claims what is allowed now, up to `max` jobs, runs them, and resolves to how many there were.
   * Any number of processes may do this at once, and as often as they like.
   * @throws StoreError SLUICE_STORE_UNREACHABLE when the store stays away for a minute
   */
  async once(max: number, signal?: AbortSignal): Promise<number> {
    this.#isOnce = true
    this.#claims.patienceMs = onceAwayMs
    this.#finisher.waitAtMost(onceAwayMs)
    const stop = () => {
      this.#stop.abort()
      this.#shutdown.begin()
    }
    if (this.#shutdown.signal.aborted) return 0
    if (signal?.aborted) stop()
    signal?.addEventListener('abort', stop)
    const underway = this.#claimAll(max)
    this.#underway = underway
    try {
      return await underway
    } finally {
      signal?.removeEventListener('abort', stop)
      await this.stop()
    }
  }

  async #claimAll(max: number): Promise<number> {
    const sinceMs = this.#options.store.clock.monotonicMs()
    this.#beginRounds()
    await this.#renewGates()
    await this.#schedules.define()
    await this.#schedules.fire(this.#stop.signal)
    await this.#prepare()
    return claimAllOnce(max, {
      dispatcher: this.#dispatcher,
      finisher: this.#finisher,
      member: this.#member,
      clock: this.#options.store.clock,
      sinceMs,
      catchUp: () => this.#options.catchUp(),
      idle: () => this.#waitUntilIdle(),
      end: this.#stop.signal,
    })
  }

  /** Resolves when no job is in hand and every ending is written. */
  async #waitUntilIdle(): Promise<void> {
    while (this.#hand.size + this.#hand.freeSlots.kept > 0) await this.#hand.waitUntilIdle()
    await this.#finisher.waitUntilRecorded()
  }

  /**
   * Stops claiming, waits for the attempts under way, and signs off. Attempts that go on when the grace has passed are given
   * back, as by `abort`. Endings wait 10 s for a store that is away.
   */
  stop(): Promise<void> {
    return this.#shutdown.stop()
  }

  async #signOff(): Promise<void> {
    this.#stop.abort()
    this.#stopWatching?.()
    this.#finisher.waitAtMost(stopAwayMs)
    await this.#underway?.catch(() => {})
    const companion = this.#options.companion?.stop()
    await Promise.all([this.#schedules.waitUntilStopped(), this.#dispatcher.stop()])
    this.#hand.retire()
    // A store that has ended answers nothing.
    await Promise.allSettled([this.#member.stopIdling(), this.#stopListening?.(), this.#stopReporting?.()])
    await this.#waitUntilIdle()
    await companion
    this.#end.abort()
    await this.#rounds
    this.#heartbeat?.stop()
    // Signing off states that the jobs in hand were not called, which is wrong for jobs whose ends were given up.
    if (!this.#finisher.hasGivenUp) {
      const text =
        'the worker could not record its end in the database; if it had jobs, they run again on other workers'
      await this.#options.rulebook.estimates?.write()
      await this.#member.signOff().catch((error: unknown) => this.#options.store.log.warn(text, { err: error }))
    }
    await this.#here?.close()
  }

  /** Stops at once: the signals of attempts under way abort, and their jobs go back to be tried elsewhere. */
  async abort(): Promise<void> {
    await Promise.all([this.#shutdown.abort(), this.#options.companion?.abort()])
  }

  /** As `abort`, for a store that has ended for good: nothing waits for it any more. */
  async abandon(): Promise<void> {
    const aborting = this.abort()
    this.#finisher.waitAtMost(0)
    await aborting
  }

  async #enter() {
    const { store, tasks: own, outlet } = this.#options
    const limits = own.flatMap((task) => task.limits)
    // This is repeated after the process was stopped for a while, because others may have assumed that it had ended.
    await marginsOf(store).join(limits)
    // It is not known what an outlet elsewhere does with a grant.
    if (outlet !== undefined) marginsOf(store).applyStatedMargin(limits)
    const who = await this.#member.registerClaimer(this.#hand.enlist())
    this.#heartbeat?.beatFor(who.worker)
    const tasks = this.#taskSet.open(who.tasks, this.#options.peer)
    return tasks === who.tasks ? who : { ...who, tasks }
  }

  #handleLoss(worker: string): void {
    // Both the heartbeat's thread and a claim notice this. The second notice concerns an earlier registration.
    if (!this.#member.dropRegistration(worker)) return
    this.#options.store.log.warn('this worker was given up as lost (stopped for more than 10 s?); it registers anew')
    this.#heartbeat?.beatFor(undefined)
    const text = 'this worker was given up as lost; its jobs were handed to others'
    this.#hand.drop(this.#hand.jobs(), new AttemptError('SLUICE_WORKER_LOST', text, { retryable: true }))
    // A sleeper that is not registered gets no notifications.
    this.#dispatcher.wake()
  }

  /** Reports what the store notifies workers of; anybody may notify, so a notice may be anything. */
  #reportNotice(notice: string): void {
    const { report, log } = this.#options.store
    try {
      reportNotice(report, notice, this.#member.reportsForFleet)
    } catch (error) {
      log.debug('a notification cannot be read', { err: error })
    }
  }

  #renewGates(): Promise<void> {
    return renewRuleGates(this.#options.store, this.#options.rulebook.gates)
  }

  #beginRounds(): void {
    const { store, beatUrl, retention, rulebook } = this.#options
    const { clock, log } = store
    if (beatUrl !== undefined) {
      const sql = statementIn(store.schema, 'fleet/count_heartbeat')
      this.#heartbeat = new Heartbeat({ url: beatUrl, sql, beatMs, lost: (id) => this.#handleLoss(id), log })
    }
    const capUs = () => this.#storeClock.cap(clock.monotonicMs())
    const maintenance = new Maintenance(store, retention, capUs)
    const round = createRound({
      store: this.#options.store,
      member: this.#member,
      hand: this.#hand,
      claims: this.#claims,
      finisher: this.#finisher,
      estates: new Estates(store, this.#claims),
      maintenance,
      alarms: this.#options.alarms,
      heartbeat: this.#heartbeat,
      stop: this.#stop.signal,
      lost: (id: string) => this.#handleLoss(id),
      freed: () => this.#dispatcher.wake(),
      publish: () =>
        takeSteps([
          () => maintenance.publish(),
          () => this.#options.renew(),
          () => marginsOf(store).renew(),
          () => this.#member.recordLoad(this.stuck, this.slots),
          () => this.#member.recordBegun(),
          () => this.#renewGates(),
          async () => rulebook.estimates?.write(),
          async () => this.#here?.notes.write(store),
        ]),
    })
    this.#rounds = repeatEveryBeat(clock, round, this.#end.signal, {
      failed: (error) => log.debug('a round of maintenance failed', { err: error }),
      late: (ms) => {
        const tasks = [...new Set(this.#hand.jobs().map(({ task }) => task))].slice(0, namedMax)
        const text = `this process did nothing for ${span(ms)}: a handler computed without a pause (give it a thread), or the machine stood still`
        log.warn(text, { tasks })
      },
    })
  }
}
