/**
 * The one seam to PostgreSQL: a server (`pg.ts`), the embedded engine (`pglite.ts`), or the embedded engine of
 * another process (`owner.ts`, over its local socket). Everything above speaks SQL through these few verbs.
 */
import { UsageError } from '../core/errors.ts'

/** One row of an answer, by column. */
export type Row = Record<string, unknown>

/** Anything that runs one parametrised statement. bigint columns come back as strings, json as values, timestamptz as Date. */
export interface Queryable {
  query<R = Row>(sql: string, params?: readonly unknown[]): Promise<R[]>
}

/** A transaction, or a connection's worth of one. */
export interface Tx extends Queryable {
  /** Several statements without parameters, in one go; for migrations. */
  script(sql: string): Promise<void>
}

/** A database: one server, or one embedded engine. */
export interface Db extends Tx {
  /** `pglite` means: one process owns the data and nothing vacuums by itself. */
  readonly kind: 'pg' | 'pglite'
  /** Where the data is, for messages; never contains a password. */
  readonly where: string
  /**
   * One autocommitted statement, prepared once per connection under `name`. For the hot path.
   * @throws StoreError SLUICE_STORE_UNREACHABLE when the connection failed before or during it: the outcome is unknown.
   */
  call<R = Row>(name: string, sql: string, params: readonly unknown[]): Promise<R[]>
  /** Runs `body` in one transaction; rolls back when it throws. */
  transaction<T>(body: (tx: Tx) => Promise<T>): Promise<T>
  /** Calls `heard` with each payload notified on `channel`; survives reconnects. Returns the way to stop. */
  listen(channel: string, heard: (payload: string) => void): Promise<() => Promise<void>>
  /** False while the LISTEN connection is away: what is notified then is not heard. */
  listening(): boolean
  close(): Promise<void>
}

/** What `transaction` throws when PostgreSQL answers its commit with a silent rollback, as it does after a failed statement. */
export function silentlyAborted(): UsageError {
  return new UsageError(
    'SLUICE_TRANSACTION_ABORTED',
    'a statement of this transaction failed and the error was swallowed, so nothing was stored; let the error out of the body, or use a savepoint',
  )
}
