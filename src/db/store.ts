/**
 * The only way in which TypeScript names SQL: a function by its name, a .sql file by its path, and other text with
 * `sluice.` for the tables and `engine.` for this release's functions.
 */
import { type Clock, systemClock } from '../core/clock.ts'
import { codeOf, UsageError } from '../core/errors.ts'
import { type Log, silent } from '../core/log.ts'
import { Report } from '../report/report.ts'
import { version } from '../core/version.ts'
import { type FunctionName, statements } from '../generated/sql.ts'
import type { Db, Queryable, Row } from './db.ts'

/** The path of a .sql file with a statement: `<folder>/<file>`. */
export type StatementName = keyof typeof statements

/** Runs the SQL of this release in the schema of one store. */
export interface Sql {
  /**
   * Runs `select * from` a function. If it returns a single value, the column has the function's name.
   * @param types of the arguments, separated by spaces, for transactions of a user's library: their parameters are text
   * @param lockMs the longest wait for a lock while the function runs; only for functions with single values
   */
  call<R = Row>(name: FunctionName, args?: readonly unknown[], types?: string, lockMs?: number): Promise<R[]>
  /** Runs a .sql file, which documents its parameters. */
  run<R = Row>(file: StatementName, args?: readonly unknown[]): Promise<R[]>
  /** Runs other SQL, in which `sluice.` stands for the tables and `engine.` for the functions. */
  query<R = Row>(text: string, args?: readonly unknown[]): Promise<R[]>
}

/**
 * A store as the engine uses it, with the clock and the log of this process. Named statements are prepared under their
 * name. Only sends wait for connections that users' transactions may hold.
 */
export interface Store extends Sql {
  readonly db: Db
  /** The schema with the tables. */
  readonly schema: string
  readonly clock: Clock
  /** Where the engine's events go. */
  readonly report: Report
  /** The engine's log, `report.log`. */
  readonly log: Log
  /**
   * Returns the same SQL in a transaction; with `db` itself, on the connections that users share. Nothing is prepared
   * there.
   */
  on(queryable: Queryable): Sql
}

/** Options of a store; see `Store`. */
export interface StoreContext {
  /** Default `sluice`. */
  schema?: string
  clock?: Clock
  /** Default: nothing is written. */
  log?: Log
  /** Default: reports to `log`. */
  report?: Report
  /** Installs the functions of this release again, if another release has dropped them; default: nobody does. */
  restore?: () => Promise<unknown>
}

/** Returns a store on a database. @throws UsageError SLUICE_BAD_SCHEMA */
export function storeOn(db: Db, context: StoreContext = {}): Store {
  const { schema = 'sluice', clock = systemClock, log = silent, report = new Report(clock, log), restore } = context
  const own = sqlBy(
    schema,
    restoring((name, text, args) => db.call(name, text, args), restore),
  )
  const shared = sqlBy(
    schema,
    restoring((_, text, args) => db.query(text, args), restore),
  )
  const on = (queryable: Queryable) => (queryable === db ? shared : sqlOn(queryable, schema))
  return { ...own, db, schema, clock, report, log: report.log, on }
}

/** Returns the same, but a statement that finds no schema of this release's functions has it restored, and is repeated. */
function restoring(execute: Execute, restore: StoreContext['restore']): Execute {
  if (restore === undefined) return execute
  return async <R>(...statement: Parameters<Execute>) => {
    try {
      return await execute<R>(...statement)
    } catch (error) {
      if (codeOf(error) !== '3F000') throw error
      await restore()
      return await execute<R>(...statement)
    }
  }
}

/** Returns a function that makes one thing for each store: always the same for the same store. */
export function perStore<T>(make: (store: Store) => T): (store: Store) => T {
  const made = new WeakMap<Store, T>()
  return (store) => {
    const one = made.get(store) ?? make(store)
    made.set(store, one)
    return one
  }
}

/** Returns the SQL of this release on anything that runs statements. @throws UsageError SLUICE_BAD_SCHEMA */
export function sqlOn(queryable: Queryable, schema = 'sluice'): Sql {
  return sqlBy(schema, (_, text, args) => queryable.query(text, args))
}

type Execute = <R>(name: string, text: string, args: readonly unknown[]) => Promise<R[]>

function sqlBy(schema: string, execute: Execute): Sql {
  checkSchema(schema)
  const engine = engineSchema(schema)
  return {
    call: (name, args = [], types, lockMs) => {
      const places = types === undefined ? args.map((_, i) => `$${i + 1}`).join(',') : fromText(types)
      const called = `${engine}.${name}(${places})`
      // The setting comes first: the function is called for the row that `set_config` returns. Then there is none, because
      // the commit of a notification waits for all others that commit one, on a busy server for longer.
      const text = `select ${called}, set_config('lock_timeout', '0', true) from set_config('lock_timeout', '${lockMs}', true)`
      return execute(name, lockMs === undefined ? `select * from ${called}` : text, args)
    },
    run: (file, args = []) => execute(file, statementIn(schema, file), args),
    query: (text, args = []) => execute('', inSchema(text, schema), args),
  }
}

/** Returns parameters of these types for a statement in a user's library: `$1::text::bigint[],$2::text::uuid`. */
function fromText(types: string): string {
  return types
    .split(' ')
    .map((type, i) => `$${i + 1}::text::${type}`)
    .join(',')
}

/** Returns the schema with the functions of a release, default this one; the tables are in `schema`. */
export function engineSchema(schema: string, release = version): string {
  return `${schema}_${release.replaceAll(/\W/g, '_')}`
}

/** @throws UsageError SLUICE_BAD_SCHEMA unless the name is 1 to 40 of a-z, 0-9 and _, not beginning with a digit. */
export function checkSchema(schema: string): void {
  // PostgreSQL keeps names that begin with pg_ for itself.
  if (typeof schema === 'string' && /^(?!pg_)[a-z_][a-z0-9_]{0,39}$/.test(schema)) return
  throw new UsageError(
    'SLUICE_BAD_SCHEMA',
    `"${schema}" cannot be a schema name: use a-z, 0-9 and _, up to 40 characters, not beginning with a digit or pg_`,
  )
}

/** Returns SQL for the schema of a store: replaces `sluice.` (tables) and `engine.` (functions of this release). */
export function inSchema(text: string, schema: string): string {
  const engine = engineSchema(schema)
  return text.replaceAll(/\b(sluice|engine)\.(?=[a-z_%])/g, (_, name) =>
    name === 'sluice' ? `${schema}.` : `${engine}.`,
  )
}

/** Returns the text of a .sql file, for a connection that this process does not use itself. */
export function statementIn(schema: string, file: StatementName): string {
  return inSchema(statements[file], schema)
}
