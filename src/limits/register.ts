/** Writes definitions of limits into the database, where dispatch reads them. */
import type { Queryable } from '../db/db.ts'
import { statements } from '../generated/sql.ts'
import type { Limit } from './limit.ts'

const registerSql = statements['limits/register'] as string

/** Makes these definitions the ones in force; a definition that is in force already is left alone. */
export async function registerLimits(
  db: Queryable,
  limits: readonly Limit[],
  inSchema: (sql: string) => string,
): Promise<void> {
  for (const limit of limits) {
    await db.query(inSchema(registerSql), [
      limit.name,
      JSON.stringify({
        rules: limit.rules,
        grantUs: limit.grantUs,
        transitUs: limit.transitUs,
        classic: limit.classic,
        path: limit.path ?? null,
      }),
      limit.rules.map((rule) => String(rule.drain)),
      limit.rules.map((rule) => String(rule.weight)),
      limit.rules.map((rule) => String(rule.room)),
      String(limit.grantUs),
    ])
  }
}
