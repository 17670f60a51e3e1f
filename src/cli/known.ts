/** Checks the names that options give. */
import type { Command } from 'commander'
import type { Sql } from '../db/store.ts'
import type { JobFilter, Sluice } from '../index.ts'
import { mustKnow } from '../operations/known.ts'
import type { Output } from './output.ts'
import { inStore, type Settings } from './settings.ts'

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
