import type { Routes, Rule } from './tasks/rule.ts'
import type { AnyTask } from './tasks/task.ts'
import type { Schedule } from './schedule/schedule.ts'
import type { CareOptions } from './fleet/retention.ts'

/** What `sluice.config.ts` (or .js, .mjs) may hold. A flag wins over the environment, which wins over this file. */
export interface SluiceConfig extends CareOptions {
  /** `postgres://…`, a directory of the embedded engine (relative to this file), or `memory:`. Default: `DATABASE_URL`, else `.sluice/data` beside this file. */
  store?: string
  /** Where limits are shared with other programs: `redis://…`. Default: `REDIS_URL`, else nowhere. */
  redis?: string
  /** Begins every key in Redis; default `SLUICE_REDIS_PREFIX`, else `sluice:`. */
  redisPrefix?: string
  /** Schema in the database; default `SLUICE_SCHEMA`, else `sluice`. */
  schema?: string
  /** Where LISTEN and signs of life go when `store` is a pooler in transaction mode: past it. Default: `SLUICE_LISTEN_URL`, else `store`. */
  listenUrl?: string
  /** What every task may call beside public addresses (docs/safety.md). Default: `SLUICE_ALLOW_PRIVATE` (`a,b`), else none. */
  allowPrivate?: readonly string[]
  /** Attempts at once of one worker; 1 to 10,000, default `SLUICE_CONCURRENCY`, else 10. */
  concurrency?: number
  /** Queues that a worker serves; default `SLUICE_QUEUES` (`a,b`), else all. */
  queues?: readonly string[]
  /** Tasks that the command line knows: themselves, or a file (relative to this one) whose exports are taken. Default: those of the file `SLUICE_TASKS`. */
  tasks?: readonly AnyTask[] | string
  /** Rules about jobs, in order. */
  rules?: readonly Rule[]
  /** Which queue (and priority) jobs go to by their task's name: `{ 'email.*': 'mail' }`. */
  routes?: Routes
  /** Schedules that workers fire, beside those that a file of tasks exports. */
  schedules?: readonly Schedule[]
}

/** Returns its argument; an editor then completes and checks the fields of `sluice.config.ts`. */
export function defineConfig(config: SluiceConfig): SluiceConfig {
  return config
}
