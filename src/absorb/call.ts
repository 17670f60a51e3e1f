/** Translates a Celery producer's message into a job, and the end of the job into Celery's result. */
import type { Address } from '../celery/carrier.ts'
import { readJson } from '../celery/json.ts'
import type { RemoteError, TaskResult } from '../celery/result.ts'
import { beginningOf, bodyOf, membersOf, readSignature, type Signature, tasksIn } from '../celery/signature.ts'
import { blank, type TaskMessage } from '../celery/task-message.ts'
import { readTime } from '../celery/time.ts'
import { codeOf, textOfError, UsageError } from '../core/errors.ts'
import { idFrom } from '../core/hash.ts'
import { waitMaxMs } from '../core/retry.ts'

/** Where the results of a call go. */
export interface Replies {
  readonly replyTo: string | null
  readonly ignoreResult: boolean
  /** The fields that Celery keeps beside a result. */
  readonly about: Readonly<Record<string, unknown>>
}

/** The fields of a call that are kept until its job has ended. */
export interface Call extends Replies, Pick<TaskMessage, 'rootId' | 'callbacks' | 'errbacks' | 'chain'> {
  /** The name under which it was sent. */
  readonly task: string
  readonly priority: number
  /** The queue that it came from. Tasks that follow it and name no queue go there. */
  readonly queue: string
  /** The task that is sent when all members of its group have ended; absent: it is no member of a chord. */
  readonly chord?: Signature
  readonly groupIndex?: number
}

/** The state of a job, as the store has it. */
export interface Change {
  /** `done`, `failed`, `cancelled`; of a job that goes on: `started`, `retry`. */
  readonly state: string
  readonly reason: string | null
  /** JSON. */
  readonly result: string | null
  /** JSON. */
  readonly error: string | null
}

/** A task that follows another one, and where it goes. */
export interface Follower {
  readonly message: TaskMessage
  readonly address: Address
  /** False: its options name no queue, so the address is that of the call. */
  readonly isAddressed: boolean
  /** The chords of which it is the first member to be sent. */
  readonly begins?: readonly BegunChord[]
}

/** A chord whose members are about to be sent. */
export interface BegunChord {
  readonly groupId: string
  readonly size: number
}

/** A result of a member of a chord. */
export interface Part {
  readonly groupId: string
  /** Undefined: after those that have one. */
  readonly index: number | undefined
  readonly result: TaskResult
  readonly body: Signature
}

/** Returns what is kept of a message. */
export function callOf(message: TaskMessage, queue: string): Call {
  const { task, rootId, ignoreResult, callbacks, errbacks, chain, replyTo = null, priority } = message
  const { parentId, groupId, groupIndex, chord } = message
  const about = { parent_id: parentId, group_id: groupId }
  const member = chord === undefined ? {} : { chord, ...(groupIndex === undefined ? {} : { groupIndex }) }
  return { task, rootId, ignoreResult, callbacks, errbacks, chain, replyTo, priority, about, queue, ...member }
}

function chordOf({ options }: Signature): Signature | undefined {
  const found = options['chord'] ?? null
  return found === null ? undefined : readSignature(found)
}

/** Returns when the job may begin, and how long it may wait then; undefined: its time to begin is over. */
export function timesOf(
  { etaMs, expiresMs }: Pick<TaskMessage, 'etaMs' | 'expiresMs'>,
  nowMs: number,
): { at?: Date; maxWait?: number } | undefined {
  const fromMs = Math.max(nowMs, etaMs ?? 0)
  if (expiresMs !== undefined && expiresMs <= fromMs) return undefined
  return {
    ...(fromMs > nowMs ? { at: new Date(fromMs) } : {}),
    ...(expiresMs === undefined ? {} : { maxWait: Math.min(waitMaxMs, Math.ceil(expiresMs - fromMs)) }),
  }
}

/** Returns the shorter one of the time limits of a message, in ms; undefined: it has none. As with Celery, 0 is no limit. */
export function limitMsOf({
  hardLimitS,
  softLimitS,
}: Pick<TaskMessage, 'hardLimitS' | 'softLimitS'>): number | undefined {
  const seconds = Math.min(hardLimitS || Infinity, softLimitS || Infinity)
  return seconds === Infinity ? undefined : Math.max(1, Math.round(seconds * 1_000))
}

/** The result of a call that was revoked, or has expired. */
export function revokedResult(id: string, why: string): TaskResult {
  const value = { type: 'TaskRevokedError', module: 'celery.exceptions', args: [why] }
  return { id, state: 'REVOKED', value, traceback: undefined }
}

