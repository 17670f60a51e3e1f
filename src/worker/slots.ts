/** The outlet in this process: a number of slots, each with one attempt. */
import type { Clock } from '../core/clock.ts'
import type { ClaimedJob } from '../claim/claimed-job.ts'
import type { Kind, Outlet, Reports } from '../claim/outlet.ts'
import type { Attempt } from './attempt.ts'
import type { StuckHandlers } from './stuck.ts'

/** How long attempts may take to begin while the next claim is under way: a tenth of a grant's life, which is mostly 100 ms. */
const beginMsMax = 10

/** Parameters of `Slots`; see the fields. */
export interface SlotsOptions {
  slots: number
  /** Makes the attempt of a job. */
  attempt: (job: ClaimedJob) => Attempt
  stuck: StuckHandlers
  clock: Clock
  /** Attempts begin at once, and not in the next turn of the event loop. */
  isPrompt: boolean
  /** Tasks whose handlers run in threads, and how many threads there are. */
  threaded: { tasks: ReadonlySet<string>; threads: number }
}

/** A place for one attempt at a time. */
interface Slot {
  attempt: Attempt | undefined
}

/** Runs up to `slots` attempts at once. */
export class Slots implements Outlet {
  readonly kinds: readonly Kind[]
  readonly #options: SlotsOptions
  readonly #reports: Reports
  /** No map of attempts, because V8 keeps for long what a busy map had: garbage that its quick sweeps would copy. */
  readonly #made: Slot[] = []
  /** Those of them without an attempt. */
  readonly #idle: Slot[] = []
  /** How many of them are of tasks with threads. */
  #threaded = 0
  /** For how long each of the attempts that began last kept the process busy. */
  #beginMs = 0

  get slots(): number {
    return this.#options.slots
  }

  constructor(options: SlotsOptions, reports: Reports) {
    const { tasks, threads } = options.threaded
    this.#options = options
    this.#reports = reports
    this.kinds = tasks.size === 0 ? [] : [{ tasks, free: () => Math.min(this.free(), threads - this.#threaded) }]
  }

  free(): number {
    const { stuck, slots } = this.#options
    return stuck.isTooMany ? 0 : slots - (this.#made.length - this.#idle.length)
  }

  start(jobs: readonly ClaimedJob[]): void {
    const { attempt, isPrompt, threaded } = this.#options
    const taken: Slot[] = []
    // All slots are taken before the first attempt begins, because its handler may do anything at once.
    for (const job of jobs) {
      const each = attempt(job)
      const slot = this.#idle.pop() ?? this.#makeSlot()
      slot.attempt = each
      // Not `map`: once V8 has compiled it, its arrays are of another kind, and what reads them is compiled once more.
      taken.push(slot)
    }
    if (threaded.tasks.size > 0) for (const { task } of jobs) if (threaded.tasks.has(task)) this.#threaded++
    // A store in a process of its own works on the dispatcher's next claim meanwhile. But that claim's answer is read only
    // after these have begun: where they keep the process busy, what it grants would grow old. Jobs that were granted ahead
    // begin now, because most of them come from a timer, after a claim that got all that there was.
    const isAhead = jobs[0]?.notBeforeMs !== undefined
    if (isPrompt || isAhead || this.#isSlow(jobs)) this.#begin(taken)
    else setImmediate(() => this.#begin(taken))
  }

  abort(job: ClaimedJob, reason: Error): void {
    this.#made.find(({ attempt }) => attempt?.job === job)?.attempt?.abort(reason)
  }

  #makeSlot(): Slot {
    const slot = { attempt: undefined }
    this.#made.push(slot)
    return slot
  }

  /** Returns true if beginning these attempts would take a large part of a grant's life, judging by the last ones. */
  #isSlow(jobs: readonly ClaimedJob[]): boolean {
    const mostMs = jobs.reduce((least, { grantUs }) => Math.min(least, (grantUs ?? Infinity) / 10_000), beginMsMax)
    return this.#beginMs * jobs.length > mostMs
  }

  #begin(taken: readonly Slot[]): void {
    const { clock, isPrompt } = this.#options
    const sinceMs = clock.monotonicMs()
    for (const slot of taken) void this.#run(slot)
    if (isPrompt) return
    const began = () => (this.#beginMs = (clock.monotonicMs() - sinceMs) / taken.length)
    // Includes the work of handlers after they have awaited a settled promise: the tick comes when no promise callback
    // is left.
    queueMicrotask(() => process.nextTick(began))
  }

  /** Hundreds of these run at once: each promise that one awaits is garbage that outlives the young generation's next sweep. */
  async #run(slot: Slot): Promise<void> {
    const attempt = slot.attempt as Attempt
    const { job } = attempt
    const outcome = await attempt.run()
    slot.attempt = undefined
    this.#idle.push(slot)
    if (this.#options.threaded.tasks.has(job.task)) this.#threaded--
    void this.#reports.ended(job, outcome)
  }
}
