/** Reads messages of Celery producers: what each calls, and what it needs. */
import { hash } from 'node:crypto'
import { type Call, callOf, limitMsOf, unknownTask } from '../absorb/call.ts'
import { inputOf } from '../celery/arguments.ts'
import { headOf, readTask, type TaskMessage } from '../celery/task-message.ts'
import { readIncoming } from '../celery/transport.ts'
import { type ClaimedJob, unclaimedJob } from '../claim/claimed-job.ts'
import { isPromise, type MaybePromise } from '../core/maybe-promise.ts'
import { costOf } from '../limits/cost.ts'
import type { Labels } from '../worker/labels.ts'
import { bucketsOf } from '../tasks/placement.ts'
import type { AnyTask } from '../tasks/task.ts'
import type { Incoming } from './broker.ts'
import { type Progress, progressHeader, progressOf } from './message.ts'

/** A message in hand. */
export interface Entry {
  /** The same whenever a message is received. */
  readonly key: string
  readonly queue: string
  readonly message: TaskMessage
  readonly task: AnyTask
  readonly input: unknown
  /** The result that its producer awaits, and where. */
  readonly call: Call
  readonly progress: Progress
  /** The names of the buckets that it needs, by labels' names and by their values, and the units of each. */
  readonly buckets: readonly string[]
  readonly holds: readonly string[]
  readonly units: readonly number[]
  /** When it was first seen here, wall time in ms. */
  readonly seenMs: number
  incoming: Incoming
  /** A message about its end was sent to the broker and not confirmed, so the broker may get it twice. */
  mayHaveBeenSent?: boolean
  /** When its attempt began, in ms of wall time, and the report of that. */
  begunMs?: number
  startReported?: Promise<void>
  /** Parts of its end that were sent. */
  readonly sent: Set<string>
}

/** A message in hand, as far as it was read: an entry, or its first parts. */
export type PartialEntry = Pick<Entry, 'key' | 'queue' | 'incoming' | 'mayHaveBeenSent'> & Partial<Entry>

/** Longer texts are hashed, because a worker remembers thousands of keys. */
const textMost = 200

/** Returns a key that is the same whenever a message is received. */
export function keyOf(incoming: Incoming, queue: string): string {
  const { correlationId, messageId, headers } = incoming.properties as {
    correlationId?: string
    messageId?: string
    headers?: Record<string, unknown>
  }
  // Other programs may give no id, or the same id to all messages, or what is no text.
  const ids = [queue, correlationId, messageId, headers?.['id'], headers?.[progressHeader]]
  return [...ids.map((id) => (typeof id === 'string' ? shortOf(id) : '')), shortOf(incoming.body)].join('\n')
}

/** A short one costs less than its hash. */
function shortOf(text: string | Buffer): string {
  return text.length > textMost ? hash('sha1', text, 'base64') : text.toString('latin1')
}

/** What is known of a message before it is read. */
export interface About {
  key: string
  queue: string
  /** It may have been carried out here before. */
  isAgain: boolean
  tasks: ReadonlyMap<string, AnyTask>
  labels: Labels
  nowMs: number
}

/** Returns what a message needs; a promise only if it is compressed. @throws SluiceError SLUICE_CELERY_MESSAGE, and as `entryOf` */
export function readEntry(incoming: Incoming, about: About): MaybePromise<Entry> {
  const message = readTask(readIncoming(incoming))
  return isPromise(message) ? message.then((read) => entryOf(incoming, read, about)) : entryOf(incoming, message, about)
}

/** Resolves to what is reported of a message that cannot be carried out, as far as it can be read. */
export async function findSeen(
  incoming: Incoming,
  queue: string,
): Promise<{ message: TaskMessage; call: Call } | undefined> {
  const wire = readIncoming(incoming)
  const message = await Promise.resolve()
    .then(() => readTask(wire))
    .catch(() => headOf(wire))
  return message && { message, call: callOf(message, queue) }
}

/**
 * Returns what a message needs.
 * @throws UsageError SLUICE_NO_SUCH_TASK, SLUICE_MISSING_KEY, SLUICE_BAD_KEY, SLUICE_BAD_COST, SLUICE_COST_ABOVE_CAPACITY: it
 * cannot be carried out
 */
export function entryOf(incoming: Incoming, message: TaskMessage, about: About): Entry {
  const { key, queue, isAgain, tasks, labels, nowMs: seenMs } = about
  const task = tasks.get(message.task)
  if (task === undefined) throw unknownTask(message.task)
  const input = inputOf(message)
  const buckets = bucketsOf(task, input)
  const holds = task.limits.map(({ name, label }, i) =>
    label === undefined ? (buckets[i] ?? '') : `${name}:${labels[label]}`,
  )
  const units = task.limits.map((limit) => costOf(limit, input))
  const call = callOf(message, queue)
  const noted = progressOf(incoming)
  const progress = isAgain ? { ...noted, isDoubtful: true } : noted
  const sent = new Set<string>()
  return { key, queue, message, task, input, call, progress, buckets, holds, units, seenMs, incoming, sent }
}

/** The grant of an entry. */
export interface GrantOf {
  id: string
  requestedAt: NonNullable<ClaimedJob['requestedAt']>
  lifeMs: number
}

/** Returns the attempt of an entry, as what executes jobs takes it. @param grant undefined: it needs none @param seq its number */
export function jobOf(entry: Entry, grant: GrantOf | undefined, nowMs: number, seq: number): ClaimedJob {
  const { message, task, queue, progress, buckets, holds, units, input, seenMs } = entry
  const { id, priority } = message
  const limitMs = limitMsOf(message)
  return unclaimedJob(progress, {
    seq,
    id,
    priority,
    task: task.name,
    queue,
    grantedMs: grant?.requestedAt.monotonicMs ?? nowMs,
    createdMs: seenMs,
    input,
    ...(limitMs === undefined ? {} : { admitted: [{ timeoutMs: limitMs }] }),
    ...(buckets.length === 0 ? {} : { buckets: [...buckets], chargedBuckets: [...holds], costs: [...units, 1] }),
    ...(grant === undefined ? {} : { grant: grant.id, requestedAt: grant.requestedAt, grantUs: grant.lifeMs * 1_000 }),
  })
}
