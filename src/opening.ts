/** Opens what a Sluice stands on: the store, with its schema brought up to date, and Redis. */
import { systemClock } from './core/clock.ts'
import { codeOf, privilegeAdvice, textOfError, UsageError } from './core/errors.ts'
import { present } from './core/fields.ts'
import { defaultStore } from './db/default-store.ts'
import { migrate, mustBeMigrated } from './db/migrate.ts'
import { env, type Opened, openStore } from './db/open.ts'
import { schemaOf, type SluiceOptions } from './options.ts'
import { openRedis, type RedisConnection } from './redis/connect.ts'
import type { Report } from './report/report.ts'

/**
 * Connects, and resolves to what `make` makes of the connections; they are closed if that, or the migration after it, fails.
 * @throws UsageError SLUICE_NO_PRIVILEGE
 */
export async function opening<T>(
  options: SluiceOptions,
  report: Report,
  make: (opened: Opened, redis: RedisConnection | undefined) => T,
): Promise<T> {
  const listenUrl = options.listenUrl ?? env('SLUICE_LISTEN_URL')
  const schema = schemaOf(options)
  const opened = await openStore({
    store: options.store ?? env('DATABASE_URL') ?? defaultStore(),
    clock: options.clock ?? systemClock,
    schema,
    ...present({ listenUrl, connections: options.connections }),
    log: (message) => report.log.info(message),
  })
  let redis: RedisConnection | undefined
  try {
    // A store in memory ends with this process, so its limits cannot be shared.
    const fromEnv = options.store === 'memory:' ? undefined : env('REDIS_URL')
    redis = openRedis(options.redis ?? fromEnv)
    const made = make(opened, redis)
    if (options.migrate === false) await mustBeMigrated(opened.db, schema)
    else await migrate(opened.db, schema)
    return made
  } catch (error) {
    await redis?.close()
    await opened.db.close()
    if (codeOf(error) !== '42501') throw error
    const message = `the role lacks a right for schema ${schema}: ${textOfError(error)}; ${privilegeAdvice}`
    throw new UsageError('SLUICE_NO_PRIVILEGE', message, { cause: error })
  }
}
