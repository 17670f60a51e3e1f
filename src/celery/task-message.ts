/** Celery's message of a task: written by protocol 2, read by protocols 1 and 2. */
import { isPromise, type MaybePromise } from '../core/maybe-promise.ts'
import { isRecord, writeJson } from './json.ts'
import {
  awaitedIn,
  readSignature,
  readSignatures,
  readSteps,
  type Signature,
  tasksIn,
  writeSignature,
} from './signature.ts'
import { readTime, reprOf, writeTime } from './time.ts'
import { readBody, unreadableError, type WireMessage, writeBody } from './wire.ts'

/** One call of a task. */
export interface TaskMessage {
  readonly id: string
  /** Name of the task. */
  readonly task: string
  readonly args: readonly unknown[]
  readonly kwargs: Readonly<Record<string, unknown>>
  /** The first task of the tree to which it belongs; itself, if it is that. */
  readonly rootId: string
  /** The task that sent it. */
  readonly parentId: string | undefined
  readonly groupId: string | undefined
  /** Its place in the group, from 0. */
  readonly groupIndex: number | undefined
  /** How often the task has sent itself again. */
  readonly retries: number
  /** It begins no sooner; wall time in ms. */
  readonly etaMs: number | undefined
  /** It begins no later; wall time in ms. */
  readonly expiresMs: number | undefined
  /** Seconds after which the worker ends the task. */
  readonly hardLimitS: number | undefined
  /** Seconds after which the worker raises an error in the task. */
  readonly softLimitS: number | undefined
  /** True: a success is not reported. */
  readonly ignoreResult: boolean
  /** Where results over rpc go. */
  readonly replyTo: string | undefined
  readonly priority: number
  /** Another name of the task, for logs. */
  readonly shadow: string | undefined
  /** The name of its sender, for people. */
  readonly origin: string | undefined
  /** Sent after a success. */
  readonly callbacks: readonly Signature[]
  /** Sent after a failure. */
  readonly errbacks: readonly Signature[]
  /** Sent after a success, one after the other, in this order. */
  readonly chain: readonly Signature[]
  /** Sent when all members of its group have ended, with their results. */
  readonly chord: Signature | undefined
  /** The sender's own headers, and Celery's stamps. */
  readonly headers: Readonly<Record<string, unknown>>
}

/** Headers of the protocol; all others are the sender's. */
const known = new Set(
  (
    'lang task id shadow eta expires group group_index retries timelimit root_id parent_id argsrepr kwargsrepr origin ' +
    'ignore_result compression'
  ).split(' '),
)
/**
 * Headers that RabbitMQ adds: with them a copy looks like a message that goes in circles, and is dropped; and the one that kombu adds over
 * Redis to what was delivered.
 */
const isBrokers = (name: string) =>
  name === 'redelivered' || /^x-(death|first-death-|last-death-|delivery-count|acquired-count)/.test(name)

/** Returns headers for a copy: without those that RabbitMQ has added, and the one by which it sends a message to further queues. */
export function withoutBrokers(headers: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => name !== 'CC' && !isBrokers(name)))
}

/** Returns what the sender has added. A loop, because it is done for each message, and mostly finds nothing. */
function foreignIn(headers: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const own: Record<string, unknown> = {}
  for (const name of Object.keys(headers)) if (!known.has(name) && !isBrokers(name)) own[name] = headers[name]
  return own
}

/**
 * Writes a task by protocol 2.
 * @param options `nowMs`: wall time, from which the broker's own expiry (`expiration`) is counted; if it is in the past, the broker
 * keeps the message for longer than its `expires` states; `compress`: as zlib
 * @throws UsageError SLUICE_BAD_PAYLOAD: JSON cannot express an argument
 */
