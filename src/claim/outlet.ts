/** The interface between the dispatcher and what executes claimed jobs: this process (worker/), or a broker. */
import type { Executor } from './finish/attempt-report.ts'
import type { Outcome } from './finish/outcome.ts'
import type { ClaimedJob } from './claimed-job.ts'

/** The identity of an attempt. */
export type JobKey = Pick<ClaimedJob, 'claim' | 'seq'>

/** Executes jobs. Each job that it is given may start at once: every limit has granted it. */
export interface Outlet {
  /** Attempts at once, all together; it may change. */
  readonly slots: number
  /** Returns how many more attempts can begin now, of the tasks with the most room. */
  free(): number
  /** Kinds of tasks that need more than a slot, for example a thread; no task is of two kinds. */
  readonly kinds: readonly Kind[]
  /**
   * Returns the names of the workers elsewhere that may begin jobs claimed from now on. They are recorded in the store
   * before the next claim. A worker gets no job that was claimed before its name was returned. Without this function
   * the store does not know which worker has a job, so each job counts as begun before it is started.
   */
  enlist?(): readonly string[]
  /** The prefix of the names of outlets whose jobs this one can take over. Undefined: it takes over none. */
  readonly kin?: string | undefined
  /**
   * Takes over the jobs of an estate that it can execute, and reports each as inherited. Called only for an outlet with
   * `kin`.
   */
  inherit?(estate: Estate): void
  /**
   * Starts these jobs. Never throws, never waits; reports the end of each. Grants age on the way: an attempt that would
   * call its handler later than `grantUs` after `grantedMs` does not, and ends as `unused`.
   */
  start(jobs: readonly ClaimedJob[]): void
  /** Stops the attempt of a job that was started, for `reason`, and reports its end like any other end. */
  abort(job: ClaimedJob, reason: Error): void
  /** Releases its workers, because it will be given no more jobs. Those that were started go on. */
  retire?(): void
}

/** The jobs in hand of a dispatcher that has been silent for long. It is probably gone, and may come back. */
export interface Estate {
  /** The name under which its outlet enlisted. */
  name: string
  /** The id under which it is registered as a worker. */
  from: string
  jobs: readonly ClaimedJob[]
  /** The jobs among these that are recorded as begun. */
  begun: ReadonlySet<ClaimedJob>
}

/** Tasks that share a capacity of their own. */
export interface Kind {
  readonly tasks: ReadonlySet<string>
  /** Returns how many more attempts of these tasks can begin now. */
  free(): number
}

/** The receiver of an outlet's reports. They may come from anywhere, late, twice, and in any order. */
export interface Reports {
  /**
   * The attempt of this job, the very object that was started, has ended; of several reports the first counts. Resolves when
   * that is recorded, or the job is not in hand any more.
   */
  ended(job: ClaimedJob, outcome: Outcome): Promise<unknown>
  /** These jobs have begun. Resolves when that is recorded. Only an outlet that enlists reports this. */
  begun(jobs: readonly JobKey[]): Promise<unknown>
  /** This job was not begun, and will not be. */
  refused(job: ClaimedJob): void
  /** The worker elsewhere that had this job, `by`, was lost; it is not known whether its handler was called. */
  lost(job: ClaimedJob, by?: Executor): void
  /**
   * The worker that enlisted as `name`, at any dispatcher, will begin no more jobs. `begun`: the jobs that it has
   * begun, except jobs whose end is recorded. `known`: all claims that its dispatcher had when it was silent; if that has
   * jobs of others by now, it lives, and nothing is recorded. Resolves when this is recorded.
   */
  left(name: string, begun: readonly JobKey[], known?: readonly string[]): Promise<unknown>
  /** This job was claimed by the worker `from`, which is gone; it is being executed, and is in hand here from now on. */
  inherited(job: ClaimedJob, from: string): void
  /** More attempts may begin than before, though none has ended. */
  changed(): void
}

/** Returns the reports of an outlet in this process, which enlists nobody, and loses and inherits nothing. */
export function localReports(ended: (job: ClaimedJob, outcome: Outcome) => void): Reports {
  return {
    ended: async (job, outcome) => ended(job, outcome),
    refused: (job) => ended(job, { kind: 'unused' }),
    begun: async () => {},
    lost() {},
    left: async () => {},
    inherited() {},
    changed() {},
  }
}

/** Makes an outlet that reports there. `claimer` returns the worker of the store that claims for it. */
export type OutletFor = (reports: Reports, claimer: () => string | undefined) => Outlet
