/** How a Sluice is opened. */
import { inspect } from 'node:util'
import type { Clock } from './core/clock.ts'
import { UsageError } from './core/errors.ts'
import { checkFields } from './core/fields.ts'
import { levels } from './core/log.ts'
import { env } from './db/open.ts'
import { checkSchema } from './db/store.ts'
import { Guard } from './http/guard.ts'
import type { Routes, Rule } from './tasks/rule.ts'
import type { BusOptions } from './bus/options.ts'
import type { AlarmOptions } from './fleet/alarm-kinds.ts'
import type { RedisClient } from './redis/client.ts'
import type { LogOptions } from './report/options.ts'
import { type RetentionOptions, retentionSettings } from './fleet/retention.ts'

/** How to open a Sluice; see the fields. */
export interface SluiceOptions extends RetentionOptions, LogOptions {
  /**
   * `postgres://…`, a directory of the embedded engine (relative to the current one), or `memory:`. Default:
   * `DATABASE_URL`, else `.sluice/data`. Only the command line reads `sluice.config.ts`: give your programs the same store.
   */
  store?: string | undefined
  /**
   * URL of the server itself for LISTEN and heartbeats, if `store` is a pooler in transaction mode.
   * Default: `SLUICE_LISTEN_URL`, else `store`.
   */
  listenUrl?: string | undefined
  /**
   * Where limits are shared with other programs (docs/redis.md): `redis://[user:password@]host[:port][/db]`, `rediss://…`,
   * `redis+sentinel://…` or `redis+cluster://…`, or a connection that
   * you opened. Default: `REDIS_URL`, else nowhere; an empty text: nowhere.
   */
  redis?: string | RedisClient | undefined
  /** Prefix of every key in Redis; default: `SLUICE_REDIS_PREFIX`, else `sluice:`. */
  redisPrefix?: string | undefined
  /**
   * Number of databases that share the limits in this Redis (docs/redis.md): a whole number from 1 to 1000, the same for all of
   * them. Default: `SLUICE_REDIS_STORES`, else 1; then another database is refused.
   */
  redisStores?: number | undefined
  /** Schema in the database. Default: `SLUICE_SCHEMA`, else `sluice`. */
  schema?: string | undefined
  /**
   * The RabbitMQ of a fleet (docs/fleets.md), and of `events`: `amqp://user:password@host:5672/vhost`, or `amqps://…`. Default:
   * `AMQP_URL`. Only what uses it connects to it.
   */
  amqp?: string | undefined
  /**
   * The broker of Celery producers whose messages become jobs (docs/celery.md): a RabbitMQ (`amqp://…`) or a Redis (`redis://…`).
   * Default: `CELERY_BROKER_URL`, else what `amqp` is. Only workers with `celery` connect to it.
   */
  celeryBroker?: string | undefined
  /**
   * Where results of Celery's tasks are, as in `result_backend` of Celery: `rpc://`, or `redis://…`. Default:
   * `CELERY_RESULT_BACKEND`, else the broker of Celery producers if that is a Redis, else `rpc://`. Dispatchers read the results of
   * remote tasks there, and workers with `celery` write theirs (docs/celery.md).
   */
  celeryResults?: string | undefined
  /**
   * The transport of events: `store` or `rabbitmq` (docs/events-rabbitmq.md), the same in all programs that exchange events. Default:
   * `SLUICE_EVENTS`, else `store`.
   */
  events?: 'store' | 'rabbitmq' | BusOptions | undefined
  /**
   * The name of this process's service, for events: 1 to 40 of a-z, 0-9, `_`, `-`, the same in all replicas and unique among
   * services. Default: `SLUICE_SERVICE`, else none, and the process can handle no events.
   */
  service?: string | undefined
  /** Connections to a server for transactions and queries; 1 to 1000, default 10. Sluice opens a few more for itself. */
  connections?: number | undefined
  /** Bring the schema up to date; default true. False (for roles that may not): an error if the schema is out of date. */
  migrate?: boolean | undefined
  /** Rules that are applied to jobs, in order; see `rule`. Give the same to every process: a worker applies those that the sender did not have. */
  rules?: readonly Rule[] | undefined
  /** The queue (and priority) of jobs by their task's name: `{ 'email.*': 'mail' }`; the first pattern that matches wins. */
  routes?: Routes | undefined
  /** Private addresses that every task may call; see `TaskOptions`. Default: `SLUICE_ALLOW_PRIVATE` (`a,b`), else none. */
  allowPrivate?: readonly string[] | undefined
  /** When alarms are raised, and where they go besides the log and `sluice.on('alarm')`: docs/logs.md. */
  alarms?: AlarmOptions | undefined
  /** The clock of this process, for tests; default: the machine's. */
  clock?: Clock | undefined
}

const known: Record<keyof SluiceOptions, true> = {
  store: true,
  listenUrl: true,
  redis: true,
  redisPrefix: true,
  redisStores: true,
  schema: true,
  amqp: true,
  celeryBroker: true,
  celeryResults: true,
  events: true,
  service: true,
  connections: true,
  migrate: true,
  rules: true,
  routes: true,
  allowPrivate: true,
  alarms: true,
  retention: true,
  prune: true,
  log: true,
  logLevel: true,
  logFormat: true,
  clock: true,
}

/**
 * Checks the names of options, because a misspelled `store` would open another one, and what else can be checked before it opens.
 * @throws UsageError SLUICE_BAD_OPTION, SLUICE_BAD_SCHEMA
 */
export function checkOptions(options: SluiceOptions): void {
  checkFields('SLUICE_BAD_OPTION', '`Sluice.open`', options, Object.keys(known))
  checkSchema(schemaOf(options))
  retentionSettings(options)
  const { store, connections = 10, migrate = true, allowPrivate = [], log } = options
  if (store !== undefined && typeof store !== 'string')
    throw bad('store', store, 'a postgres:// URL, a directory, or memory:')
  if (!Number.isInteger(connections) || connections < 1 || connections > 1000)
    throw bad('connections', connections, 'a whole number from 1 to 1000')
  if (typeof migrate !== 'boolean') throw bad('migrate', migrate, 'true or false')
  if (!Array.isArray(allowPrivate)) throw bad('allowPrivate', allowPrivate, "a list: ['10.0.0.0/8']")
  // Only for its errors: in a worker they would come too late.
  void new Guard(allowPrivate)
  if (log !== undefined && levels.some((level) => typeof log?.[level] !== 'function'))
    throw bad('log', log, `an object with the functions ${levels.join(', ')}`)
}

function bad(name: keyof SluiceOptions, given: unknown, what: string): UsageError {
  return new UsageError('SLUICE_BAD_OPTION', `${name} is ${inspect(given, { depth: 0 })}; it must be ${what}`)
}

/** Returns the schema in the database. */
export function schemaOf(options: SluiceOptions): string {
  return options.schema ?? env('SLUICE_SCHEMA') ?? 'sluice'
}
