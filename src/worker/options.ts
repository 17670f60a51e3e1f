/** Options of a worker. */
import { UsageError } from '../core/errors.ts'
import type { Rate } from '../core/rate.ts'
import { checkName } from '../tasks/checks.ts'
import type { AnyTask } from '../tasks/task.ts'
import type { Schedule } from '../schedule/schedule.ts'
import type { Labels } from './labels.ts'

/** Options of a worker; see the fields. */
export interface WorkOptions {
  /** Attempts at once; 1 to 10,000, default 10. */
  concurrency?: number
  /** Queues to serve; default all. */
  queues?: readonly string[]
  /** Schedules to fire; none by default. If a schedule's task is not among the worker's, other workers run it. */
  schedules?: readonly Schedule[]
  /** Labels that limits may use as keys (docs/keys.md), in addition to SLUICE_LABELS; `host` and `ip` by default. */
  labels?: Labels
  /**
   * At most this many attempts start in this worker in any such window, whatever the limits allow: this protects the
   * machine. It does not affect other processes. Default: no bound.
   */
  rate?: Rate
}

/** @throws UsageError SLUICE_NO_TASKS, SLUICE_BAD_OPTION, SLUICE_BAD_TASK */
export function checkWork(tasks: readonly AnyTask[], { queues }: WorkOptions): void {
  if (tasks.length === 0) throw new UsageError('SLUICE_NO_TASKS', 'a worker needs at least one task to work on')
  if (queues?.length === 0)
    throw new UsageError('SLUICE_BAD_OPTION', '`queues` is an empty list; leave it out to serve all')
  for (const queue of queues ?? []) checkName('queue', queue)
}
