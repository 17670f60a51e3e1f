/**
 * The loop of a dispatcher: claim what is allowed now, hand it to the outlet, sleep until the store says that more is
 * allowed or that something arrived. There is no leader: every process that can execute claims for itself.
 */
import { AsyncResource } from 'node:async_hooks'
import { type Clock, readMoment } from '../core/clock.ts'
import { reach } from '../core/probe.ts'
import { type Claimed, type Claimer, type Claims, WorkerLostError } from './claim.ts'
import type { KeptSlot } from '../store/send.ts'
import type { Outlet } from './outlet.ts'

/** What the loop needs. */
export interface DispatchOptions {
  claims: Claims
  outlet: Outlet
  clock: Clock
  slots: number
  /** Who claims; asked before each claim, since a worker that was given up registers anew. */
  who(): Promise<Claimer>
  /** Notifications are heard: idle workers are called to whatever there is (stir.sql, wake.sql, summon.sql). */
  listening(): boolean
  /** This worker was given up as lost: its jobs are no longer its own. */
  lost(worker: string): void
  /** Something that should not happen; the loop goes on. */
  failed(error: unknown): void
}

/** A job that is being sent. */
export interface Offered {
  queue: string
  task: string
  /** JSON text. */
  input: string
}

/** Who is not told of anything sleeps no longer than this. */
const deafMs = 1_500
/**
 * And who is told, no longer than this: some worker looks every 2 s for all whether there is something that no sleeper knows
 * of (stir.sql). What that overlooks, since it should have been done long ago, is seen by a claim after this.
 */
const restMs = 20_000
/** After the last job, look once more so soon: a sender that committed meanwhile did not see us idle yet. */
const secondLookMs = 25
/** With a backlog, claims wait so long at most for a fair share of the slots to be free, and then move many jobs at once. */
const gatherMs = 10

/**
 * How many jobs to claim at once: no more than can be started while their grants are young. It begins with one, since a
 * cold process (code not compiled, no connection open) is slow, and doubles after a claim whose jobs all began and that got
 * as many, or fewer though there were more (a claim looks at few more lanes than it wants jobs); one that had some come back,
 * old, halves it, and from there on it grows by an eighth, so that it does not run into the same again and again (as TCP does).
 */
export class Pace {
  readonly #outlet: Outlet
  readonly #slots: number
  #window = 1
  /** Up to here it doubles. */
  #calm: number
  #last = 0
  /** The last claim was no measure of what there is. */
  #leftSome = false
  #returned: number

  constructor(outlet: Outlet, slots: number) {
    this.#outlet = outlet
    this.#slots = slots
    this.#calm = slots
    this.#returned = outlet.returned
  }

  /** The most to claim now. */
  most(): number {
    if (this.#outlet.returned > this.#returned) {
      // Of what was claimed, which may have been less: half of a window that was never filled would change nothing.
      const claimed = this.#last > 0 ? Math.min(this.#window, this.#last) : this.#window
      this.#window = this.#calm = Math.max(1, Math.floor(claimed / 2))
    } else if (this.#last >= this.#window || (this.#last > 0 && this.#leftSome)) {
      const more =
        this.#window < this.#calm ? Math.min(this.#calm, this.#window * 2) : this.#window + Math.ceil(this.#window / 8)
      this.#window = Math.min(this.#slots, more)
    }
    this.#last = 0
    this.#returned = this.#outlet.returned
    return this.#window
  }

  /** So many were claimed; `more`: others were left that the claim did not get to. */
  claimed(count: number, more: boolean): void {
    this.#last = count
    this.#leftSome = more
  }
}

/** Runs one dispatcher until `stop`. */
export class Dispatcher {
  readonly #options: DispatchOptions
  readonly #stop = new AbortController()
  readonly #scope = new AsyncResource('sluice.dispatcher')
  /** Ends one sleep: by a wake, or the stop. Made anew for each: what hangs on a lasting signal stays for as long as that. */
  #nudge = new AbortController()
  readonly #pace: Pace
  #running: Promise<void> | undefined
  /** The registration that claimed last. */
  #claimer: Claimer | undefined
  #isAsleep = false

