/** Names that people give: what is not known is an error, with the nearest name that is. */
import type { Command } from 'commander'
import { UsageError } from '../core/errors.ts'
import { nearest } from '../core/nearest.ts'
import type { Sql } from '../db/store.ts'
import type { JobFilter, Sluice } from '../index.ts'
import type { Output } from './output.ts'
import { inStore, type Settings } from './settings.ts'

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

/** As `inStore`, if a limit is known (undefined: in any case). @throws UsageError SLUICE_NO_SUCH_LIMIT */
export function withLimit<T>(
  command: Command,
  name: string | undefined,
  body: (sluice: Sluice, sql: Sql, settings: Settings) => Promise<T>,
): Promise<[out: Output, found: T]> {
  return inStore(command, async (sluice, sql, settings) => {
    if (name !== undefined) await mustKnow(sql, 'limit', name)
    return body(sluice, sql, settings)
  })
}

/** Checks the names in a filter of jobs. @throws as `mustKnow` */
export async function mustKnowAll(sql: Sql, { task, queue, limit }: JobFilter): Promise<void> {
  if (task !== undefined) await mustKnow(sql, 'task', task)
  if (queue !== undefined) await mustKnow(sql, 'queue', queue)
  if (limit !== undefined) await mustKnow(sql, 'limit', limit)
}