export async function writeTask(
  task: TaskMessage,
  options: { nowMs: number; compress?: boolean },
): Promise<WireMessage> {
  const { args, kwargs, callbacks, errbacks, chain, chord, expiresMs } = task
  const follow = (all: readonly Signature[]) => (all.length === 0 ? null : all.map(writeSignature))
  // Celery takes the next task of a chain from the end.
  const embed = {
    callbacks: follow(callbacks),
    errbacks: follow(errbacks),
    chain: follow(chain.toReversed()),
    chord: chord === undefined ? null : writeSignature(chord),
  }
  const text = writeJson([args, kwargs, embed], `a message for "${task.task}"`)
  const { compression, ...body } = await writeBody(text, options.compress)
  const headers = { ...headersOf(task), ...(compression === undefined ? {} : { compression }) }
  return {
    ...body,
    correlationId: task.id,
    replyTo: task.replyTo,
    deliveryMode: 2,
    priority: task.priority,
    expiration: expiresMs === undefined ? undefined : String(Math.max(0, Math.ceil(expiresMs - options.nowMs))),
    headers,
  }
}

function headersOf(task: TaskMessage): Record<string, unknown> {
  return {
    ...foreignIn(task.headers),
    lang: 'js',
    task: task.task,
    id: task.id,
    shadow: task.shadow ?? null,
    eta: task.etaMs === undefined ? null : writeTime(task.etaMs),
    expires: task.expiresMs === undefined ? null : writeTime(task.expiresMs),
    group: task.groupId ?? null,
    group_index: task.groupIndex ?? null,
    retries: task.retries,
    timelimit: [task.hardLimitS ?? null, task.softLimitS ?? null],
    root_id: task.rootId,
    parent_id: task.parentId ?? null,
    argsrepr: reprOf(task.args, true),
    kwargsrepr: reprOf(task.kwargs),
    origin: task.origin ?? null,
    ignore_result: task.ignoreResult,
  }
}

/**
 * Reads a task (a promise only if its body is compressed), by protocol 2 if a header names the task, else by protocol 1.
 * @param how `bytesMax`: longest body that is read, default 64 MiB; `chords`: its reader counts members of chords, default false
 * @throws SluiceError SLUICE_CELERY_MESSAGE: it cannot be read, or belongs to a chord
 */
export function readTask(
  message: WireMessage,
  { bytesMax, chords = false }: { bytesMax?: number; chords?: boolean } = {},
): MaybePromise<TaskMessage> {
  const read = (body: unknown) => {
    const task = taskOf(message, body)
    if (chords || !hasChord(task)) return task
    const why = `"${task.task}" belongs to a chord, whose members are not counted here: use a chain or a group`
    throw unreadableError(why)
  }
  const body = readBody(message, bytesMax)
  return isPromise(body) ? body.then(read) : read(body)
}

/** True if it is a member of a chord, or a task that follows it is. */
export function hasChord({ chord, chain, callbacks }: Pick<TaskMessage, 'chord' | 'chain' | 'callbacks'>): boolean {
  const isFollowed = chain.length > 0 || callbacks.length > 0
  return chord !== undefined || (isFollowed && [...chain, ...callbacks].flatMap(tasksIn).some(isInChord))
}

function isInChord({ options }: Signature): boolean {
  const followers = [options['link'] ?? []].flat().map(readSignature)
  return (options['chord'] ?? null) !== null || followers.flatMap(tasksIn).some(isInChord)
}

/** The fields by which it is reported that a task cannot be carried out. */
const headFields = new Set(['task', 'id', 'root_id', 'parent_id', 'group', 'group_index', 'ignore_result'])

/**
 * Returns a task that cannot be carried out, as far as is needed to report that to all who wait: for it, and in `chain` for what
 * follows it. Undefined: it has too little. @param bytesMax as of `readTask`
 */
export async function headOf(message: WireMessage, bytesMax?: number): Promise<TaskMessage | undefined> {
  const body = await Promise.resolve()
    .then(() => readBody(message, bytesMax))
    .catch(() => undefined)
  const own = typeof message.headers['task'] === 'string' ? message.headers : body
  const [, , embed] = Array.isArray(body) ? (body as unknown[]) : []
  try {
    const head = fieldsOf(message, (name) => (isRecord(own) && headFields.has(name) ? own[name] : undefined), {})
    return { ...head, chain: isRecord(embed) ? awaitedIn([embed['chain'], embed['chord']]) : [] }
  } catch {
    return undefined
  }
}

