/** The door: turns a task's input into a row that may be stored, or says clearly why not. */
import type { Clock } from '../core/clock.ts'
import { UsageError } from '../core/errors.ts'
import { hash64, idMs, isId, newId } from '../core/hash.ts'
import { encodePayload } from '../core/payload.ts'
import { durationMs } from '../core/rate.ts'
import { fieldOf, type Limit } from '../limits/limit.ts'
import type { NewJob } from '../store/send.ts'
import { type AnyTask, checkName, type SendOptions } from './task.ts'

const dayMs = 86_400_000
const delayMaxMs = 366 * dayMs

/**
 * Validates an input and computes what dispatch needs of it: limit keys, fair key, lane.
 * @throws UsageError SLUICE_INVALID_INPUT (schema), SLUICE_BAD_PAYLOAD, SLUICE_PAYLOAD_TOO_LARGE, SLUICE_MISSING_KEY,
 * SLUICE_BAD_OPTION, SLUICE_BAD_ID
 */
export async function admit(task: AnyTask, input: unknown, options: SendOptions, clock: Clock): Promise<NewJob> {
  const text = encodePayload(input, `input of "${task.name}"`)
  // The stored form is what workers will see: keys and schema are judged on it, not on live objects.
  const stored: unknown = JSON.parse(text)
  await validate(task, stored)
  const queue = options.queue ?? task.queue
  if (options.queue !== undefined) checkName('queue', queue)
  const priority = options.priority ?? 0
  if (!Number.isInteger(priority) || Math.abs(priority) > 1000) {
    throw new UsageError('SLUICE_BAD_OPTION', `priority is ${priority}; it must be a whole number from -1000 to 1000`)
  }
  return {
    id: jobId(options.id, clock),
    given: options.id !== undefined,
    ...placeOf(task, stored, queue, priority, bucketsOf(task, stored)),
    queue,
    task: task.name,
    priority,
    input: text,
    ...due(options, clock),
    tags: tags(options.tags),
    key: idempotencyKey(options.idempotencyKey),
  }
}

/** Where a job waits. */
export type Place = Pick<NewJob, 'lane' | 'fair' | 'takes'>

/**
 * Where a job waits by the task's definition of today, when it demands a bucket that the job does not wait for (a limit
 * was added, or takes its key from elsewhere); else undefined. Limits that the task no longer names stay: other workers
 * may still run the code that does, and two versions must not hand a job back and forth.
 * @throws UsageError SLUICE_MISSING_KEY, SLUICE_BAD_KEY
 */
export function placeNow(
  task: AnyTask,
  job: { readonly input: unknown; readonly queue: string; readonly priority: number; readonly takes: string[] | null },
): Place | undefined {
  const { input, queue, priority } = job
  const had = job.takes ?? []
  const demanded = bucketsOf(task, input)
  if (demanded.every((bucket) => had.includes(bucket))) return undefined
  const isNamed = (bucket: string) => task.limits.some(({ name }) => bucket === name || bucket.startsWith(`${name}:`))
  return placeOf(task, input, queue, priority, [...demanded, ...had.filter((bucket) => !isNamed(bucket))])
}

/** Names of the buckets in which a job of this input needs room. */
function bucketsOf(task: AnyTask, stored: unknown): string[] {
  return task.limits.map((limit) => {
    const key = keyOf(limit, stored)
    return key === undefined ? limit.name : `${limit.name}:${key}`
  })
}

function keyOf(limit: Limit, stored: unknown): string | undefined {
  try {
    return limit.keyOf(stored as never)
  } catch (error) {
    if (error instanceof UsageError) throw error
    throw new UsageError('SLUICE_MISSING_KEY', `the key function of limit "${limit.name}" threw: ${String(error)}`, {
      cause: error,
    })
  }
}

function placeOf(task: AnyTask, stored: unknown, queue: string, priority: number, takes: string[]): Place {
  const fair = task.fair === undefined ? null : `${task.name}:${fairKey(task.fair, stored)}`
  return {
    lane: laneOf([queue, task.name, String(priority), fair ?? '', ...takes].join('\u001f')),
    fair,
    takes: takes.length === 0 ? null : takes,
  }
}

