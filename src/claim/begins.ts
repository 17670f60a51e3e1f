/**
 * Records that jobs granted ahead of time begin, just before they do. So the store knows which of a killed worker's jobs
 * cannot have begun: these are not in doubt (`fleet/rescue_worker.sql`).
 */
import { type Clock, sleepUntil } from '../core/clock.ts'
import type { ClaimedJob } from './claimed-job.ts'
import type { JobKey } from './outlet.ts'

/**
 * From so many ms before its instant on, the rescue of a lost worker assumes that a job has begun. So a job whose instant comes
 * that soon after its claim needs no record. `soonMs` is 1 ms less, because clocks differ. `fleet/rescue_worker.sql` has the
 * same number. Two releases may run together, so a later one may only make it smaller here, or larger there.
 */
const doubtMs = 100
const soonMs = doubtMs - 1
/** How long before its instant, in ms, a job is recorded at the latest; the time that the last statement took is added. */
const spareMs = 10

/** Jobs of which one statement records that they begin. */
export interface Beginning {
  readonly jobs: readonly JobKey[]
  /**
   * The statement has ended.
   * @param held the claims of these jobs that the store still has: of their jobs it is recorded that they begin
   * @param locked those of which it is not recorded, because another transaction had locked them; default: none
   */
  recorded(held: ReadonlySet<string>, locked?: ReadonlySet<string>): void
  /** It is not known whether it is recorded. */
  failed(): void
}

/** What records that jobs begin; see the fields. */
export interface BeginsOptions {
  clock: Clock
  /**
   * Has the ends that wait recorded now, together with what `takeNext` returns. Returns false if none wait, or a statement is
   * under way.
   */
  recordNow(): boolean
  /** Records that jobs begin, by a statement of its own; resolves to those of their claims that the store still has. */
  record(jobs: readonly JobKey[]): Promise<ReadonlySet<string>>
  /** This job must not begin, because its claim is gone. */
  giveBack(job: ClaimedJob): void
  /** Other jobs may begin now. */
  changed(): void
}

/** The jobs that may not begin before it is recorded that they do. */
export class Begins {
  readonly #options: BeginsOptions
  /** For each, whether a statement that records it is under way. */
  readonly #jobs = new Map<ClaimedJob, boolean>()
  /** How long the last statement took, in ms. */
  #tookMs = 0

  constructor(options: BeginsOptions) {
    this.#options = options
  }

  /** True for a job that may not begin yet. */
  has(job: ClaimedJob): boolean {
    return this.#jobs.has(job)
  }

  /** Removes a job that was given up. */
  delete(job: ClaimedJob): void {
    this.#jobs.delete(job)
  }

  /** Has the begin of these jobs recorded in time. Those whose instants come soon after their claim need no record. */
  async add(jobs: readonly ClaimedJob[]): Promise<void> {
    const { clock, recordNow } = this.#options
    const later = jobs.filter((job) => job.decidedMs !== undefined && instantOf(job) - job.decidedMs > soonMs)
    for (const job of later) this.#jobs.set(job, false)
    for (const job of later.toSorted((a, b) => instantOf(a) - instantOf(b))) {
      // Most are recorded with ends, and need no statement of their own.
      if (this.#jobs.get(job) !== false) continue
      await sleepUntil(clock, instantOf(job) - Math.min(spareMs + this.#tookMs, doubtMs))
      if (this.#jobs.get(job) === false && !recordNow()) this.takeNext()?.failed()
    }
  }

  /** Returns the jobs that begin soon and are not recorded yet, for the next statement; undefined: there are none. */
  takeNext(): Beginning | undefined {
    const { clock, record, giveBack, changed } = this.#options
    const sentMs = clock.monotonicMs()
    const jobs = [...this.#jobs].flatMap(([job, isSent]) => (isSent || instantOf(job) > sentMs + doubtMs ? [] : [job]))
    if (jobs.length === 0) return undefined
    for (const job of jobs) this.#jobs.set(job, true)
    const recorded = (held: ReadonlySet<string>, locked?: ReadonlySet<string>) => {
      this.#tookMs = clock.monotonicMs() - sentMs
      const later = jobs.filter((job) => locked?.has(job.claim))
      for (const job of jobs) if (!later.includes(job) && this.#jobs.delete(job) && !held.has(job.claim)) giveBack(job)
      // `record` waits until they are free.
      if (later.length > 0) void record(later).then(recorded)
      changed()
    }
    return { jobs, recorded, failed: () => void record(jobs).then(recorded) }
  }
}

function instantOf({ notBeforeMs = 0 }: ClaimedJob): number {
  return notBeforeMs
}
