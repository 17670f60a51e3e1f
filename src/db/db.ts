/**
 * The one interface to PostgreSQL: a server (`pg.ts`), the embedded engine (`pglite.ts`), or the embedded engine of
 * another process (`owner.ts`, over its local socket). All other code runs SQL through these few methods.
 */
import { AsyncLocalStorage } from 'node:async_hooks'
import { type StoreError, UsageError } from '../core/errors.ts'

/** Converts a time in ms since 1970 to a Date; null stays null. */
export function dateOf(ms: number | null): Date | null {
  return ms === null ? null : new Date(ms)
}

/** One row of a result, by column. */
export type Row = Record<string, unknown>

/**
 * Anything that runs one parametrised statement. bigint columns are returned as strings, json as values, timestamptz as
 * Date.
 */
export interface Queryable {
  query<R = Row>(sql: string, params?: readonly unknown[]): Promise<R[]>
}

/** A transaction, or a database. */
export interface Tx extends Queryable {
  /** Runs several statements without parameters at once; for migrations. */
  script(sql: string): Promise<void>
}

/** A database: one server, or one embedded engine. */
export interface Db extends Tx {
  /** `pglite`: one process owns the data, and there is no autovacuum. */
  readonly kind: 'pg' | 'pglite'
  /** Where the data is, for messages; never contains a password. */
  readonly where: string
  /**
   * Resolves with the reason when the database has ended for good, other than by `close`. Only the embedded engine does:
   * a server may come back.
   */
  readonly ended: Promise<StoreError>
  /**
   * Runs one autocommitted statement of the engine's own, prepared once per connection under `name` ('': not prepared).
   * It never waits for a connection that a user's transaction holds; only `send` shares the users' connections.
   * @throws StoreError SLUICE_STORE_UNREACHABLE when the connection failed before or during it: the outcome is unknown.
   */
  call<R = Row>(name: string, sql: string, params: readonly unknown[]): Promise<R[]>
  /** Runs `body` in one transaction; rolls back when it throws. */
  transaction<T>(body: (tx: Tx) => Promise<T>): Promise<T>
  /**
   * Rejects work that would wait for the end of the transaction in which it is called: the embedded engine has only one
   * connection.
   * @param what the rejected work, for the message; default: a query
   * @throws UsageError SLUICE_QUERY_OUTSIDE_TRANSACTION; never on a server
   */
  checkOutside(what?: string): void
  /**
   * Calls `onNotice` with each payload notified on `channel`; survives reconnects. Calls `missed` when that connection is
   * lost, and when there is a new one: notifications in between are lost. Returns a function that stops it.
   */
  listen(channel: string, onNotice: (payload: string) => void, missed?: () => void): Promise<() => Promise<void>>
  /** False while there is no LISTEN connection: notifications are then lost. */
  listening(): boolean
  close(): Promise<void>
}

/**
 * Returns the error of a transaction whose commit PostgreSQL answers with a silent rollback, as it does after a failed
 * statement.
 */
export function silentRollbackError(): UsageError {
  return new UsageError(
    'SLUICE_TRANSACTION_ABORTED',
    'a statement of this transaction failed and the error was caught, so nothing was stored; let the error leave the body, or use a savepoint',
  )
}

/** Returns the error of a statement in a transaction that has ended: another user may have its connection by then. */
export function transactionOverError(): UsageError {
  return new UsageError(
    'SLUICE_TRANSACTION_OVER',
    'this transaction has ended; await all its queries before its body returns',
  )
}

/** Tracks which code runs inside the one transaction that an embedded engine has at a time. */
export class SingleConnection {
  readonly #inside = new AsyncLocalStorage<{ isOpen: boolean }>()

  /** Runs the body of a transaction; asynchronous work that it leaves behind counts as outside. */
  async run<T>(body: () => Promise<T>): Promise<T> {
    const state = { isOpen: true }
    try {
      return await this.#inside.run(state, body)
    } finally {
      state.isOpen = false
    }
  }

  /** Throws when called inside the transaction. @throws UsageError SLUICE_QUERY_OUTSIDE_TRANSACTION */
  check(what = 'a query'): void {
    if (this.#inside.getStore()?.isOpen)
      throw new UsageError(
        'SLUICE_QUERY_OUTSIDE_TRANSACTION',
        `${what} is not possible here: the embedded engine has one connection, which the open transaction holds, and would wait for its own end; give queries and \`send\` the \`tx\` of the body, and call ctx.fetch before or after the transaction`,
      )
  }
}
