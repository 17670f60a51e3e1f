/** Writes definitions of limits into the database, where dispatch reads them. */
import type { Queryable } from '../db/db.ts'
import { statements } from '../generated/sql.ts'
import type { Limit } from './limit.ts'

const registerSql = statements['limits/register'] as string

/**
 * Makes these definitions the ones in force; a definition that is in force already is left alone. Resolves to the names
 * of those that changed.
 */
export async function registerLimits(
  db: Queryable,
  limits: readonly Limit[],
  inSchema: (sql: string) => string,
): Promise<string[]> {
  const changed: string[] = []
  for (const limit of limits) {
    for (;;) {
      const [row] = await db.query<{ holds: boolean; made: boolean }>(inSchema(registerSql), definition(limit))
      if (row?.made) changed.push(limit.name)
      // Two processes with different definitions at the same moment: the later one looks again, and comes after.
      if (row?.holds) break
    }
  }
  return changed
}

function definition(limit: Limit): unknown[] {
  const { name, rules, grantUs, transitUs, classic, keyed, path } = limit
  return [
    name,
    JSON.stringify({ rules, grantUs, transitUs, classic, keyed, path: path ?? null }),
    rules.map((rule) => String(rule.drain)),
    rules.map((rule) => String(rule.weight)),
    rules.map((rule) => String(rule.room)),
    String(grantUs),
  ]
}
