import type { Duration } from './core/rate.ts'
import type { LogFormat, LogLevel } from './core/log.ts'
import type { EventName, Listener } from './report/events.ts'
import type { Work } from './events/groups.ts'
import type { Schedule } from './schedule/schedule.ts'
import type { RetentionOptions } from './fleet/retention.ts'
import type { SluiceOptions } from './options.ts'
import type { CeleryWork } from './worker/celery-work.ts'

/** Options of a Sluice that are fields of the file, too. */
type Shared =
  | 'amqp'
  | 'redisPrefix'
  | 'redisStores'
  | 'service'
  | 'events'
  | 'schema'
  | 'listenUrl'
  | 'connections'
  | 'allowPrivate'
  | 'rules'
  | 'routes'
  | 'alarms'

/** The fields of `sluice.config.ts` (or .js, .mjs). A flag overrides the environment, which overrides this file. */
export interface SluiceConfig extends RetentionOptions, Pick<SluiceOptions, Shared> {
  /**
   * `postgres://…`, a directory of the embedded engine (relative to this file), or `memory:`.
   * Default: `DATABASE_URL`, else `.sluice/data` beside this file.
   */
  store?: string | undefined
  /** Where limits are shared with other programs: `redis://…`. Default: `REDIS_URL`, else nowhere. */
  redis?: string | undefined
  /** The least level of log lines: debug, info, warn, error or silent; default `SLUICE_LOG_LEVEL`, else `info`. */
  logLevel?: LogLevel | undefined
  /** How log lines are written: `text` or `json`; default `SLUICE_LOG_FORMAT`, else `text`, with `--json` `json`. */
  logFormat?: LogFormat | undefined
  /** How many attempts a worker runs at once; 1 to 10,000, default `SLUICE_CONCURRENCY`, else 10. */
  concurrency?: number | undefined
  /** How long attempts may go on when a worker is to stop; default `SLUICE_GRACE`, else '25s'. Then they are given back. */
  grace?: Duration | undefined
  /** Queues that a worker serves; default `SLUICE_QUEUES` (`a,b`), else all. */
  queues?: readonly string[] | undefined
  /**
   * Queues of Celery whose messages become jobs, and how they are read (docs/celery.md); default `SLUICE_CELERY_QUEUES` (`a,b`),
   * else none.
   */
  celery?: readonly string[] | CeleryWork | undefined
  /** The tasks and handlers of events, or the path (relative to this file) of a file that exports them. Default: the file `SLUICE_TASKS`. */
  tasks?: readonly Work[] | string | undefined
  /** Listeners for the processes of the command line, as `sluice.on` takes them: `{ exhausted: (event) => … }` (docs/logs.md). */
  on?: { readonly [Name in EventName]?: Listener<Name> } | undefined
  /** Schedules that workers fire, in addition to those that the tasks file exports. */
  schedules?: readonly Schedule[] | undefined
}

/** Returns its argument; an editor then completes and checks the fields of `sluice.config.ts`. */
export function defineConfig(config: SluiceConfig): SluiceConfig {
  return config
}