/** The result of a call that cannot be carried out. */
export function refusedResult({ id, task }: Pick<TaskMessage, 'id' | 'task'>, cause: unknown): TaskResult {
  const unknown: RemoteError = { type: 'NotRegistered', module: 'celery.exceptions', args: [task] }
  if (codeOf(cause) !== 'SLUICE_NO_SUCH_TASK') return { id, state: 'FAILURE', value: cause, traceback: undefined }
  return { id, state: 'FAILURE', value: unknown, traceback: textOfError(cause) }
}

/** Makes the error for a message of a task that this worker does not have. */
export function unknownTask(name: string): UsageError {
  const why = `no worker here has a task "${name}". If it follows a task that ran here: it goes to the queue of that one, unless its own options, or \`routes\` of \`celery\` here, name another`
  return new UsageError('SLUICE_NO_SUCH_TASK', why)
}

/** Returns Celery's result of a job. @param worker Celery's name of the worker that reports it */
export function resultOf(id: string, { state, reason, result, error }: Change, worker = ''): TaskResult {
  if (state === 'started')
    return { id, state: 'STARTED', value: { pid: process.pid, hostname: worker }, traceback: undefined }
  if (state === 'done') return { id, state: 'SUCCESS', value: read(result) ?? null, traceback: undefined }
  if (state === 'cancelled') return revokedResult(id, 'revoked')
  if (reason === 'expired') return revokedResult(id, 'expired')
  const { name, code, message, stack } = (read(error) ?? {}) as Partial<Record<string, unknown>>
  const type = typeof name === 'string' ? name : typeof code === 'string' ? code : 'Error'
  const value = { type, module: 'sluice.errors', args: [typeof message === 'string' ? message : (reason ?? state)] }
  const traceback = typeof stack === 'string' ? stack : undefined
  return { id, state: state === 'retry' ? 'RETRY' : 'FAILURE', value, traceback }
}

function read(text: string | null): unknown {
  return text === null ? undefined : readJson(text)
}

/** True for a result after which the rest of a chain is never sent. */
const endsChain = ({ state }: TaskResult) => state === 'FAILURE' || state === 'REVOKED'

/**
 * Returns the results that a call's result is for: its own, and if it failed or was revoked those of the rest of its chain, so
 * that nobody waits for the last one for ever.
 */
export function repliesOf(call: Call, result: TaskResult): { result: TaskResult; to: Replies }[] {
  const rest = endsChain(result) ? call.chain.flatMap(tasksIn) : []
  const failed = rest.flatMap(({ options }) => {
    const [id, replyTo = call.replyTo] = [textOf(options, 'task_id'), textOf(options, 'reply_to')]
    if (id === undefined) return []
    const about = { parent_id: result.id, group_id: textOf(options, 'group_id') }
    return [{ result: { ...result, id }, to: { replyTo, about, ignoreResult: options['ignore_result'] === true } }]
  })
  return [{ result, to: call }, ...failed]
}

/** Returns what a call's result means to chords: its own, and if it failed or was revoked that of the rest of its chain. */
export function chordPartsOf(call: Call, result: TaskResult): Part[] {
  const groupId = call.about['group_id']
  const own =
    call.chord === undefined || typeof groupId !== 'string'
      ? []
      : [{ groupId, index: call.groupIndex, result, body: call.chord }]
  if (!endsChain(result)) return own
  const rest = call.chain.flatMap(tasksIn).flatMap((one) => {
    const [id, body] = [textOf(one.options, 'task_id'), chordOf(one)]
    const group = textOf(one.options, 'group_id')
    if (id === undefined || body === undefined || group === undefined) return []
    return [{ groupId: group, index: numberOf(one.options, 'group_index'), result: { ...result, id }, body }]
  })
  return [...own, ...rest]
}

/** Returns the tasks that follow a call with this result, as a worker of Celery sends them. @param nowMs wall time */
export function followersOf(id: string, call: Call, { state, value }: TaskResult, nowMs: number): Follower[] {
  const { callbacks, errbacks, chain } = call
  const from = { id, call, nowMs }
  if (state === 'FAILURE')
    return errbacks.flatMap((one, n) => createFollowers({ ...from, as: `error ${n}` }, one, [id], []))
  if (state !== 'SUCCESS') return []
  const [next, ...rest] = chain
  const all = callbacks.flatMap((one, n) => createFollowers({ ...from, as: `success ${n}` }, one, [value], []))
  return next === undefined ? all : [...all, ...createFollowers({ ...from, as: 'next' }, next, [value], rest)]
}

