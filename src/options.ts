/** How a Sluice is opened. */
import type { Clock } from './core/clock.ts'
import type { Routes, Rule } from './tasks/rule.ts'
import type { Log } from './core/log.ts'
import type { RedisClient } from './redis/client.ts'
import type { CareOptions } from './fleet/retention.ts'

/** How to open a Sluice; see the fields. */
export interface SluiceOptions extends CareOptions {
  /**
   * `postgres://…`, a directory of the embedded engine (relative to the current one), or `memory:`. Default:
   * `DATABASE_URL`, else `.sluice/data`. Only the command line reads `sluice.config.ts`: a program beside it must be given
   * the same store.
   */
  store?: string
  /** Where LISTEN and signs of life go when `store` is a pooler in transaction mode: past it. Default: `SLUICE_LISTEN_URL`, else `store`. */
  listenUrl?: string
  /**
   * Where limits are shared with other programs (docs/redis.md): `redis://[user:password@]host[:port][/db]`, or a connection that
   * you opened. Default: `REDIS_URL`, else nowhere; an empty text: nowhere.
   */
  redis?: string | RedisClient
  /** Begins every key in Redis; default: `SLUICE_REDIS_PREFIX`, else `sluice:`. */
  redisPrefix?: string
  /** Schema in the database. Default: `SLUICE_SCHEMA`, else `sluice`. */
  schema?: string
  /** Connections to a server for transactions and queries; 1 to 1000, default 10. The engine's own come on top. */
  connections?: number
  /** Bring the schema up to date; default true. False, for roles that may not: an error when it is not. */
  migrate?: boolean
  /** Rules about jobs, in order; see `rule`. Give the same to every process: what a sender lacks a worker applies. */
  rules?: readonly Rule[]
  /** Which queue (and priority) jobs go to by their task's name: `{ 'email.*': 'mail' }`; the first pattern that fits. */
  routes?: Routes
  /** What every task may call beside public addresses; see `TaskOptions`. Default: `SLUICE_ALLOW_PRIVATE` (`a,b`), else none. */
  allowPrivate?: readonly string[]
  /** Where log lines go; default: nowhere. */
  log?: Log
  clock?: Clock
}
