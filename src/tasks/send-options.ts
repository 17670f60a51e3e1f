/** What users write to send jobs of a task. */
import type { Duration } from '../core/rate.ts'
import type { TxLike } from '../db/tx.ts'

/** Options of one `send` of a task with such inputs. */
export interface SendOptions<Input = unknown> {
  /** The job's id, a UUIDv7; sending the same id again changes nothing. Default: a new one. */
  id?: string | undefined
  /**
   * Your own open transaction on the same database: of node-postgres, postgres.js, Drizzle, Kysely, Knex, Prisma, PGlite or
   * `sluice.transaction`. The job exists from its commit on (docs/transactions.md). At `repeatable read` and `serializable`
   * a send may fail with SQLSTATE 40001, as any statement may; repeat the transaction.
   */
  tx?: TxLike | undefined
  /** Higher first, within the same fair key; whole, -1000 to 1000, default 0. */
  priority?: number | undefined
  /** Earliest start, from now; up to 366 days. */
  delay?: Duration | undefined
  /** Earliest start. */
  at?: Date | undefined
  /**
   * A second job of this task with the same key within 24 h is not created; `send` returns the first id. 1 to 512
   * characters.
   */
  idempotencyKey?: string | undefined
  /**
   * With `idempotencyKey`: replaces a job of this key that has not begun, and keeps its id; if that job is running or has
   * ended, this one is a job of its own. So the last of several sends is what runs. Not with `tx`.
   */
  replace?: boolean | undefined
  /** For finding jobs again; up to 20, each 1 to 100 characters. */
  tags?: readonly string[] | undefined
  /** The queue, or a function of the input that returns it. Default: the table of routes, else the task's. */
  queue?: string | ((input: Input) => string) | undefined
  /** The share of its limits that the job belongs to. Default: the task's. */
  share?: string | undefined
  /**
   * False: idle workers are not notified and find the job within some 2 s; PREPARE TRANSACTION needs this. Default true.
   */
  notify?: boolean | undefined
  /**
   * If it does not start within this time after send or delay, it fails (`expired`); up to 366 days. Default: the task's.
   */
  maxWait?: Duration | undefined
}

/** Inputs of `sendMany`: all at once, or as a stream. */
export type Sendable<Input> = AsyncIterable<Input> | Iterable<Input>

/** Options for all jobs of one `sendMany`. */
export type SendManyOptions<Input = unknown> = Omit<SendOptions<Input>, 'id' | 'idempotencyKey' | 'replace'>
