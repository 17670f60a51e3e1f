/** The seam between dispatch and whoever executes: this process (worker/), or a broker. */
import type { Handout } from './claimed-job.ts'

/** Takes granted jobs and has them executed. */
export interface Outlet {
  /** Jobs that it gave back so far because their grants grew old before the call: a sign of too much at once. */
  readonly returned: number
  /** Jobs that it could start at once. */
  free(): number
  /** Keeps one of them free until the returned function is called, once: it starts these jobs there, one or none. */
  keep(): (jobs: readonly Handout[]) => void
  /** Those that are kept. */
  readonly kept: number
  /** Resolves when `free()` is at least `least`, or `signal` is aborted. */
  freed(least: number, signal: AbortSignal): Promise<void>
  /** Starts jobs; never throws, never waits. Each job's end goes to the finisher. */
  start(jobs: readonly Handout[]): void
}
