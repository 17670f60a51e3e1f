/** Vacuums the embedded engine, which has no autovacuum: otherwise tables that change with every job would only grow. */
import type { Store } from './store.ts'

/** The tables that change with every job. */
const hotTables = [
  'job',
  'lane',
  'list',
  'arrival',
  'class_state',
  'reservation',
  'claim',
  'idle',
  'doubt',
  'worker',
  'idempotency',
  'ledger',
  'schedule',
  'firing',
  'taker',
  'holder',
  'lease',
  'learned',
  'failure',
  'summed',
  'usage',
  'budget',
]
const vacuumMs = 60_000

/** The transaction age at which PostgreSQL would start to freeze; without that it refuses work at 2,100 million. */
const ageMost = 150e6
const oldestSql = `select c.oid::regclass::text as name from pg_class c left join pg_class t on t.oid = c.reltoastrelid
  where c.relkind in ('r', 'm') and greatest(age(c.relfrozenxid), age(t.relfrozenxid)) > $1
  order by greatest(age(c.relfrozenxid), age(t.relfrozenxid)) desc limit 1`

/**
 * Vacuums the hot tables, and the oldest other one that needs it, every minute until `signal`. A failure is retried a
 * minute later.
 * @param isOwner whether the engine runs in this process
 */
export async function vacuumUntil(
  signal: AbortSignal,
  { db, schema, clock, log }: Store,
  isOwner: () => boolean,
): Promise<void> {
  const failed = (table: string, error: unknown) => log.debug('vacuum failed', { table, err: error })
  for (;;) {
    await clock.sleep(vacuumMs, signal, false)
    if (signal.aborted) return
    if (!isOwner()) continue
    for (const table of hotTables) {
      await db.script(`vacuum ${schema}.${table}`).catch((error: unknown) => failed(table, error))
    }
    const [oldest] = await db.query<{ name: string }>(oldestSql, [ageMost]).catch(() => [])
    const name = oldest?.name
    if (name !== undefined) await db.script(`vacuum (freeze) ${name}`).catch((error: unknown) => failed(name, error))
  }
}
