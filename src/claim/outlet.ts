/** The interface between the dispatcher and what executes claimed jobs: this process (worker/), or a broker. */
import type { Outcome } from './finish/finish.ts'
import type { ClaimedJob } from './claimed-job.ts'

/** What identifies an attempt. */
export type JobKey = Pick<ClaimedJob, 'claim' | 'seq'>

/** Executes jobs. Each job that it is given may start at once: every limit has granted it. */
export interface Outlet {
  /** Attempts at once, all together; it may change. */
  readonly slots: number
  /** Returns how many more attempts can begin now, of the tasks with the most room. */
  free(): number
  /** The kinds of tasks that need more than that, for example a thread; no task is of two kinds. */
  readonly kinds: readonly Kind[]
  /**
   * Returns names of those who may begin what is claimed from now on. The store knows them before the next claim, and none
   * is given what was claimed before its name was returned. Without this function nothing shows who has a job: each one
   * counts as begun from its claim on.
   */
  enlist?(): readonly string[]
  /** The beginning of the names of outlets whose jobs this one can go on with. Without it, it goes on with nothing of others. */
  readonly kin?: string | undefined
  /** Goes on with what it can of an estate, and reports that as inherited. Only an outlet that has kin is given any. */
  inherit?(estate: Estate): void
  /**
   * Starts these jobs. Never throws, never waits; reports the end of each. Grants age on the way: an attempt that would
   * call its handler later than `grantUs` after `grantedMs` does not, and ends as `unused`.
   */
  start(jobs: readonly ClaimedJob[]): void
  /** Stops the attempt of a job that was started, for `reason`, and reports its end as of any other. */
  abort(job: ClaimedJob, reason: Error): void
}

/** What a dispatcher has in hand that has been silent for long: it is mostly gone, and may come back. */
export interface Estate {
  /** Its outlet's name, as that enlisted. */
  name: string
  /** Its worker of the store. */
  from: string
  jobs: readonly ClaimedJob[]
  /** Those of the jobs that are recorded as begun. */
  begun: ReadonlySet<ClaimedJob>
}

/** Tasks that share a capacity of their own. */
export interface Kind {
  readonly tasks: ReadonlySet<string>
  /** Returns how many more attempts of these tasks can begin now. */
  free(): number
}

/** What an outlet reports. It may do so from anywhere, late, twice, and in any order. */
export interface Reports {
  /**
   * The attempt of this job, the very object that was started, has ended; of several reports the first counts. Resolves when
   * that is recorded, or the job is not in hand any more.
   */
  ended(job: ClaimedJob, outcome: Outcome): Promise<unknown>
  /** These jobs were begun. Resolves when that is recorded. Only an outlet that enlists reports this. */
  begun(jobs: readonly JobKey[]): Promise<unknown>
  /** This job was not begun, and will not be. */
  refused(job: ClaimedJob): void
  /** What executed this job was lost: whether its handler was called is not known. */
  lost(job: ClaimedJob): void
  /**
   * Whoever enlisted as `name`, at any dispatcher, will begin nothing more; `begun`: what it has begun, unless that is
   * recorded as ended. Resolves when that is recorded.
   */
  left(name: string, begun: readonly JobKey[]): Promise<unknown>
  /** This job was claimed by the worker `from`, which is gone; it is being executed, and is in hand here from now on. */
  inherited(job: ClaimedJob, from: string): void
  /** More attempts may begin than before, though none has ended. */
  changed(): void
}

/** Returns what an outlet in this process reports to: it enlists nobody, and loses and inherits nothing. */
export function reportsTo(ended: (job: ClaimedJob, outcome: Outcome) => void): Reports {
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
