/** The store of a program that names none. */
import { env, place } from './open.ts'

let isAnnounced = false

/** Returns the store of a program that names none, and prints once where it is: what is embedded lies in a directory. */
export function defaultStore(): string {
  const where = place('.sluice/data', process.cwd())
  if (!isAnnounced && !warnInProduction(where))
    process.stderr.write(`sluice: DATABASE_URL is not set, so jobs are kept in ${where} (PostgreSQL, embedded)\n`)
  isAnnounced = true
  return where
}

/** Prints, if this is production, that nothing names a store, and what to set. Returns whether it is production. */
export function warnInProduction(where: string): boolean {
  if (env('NODE_ENV') !== 'production') return false
  process.stderr.write(
    `sluice: warning: DATABASE_URL is not set in production (NODE_ENV), so jobs are kept in ${where} (PostgreSQL, embedded), on this machine alone: set DATABASE_URL to a PostgreSQL server, or to this directory if you mean it\n`,
  )
  return true
}