/** As `readTask`, of a message whose body was read. */
export function taskOf(message: WireMessage, body: unknown): TaskMessage {
  if (typeof message.headers['task'] !== 'string') return readFirst(message, body)
  if (!Array.isArray(body)) throw unreadableError('its header names a task, and its body is no list of arguments')
  const [args, kwargs, embed] = body
  const more: Record<string, unknown> = { args, kwargs, ...(isRecord(embed) ? embed : {}) }
  const field = (name: string) => (Object.hasOwn(more, name) ? more[name] : message.headers[name])
  return fieldsOf(message, field, foreignIn(message.headers))
}

function readFirst(message: WireMessage, body: unknown): TaskMessage {
  const all = isRecord(body) && { group: body['taskset'], ...body }
  if (all !== false) return fieldsOf(message, (name) => all[name as keyof typeof all], {})
  throw unreadableError('it names no task, in its headers or in its body')
}

/** @param field returns a field of the message by its name @param headers what the sender has added */
function fieldsOf(
  message: WireMessage,
  field: (name: string) => unknown,
  headers: Record<string, unknown>,
): TaskMessage {
  const text = (name: string) => {
    const found = field(name)
    return typeof found === 'string' && found !== '' ? found : undefined
  }
  // Python's JSON, and doubles in headers, may be infinite.
  const count = (value: unknown) =>
    typeof value === 'number' && Number.isFinite(value) && value >= 0 ? value : undefined
  const [task, id] = [text('task'), text('id')]
  if (task === undefined || id === undefined) throw unreadableError('it has no name of a task, or no id')
  const [args = [], kwargs = {}, timelimit, chord = null] = ['args', 'kwargs', 'timelimit', 'chord'].map(field)
  const chain = field('chain')
  if (!Array.isArray(args) || !isRecord(kwargs)) throw unreadableError(`the arguments of "${task}" have the wrong form`)
  const [hard, soft] = Array.isArray(timelimit) ? timelimit : []
  return {
    id,
    task,
    args,
    kwargs,
    rootId: text('root_id') ?? id,
    parentId: text('parent_id'),
    groupId: text('group'),
    groupIndex: count(field('group_index')),
    retries: count(field('retries')) ?? 0,
    etaMs: timeOf(field('eta'), 'eta'),
    expiresMs: timeOf(field('expires'), 'expires'),
    hardLimitS: count(hard),
    softLimitS: count(soft),
    ignoreResult: field('ignore_result') === true,
    replyTo: message.replyTo,
    priority: message.priority ?? 0,
    shadow: text('shadow'),
    origin: text('origin'),
    callbacks: readSignatures(field('callbacks')),
    errbacks: readSignatures(field('errbacks')),
    chain: readSteps(Array.isArray(chain) ? chain.toReversed() : chain),
    chord: chord === null ? undefined : readSignature(chord),
    headers,
  }
}

function timeOf(found: unknown, name: string): number | undefined {
  if (found === undefined || found === null) return undefined
  const ms = typeof found === 'string' ? readTime(found) : undefined
  if (ms === undefined) throw unreadableError(`its ${name} is no time`)
  return ms
}

/** A task's message without a name: what is not given is like this. */
export const blank: Omit<TaskMessage, 'id' | 'task' | 'rootId'> = {
  args: [],
  kwargs: {},
  parentId: undefined,
  groupId: undefined,
  groupIndex: undefined,
  retries: 0,
  etaMs: undefined,
  expiresMs: undefined,
  hardLimitS: undefined,
  softLimitS: undefined,
  ignoreResult: false,
  replyTo: undefined,
  priority: 0,
  shadow: undefined,
  origin: undefined,
  callbacks: [],
  errbacks: [],
  chain: [],
  chord: undefined,
  headers: {},
}