/** Returns what is sent when the members of a chord have ended: its last task with their results, or what follows its failure. */
export function chordFollowers(
  { groupId, body, result }: Part,
  call: Call,
  outcome: { results: readonly unknown[] } | { error: RemoteError },
  nowMs: number,
): Follower[] {
  // Which of its members ended last is not the same each time.
  const from = { id: result.id, of: groupId, call, nowMs }
  if ('results' in outcome) return createFollowers({ ...from, as: 'chord' }, body, [outcome.results], [])
  const id = textOf(body.options, 'task_id') ?? result.id
  return listOf(body.options, 'link_error').flatMap((one, n) =>
    createFollowers({ ...from, as: `chord ${n}` }, one, [id], []),
  )
}

const textOf = (options: Signature['options'], name: string) =>
  typeof options[name] === 'string' ? options[name] : undefined
const numberOf = (options: Signature['options'], name: string) =>
  typeof options[name] === 'number' && options[name] >= 0 ? options[name] : undefined
const listOf = (options: Signature['options'], name: string) => {
  const found = options[name] ?? []
  return (Array.isArray(found) ? found : [found]).map(readSignature)
}

/** A time among options: an instant, or seconds from now. */
function whenOf(options: Signature['options'], name: string, nowMs: number): number | undefined {
  const found = options[name]
  if (typeof found === 'number') return nowMs + found * 1_000
  return typeof found === 'string' ? readTime(found) : undefined
}

/**
 * The task that another one follows. `as` names the follower among those of the task `id`. The follower's id is made of `as` and `id`;
 * if `of` is given, of `as` and `of`.
 */
interface Origin {
  readonly id: string
  readonly of?: string
  readonly call: Call
  readonly nowMs: number
  readonly as: string
}

function createFollowers(
  from: Origin,
  next: Signature,
  given: readonly unknown[],
  chain: readonly Signature[],
): Follower[] {
  if (next.subtask_type === undefined) return [createFollower(from, next, given, chain)]
  if (next.subtask_type === 'chord') return beginChord(from, next, given, chain)
  return membersOf(next).flatMap((one, n) => createFollowers({ ...from, as: `${from.as} ${n}` }, one, given, chain))
}

function beginChord(from: Origin, chord: Signature, given: readonly unknown[], rest: readonly Signature[]): Follower[] {
  const groupId = textOf(chord.options, 'task_id') ?? idFrom(`${from.of ?? from.id}/${from.as}`)
  const members = beginningOf(chord, groupId, rest)
  const taken = chord.immutable ? [] : given
  const [first, ...others] = members.flatMap((one, n) =>
    createFollowers({ ...from, as: `${from.as} ${n}` }, one, taken, []),
  )
  if (first === undefined) return createFollowers(from, bodyOf(chord, rest), [[]], [])
  return [{ ...first, begins: [...(first.begins ?? []), { groupId, size: members.length }] }, ...others]
}

function createFollower(
  { id: parentId, of = parentId, call, nowMs, as }: Origin,
  { task, args, kwargs, immutable, options }: Signature,
  given: readonly unknown[],
  chain: readonly Signature[],
): Follower {
  const text = (name: string) => textOf(options, name)
  const message: TaskMessage = {
    ...blank,
    // The same whenever it is sent, because it is sent again if the first time cannot be recorded.
    id: text('task_id') ?? idFrom(`${of}/${as}`),
    task,
    args: immutable ? args : [...given, ...args],
    kwargs,
    rootId: call.rootId,
    parentId,
    groupId: text('group_id'),
    groupIndex: numberOf(options, 'group_index'),
    etaMs: whenOf(options, 'countdown', nowMs) ?? whenOf(options, 'eta', nowMs),
    expiresMs: whenOf(options, 'expires', nowMs),
    hardLimitS: numberOf(options, 'time_limit'),
    softLimitS: numberOf(options, 'soft_time_limit'),
    shadow: text('shadow'),
    replyTo: text('reply_to'),
    priority: numberOf(options, 'priority') ?? call.priority,
    ignoreResult: options['ignore_result'] === true,
    callbacks: listOf(options, 'link'),
    errbacks: listOf(options, 'link_error'),
    chain: [...listOf(options, 'chain').toReversed(), ...chain],
    chord: chordOf({ options } as Signature),
    headers: headersOf(options),
  }
  const named = text('routing_key') ?? text('queue')
  const address = { exchange: text('exchange') ?? '', routingKey: named ?? call.queue }
  return { message, address, isAddressed: named !== undefined || address.exchange !== '' }
}

function headersOf({ headers }: Signature['options']): Record<string, unknown> {
  return typeof headers === 'object' && headers !== null && !Array.isArray(headers) ? { ...headers } : {}
}
