/** Celery's results: the same JSON over rpc, where it is a message, and in Redis, where it is a key. */
import { SluiceError } from '../core/errors.ts'
import { isRecord, readJson, writeJson } from './json.ts'
import { inJson, unreadableError, type WireMessage } from './wire.ts'

/** States that may still change, then those that do not. */
export type CeleryState = 'PENDING' | 'RECEIVED' | 'STARTED' | 'RETRY' | 'SUCCESS' | 'FAILURE' | 'REVOKED'

/** The state in a report that cannot be read, of which the value is the reason. */
export const unread = 'UNREADABLE'

/** The report of a worker about a task. */
export interface TaskResult {
  readonly id: string
  /** A task may report states of its own beside Celery's. */
  readonly state: CeleryState | (string & {})
  /** The task's return value; of a failure or a retry the error; otherwise what belongs to the state. */
  readonly value: unknown
  /** Python's traceback. */
  readonly traceback: string | undefined
}

/** An error as Celery describes it. */
export interface RemoteError {
  /** Name of its class, `ValueError`. */
  readonly type: string
  /** The module of its class, `builtins`. */
  readonly module: string
  /** The arguments of its constructor. */
  readonly args: readonly unknown[]
}

/** A task failed, or was revoked before it ended. */
export class CeleryTaskError extends SluiceError {
  /** Name of the error's class in the worker: `ValueError`, `TimeLimitExceeded`, `NotRegistered`, `TaskRevokedError`. */
  readonly type: string
  /** The module of that class; undefined: the worker named none. */
  readonly module: string | undefined
  /** The arguments of that error's constructor: `raise ValueError('boom', 1)` gives `['boom', 1]`. */
  readonly args: readonly unknown[]
  /** Python's traceback. */
  readonly traceback: string | undefined
  constructor(id: string, error: Partial<RemoteError>, how: { isRevoked: boolean; traceback?: string | undefined }) {
    const { type = 'Exception', module, args = [] } = error
    const argsText = args.map((one) => (typeof one === 'string' ? one : writeLoosely(one))).join(', ')
    const what = `${type}${argsText === '' ? '' : `: ${argsText}`}`
    if (how.isRevoked)
      super('SLUICE_CELERY_REVOKED', `Celery task ${id} was revoked (${what}): send it again if it is still needed`)
    else super('SLUICE_CELERY_FAILED', `Celery task ${id} failed with ${what}`)
    this.type = type
    this.module = module
    this.args = args
    this.traceback = how.traceback
  }
}

/** Key of a task's result in Redis, and name of the channel that announces it. */
export const resultKey = (id: string): string => `celery-task-meta-${id}`

/** For how many s Celery keeps results, and counts of chords. */
export const resultKeptS = '86400'

/** Key in Redis of a group that contains groups. */
export const groupKey = (groupId: string): string => `celery-taskset-meta-${groupId}`

/**
 * A key in Redis of a chord: `.s` the number of its members, `.t` what is to be added to that, `.j` the results so far. The worker
 * that adds the last result sends the task that follows.
 */
export const chordKey = (groupId: string, part: string): string => `${groupKey(groupId)}${part}`

/** True for a state that does not change any more. */
export const isFinal = (state: string): boolean => ['SUCCESS', 'FAILURE', 'REVOKED'].includes(state)

/** True for a message that was refused because it came too late. If it was a second copy, the call of the first one may go on. */
export const isExpired = ({ state, value }: TaskResult): boolean =>
  state === 'REVOKED' && (value as Partial<RemoteError> | null)?.args?.[0] === 'expired'

/** Describes an error so that Python raises one of the same name: an unknown module gives a class of Celery's own. */
export function remoteErrorOf(error: unknown): RemoteError {
  if (error instanceof CeleryTaskError)
    return { type: error.type, module: error.module ?? 'celery.exceptions', args: error.args }
  if (error instanceof Error) return { type: error.name || 'Error', module: 'sluice.errors', args: [error.message] }
  return { type: 'Error', module: 'sluice.errors', args: [String(error)] }
}

/**
 * Writes a result. Python reads an error only if it has a type, so anything thrown becomes one.
 * @param more what Redis has beside it: `date_done`, `group_id`, `parent_id`
 * @throws UsageError SLUICE_BAD_PAYLOAD: JSON cannot express the value
 */
export function writeResult({ id, state, value, traceback }: TaskResult, more: Record<string, unknown> = {}): string {
  const isError = state === 'FAILURE' || state === 'RETRY' || state === 'REVOKED'
  const result = isError ? writeError(isRemote(value) ? value : remoteErrorOf(value)) : (value ?? null)
  const all = { status: state, result, traceback: traceback ?? null, children: [], ...more, task_id: id }
  return writeJson(all, `the result of ${id}`)
}

function writeError({ type, module, args }: RemoteError): Record<string, unknown> {
  return { exc_type: type, exc_message: args, exc_module: module }
}

/** Writes the message that carries a result over rpc; its address is the task's `replyTo`. */
export function resultMessage(result: TaskResult): WireMessage {
  const body = Buffer.from(writeResult(result))
  return { ...inJson, correlationId: result.id, deliveryMode: 1, headers: {}, body }
}

/** Reads a result. @throws SluiceError SLUICE_CELERY_MESSAGE */
export function readResult(text: string): TaskResult {
  let found: unknown
  try {
    found = readJson(text)
  } catch (error) {
    throw unreadableError('a result is no JSON: set result_serializer = "json" in the worker', error)
  }
  if (!isRecord(found) || typeof found['task_id'] !== 'string' || typeof found['status'] !== 'string')
    throw unreadableError('a result has no task_id or no status')
  const { task_id: id, status: state, result: value, traceback } = found
  const isError = state === 'FAILURE' || state === 'RETRY' || state === 'REVOKED'
  return {
    id,
    state,
    value: isError ? readError(value) : value,
    traceback: typeof traceback === 'string' ? traceback : undefined,
  }
}

/** The value of a task that succeeded. @throws CeleryTaskError: it failed or was revoked */
export function resultValue({ id, state, value, traceback }: TaskResult): unknown {
  if (state === 'SUCCESS') return value
  throw new CeleryTaskError(id, isRemote(value) ? value : {}, { isRevoked: state === 'REVOKED', traceback })
}

function readError(found: unknown): Partial<RemoteError> {
  if (!isRecord(found)) return { type: 'Exception', args: found === null || found === undefined ? [] : [found] }
  const { exc_type: type, exc_message: args, exc_module: module } = found
  return {
    type: typeof type === 'string' ? type : 'Exception',
    args: Array.isArray(args) ? args : [args],
    ...(typeof module === 'string' ? { module } : {}),
  }
}

function isRemote(value: unknown): value is RemoteError {
  return isRecord(value) && typeof value['type'] === 'string' && Array.isArray(value['args'])
}

/** Writes a value for people. */
export function writeLoosely(value: unknown): string {
  try {
    return JSON.stringify(value, (_key, one: unknown) => (typeof one === 'bigint' ? String(one) : one)) ?? String(value)
  } catch {
    return '(nested too deep)'
  }
}
