/** How many more jobs a worker may claim: what its outlet has room for, less what is on its way there, within its own rate. */
import type { AheadJobs } from './ahead-jobs.ts'
import type { Finisher } from './finish/finish.ts'
import type { Outlet } from './outlet.ts'
import type { Throttle } from './throttle.ts'
import type { Waiters } from '../core/waiters.ts'

/** A kind of task, and how many more of its attempts can begin. */
export interface KindSlots {
  tasks: ReadonlySet<string>
  free: number
}

/** Parameters of `FreeSlots`; see the fields. */
export interface FreeSlotsOptions {
  outlet: Pick<Outlet, 'slots' | 'free' | 'kinds'>
  finisher: Pick<Finisher, 'backlog'>
  /** The worker's own rate. */
  throttle: Throttle | undefined
  ahead: Pick<AheadJobs, 'room' | 'countWithoutSlot'>
  /** The callers that wait for room. */
  waiters: Waiters
  /** Returns how many of the jobs in hand wait to be started: all, or those of these tasks. */
  countPending(tasks?: ReadonlySet<string>): number
}

/** Counts the free slots of a worker. */
export class FreeSlots {
  readonly #options: FreeSlotsOptions

  constructor(options: FreeSlotsOptions) {
    this.#options = options
  }

  /** Slots that are kept for jobs on their way. */
  kept = 0

  /** Returns how many more jobs may be claimed. */
  count(): number {
    return Math.min(this.countInOutlet(), this.#allowedByThrottle())
  }

  /**
   * Returns how many more jobs may be claimed that begin later. 0 if a task needs more than a slot, because at a job's
   * instant only slots are checked again.
   */
  countAhead(): number {
    const { outlet, ahead } = this.#options
    return outlet.kinds.length > 0 ? 0 : ahead.room(outlet.slots)
  }

  /** Returns how many more jobs may be claimed of each kind of task that needs more than a slot. */
  countByKind(): KindSlots[] {
    const { outlet, countPending } = this.#options
    return outlet.kinds.map((kind) => {
      const free = kind.free() - this.kept - countPending(kind.tasks)
      return { tasks: kind.tasks, free: Math.max(0, free) }
    })
  }

  /** Returns how many attempts the outlet can begin, beside those on their way to it. */
  countInOutlet(): number {
    const { outlet, finisher, ahead, countPending } = this.#options
    // While the store is slow, ends of attempts wait for it. No more of them than there are slots may pile up.
    const piled = Math.max(0, finisher.backlog - outlet.slots)
    const coming = countPending() - ahead.countWithoutSlot(outlet.slots)
    return Math.max(0, outlet.free() - coming - this.kept - piled)
  }

  /** Returns how many attempts may begin now that nothing else is on its way: never less than 0. */
  countNow(): number {
    return Math.max(0, this.#options.outlet.free() - this.kept)
  }

  /** Resolves when `count()` is at least `least`, or `signal` is aborted. */
  waitFor(least: number, signal?: AbortSignal): Promise<void> {
    return this.#options.waiters.waitUntil(() => this.#isFree(least), signal)
  }

  /** Attempts that the worker's own rate lets begin. */
  #allowedByThrottle(): number {
    return Math.max(0, (this.#options.throttle?.countAllowed() ?? Infinity) - this.kept)
  }

  /**
   * Returns whether `least` slots are free. If only the rate is in the way, the waiters check again when it lets an
   * attempt begin.
   */
  #isFree(least: number): boolean {
    const { throttle, waiters } = this.#options
    const allowed = this.#allowedByThrottle()
    const hasSlots = this.countInOutlet() >= least
    if (hasSlots && allowed === 0) throttle?.callWhenAllowed(waiters.recheck)
    return hasSlots && allowed >= least
  }
}
