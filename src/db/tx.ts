/**
 * Runs statements in a transaction that the caller began, with any of several libraries. None of them is imported: a
 * library is recognised by the members of its object.
 */
import { UsageError } from '../core/errors.ts'
import type { Queryable, Row } from './db.ts'

/**
 * An open transaction: of node-postgres (a client after `begin`), PGlite or `sluice.transaction`; of postgres.js, Drizzle
 * (on any of its PostgreSQL drivers), Kysely, Knex or Prisma.
 */
export type TxLike =
  | { query(sql: string, params?: unknown[]): PromiseLike<readonly unknown[] | { rows: unknown[] }> }
  | { unsafe(sql: string, params?: never[]): PromiseLike<readonly unknown[]> }
  | { execute(statement: string): PromiseLike<unknown>; rollback(): never }
  | { executeQuery(compiled: never): PromiseLike<{ rows: unknown[] }>; readonly isTransaction: true }
  | { raw(sql: string, bindings: string[]): PromiseLike<unknown>; isCompleted(): boolean }
  | { $queryRawUnsafe(sql: string, ...params: unknown[]): PromiseLike<unknown> }

/** An object of unknown type. */
type Any = { [member: string]: unknown }
type Method = (...args: unknown[]) => unknown
/**
 * All parameters are sent as text (`asText`) and cast by the statement (`Sql.call`), so a library's type mapping does not
 * matter.
 */
type Param = string | null

interface Library {
  /** The objects that are accepted from this library, for messages. */
  takes: string
  isOf(tx: Any): boolean
  /**
   * True if a statement would be a transaction of its own. Where the library does not show it, the transaction counts as
   * open.
   */
  isOutside(tx: Any): boolean
  run(tx: Any, sql: string, params: Param[]): unknown
}

const can = (tx: unknown, name: string): boolean => typeof (tx as Any | undefined)?.[name] === 'function'
const call = (tx: Any, name: string, ...args: unknown[]): unknown => (tx[name] as Method)(...args)

/** True for a client of node-postgres (of a version that reports it) outside of a transaction. */
const isIdle = (client: unknown): boolean =>
  can(client, 'getTransactionStatus') && call(client as Any, 'getTransactionStatus') === 'I'

/**
 * True for a QueryRunner of TypeORM before or after its transaction, the root of pg-promise, and a task of it outside of
 * a transaction.
 */
const isKnownOutside = (tx: Any): boolean => {
  const context = tx['ctx'] as Any | undefined
  const isTask = can(tx, 'task') && context?.['isTX'] !== true && context?.['inTransaction'] !== true
  return tx['isTransactionActive'] === false || '$pool' in tx || isTask
}

/** The most specific member first: a model of Prisma may be called `query`; Drizzle has a `query` and a `$client` too. */
const libraries: readonly Library[] = [
  {
    takes: 'the `tx` of Prisma’s `$transaction(async (tx) => …)`',
    isOf: (tx) => can(tx, '$queryRawUnsafe'),
    isOutside: (tx) => can(tx, '$connect'),
    run: (tx, sql, params) => call(tx, '$queryRawUnsafe', sql, ...params),
  },
  {
    takes: 'a Transaction of Kysely',
    isOf: (tx) => can(tx, 'executeQuery'),
    isOutside: (tx) => tx['isTransaction'] !== true,
    run: (tx, sql, parameters) => {
      const query = { kind: 'RawNode', sqlFragments: [sql], parameters: [] }
      // Plugins identify a query by this object.
      return call(tx, 'executeQuery', { sql, parameters, query, queryId: { queryId: 'sluice' } })
    },
  },
  {
    takes: 'the `sql` of postgres.js’s `sql.begin(async (sql) => …)`',
    isOf: (tx) => typeof tx === 'function' && can(tx, 'unsafe'),
    isOutside: (tx) => can(tx, 'begin'),
    run: (tx, sql, params) => call(tx, 'unsafe', sql, params),
  },
  {
    takes: 'a `trx` of Knex',
    isOf: (tx) => typeof tx === 'function' && can(tx, 'raw'),
    isOutside: (tx) => tx['isTransaction'] !== true || (can(tx, 'isCompleted') && call(tx, 'isCompleted') === true),
    // Each $n of Sluice's statements occurs once, in order.
    run: (tx, sql, params) => call(tx, 'raw', sql.replaceAll(/\$\d+/g, '?'), params),
  },
  {
    takes: 'the `tx` of Drizzle’s `db.transaction(async (tx) => …)`',
    isOf: (tx) => can(tx, 'execute') && can(tx, 'select'),
    isOutside: (tx) => !can(tx, 'rollback') || isIdle((tx['session'] as Any | undefined)?.['client']),
    // An SQLWrapper whose SQL is already built.
    run: (tx, sql, params) => call(tx, 'execute', { getSQL: () => ({ toQuery: () => ({ sql, params }) }) }),
  },
  {
    takes: 'a client of node-postgres after `begin`, a Transaction of PGlite, the `tx` of `sluice.transaction`',
    isOf: (tx) => can(tx, 'query'),
    // A pool runs each statement on any of its connections; PGlite and `sluice.db` begin transactions, but are none.
    isOutside: (tx) =>
      typeof tx['totalCount'] === 'number' || can(tx, 'transaction') || isIdle(tx) || isKnownOutside(tx),
    run: (tx, sql, params) => call(tx, 'query', sql, params),
  },
]

