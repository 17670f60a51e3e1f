/** Tasks that a program in another language implements: a dispatcher sends their jobs to stock Celery workers. */
import type { StandardSchemaV1 } from '@standard-schema/spec'
import { UsageError } from '../core/errors.ts'
import { hash64 } from '../core/hash.ts'
import { limit } from '../limits/limit.ts'
import type { TaskFields } from './task-options.ts'
import { limitsOf, type Task, task, type WithoutInput } from './task.ts'

/** Options of a remote task; see {@link RemoteTaskFields}. */
export type RemoteTaskOptions<Schema extends StandardSchemaV1, Fair extends string = string> = RemoteTaskFields<
  StandardSchemaV1.InferInput<Schema>,
  StandardSchemaV1.InferOutput<Schema>,
  Fair
>

/** Options of a remote task, by the types of its input before and after its schema; see the fields. */
export interface RemoteTaskFields<In, Out, Fair extends string = string> extends Omit<
  TaskFields<In, Out, unknown, Fair>,
  'run' | 'thread' | 'queue' | 'formerly' | 'allowPrivate'
> {
  /** The queue of the Celery workers, which exists already. Default `celery`, as Celery's own. */
  queue?: string | undefined
  /**
   * Attempts at once of all workers of that queue together (the sum of their `--concurrency`): a limit `outlet.<queue>`. All
   * tasks of one queue have to name the same number.
   */
  slots: number
}

const defaultQueue = 'celery'
const prefix = 'outlet.'

/** True for the bucket that counts the attempts in a queue: a vendor knows nothing of it. */
export function isPlaces(bucket: string): boolean {
  return bucket.startsWith(prefix)
}

/**
 * Defines a task that only stock Celery workers implement, under the same name. Its jobs are sent and limited like any others;
 * `sluice dispatch` has them executed (docs/celery.md). Python receives the fields of the input as named arguments, a list as
 * arguments, and any other input as the one argument.
 * @throws UsageError SLUICE_BAD_TASK, SLUICE_BAD_RETRY, SLUICE_BAD_OPTION, SLUICE_BAD_LIMIT
 * @example remoteTask('shop.tasks.sync', { input: z.object({ id: z.number() }), limits: [crm], queue: 'sync', slots: 8 })
 */
// oxlint-disable-next-line typescript/no-explicit-any -- without a schema nothing is known of the input
export function remoteTask<Out = any, In = Out, const Fair extends string = string>(
  name: string,
  given: RemoteTaskFields<In, Out, Fair>,
): WithoutInput<In, unknown> & Task<In, unknown> {
  // Plain JavaScript may leave them out.
  const { slots, queue = defaultQueue, ...options } = { ...given }
  if (!Number.isInteger(slots) || slots < 1)
    throw new UsageError(
      'SLUICE_BAD_TASK',
      `task "${name}": slots is ${slots}; it is the number of attempts that all Celery workers of its queue make at once`,
    )
  const places = limit(placesOf(queue), { concurrency: slots })
  const run = () => {
    const text = `task "${name}" is executed by Celery workers: run \`sluice dispatch\`, and Celery workers of the queue "${queue}"`
    throw new UsageError('SLUICE_BAD_TASK', text)
  }
  const limits = [...limitsOf(name, options.limits), places]
  const own = task<Out, In, unknown, Fair>(name, { ...options, limits, queue, run } as never)
  return Object.assign(own, { remote: { queue, slots } })
}

/** Returns the name of the limit that counts the attempts in a queue; limits have stricter names than queues. */
export function placesOf(queue: string): string {
  const name = queue.toLowerCase().replaceAll(':', '.')
  return name === queue && name.length <= 56
    ? `${prefix}${name}`
    : `${prefix}${name.slice(0, 36)}-${hash64(queue).slice(-16)}`
}
