/**
 * The one seam to PostgreSQL: a server (`pg.ts`), the embedded engine (`pglite.ts`), or the embedded engine of
 * another process (`owner.ts`, over its local socket). Everything above speaks SQL through these few verbs.
 */
import { AsyncLocalStorage } from 'node:async_hooks'
import { type StoreError, UsageError } from '../core/errors.ts'

/** A time that a statement gives in ms since 1970; null stays null. */
export function dateOf(ms: number | null): Date | null {
  return ms === null ? null : new Date(ms)
}

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
  /** Resolves with the reason when it has ended for good, other than by `close`. Only the embedded engine does: a server may come back. */
  readonly ended: Promise<StoreError>
  /**
   * One autocommitted statement of the engine's own, prepared once per connection under `name` ('': not prepared). It never
   * waits for a connection that somebody's transaction holds; only `send` shares the users' connections.
   * @throws StoreError SLUICE_STORE_UNREACHABLE when the connection failed before or during it: the outcome is unknown.
   */
  call<R = Row>(name: string, sql: string, params: readonly unknown[]): Promise<R[]>
  /** Runs `body` in one transaction; rolls back when it throws. */
  transaction<T>(body: (tx: Tx) => Promise<T>): Promise<T>
  /**
   * Refuses what would wait for the end of the transaction that it is called in: the embedded engine has only this one.
   * @param what what is refused, for the message; default: a query
   * @throws UsageError SLUICE_QUERY_OUTSIDE_TRANSACTION; never on a server
   */
  checkOutside(what?: string): void
  /**
   * Calls `heard` with each payload notified on `channel`; survives reconnects. Calls `missed` whenever that connection
   * is gone, and when there is a new one: what was notified in between was not heard. Returns the way to stop.
   */
  listen(channel: string, heard: (payload: string) => void, missed?: () => void): Promise<() => Promise<void>>
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

/** What a statement given to a transaction after its end throws: its connection may be in somebody else's by then. */
export function transactionOver(): UsageError {
  return new UsageError(
    'SLUICE_TRANSACTION_OVER',
    'this transaction has ended; await all its queries before its body returns',
  )
}

/** Knows who is inside the one transaction that an embedded engine has at a time. */
export class Sole {
  readonly #inside = new AsyncLocalStorage<{ isOpen: boolean }>()

  /** Runs the body of a transaction; what it leaves behind is outside again. */
  async run<T>(body: () => Promise<T>): Promise<T> {
    const state = { isOpen: true }
    try {
      return await this.#inside.run(state, body)
    } finally {
      state.isOpen = false
    }
  }

  /** Throws inside. @throws UsageError SLUICE_QUERY_OUTSIDE_TRANSACTION */
  check(what = 'a query'): void {
    if (this.#inside.getStore()?.isOpen)
      throw new UsageError(
        'SLUICE_QUERY_OUTSIDE_TRANSACTION',
        `${what} is not possible here: the embedded engine has one connection, which the open transaction holds, and would wait for its own end; give queries and \`send\` the \`tx\` of the body, and call ctx.fetch before or after the transaction`,
      )
  }
}