  constructor(options: DispatchOptions) {
    this.#options = options
    this.#pace = new Pace(options.outlet, options.slots)
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

  /** Something arrived: a sleeping loop looks at once. */
  wake(): void {
    // Told again and again while it claims; each abort would make an error with its stack, for nobody.
    if (!this.#nudge.signal.aborted) this.#nudge.abort()
  }

  /**
   * Keeps a slot for a job that this process is sending. Undefined: the loop does not sleep, the job is not for it, or only
   * one slot is free, which stays for claims: others call this worker for as long as it is registered as idle.
   */
  offer({ queue, task, input }: Offered): KeptSlot | undefined {
    const { claims, outlet, clock } = this.#options
    const who = this.#claimer
    if (who === undefined || !this.#isAsleep || this.#nudge.signal.aborted || outlet.kept > 0 || outlet.free() < 2)
      return undefined
    if (!who.tasks.includes(task) || who.queues?.includes(queue) === false) return undefined
    const asked = readMoment(clock)
    const start = outlet.keep()
    return claims.offer(who, input, (jobs) => {
      const begin = () => {
        for (const job of jobs) job.asked = asked
        start(jobs)
      }
      // In a turn of its own, after `send` has resolved; and with the context of the worker, not of the sender.
      setImmediate(() => this.#scope.runInAsyncScope(begin))
    })
  }

  async #run(): Promise<void> {
    const { outlet, clock } = this.#options
    let busy = false
    while (!this.#stop.signal.aborted) {
      try {
        await this.#roomy(busy)
        if (this.#stop.signal.aborted) return
        this.#nudge = new AbortController()
        const want = Math.min(outlet.free(), this.#pace.most())
        const asked = readMoment(clock)
        const claimed = await this.#claim(want)
        if (claimed === undefined) continue
        const idled = busy && claimed.jobs.length === 0
        busy = claimed.jobs.length > 0
        this.#pace.claimed(claimed.jobs.length, claimed.again)
        for (const job of claimed.jobs) job.asked = asked
        outlet.start(claimed.jobs)
        if (claimed.again) await clock.sleep(claimed.jobs.length > 0 ? 0 : 2 + clock.random() * 3, this.#stop.signal)
        else if (claimed.jobs.length < want) await this.#sleep(claimed, idled)
      } catch (error) {
        if (this.#stop.signal.aborted) return
        this.#options.failed(error)
        await clock.sleep(500 + clock.random() * 500, this.#stop.signal)
      }
    }
  }

  /** Waits for room. With a backlog it waits for a good part of the slots, so that one claim moves many jobs. */
  async #roomy(busy: boolean): Promise<void> {
    const { outlet, clock, slots } = this.#options
    await outlet.freed(1, this.#stop.signal)
    const many = Math.ceil(slots / 4)
    if (!busy || outlet.free() >= many) return
    // So short that a stop waits for it.
    const enough = new AbortController()
    await Promise.race([clock.sleep(gatherMs, enough.signal), outlet.freed(many, enough.signal)])
    enough.abort()
  }

  async #claim(want: number): Promise<Claimed | undefined> {
    const { claims, who, lost } = this.#options
    const claimer = await who()
    if (this.#stop.signal.aborted) return undefined
    try {
      const claimed = await claims.claim(claimer, want, true, this.#stop.signal)
      this.#claimer = claimer
      return claimed
    } catch (error) {
      if (!(error instanceof WorkerLostError)) throw error
      lost(claimer.worker)
      return undefined
    }
  }

  async #sleep(claimed: Claimed, idled: boolean): Promise<void> {
    const { clock, listening } = this.#options
    const { signal } = this.#nudge
    await reach('idle', claimed.wakeMs)
    // Who was told a time would take what somebody else was told of.
    const isUntold = claimed.wakeMs === undefined || claimed.wakeMs > restMs
    const longest = idled && isUntold ? secondLookMs : (listening() ? restMs : deafMs) * (0.75 + clock.random() / 2)
    this.#isAsleep = true
    await clock.sleep(Math.min(claimed.wakeMs ?? longest, longest), signal)
    this.#isAsleep = false
  }
}
