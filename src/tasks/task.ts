/** Tasks: named, typed handlers. Defining one stores nothing; sending uses the sender that `provideSender` was given. */
import { inspect } from 'node:util'
import type { StandardSchemaV1 } from '@standard-schema/spec'
import { UsageError } from '../core/errors.ts'
import { checkFields } from '../core/fields.ts'
import type { PayloadBounds } from '../core/payload.ts'
import { type Duration, durationMs } from '../core/rate.ts'
import type { JobId } from '../core/result.ts'
import { type RetryPolicy, retryPolicy } from '../core/retry.ts'
import { Guard } from '../http/guard.ts'
import type { Limit } from '../limits/limit.ts'
import { checkName, maxWaitMs } from './checks.ts'
import { withTaskCost, type CostedLimit } from './cost.ts'
import { provideTaker, type Taker } from '../limits/take.ts'
import { checkShare } from '../limits/share.ts'
import { checkWeight } from '../limits/weight.ts'
import type { Context, Failure } from './context.ts'
import type { Sendable, SendManyOptions, SendOptions } from './send-options.ts'
import type { TaskFields, ThreadTaskFields } from './task-options.ts'

/** A defined task. */
export interface Task<Input = never, Result = unknown> {
  readonly name: string
  readonly schema: StandardSchemaV1
  /** With the task's own costs. */
  readonly limits: readonly Limit[]
  readonly retry: RetryPolicy
  /** Its queue; undefined: the table of routes, else `default`. */
  readonly queue: string | ((input: never) => string) | undefined
  readonly fair: string | undefined
  /** Undefined: the weight in the limit whose keys are the fair keys. */
  readonly weight: number | ((input: never) => number) | undefined
  readonly share: string | undefined
  readonly maxWaitMs: number | undefined
  readonly isOnce: boolean
  /** The task that is sent when a job of this task has failed for good. */
  readonly onFailed: AnyTask | undefined
  readonly timeoutMs: number
  /** The module whose default export runs in a thread, instead of `run`. */
  readonly thread?: URL | undefined
  /** The Celery workers that execute it, instead of `run`: their queue, and how many attempts they make at once. */
  readonly remote?: { readonly queue: string; readonly slots: number }
  /** Names that it had before; undefined: a copy of this package made it that did not know of them. */
  readonly formerly?: readonly string[]
  readonly allowPrivate: readonly string[]
  /** Returns the task that a job of this one belongs to now; undefined: this one, as always for tasks of users. */
  readonly homeOf?: (input: never) => AnyTask | undefined
  /** Returns false while what it needs is away: then none of its jobs is claimed. Undefined: never, as always for tasks of users. */
  readonly isOpen?: () => boolean
  /** Bounds of its inputs; undefined: those of any payload, as always for tasks of users. */
  readonly inputBounds?: PayloadBounds
  run(input: unknown, context: Context): Promise<Result> | Result
  /**
   * Records a job and returns its id; resolves once it is durable (with `tx`: once it is written).
   * @throws UsageError for bad input (SLUICE_INVALID_INPUT, SLUICE_BAD_PAYLOAD, SLUICE_MISSING_KEY, …): nothing is stored
   * @throws StoreError SLUICE_STORE_UNREACHABLE: the outcome is unknown; repeat with the same `id`
   */
  send(input: Input, options?: SendOptions<Input>): Promise<JobId<Result>>
  /** Records many jobs in batches, in order, and returns their ids; the first bad row stops it, with its index. */
  sendMany(inputs: Sendable<Input>, options?: SendManyOptions<Input>): Promise<JobId<Result>[]>
}

/** What a task has besides if its input may be `{}`. Not in `Task`, which would then no longer be an `AnyTask` for each `Input`. */
export type WithoutInput<Input, Result> =
  Record<never, never> extends Input
    ? {
        /** Sends a job with the input `{}`. */
        send(): Promise<JobId<Result>>
      }
    : unknown

/** Any task, whatever its input. */
export type AnyTask = Task<never, unknown>

/** The input type of a task; for `AnyTask` it is unknown until the schema checks it. */
export type Given<Input> = [Input] extends [never] ? unknown : NoInfer<Input>

/** Records jobs. */
export interface Sender {
  send(task: AnyTask, input: unknown, options?: SendOptions<never>): Promise<string>
  sendMany(task: AnyTask, inputs: Sendable<unknown>, options: SendManyOptions<never>): Promise<string[]>
  /** Takes units of limits outside of jobs. */
  readonly takes: Taker
}

