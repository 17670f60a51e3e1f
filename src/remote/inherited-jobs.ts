/**
 * Takes over the jobs of silent dispatchers. It reads their results from the queues to which workers send them, and
 * queries the workers about jobs without a report.
 */
import type { Results } from '../celery/results.ts'
import type { Clock } from '../core/clock.ts'
import type { Log } from '../core/log.ts'
import type { Estate, JobKey, Reports } from '../claim/outlet.ts'
import type { AnyTask } from '../tasks/task.ts'
import { inheritedOf, messageIdOf, type Sent } from './sent.ts'
import type { StockWorkers } from './stock-workers.ts'

/** Parameters of `InheritedJobs`; see the fields. */
export interface InheritedJobsOptions {
  results: Pick<Results, 'adopt'>
  workers: Pick<StockWorkers, 'mayHaveLost'>
  clock: Clock
  log: Log
  tasks: ReadonlyMap<string, AnyTask>
  /** Tasks that another outlet of this dispatcher executes. */
  others: ReadonlySet<string>
  /** Takes it into hand, and reads its results. */
  take(sent: Sent): void
}

/** An estate of which jobs are in hand. */
interface Open {
  /** Ids of messages. */
  readonly left: Set<string>
  readonly all: readonly JobKey[]
  /** All jobs that the dispatcher had in hand are known here. A job that has not begun when these have ended will not begin. */
  readonly isWhole: boolean
  /** The claims of all jobs that it had. */
  readonly claims: readonly string[]
  readonly close: Promise<() => Promise<void>>
}

/** Inherited jobs, by the name of their dispatcher. */
export class InheritedJobs {
  readonly #options: InheritedJobsOptions
  readonly #open = new Map<string, Open>()

  constructor(options: InheritedJobsOptions) {
    this.#options = options
  }

  /** Takes over the jobs that it can execute. */
  inherit({ name, from, jobs, begun }: Estate, reports: Reports | undefined): void {
    const { clock, log, tasks, others, workers, results, take } = this.#options
    const own = jobs.flatMap((job) => {
      const task = tasks.get(job.task)
      return task === undefined ? [] : [{ job, task }]
    })
    if (own.length === 0 || this.#open.has(name)) return
    log.warn('a dispatcher in front of Celery workers is silent; its jobs go on here', {
      worker: from,
      jobs: own.length,
    })
    const isWhole = jobs.every((job) => tasks.has(job.task) || others.has(job.task))
    const ids = new Set(own.map(({ job }) => messageIdOf(job)))
    const nowMs = clock.monotonicMs()
    const taken: Sent[] = []
    for (const { job, task } of own) {
      const isBegun = begun.has(job)
      const sent = inheritedOf(job, task, nowMs, { estate: name, isBegun, isDoubtful: workers.mayHaveLost() })
      taken.push(sent)
      take(sent)
      reports?.inherited(job, from)
    }
    // Its results are not read earlier, because the first ones concern jobs that must be known.
    const markDoubtful = () => taken.forEach((sent) => (sent.isDoubtful = true))
    const close = results.adopt(name, markDoubtful).catch((error: unknown) => {
      markDoubtful()
      log.error('the results of a silent dispatcher cannot be read; the workers are queried', { err: error })
      return async () => {}
    })
    const all = own.map(({ job: { claim, seq } }) => ({ claim, seq }))
    this.#open.set(name, { left: ids, all, isWhole, claims: jobs.map(({ claim }) => claim), close })
  }

  /** Records that a job is no longer in hand. */
  recordEnd({ estate, id }: Sent, reports: Reports | undefined): void {
    const open = estate === undefined ? undefined : this.#open.get(estate)
    if (estate === undefined || open?.left.delete(id) !== true || open.left.size > 0) return
    this.#open.delete(estate)
    void open.close.then((close) => close()).catch(() => {})
    // The other jobs of that dispatcher go back uncalled, unless they were begun elsewhere. These do not, because their
    // ends are being recorded.
    if (open.isWhole) void reports?.left(estate, open.all, open.claims).catch(() => {})
  }

  /** Reads no more. */
  async close(): Promise<void> {
    await Promise.allSettled([...this.#open.values()].map(async ({ close }) => (await close)()))
  }
}
