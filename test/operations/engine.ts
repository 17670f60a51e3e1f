/** What operators do to a few waiting jobs. Only this file names the SQL functions of operations. */
import type { Queryable } from '../../src/db/db.ts'
import { sqlOn } from '../../src/db/store.ts'
import type { FunctionName } from '../../src/generated/sql.ts'

/** The statements of operations, as `Sql.call` names them: what a test counts, delays or loses. */
export const operationCalls = { cancel: 'cancel_job' } satisfies Record<string, FunctionName>

const waits = ['waiting', 'scheduled']

/** Cancels these jobs, those that are locked left out. */
export async function cancelWaiting(db: Queryable, ids: readonly string[]): Promise<void> {
  await sqlOn(db).call('cancel_waiting_jobs', [ids, waits, 'test'])
}

/** Moves these jobs from one key of a limit to another, those that are locked left out. */
export async function rekey(db: Queryable, ids: readonly string[], name: string, from: string, to: string) {
  await sqlOn(db).call('move_jobs', [ids, waits, null, name, from, to])
}

/** Changes the priority of these jobs, those that are locked left out. */
export async function reprioritise(db: Queryable, ids: readonly string[], priority: number): Promise<void> {
  await sqlOn(db).call('move_jobs', [ids, waits, priority])
}

/** The SQL that reads a page of the jobs in one table that match a filter, newest first. */
export async function pageQuery(db: Queryable, table: string, filter: string): Promise<string> {
  const params = [table, filter, true, false, false, 'line']
  return (await sqlOn(db).call<{ write_page_query: string }>('write_page_query', params))[0]?.write_page_query ?? ''
}