let provider: (() => Sender | Promise<Sender>) | undefined

/** Sets the sender of `task.send` and of takes. Called by the wiring. */
export function provideSender(next: () => Sender | Promise<Sender>): void {
  provider = next
  provideTaker(async () => (await next()).takes)
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

const taskFields = [
  'input',
  'limits',
  'retry',
  'queue',
  'fair',
  'weight',
  'share',
  'maxWait',
  'mode',
  'onFailed',
  'timeout',
  'formerly',
  'allowPrivate',
  'run',
  'thread',
]

/** What options of a task are called elsewhere. */
const wordsOfOthers = {
  handler: '`run`',
  fn: '`run`',
  perform: '`run`',
  schema: '`input`',
  retries: '`retry: { attempts: 5 }`',
  attempts: '`retry: { attempts: 5 }`',
  maxAttempts: '`retry: { attempts: 5 }`',
  maxRetries: '`retry: { attempts: 5 }`',
  backoff: '`retry: { base, max }`',
  onFailure: '`onFailed`',
  limit: '`limits`',
  rateLimit: '`limits`',
  concurrency: "a limit: `limit('one', { concurrency: 1 })`",
}

/**
 * Defines a task.
 * @param name unique, stored with each job; 1 to 100 of a-z, A-Z, 0-9, `.`, `_`, `-`, `:`
 * @throws UsageError SLUICE_BAD_TASK, SLUICE_BAD_RETRY, SLUICE_BAD_OPTION
 */
// oxlint-disable-next-line typescript/no-explicit-any -- without a schema, and a type in `run`, nothing is known of the input
export function task<Out = any, In = Out, Result = unknown, const Fair extends string = string>(
  name: string,
  options: TaskFields<In, Out, Result, Fair> | ThreadTaskFields<In, Out, Fair>,
): WithoutInput<In, Result> & Task<In, Result> {
  checkName('task', name)
  checkFields('SLUICE_BAD_TASK', `task "${name}"`, options, taskFields, wordsOfOthers)
  // Plain JavaScript may leave these out; without this check the first job would fail instead.
  const run = options.thread === undefined ? options.run : notHere(name, options.thread, options.run)
  const { input: schema = anything } = options
  if (typeof schema?.['~standard']?.validate !== 'function' || typeof run !== 'function') {
    const text = `task "${name}" needs \`run\`, a function; its \`input\` is a Standard Schema (Zod, Valibot, …) or left out`
    throw new UsageError('SLUICE_BAD_TASK', text)
  }
  const { queue, weight, fair, mode = 'at-least-once', onFailed } = options
  if (typeof queue !== 'function' && queue !== undefined) checkName('queue', queue)
  if (typeof weight !== 'function' && weight !== undefined) checkWeight(weight)
  if (fair !== undefined && (typeof fair !== 'string' || fair.split('.').includes('')))
    throw new UsageError('SLUICE_BAD_TASK', `task "${name}": fair is a field path of the input, such as 'account.id'`)
  if (mode !== 'at-least-once' && mode !== 'at-most-once') {
    throw new UsageError('SLUICE_BAD_TASK', `task "${name}": mode is "at-least-once" or "at-most-once"`)
  }
  if (onFailed !== undefined && typeof onFailed !== 'function')
    throw new UsageError('SLUICE_BAD_TASK', `task "${name}": onFailed is a function of the failure`)
  if (onFailed !== undefined && name.length + failureSuffix.length > 100)
    throw new UsageError('SLUICE_BAD_TASK', `task "${name}": with onFailed a name has at most 93 characters`)
  const limits = limitsOf(name, options.limits)
  if (new Set(limits.map((limit) => limit.name)).size !== limits.length) {
    throw new UsageError('SLUICE_BAD_TASK', `task "${name}" names a limit twice`)
  }
  const timeoutMs = durationMs(options.timeout ?? 600_000)
  if (timeoutMs < 1 || timeoutMs > timeoutMaxMs) {
    throw new UsageError('SLUICE_BAD_TASK', `task "${name}": timeout must be between 1 ms and 24 h`)
  }
  const formerly = namesBefore(name, options.formerly ?? [])
  const allowPrivate = [...(options.allowPrivate ?? [])]
  // Only for its errors: in a worker they would come too late.
  void new Guard(allowPrivate)
  const self: Task<In, Result> = {
    name,
    schema,
    limits,
    retry: retryPolicy(options.retry),
    queue,
    fair,
    weight,
    share: options.share === undefined ? undefined : checkShare('SLUICE_BAD_TASK', name, limits, options.share),
    maxWaitMs: options.maxWait === undefined ? undefined : maxWaitMs(options.maxWait),
    isOnce: mode === 'at-most-once',
    onFailed:
      onFailed === undefined
        ? undefined
        : failureTask(name, timeoutMs, (failure, context) => onFailed(failure as never, context)),
    timeoutMs,
    formerly,
    allowPrivate,
    ...(options.thread === undefined ? {} : { thread: options.thread }),
    run: (input, context) => run(input as Out, context),
    // `{}` without arguments only: an input that is undefined, as a lookup may return it, is sent as null.
    send: async (...given) => (await sender()).send(self as AnyTask, ...(given.length > 0 ? given : ([{}] as [In]))),
    sendMany: async (inputs, sendOptions = {}) => (await sender()).sendMany(self as AnyTask, inputs, sendOptions),
  }
  return self as WithoutInput<In, Result> & Task<In, Result>
}

/** Returns the limits of a task. Plain JavaScript may give names, or what a module does not export. @throws UsageError SLUICE_BAD_TASK */
export function limitsOf(task: string, given: unknown): Limit[] {
  const list = given ?? []
  if (!Array.isArray(list)) throw new UsageError('SLUICE_BAD_TASK', `task "${task}": limits must be a list: [crm]`)
  return list.map((entry: Limit | CostedLimit | null | undefined) => {
    const one = typeof entry === 'object' && entry !== null && 'limit' in entry ? entry.limit : entry
    if (entry !== undefined && entry !== null && Array.isArray((one as Limit | undefined)?.rules))
      return withTaskCost(entry)
    const text = `task "${task}": ${inspect(entry, { depth: 0 })} is no limit; list what \`limit('name', …)\` returned`
    throw new UsageError('SLUICE_BAD_TASK', text)
  })
}

/** Returns the names that a task had before. @throws UsageError SLUICE_BAD_TASK */
function namesBefore(task: string, given: readonly string[]): string[] {
  // A text would be read as a list of its letters.
  if (!Array.isArray(given)) throw new UsageError('SLUICE_BAD_TASK', `task "${task}": formerly must be a list: ['old']`)
  for (const old of given) checkName('task', old)
  return [...given]
}

// oxlint-disable-next-line typescript/no-explicit-any -- nothing is known of the input
const anything: StandardSchemaV1<any> = {
  '~standard': { version: 1, vendor: 'sluice', validate: (value) => ({ value }) },
}

/** The suffix of the names of `onFailed` tasks. */
export const failureSuffix = ':failed'

/** Defines the `onFailed` task. Its jobs take no units (their input may lack the keys), so it makes no limited calls. */
function failureTask(name: string, timeout: Duration, run: (failure: Failure, context: Context) => unknown): AnyTask {
  const runFailure = (failure: Failure, context: Context) => {
    const fetch = async () => {
      throw new UsageError(
        'SLUICE_NO_FETCH',
        `onFailed of task "${name}" has no \`fetch\`, because no limit granted it anything: send a job of a task that makes the call`,
      )
    }
    const own = { ...Object.getOwnPropertyDescriptors(context), fetch: { value: fetch, enumerable: true } }
    return run(failure, Object.defineProperties({}, own) as Context)
  }
  return task(`${name}${failureSuffix}`, { input: anything, timeout, run: runFailure }) as AnyTask
}

/** Returns a replacement of `run` for a task in a thread. @throws UsageError SLUICE_BAD_TASK */
function notHere(name: string, thread: URL, run: unknown): () => never {
  if (!(thread instanceof URL) || thread.protocol !== 'file:' || run !== undefined)
    throw new UsageError(
      'SLUICE_BAD_TASK',
      `task "${name}": \`thread\` takes the place of \`run\`, and is the URL of a file: new URL('./work.ts', import.meta.url)`,
    )
  return () => {
    throw new UsageError('SLUICE_BAD_TASK', `task "${name}" runs in a thread; only a worker can run it`)
  }
}

/** Returns tasks by all their names, former ones too. */
export function tasksByName(tasks: readonly AnyTask[]): Map<string, AnyTask> {
  return new Map(tasks.flatMap((task) => [task.name, ...(task.formerly ?? [])].map((name) => [name, task] as const)))
}
