/** Tasks: named, typed handlers. Defining one stores nothing; sending goes through whoever `provideSender` named. */
import type { StandardSchemaV1 } from '@standard-schema/spec'
import { UsageError } from '../core/errors.ts'
import { type Duration, durationMs } from '../core/rate.ts'
import { type RetryOptions, type RetryPolicy, retryPolicy } from '../core/retry.ts'
import { Guard } from '../http/guard.ts'
import type { HasPath, Limit } from '../limits/limit.ts'

/** Writes one line of a job's log. */
export interface Log {
  debug(message: string, details?: Record<string, unknown>): void
  info(message: string, details?: Record<string, unknown>): void
  warn(message: string, details?: Record<string, unknown>): void
  error(message: string, details?: Record<string, unknown>): void
}

/** What a handler gets beside its input. */
export interface Context {
  /**
   * Like the global fetch, but every request spends a grant of the job's limits: the first the attempt's own.
   * A handler makes either all its calls through it, or none (then its grant is checked just before `run`, and covers one
   * request): of calls made otherwise `fetch` knows nothing, and it may give back the grant that they have spent.
   */
  readonly fetch: typeof fetch
  /** Aborted on time-out, within some 2 s of a cancel, when the worker gives up the job, and at forced shutdown. */
  readonly signal: AbortSignal
  /** 1 for the first attempt. */
  readonly attempt: number
  /** True when an earlier attempt may have reached the vendor without its outcome being known (its worker was lost). */
  readonly ambiguous: boolean
  readonly log: Log
  readonly job: {
    readonly id: string
    readonly queue: string
    readonly createdAt: Date
    readonly tags: readonly string[]
  }
}

/** How a task is defined; see the fields. */
export interface TaskOptions<Schema extends StandardSchemaV1, Result, Fair extends string = string> {
  /** Any Standard Schema (Zod, Valibot, ArkType, …). Checked at `send` and again before `run`. */
  input: Schema
  /** Limits that each attempt must fit, all of them or none. A limit whose key the input lacks does not compile. */
  limits?: readonly Limit<StandardSchemaV1.InferInput<Schema>>[]
  retry?: RetryOptions
  /** Where workers listen; default `default`. */
  queue?: string
  /** Whose turn it is, as a field path of the input; default the key of the job's first keyed limit. */
  fair?: Fair & (StandardSchemaV1.InferInput<Schema> extends HasPath<Fair> ? unknown : never)
  /** Time for one attempt; then `signal` aborts and the attempt has failed. Default 10 min, at most 24 h. */
  timeout?: Duration
  /**
   * Addresses beyond the public ones that `ctx.fetch` may call: `10.0.0.5`, `10.0.0.0/8`, `internal.example` (whatever that
   * resolves to), `127.0.0.1:8080`. Anything else private, loopback or link-local ends the attempt, unsent and final, with
   * SLUICE_BLOCKED_ADDRESS. Default: those of the process (`Sluice.open`, SLUICE_ALLOW_PRIVATE) only.
   */
  allowPrivate?: readonly string[]
  /** Does the work. What it returns is stored as the result (JSON, at most 256 KiB). */
  run(input: StandardSchemaV1.InferOutput<Schema>, context: Context): Promise<Result> | Result
}

/** Options of one `send`. */
export interface SendOptions {
  /** The job's id, a UUIDv7; sending the same id again changes nothing. Default: a new one. */
  id?: string
  /**
   * A transaction on the same database, of node-postgres, PGlite or `sluice.transaction`: the job exists from its commit
   * on. At `repeatable read` and `serializable` a send may fail with SQLSTATE 40001, as any statement may; repeat the
   * transaction.
   */
  tx?: TxLike
  /** Higher first, within the same fair key; whole, -1000 to 1000, default 0. */
  priority?: number
  /** Not before so long from now; up to 366 days. */
  delay?: Duration
  /** Not before this time. */
  at?: Date
  /** A second job of this task with the same key, within 24 h, is not made: the first one's id is returned. 1 to 512 characters. */
  idempotencyKey?: string
  /** For finding jobs again; up to 20, each 1 to 100 characters. */
  tags?: readonly string[]
  /** Default: the task's. */
  queue?: string
}

/** What `tx` needs to have: clients of node-postgres, transactions of PGlite and of `sluice.transaction` do. */
export interface TxLike {
  query(sql: string, params?: unknown[]): Promise<readonly unknown[] | { rows: unknown[] }>
}

/** What `sendMany` takes: inputs, all at once or as they come. */
export type Sendable<Input> = AsyncIterable<Input> | Iterable<Input>

/** Options for all jobs of one `sendMany`. */
export type SendManyOptions = Pick<SendOptions, 'tx' | 'priority' | 'delay' | 'at' | 'tags' | 'queue'>

