/**
 * The one way in which TypeScript names SQL: a function by its name, a .sql file by its path, and other text with `sluice.` for
 * the tables and `engine.` for this release's functions.
 */
import { type Clock, systemClock } from '../core/clock.ts'
import { UsageError } from '../core/errors.ts'
import { type Log, silent } from '../core/log.ts'
import { version } from '../core/version.ts'
import { type FunctionName, statements } from '../generated/sql.ts'
import type { Db, Queryable, Row } from './db.ts'

/** The path of a .sql file with a statement: `<room>/<file>`. */
export type StatementName = keyof typeof statements

/** Runs the SQL of this release in the schema of one store. */
export interface Sql {
  /**
   * `select * from` a function. The column of one that returns a single value has the name of the function.
   * @param types of the arguments, a space between, where a transaction of a user's library may run it: their parameters are text
   * @param lockMs the longest wait for a lock, from now until the transaction ends; only with a function that returns single values
   */
  call<R = Row>(name: FunctionName, args?: readonly unknown[], types?: string, lockMs?: number): Promise<R[]>
  /** Runs a .sql file, which explains its parameters. */
  run<R = Row>(file: StatementName, args?: readonly unknown[]): Promise<R[]>
  /** Runs other SQL, in which `sluice.` stands for the tables and `engine.` for the functions. */
  query<R = Row>(text: string, args?: readonly unknown[]): Promise<R[]>
}

/**
 * A store as the engine uses it, with the clock and the log of this process. What runs by name is prepared under that name,
 * and nothing but a send waits for a connection that a user's transaction holds.
 */
export interface Store extends Sql {
  readonly db: Db
  /** The schema with the tables. */
  readonly schema: string
  readonly clock: Clock
  readonly log: Log
  /** The same SQL in a transaction; of `db` itself on the connections that users share. Nothing is prepared there. */
  on(queryable: Queryable): Sql
}

/** What a store is made with; see `Store`. */
export interface StoreContext {
  /** Default `sluice`. */
  schema?: string
  clock?: Clock
  /** Default: nothing is written. */
  log?: Log
}

/** A store on a database. @throws UsageError SLUICE_BAD_SCHEMA */
export function storeOn(db: Db, { schema = 'sluice', clock = systemClock, log = silent }: StoreContext = {}): Store {
  const own = sqlBy(schema, (name, text, args) => db.call(name, text, args))
  return { ...own, db, schema, clock, log, on: (queryable) => sqlOn(queryable, schema) }
}

/** The SQL of this release on anything that runs statements. @throws UsageError SLUICE_BAD_SCHEMA */
export function sqlOn(queryable: Queryable, schema = 'sluice'): Sql {
  return sqlBy(schema, (_, text, args) => queryable.query(text, args))
}

type Ask = <R>(name: string, text: string, args: readonly unknown[]) => Promise<R[]>

function sqlBy(schema: string, ask: Ask): Sql {
  checkSchema(schema)
  const engine = engineSchema(schema)
  return {
    call: (name, args = [], types, lockMs) => {
      const places = types === undefined ? args.map((_, i) => `$${i + 1}`).join(',') : fromText(types)
      const called = `${engine}.${name}(${places})`
      // The row for which the function is called comes from the setting, which is thus in force before.
      const text = `select ${called} from set_config('lock_timeout', '${lockMs}', true)`
      return ask(name, lockMs === undefined ? `select * from ${called}` : text, args)
    },
    run: (file, args = []) => ask(file, statementIn(schema, file), args),
    query: (text, args = []) => ask('', inSchema(text, schema), args),
  }
}

/** Parameters of these types for a statement in a transaction of a user's library: `$1::text::bigint[],$2::text::uuid`. */
function fromText(types: string): string {
  return types
    .split(' ')
    .map((type, i) => `$${i + 1}::text::${type}`)
    .join(',')
}

/** The schema with the functions of a release, default this one; the tables are in `schema`. */
export function engineSchema(schema: string, release = version): string {
  return `${schema}_${release.replaceAll(/\W/g, '_')}`
}

/** @throws UsageError SLUICE_BAD_SCHEMA unless the name is 1 to 40 of a-z, 0-9 and _, not beginning with a digit. */
export function checkSchema(schema: string): void {
  if (/^[a-z_][a-z0-9_]{0,39}$/.test(schema)) return
  throw new UsageError(
    'SLUICE_BAD_SCHEMA',
    `"${schema}" cannot be a schema name: use a-z, 0-9 and _, up to 40 characters`,
  )
}

/** SQL as it runs in the schema of a store: `sluice.` stands for the tables, `engine.` for the functions of this release. */
export function inSchema(text: string, schema: string): string {
  const engine = engineSchema(schema)
  return text.replaceAll(/\b(sluice|engine)\.(?=[a-z_%])/g, (_, name) =>
    name === 'sluice' ? `${schema}.` : `${engine}.`,
  )
}

/** The text of a .sql file, for a connection that this process does not run itself. */
export function statementIn(schema: string, file: StatementName): string {
  return inSchema(statements[file], schema)
}
