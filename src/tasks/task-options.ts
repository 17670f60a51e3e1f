/** What users write to define a task. */
import type { StandardSchemaV1 } from '@standard-schema/spec'
import type { Duration } from '../core/rate.ts'
import type { RetryOptions } from '../core/retry.ts'
import type { HasPath, Limit } from '../limits/limit.ts'
import type { Context, Failure, FailureContext } from './context.ts'
import type { CostedLimit } from './cost.ts'

/** Options of a task; see {@link TaskFields}. */
export type TaskOptions<Schema extends StandardSchemaV1, Result, Fair extends string = string> = TaskFields<
  StandardSchemaV1.InferInput<Schema>,
  StandardSchemaV1.InferOutput<Schema>,
  Result,
  Fair
>

/** Options of a task, by the types of its input as `send` takes it and as `run` gets it; see the fields. */
export interface TaskFields<In, Out, Result, Fair extends string = string> {
  /**
   * Any Standard Schema (Zod, Valibot, ArkType, …), checked at `send` and again before `run`. Default: any JSON, unchecked; its
   * type is then that of the input of `run`.
   */
  input?: StandardSchemaV1<In, Out> | undefined
  /**
   * Limits that each attempt must fit, all of them or none; `{ limit, cost }` if a job takes another amount than the
   * limit's own cost. A limit whose key or cost the input lacks does not compile.
   */
  limits?: readonly (Limit<NoInfer<In>> | CostedLimit<NoInfer<In>>)[] | undefined
  retry?: RetryOptions | undefined
  /** The queue, or a function of the input that returns it; default: the table of routes, else `default`. */
  queue?: string | ((input: NoInfer<In>) => string) | undefined
  /** The fair key, as a field path of the input; default the key of the job's first keyed limit. */
  fair?: Fair & (NoInfer<In> extends HasPath<Fair> ? unknown : never)
  /** Weight of its fair key's turns, or a function of the input; 1 to 1000. Default: the limit's `weights`, else 1. */
  weight?: number | ((input: NoInfer<In>) => number) | undefined
  /** Its jobs belong to this share of those of its limits that have it (`shares` of a limit). `send` may override it. */
  share?: string | undefined
  /** A job that does not start within this time after its send or delay fails (`expired`); default never. */
  maxWait?: Duration | undefined
  /**
   * `at-most-once`: a job whose handler was called is retried only if surely nothing was done: the vendor replied 429, or
   * the handler threw `retryIn`. Otherwise it fails (`doubtful`). Default `at-least-once`.
   */
  mode?: 'at-least-once' | 'at-most-once' | undefined
  /**
   * Called when a job of this task has failed for good, whatever the reason; as a job of its own (task `<name>:failed`),
   * recorded together with the failure and retried like any other. It has no `fetch`: limits granted it nothing.
   */
  onFailed?(failure: Failure<NoInfer<In>>, context: FailureContext): unknown
  /** Time for one attempt; then `signal` aborts and the attempt has failed. Default 10 min, at most 24 h. */
  timeout?: Duration | undefined
  /**
   * Names that the task had before: its workers run their jobs, too, so that a task can be renamed while jobs wait. Remove
   * a name when `sluice tasks` shows no job of it.
   */
  formerly?: readonly string[] | undefined
  /**
   * Addresses besides public ones that `ctx.fetch` may call: `10.0.0.5`, `10.0.0.0/8`, `internal.example` (whatever it
   * resolves to), `127.0.0.1:8080`. Any other private, loopback or link-local address ends the attempt, unsent and final,
   * with SLUICE_BLOCKED_ADDRESS. Default: only those of the process (`Sluice.open`, SLUICE_ALLOW_PRIVATE).
   */
  allowPrivate?: readonly string[] | undefined
  /** Does the work. Its return value is stored as the result (JSON, at most 256 KiB). */
  run(input: Out, context: Context): Promise<Result> | Result
  thread?: never
}

/** Options of a CPU-bound task, which runs in a thread of its own: docs/handlers.md. */
export type ThreadTaskOptions<Schema extends StandardSchemaV1, Fair extends string = string> = ThreadTaskFields<
  StandardSchemaV1.InferInput<Schema>,
  StandardSchemaV1.InferOutput<Schema>,
  Fair
>

/** Options of a CPU-bound task, as {@link TaskFields}. */
export interface ThreadTaskFields<In, Out, Fair extends string = string> extends Omit<
  TaskFields<In, Out, unknown, Fair>,
  'run' | 'thread'
> {
  /**
   * The module that does the work, in a worker thread: its default export is a function of the input (the schema's output,
   * by structured clone) and a `ThreadContext`. TypeScript is supported. Needs the package `piscina`.
   * @example new URL('./resize.ts', import.meta.url)
   */
  thread: URL
  run?: never // of another type, an editor would not know which kind is meant, and show no field's text
}
