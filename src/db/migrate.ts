/**
 * Migrates a database to this version's schema: numbered, append-only migrations of the tables, then the SQL functions.
 * Safe when several processes start together (one advisory lock) and while others run: the functions of each release have
 * a schema of their own, so an old and a new process each call their own, and a rollback finds the old ones in place.
 */
import { StoreError, UsageError, codeOf } from '../core/errors.ts'
import { functionsHash, migrationNames } from '../generated/sql.ts'
import { version } from '../core/version.ts'
import { wasNotRun } from './connection-error.ts'
import type { Db, Queryable, Tx } from './db.ts'
import { checkSchema, engineSchema, inSchema } from './store.ts'

/** One step of a plan: a migration, or the functions of this version. */
export interface Step {
  name: string
  sql: string
}

/** Days after which the functions of a replaced release are dropped, unless one of its workers lives. */
const keepDays = 90

const functionsName = `functions-${version}-${functionsHash}`

/** The step that a copy of a template still needs: the partitions of the day, and the epoch. */
const startName = 'first-partitions-and-epoch'

/** Returns what `migrate` would run now, in order; empty when the database is up to date. */
export async function pending(db: Queryable, schema: string): Promise<Step[]> {
  const names = await missing(db, schema)
  if (names.length === 0) return []
  // Half a megabyte, which a process on a database that is up to date never loads.
  const { functions, migrations } = await import('../generated/schema.ts')
  const texts: Record<string, string> = {
    ...migrations,
    [functionsName]: Object.values(functions).join('\n'),
    [startName]: 'select engine.create_partitions(), engine.check_epoch(null, null, null);\n',
  }
  return names.map((name) => {
    const text = texts[name]
    if (text === undefined) throw new Error(`this build lacks the text of the migration ${name}; build it again`)
    const sql = inSchema(text, schema)
    return { name, sql: name === functionsName ? `${emptyEngine(schema)}\n${sql}` : sql }
  })
}

/** Returns the names of the steps that the database lacks. */
async function missing(db: Queryable, schema: string): Promise<string[]> {
  checkSchema(schema)
  const [found] = await db.query<{ is: boolean }>('select to_regclass($1) is not null as is', [`${schema}.migration`])
  const done = new Set(
    found?.is ? (await db.query<{ name: string }>(`select name from ${schema}.migration`)).map((row) => row.name) : [],
  )
  return [...migrationNames, functionsName, startName].filter((name) => !done.has(name))
}

/**
 * Returns the statement that lets a role, which owns nothing, send and work: it reads and writes all tables. Everybody may call the
 * functions (`emptyEngine`). To be run again when a migration has made tables.
 */
export function grantsOf(schema: string, role: string): string {
  const to = `"${role.replaceAll('"', '""')}"`
  return [
    `grant usage on schema ${schema} to ${to}`,
    `grant select, insert, update, delete on all tables in schema ${schema} to ${to}`,
    `grant usage, update on all sequences in schema ${schema} to ${to}`,
  ].join(';\n')
}

/** States what a database lacks, and what to do. @param names the steps that it lacks, in order; at least one */
export function lackInWords(schema: string, names: readonly string[]): string {
  if (names[0] === migrationNames[0])
    return `this database has no schema ${schema} of Sluice; run \`sluice migrate\`, or name another database in DATABASE_URL`
  return `schema ${schema} lacks ${names.join(', ')}; run \`sluice migrate\``
}

/** @throws UsageError SLUICE_NOT_MIGRATED unless the database is up to date */
export async function mustBeMigrated(db: Queryable, schema: string): Promise<void> {
  const names = await missing(db, schema)
  if (names.length === 0) return
  throw new UsageError('SLUICE_NOT_MIGRATED', lackInWords(schema, names))
}

/** How often a migration is tried while the statements of live workers deadlock with it, or owners of the directory close. */
const triesMax = 10

/**
 * Applies what is pending, in one transaction: all or nothing. Returns the names of the applied steps. Live processes lock
 * the same tables in an order of their own, so a deadlock (40P01) may end the transaction: then it is repeated.
 */
export async function migrate(db: Db, schema = 'sluice'): Promise<string[]> {
  for (let tries = 1; ; tries++) {
    if ((await missing(db, schema)).length === 0) return []
    try {
      return await db.transaction((tx) => apply(tx, schema))
    } catch (error) {
      const isUndone = codeOf(error) === '40P01' || (error instanceof StoreError && wasNotRun(error.cause))
      if (!isUndone || tries === triesMax) throw error
    }
  }
}

/** Installs the functions of this release again, if they alone are missing: another release has dropped them (`dropOld`). */
export async function restoreFunctions(db: Db, schema: string): Promise<void> {
  const names = await missing(db, schema)
  if (names.length === 1 && names[0] === functionsName) await migrate(db, schema)
}

/** Applies what a template can hold, in the schema `sluice`: all but the last step, which depends on the time and the server. */
export async function migrateTemplate(tx: Tx): Promise<void> {
  await apply(tx, 'sluice', (name) => name !== startName)
}

async function apply(tx: Tx, schema: string, isMeant = (_name: string) => true): Promise<string[]> {
  // Held until the end of the transaction: if several processes start together, one migrates, and the others then find
  // it done.
  await tx.query(`select pg_advisory_xact_lock(hashtext('sluice.migrate'), hashtext($1))`, [schema])
  await tx.query(`create schema if not exists ${schema}`)
  await tx.query(
    `create table if not exists ${schema}.migration (name text primary key, applied_at timestamptz not null default clock_timestamp())`,
  )
  await tx.query('set local check_function_bodies = off')
  const steps = (await pending(tx, schema)).filter(({ name }) => isMeant(name))
  for (const step of steps) {
    await tx.query(`insert into ${schema}.migration (name) values ($1)`, [step.name])
    await tx.script(step.sql)
  }
  await dropOld(tx, schema)
  return steps.map((step) => step.name)
}

/**
 * Returns the statements that create an empty schema for the functions. Any role may call these. They run with the rights
 * of their caller, so the privileges on the tables decide.
 */
function emptyEngine(schema: string): string {
  const engine = engineSchema(schema)
  return `drop schema if exists ${engine} cascade; create schema ${engine}; grant usage on schema ${engine} to public;`
}

/**
 * Drops the functions of old releases and their record, so that a process of such a release installs them again when it
 * starts, or still calls them: nobody knows of processes that only send.
 */
async function dropOld(tx: Queryable, schema: string): Promise<void> {
  const old = await tx.query<{ version: string; names: string[] }>(
    `select r.version, r.names
     from (select version, array_agg(name) as names, lead(max(applied_at)) over (order by max(applied_at)) as replaced_at
           from (select name, applied_at, substring(name from '^functions-(.*)-[^-]*$') as version from ${schema}.migration) m
           where version is not null group by version) r
     where r.replaced_at < clock_timestamp() - make_interval(days => $1) and r.version <> $2
       and not exists (select 1 from ${schema}.worker w where w.version = r.version)`,
    [keepDays, version],
  )
  for (const { version: gone, names } of old) {
    await tx.query(`drop schema if exists ${engineSchema(schema, gone)} cascade`)
    await tx.query(`delete from ${schema}.migration where name = any ($1)`, [names])
  }
}
