/** The store of a program that names none. */
import { place } from './open.ts'

let isAnnounced = false

/** Returns the store of a program that names none, and prints once where it is: what is embedded lies in a directory. */
export function implicitStore(): string {
  const where = place('.sluice/data', process.cwd())
  if (!isAnnounced)
    process.stderr.write(`sluice: DATABASE_URL is not set, so jobs are kept in ${where} (PostgreSQL, embedded)\n`)
  isAnnounced = true
  return where
}
