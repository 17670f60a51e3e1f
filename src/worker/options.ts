/** Options of a worker. */
import { UsageError } from '../core/errors.ts'
import { checkFields } from '../core/fields.ts'
import { type Duration, durationMs, type Rate } from '../core/rate.ts'
import { env } from '../db/open.ts'
import type { Store } from '../db/store.ts'
import type { OutletFor } from '../claim/outlet.ts'
import type { PeerLimiter } from '../limits/peer.ts'
import type { Alarms } from '../fleet/alarms.ts'
import type { RetentionSettings } from '../fleet/retention.ts'
import type { Rulebook } from '../tasks/rule.ts'
import { checkName } from '../tasks/checks.ts'
import type { AnyTask } from '../tasks/task.ts'
import type { Schedule } from '../schedule/schedule.ts'
import { type CeleryWork, celeryWork } from './celery-work.ts'
import type { Labels } from './labels.ts'

/** Options of a worker; see the fields. */
export interface WorkOptions {
  /** Attempts at once; 1 to 10,000, default 10. */
  concurrency?: number | undefined
  /** Queues to serve; default all. */
  queues?: readonly string[] | undefined
  /** Schedules to fire; none by default. If a schedule's task is not among the worker's, other workers run it. */
  schedules?: readonly Schedule[] | undefined
  /** Labels that limits may use as keys (docs/keys.md), in addition to SLUICE_LABELS; `host` and `ip` by default. */
  labels?: Labels | undefined
  /**
   * At most this many attempts start in this worker in any such window, whatever the limits allow: this protects the
   * machine. It does not affect other processes. Default: no bound.
   */
  rate?: Rate | undefined
  /**
   * Queues of Celery in the broker of `celeryBroker`: each message of a Celery producer for a task of this worker becomes a job,
   * and the job's end its result (docs/celery.md). Default: none.
   */
  celery?: readonly string[] | CeleryWork | undefined
  /**
   * How long running attempts may go on once the worker is to stop (`worker.stop()`, `sluice.close()`, SIGTERM); then they are
   * given back, to be tried elsewhere. Default: SLUICE_GRACE, else '25s', which is below the 30 s of Kubernetes.
   */
  grace?: Duration | undefined
}

const workFields = ['concurrency', 'queues', 'schedules', 'labels', 'rate', 'celery', 'grace']

/** @throws UsageError SLUICE_NO_TASKS, SLUICE_BAD_OPTION, SLUICE_BAD_TASK, SLUICE_BAD_SCHEDULE, SLUICE_BAD_DURATION */
export function checkWork(tasks: readonly AnyTask[], options: WorkOptions): void {
  checkFields('SLUICE_BAD_OPTION', 'a worker', options, workFields)
  const { concurrency = 10, queues, schedules = [], celery } = options
  if (!Number.isInteger(concurrency) || concurrency < 1 || concurrency > 10_000)
    throw new UsageError(
      'SLUICE_BAD_OPTION',
      `concurrency is ${concurrency}; it must be a whole number from 1 to 10,000`,
    )
  if (tasks.length === 0) throw new UsageError('SLUICE_NO_TASKS', 'a worker needs at least one task to work on')
  if (queues !== undefined && (!Array.isArray(queues) || queues.length === 0))
    throw new UsageError('SLUICE_BAD_OPTION', "`queues` must be a list: ['mail']; leave it out to serve all")
  if (!Array.isArray(schedules) || schedules.some((one) => typeof one?.inputAt !== 'function'))
    throw new UsageError('SLUICE_BAD_SCHEDULE', '`schedules` must be a list of what schedule(…) returned')
  for (const queue of queues ?? []) checkName('queue', queue)
  if (celery !== undefined) celeryWork(celery)
}

/** Returns how many jobs one call of `dispatchOnce` runs at most. @throws UsageError SLUICE_BAD_OPTION */
export function mostOf(max = Infinity): number {
  if (max === Infinity) return Number.MAX_SAFE_INTEGER
  if (Number.isInteger(max) && max >= 0) return max
  throw new UsageError('SLUICE_BAD_OPTION', `max is ${max}; it must be a whole number, or Infinity`)
}

/** Returns the grace of a worker in ms. @throws UsageError SLUICE_BAD_DURATION */
export function graceMsOf({ grace = env('SLUICE_GRACE') ?? '25s' }: { grace?: string | number | undefined }): number {
  return durationMs(grace as Duration)
}

/** Something that a worker starts when it begins to claim, and stops first when it is to stop. */
export interface Companion {
  start(): Promise<void>
  stop(): Promise<void>
  abort(): Promise<void>
}

/** Parameters of whatever executes attempts for a store; see the fields. */
export interface ExecutionOptions {
  store: Store
  tasks: readonly AnyTask[]
  /** Attempts at once; 1 to 10,000. */
  concurrency: number
  /** How long attempts may go on once the worker is to stop. */
  graceMs: number
  rulebook: Rulebook
  labels: Readonly<Record<string, string>>
  /** Addresses beyond the public ones that every task may call. */
  allowPrivate: readonly string[]
  /** Limits whose state is in Redis. */
  peer: PeerLimiter | undefined
}

/** Parameters of `Worker`. `Sluice`, which has opened the store, fills them in; see the fields. */
export interface WorkerOptions extends ExecutionOptions {
  /** The schedules that it fires. Other workers may run their tasks. */
  schedules: readonly Schedule[]
  /** Undefined: every queue. */
  queues: readonly string[] | undefined
  /** Attempts that may begin. */
  rate: Rate | undefined
  version: string
  /** Where the heartbeat's thread connects; undefined: no thread (embedded engine). */
  beatUrl: string | undefined
  /** How long what is over is kept. */
  retention: RetentionSettings
  /** Default: none are evaluated. */
  alarms?: Alarms
  /** Executes its jobs; default this process. */
  outlet?: OutletFor
  /** Starts and stops with this worker. */
  companion?: Companion | undefined
  /** Called at each beat: records that the definitions of this process's limits are alive, and catches up. */
  renew(): Promise<void>
  /** Delivers events that its handlers lack, for half a second; resolves to whether they lacked any. */
  catchUp(): Promise<boolean>
  /** Called when it has stopped. */
  ended(): unknown
}
