/** Writes definitions of limits into the database, where dispatch reads them (define.sql). */
import type { Queryable } from '../db/db.ts'
import type { Limit } from '../limits/limit.ts'

/** Makes a definition the one in force; one that is in force already is left alone. Resolves to whether it was not. */
export async function defineLimit(db: Queryable, limit: Limit, schema = 'sluice'): Promise<boolean> {
  const { name, rules, grantUs, transitUs, classic, keyed, path } = limit
  const column = (field: 'drain' | 'weight' | 'room' | 'slotUs' | 'spanUs') => rules.map((rule) => String(rule[field]))
  const [row] = await db.query<{ made: boolean }>(`select ${schema}.define_v1($1,$2,$3,$4,$5,$6,$7,$8) as made`, [
    name,
    JSON.stringify({ rules, grantUs, transitUs, classic, keyed, path: path ?? null }),
    column('drain'),
    column('weight'),
    column('room'),
    column('slotUs'),
    column('spanUs'),
    String(grantUs),
  ])
  return row?.made === true
}
