/**
 * Brings a database to this version's schema: numbered, append-only migrations, then the SQL functions. Safe when
 * several processes start together (one advisory lock) and while workers run: functions carry a version in their
 * name, so old and new workers each call their own.
 */
import { createHash } from 'node:crypto'
import { UsageError } from '../core/errors.ts'
import { functions, migrations } from '../generated/sql.ts'
import type { Db, Queryable } from './db.ts'

/** One step of a plan: a migration, or the functions of this version. */
export interface Step {
  name: string
  sql: string
}

const functionText = Object.values(functions).join('\n')
const functionHash = createHash('sha256').update(functionText).digest('hex').slice(0, 16)

/**
 * SQL as it runs in a schema of another name.
 * @throws UsageError SLUICE_BAD_SCHEMA unless the name is 1 to 63 of a-z, 0-9 and _, not beginning with a digit.
 */
export function inSchema(sql: string, schema: string): string {
  if (!/^[a-z_][a-z0-9_]{0,62}$/.test(schema)) {
    throw new UsageError(
      'SLUICE_BAD_SCHEMA',
      `"${schema}" cannot be a schema name: use a-z, 0-9 and _, up to 63 characters`,
    )
  }
  return schema === 'sluice' ? sql : sql.replaceAll(/\bsluice\./g, `${schema}.`)
}

/** What `migrate` would run now, in order; empty when the database is up to date. */
export async function pending(db: Queryable, schema: string): Promise<Step[]> {
  inSchema('', schema)
  const [found] = await db.query<{ is: boolean }>('select to_regclass($1) is not null as is', [`${schema}.migration`])
  const done = new Set(
    found?.is ? (await db.query<{ name: string }>(`select name from ${schema}.migration`)).map((row) => row.name) : [],
  )
  const steps: Step[] = Object.entries(migrations)
    .filter(([name]) => !done.has(name))
    .map(([name, sql]) => ({ name, sql: inSchema(sql, schema) }))
  const name = `functions-${functionHash}`
  if (!done.has(name)) steps.push({ name, sql: inSchema(functionText, schema) })
  return steps
}

/** Applies what is pending, in one transaction: all or nothing. Returns the names applied. */
export async function migrate(db: Db, schema = 'sluice'): Promise<string[]> {
  if ((await pending(db, schema)).length === 0) return []
  return db.transaction(async (tx) => {
    // Held to the end of the transaction: of several processes that start together one migrates, the rest then find it done.
    await tx.query(`select pg_advisory_xact_lock(hashtext('sluice.migrate'), hashtext($1))`, [schema])
    await tx.query(`create schema if not exists ${schema}`)
    await tx.query(
      `create table if not exists ${schema}.migration (name text primary key, applied_at timestamptz not null default clock_timestamp())`,
    )
    await tx.query('set local check_function_bodies = off')
    const steps = await pending(tx, schema)
    for (const step of steps) {
      await tx.query(`insert into ${schema}.migration (name) values ($1)`, [step.name])
      await tx.script(step.sql)
    }
    await tx.query(`select ${schema}.partition_v1()`)
    // From now on a copy is known to be one.
    await tx.query(`select ${schema}.look_v1(null, null, null)`)
    return steps.map((step) => step.name)
  })
}
