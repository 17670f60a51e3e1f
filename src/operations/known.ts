/** Names that people give: what is not known is an error, with the nearest name that is. */
import { UsageError } from '../core/errors.ts'
import { nearest } from '../core/nearest.ts'
import type { Sql } from '../db/store.ts'

const codes = {
  task: 'SLUICE_NO_SUCH_TASK',
  queue: 'SLUICE_NO_SUCH_QUEUE',
  limit: 'SLUICE_NO_SUCH_LIMIT',
  schedule: 'SLUICE_NO_SUCH_SCHEDULE',
} as const

const listedBy = {
  task: '`sluice tasks`',
  queue: '`sluice status`',
  limit: '`sluice limits`',
}

/** Makes the error for an unknown name: with the nearest one, else with some that are known. */
export function unknown(what: keyof typeof codes, name: string, known: readonly string[], where: string): UsageError {
  // Elsewhere --limit counts.
  if (what === 'limit' && /^\d+$/.test(name) && !known.includes(name))
    return new UsageError(codes.limit, `no limit "${name}" is known; --limit names a limit, and --max <n> counts`)
  const like = nearest(name, known)
  const some = known.slice(0, 10).join(', ') + (known.length > 10 ? ', …' : '')
  const hint =
    like === undefined ? (known.length === 0 ? 'none is known;' : `known are ${some};`) : `did you mean ${like}?`
  return new UsageError(codes[what], `no ${what} "${name}" is known; ${hint} ${where} lists them`)
}

/**
 * Checks that a name is known: that workers or senders have its code, or that jobs of it are there.
 * @throws UsageError SLUICE_NO_SUCH_TASK, SLUICE_NO_SUCH_QUEUE, SLUICE_NO_SUCH_LIMIT
 */
export async function mustKnow(sql: Sql, what: keyof typeof listedBy, name: string): Promise<void> {
  const known = (await sql.run<{ name: string }>('operations/read_known_names', [what])).map((row) => row.name)
  if (!known.includes(name)) throw unknown(what, name, known, listedBy[what])
}