/**
 * Returns an object that runs statements in this transaction; each statement names the types of its parameters.
 * @throws UsageError SLUICE_BAD_TX when its library is unknown, or it is not open (if the library shows that)
 * @throws UsageError SLUICE_TX_ELSEWHERE (from a statement) when it is on a database without Sluice's functions
 */
export function within(tx: TxLike): Queryable {
  const given = tx as unknown as Any
  const isObject = (typeof given === 'object' && given !== null) || typeof given === 'function'
  const library = isObject ? libraries.find((known) => known.isOf(given)) : undefined
  if (library === undefined)
    throw new UsageError(
      'SLUICE_BAD_TX',
      `\`tx\` is not a transaction that Sluice recognises; it takes ${libraries.map(({ takes }) => takes).join('; ')}`,
    )
  const mustBeOpen = () => {
    if (library.isOutside(given))
      throw new UsageError(
        'SLUICE_BAD_TX',
        `\`tx\` is not in an open transaction, so the job would not commit or roll back with it: give ${library.takes} while it is open, or leave \`tx\` out`,
      )
  }
  mustBeOpen()
  return {
    async query<R = Row>(sql: string, params: readonly unknown[] = []) {
      mustBeOpen()
      const result = (await explained(library.run(given, sql, params.map(asText)))) as R[] | { rows: R[] }
      return Array.isArray(result) ? result : result.rows
    },
  }
}

async function explained(result: unknown): Promise<unknown> {
  try {
    return await result
  } catch (error) {
    const refusal = refusalOf(error)
    // undefined_function, invalid_schema_name
    if (refusal === undefined || !['42883', '3F000'].includes(refusal.code)) throw error
    throw new UsageError(
      'SLUICE_TX_ELSEWHERE',
      `the database of \`tx\` lacks the functions of this Sluice (${refusal.message}): give a transaction on the store's own database; if it is, run \`sluice migrate\`, with the same schema`,
      { cause: error },
    )
  }
}

/** Returns PostgreSQL's error: libraries wrap what their driver threw. */
function refusalOf(error: unknown): { code: string; message: string } | undefined {
  if (typeof error !== 'object' || error === null) return undefined
  const { code, message, originalCode, originalMessage, cause, meta, driverAdapterError } = error as Any
  const inner = refusalOf(cause) ?? refusalOf(meta) ?? refusalOf(driverAdapterError)
  if (inner !== undefined) return inner
  if (typeof originalCode === 'string') return { code: originalCode, message: `${originalMessage as string}` }
  return typeof code === 'string' ? { code, message: `${message as string}` } : undefined
}

type Scalar = string | number | boolean | null | undefined

/** Converts a parameter to text as PostgreSQL reads it: lists become array literals. */
function asText(value: unknown): Param {
  if (Array.isArray(value)) return `{${value.map(element).join(',')}}`
  const scalar = value as Scalar
  return scalar === null || scalar === undefined ? null : String(scalar)
}

function element(value: unknown): string {
  const text = asText(value)
  return text === null ? 'NULL' : `"${text.replaceAll(/["\\]/g, '\\$&')}"`
}