/** A defined task. */
export interface Task<Input = never, Result = unknown> {
  readonly name: string
  readonly schema: StandardSchemaV1
  readonly limits: readonly Limit[]
  readonly retry: RetryPolicy
  readonly queue: string
  readonly fair: string | undefined
  readonly timeoutMs: number
  readonly allowPrivate: readonly string[]
  run(input: unknown, context: Context): Promise<Result> | Result
  /**
   * Records a job and returns its id; resolves once it is durable (with `tx`: when that commits).
   * @throws UsageError for bad input (SLUICE_INVALID_INPUT, SLUICE_BAD_PAYLOAD, SLUICE_MISSING_KEY, …): nothing is stored
   * @throws StoreError SLUICE_STORE_UNREACHABLE: the outcome is unknown; repeat with the same `id`
   */
  send(input: Input, options?: SendOptions): Promise<string>
  /** Records many jobs, streamed in batches, in order. Resolves to how many; the first bad row stops it, named by its index. */
  sendMany(inputs: Sendable<Input>, options?: SendManyOptions): Promise<number>
}

/** Any task, whatever its input. */
export type AnyTask = Task<never, unknown>

/** Takes jobs for recording. */
export interface Sender {
  send(task: AnyTask, input: unknown, options: SendOptions): Promise<string>
  sendMany(task: AnyTask, inputs: Sendable<unknown>, options: SendManyOptions): Promise<number>
}

let provider: (() => Sender | Promise<Sender>) | undefined

/** Says where `task.send` goes from now on; undefined: nowhere. Called by the wiring and by the testing kit. */
export function provideSender(next: (() => Sender | Promise<Sender>) | undefined): void {
  provider = next
}

async function sender(): Promise<Sender> {
  if (provider === undefined) {
    throw new UsageError(
      'SLUICE_NOT_CONFIGURED',
      'there is no Sluice to send to: import from "sluice" (not from its parts)',
    )
  }
  return provider()
}

const timeoutMaxMs = 86_400_000

/**
 * Defines a task.
 * @param name unique, stored with each job; 1 to 100 of a-z, A-Z, 0-9, `.`, `_`, `-`, `:`
 * @throws UsageError SLUICE_BAD_TASK, SLUICE_BAD_RETRY, SLUICE_BAD_OPTION
 */
export function task<Schema extends StandardSchemaV1, Result, const Fair extends string = string>(
  name: string,
  options: TaskOptions<Schema, Result, Fair>,
): Task<StandardSchemaV1.InferInput<Schema>, Result> {
  checkName('task', name)
  // What plain JavaScript may leave out would otherwise be missed by the first job.
  if (typeof options.input?.['~standard']?.validate !== 'function' || typeof options.run !== 'function') {
    throw new UsageError(
      'SLUICE_BAD_TASK',
      `task "${name}" needs \`input\`, a Standard Schema (Zod, Valibot, ArkType, …), and \`run\`, a function`,
    )
  }
  const queue = options.queue ?? 'default'
  checkName('queue', queue)
  const limits = (options.limits ?? []) as unknown as readonly Limit[]
  if (new Set(limits.map((limit) => limit.name)).size !== limits.length) {
    throw new UsageError('SLUICE_BAD_TASK', `task "${name}" names a limit twice`)
  }
  const timeoutMs = durationMs(options.timeout ?? 600_000)
  if (timeoutMs < 1 || timeoutMs > timeoutMaxMs) {
    throw new UsageError('SLUICE_BAD_TASK', `task "${name}": timeout must be between 1 ms and 24 h`)
  }
  const allowPrivate = [...(options.allowPrivate ?? [])]
  // For its errors: a worker would find them too late.
  void new Guard(allowPrivate)
  const self: Task<StandardSchemaV1.InferInput<Schema>, Result> = {
    name,
    schema: options.input,
    limits,
    retry: retryPolicy(options.retry),
    queue,
    fair: options.fair,
    timeoutMs,
    allowPrivate,
    run: (input, context) => options.run(input as StandardSchemaV1.InferOutput<Schema>, context),
    send: async (input, sendOptions = {}) => (await sender()).send(self as AnyTask, input, sendOptions),
    sendMany: async (inputs, sendOptions = {}) => (await sender()).sendMany(self as AnyTask, inputs, sendOptions),
  }
  return self
}

/** @throws UsageError SLUICE_BAD_TASK unless the name can be stored and typed on a command line */
export function checkName(what: 'task' | 'queue', name: string): void {
  if (!/^[A-Za-z0-9._:-]{1,100}$/.test(name)) {
    throw new UsageError(
      'SLUICE_BAD_TASK',
      `"${name}" cannot name a ${what}: use 1 to 100 of a-z, A-Z, 0-9, ".", "_", "-", ":"`,
    )
  }
}
