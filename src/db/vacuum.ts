/** Cleaning up for the embedded engine, which has no autovacuum: what changes with every job would only grow. */
import type { Clock } from '../core/clock.ts'
import type { Db } from './db.ts'

/** The tables that change with every job. */
const hotTables = [
  'job',
  'lane',
  'seat',
  'fair',
  'turn',
  'list',
  'arrival',
  'absorbed',
  'claim',
  'idle',
  'doubt',
  'worker',
  'idempotency',
  'ledger',
  'schedule',
  'firing',
]
const vacuumMs = 60_000

/** Vacuums every minute, until `signal`. `failed` is told of what went wrong; the next minute tries again. */
export async function vacuumUntil(
  signal: AbortSignal,
  db: Db,
  clock: Clock,
  schema: string,
  failed: (table: string, error: unknown) => void,
): Promise<void> {
  for (;;) {
    await clock.sleep(vacuumMs, signal, false)
    if (signal.aborted) return
    for (const table of hotTables) {
      await db.script(`vacuum ${schema}.${table}`).catch((error: unknown) => failed(table, error))
    }
  }
}
