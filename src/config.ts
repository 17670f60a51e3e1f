import type { Duration } from './core/rate.ts'
import type { Routes, Rule } from './tasks/rule.ts'
import type { LogFormat, LogLevel } from './core/log.ts'
import type { EventName, Listener } from './report/events.ts'
import type { Work } from './events/groups.ts'
import type { Schedule } from './schedule/schedule.ts'
import type { BusOptions } from './bus/options.ts'
import type { AlarmOptions } from './fleet/alarm-kinds.ts'
import type { RetentionOptions } from './fleet/retention.ts'
import type { CeleryWork } from './worker/celery-work.ts'

/** The fields of `sluice.config.ts` (or .js, .mjs). A flag overrides the environment, which overrides this file. */
export interface SluiceConfig extends RetentionOptions {
  /**
   * `postgres://…`, a directory of the embedded engine (relative to this file), or `memory:`.
   * Default: `DATABASE_URL`, else `.sluice/data` beside this file.
   */
  store?: string
  /** Where limits are shared with other programs: `redis://…`. Default: `REDIS_URL`, else nowhere. */
  redis?: string
  /** The RabbitMQ of a fleet (docs/fleets.md): `amqp://…`. Default: `AMQP_URL`, else none. */
  amqp?: string
  /** Prefix of every key in Redis; default `SLUICE_REDIS_PREFIX`, else `sluice:`. */
  redisPrefix?: string
  /**
   * Number of databases that share the limits in this Redis (docs/redis.md): a whole number from 1 to 1000, the same for all of
   * them. Default: `SLUICE_REDIS_STORES`, else 1; then another database is refused.
   */
  redisStores?: number
  /** The least level of log lines: debug, info, warn, error or silent; default `SLUICE_LOG_LEVEL`, else `info`. */
  logLevel?: LogLevel
  /** How log lines are written: `text` or `json`; default `SLUICE_LOG_FORMAT`, else `text`, with `--json` `json`. */
  logFormat?: LogFormat
  /** The name of the service that handles events (docs/events.md); default `SLUICE_SERVICE`, else none. */
  service?: string
  /** What carries events: `store`, `rabbitmq` or its options (docs/events-rabbitmq.md); default `SLUICE_EVENTS`, else `store`. */
  events?: 'store' | 'rabbitmq' | BusOptions
  /** Schema in the database; default `SLUICE_SCHEMA`, else `sluice`. */
  schema?: string
  /**
   * URL of the server itself for LISTEN and heartbeats, if `store` is a pooler in transaction mode.
   * Default: `SLUICE_LISTEN_URL`, else `store`.
   */
  listenUrl?: string
  /** Connections to a server for transactions and queries; 1 to 1000, default 10. Sluice opens a few more for itself. */
  connections?: number
  /** Private addresses that every task may call (docs/safety.md). Default: `SLUICE_ALLOW_PRIVATE` (`a,b`), else none. */
  allowPrivate?: readonly string[]
  /** How many attempts a worker runs at once; 1 to 10,000, default `SLUICE_CONCURRENCY`, else 10. */
  concurrency?: number
  /** How long attempts may go on when a worker is to stop; default `SLUICE_GRACE`, else '25s'. Then they are given back. */
  grace?: Duration
  /** Queues that a worker serves; default `SLUICE_QUEUES` (`a,b`), else all. */
  queues?: readonly string[]
  /**
   * Queues of Celery whose messages become jobs, and how they are read (docs/celery.md); default `SLUICE_CELERY_QUEUES` (`a,b`),
   * else none.
   */
  celery?: readonly string[] | CeleryWork
  /** The tasks and handlers of events, or the path (relative to this file) of a file that exports them. Default: the file `SLUICE_TASKS`. */
  tasks?: readonly Work[] | string
  /** Rules that are applied to jobs, in order. */
  rules?: readonly Rule[]
  /** The queue (and priority) of jobs by their task's name: `{ 'email.*': 'mail' }`. */
  routes?: Routes
  /** Listeners for the processes of the command line, as `sluice.on` takes them: `{ exhausted: (event) => … }` (docs/logs.md). */
  on?: { readonly [Name in EventName]?: Listener<Name> }
  /** When workers raise alarms, and where these go besides the log (docs/logs.md). */
  alarms?: AlarmOptions
  /** Schedules that workers fire, in addition to those that the tasks file exports. */
  schedules?: readonly Schedule[]
}

/** Returns its argument; an editor then completes and checks the fields of `sluice.config.ts`. */
export function defineConfig(config: SluiceConfig): SluiceConfig {
  return config
}