/** Checks a stored input against the task's schema and returns the schema's output. @throws UsageError SLUICE_INVALID_INPUT */
export async function validate(task: AnyTask, stored: unknown): Promise<unknown> {
  const checked = await task.schema['~standard'].validate(stored)
  if (checked.issues === undefined) return checked.value
  const issues = checked.issues.slice(0, 5).map((issue) => {
    const path = issue.path?.map((part) => String(typeof part === 'object' ? part.key : part)).join('.')
    return path ? `${path}: ${issue.message}` : issue.message
  })
  throw new UsageError('SLUICE_INVALID_INPUT', `input of "${task.name}" does not fit its schema: ${issues.join('; ')}`)
}

function jobId(id: string | undefined, clock: Clock): string {
  if (id === undefined) return newId()
  if (!isId(id))
    throw new UsageError('SLUICE_BAD_ID', `"${id}" is not a UUIDv7; leave out \`id\`, or use one made by \`newId()\``)
  if (Math.abs(idMs(id) - clock.wallMs()) > dayMs) {
    throw new UsageError(
      'SLUICE_BAD_ID',
      `id ${id} was made more than a day from now; repeated sends are only recognised within a day`,
    )
  }
  return id.toLowerCase()
}

function due(options: SendOptions, clock: Clock): Pick<NewJob, 'delayUs' | 'atUs'> {
  if (options.delay !== undefined && options.at !== undefined) {
    throw new UsageError('SLUICE_BAD_OPTION', 'give `delay` or `at`, not both')
  }
  const delayUs = options.delay === undefined ? null : Math.round(durationMs(options.delay) * 1_000)
  if (delayUs !== null && delayUs > delayMaxMs * 1_000)
    throw new UsageError('SLUICE_BAD_OPTION', '`delay` is longer than 366 days')
  if (options.at !== undefined && !(options.at instanceof Date && Number.isFinite(options.at.getTime()))) {
    throw new UsageError('SLUICE_BAD_OPTION', '`at` is not a valid Date')
  }
  if (options.at !== undefined && options.at.getTime() - clock.wallMs() > delayMaxMs)
    throw new UsageError('SLUICE_BAD_OPTION', '`at` is more than 366 days from now')
  return { delayUs, atUs: options.at === undefined ? null : options.at.getTime() * 1_000 }
}

function tags(list: readonly string[] | undefined): string[] | null {
  if (list === undefined) return null
  if (
    !Array.isArray(list) ||
    list.length > 20 ||
    list.some((tag) => typeof tag !== 'string' || !/^[^\u0000-\u001f]{1,100}$/u.test(tag))
  ) {
    throw new UsageError(
      'SLUICE_BAD_OPTION',
      'tags: a list of up to 20 texts, each 1 to 100 characters without control characters',
    )
  }
  return list.length === 0 ? null : [...list]
}

function idempotencyKey(key: string | undefined): string | null {
  if (key === undefined) return null
  if (typeof key !== 'string' || key.length < 1 || key.length > 512 || key.includes('\u0000')) {
    throw new UsageError('SLUICE_BAD_OPTION', 'idempotencyKey: 1 to 512 characters, without \\u0000')
  }
  return key
}

function fairKey(path: string, input: unknown): string {
  const value = fieldOf(input, path)
  if (typeof value !== 'string' && typeof value !== 'number' && typeof value !== 'boolean') {
    throw new UsageError(
      'SLUICE_MISSING_KEY',
      `the fair key "${path}" of the input is ${JSON.stringify(value)}; it must be a string, number or boolean`,
    )
  }
  return String(value)
}

/** Lane ids by identity; hashing is most of the cost of admitting a job, and tenants repeat. */
const lanes = new Map<string, string>()

function laneOf(identity: string): string {
  const known = lanes.get(identity)
  if (known !== undefined) return known
  if (lanes.size >= 10_000) lanes.clear()
  const lane = hash64(identity)
  lanes.set(identity, lane)
  return lane
}
