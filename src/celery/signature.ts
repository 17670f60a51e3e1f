/** Signatures: tasks that Celery sends later, after the one that carries them. */
import { checkFields } from '../core/fields.ts'
import { isRecord } from './json.ts'
import { unreadableError } from './wire.ts'

/** A task to be sent after another. */
export interface Signature {
  /** Name of the task. */
  readonly task: string
  readonly args: readonly unknown[]
  readonly kwargs: Readonly<Record<string, unknown>>
  /** True: it does not get the other's result as its first argument. */
  readonly immutable: boolean
  /** How it is sent, by Celery's names: `queue`, `countdown`, `task_id`, `reply_to` and so on. */
  readonly options: Readonly<Record<string, unknown>>
}

/** Celery's options of a task stand one level deeper. */
const words = { queue: '{ options: { queue: … } }', countdown: '{ options: { countdown: … } }' }

/**
 * Describes a task that Celery sends after another one, as `link`, `linkError` or part of a chain.
 * @param how `immutable`: it does not get the other's result as its first argument (default false); `options`: by Celery's names,
 * such as `{ queue: 'mail', countdown: 60 }`
 * @throws UsageError SLUICE_BAD_OPTION: another field
 */
export function signature(
  task: string,
  args: readonly unknown[] = [],
  how: Partial<Pick<Signature, 'kwargs' | 'immutable' | 'options'>> = {},
): Signature {
  checkFields('SLUICE_BAD_OPTION', `the signature of "${task}"`, how, ['kwargs', 'immutable', 'options'], words)
  return { task, args, kwargs: how.kwargs ?? {}, immutable: how.immutable ?? false, options: how.options ?? {} }
}

/** The task as it is carried on the wire. */
export function writeSignature({ task, args, kwargs, immutable, options }: Signature): Record<string, unknown> {
  return { task, args, kwargs, options, subtask_type: null, immutable }
}

/** Options of a task with tasks that follow it. */
const followNames = ['chord', 'chain', 'link', 'link_error']

/**
 * Reads a task that another message carries.
 * @throws SluiceError SLUICE_CELERY_MESSAGE: not a signature, or a group or chain inside of one
 */
export function readSignature(found: unknown): Signature {
  if (!isRecord(found) || typeof found['task'] !== 'string') throw unreadableError('a task that follows it has no name')
  const { task, args = [], kwargs = {}, options = {}, immutable = false, subtask_type: type = null } = found
  if (type !== null) throw unreadableError(`a ${JSON.stringify(type)} follows it; only single tasks may`)
  if (!Array.isArray(args) || !isRecord(kwargs) || !isRecord(options))
    throw unreadableError(`the arguments or options of "${task}", which follows it, have the wrong form`)
  // What follows it in turn is sent by whoever executes it, perhaps here, when it is too late to refuse anything.
  for (const name of followNames) for (const one of [options[name] ?? []].flat()) readSignature(one)
  return { task, args, kwargs, options, immutable: immutable === true }
}

/** Reads a list of signatures, which may be absent. @throws SluiceError SLUICE_CELERY_MESSAGE */
export function readSignatures(found: unknown): Signature[] {
  if (found === null || found === undefined) return []
  if (!Array.isArray(found)) throw unreadableError('the tasks that follow it are no list')
  return found.map(readSignature)
}

/** Options that lead to those who wait for a task. */
const awaitedBy = new Set(['task_id', 'reply_to', 'group_id', 'ignore_result'])

/** Returns the tasks in a list of signatures whose results may be awaited, also those inside of groups, chains and chords. */
export function awaitedIn(found: unknown): Signature[] {
  if (Array.isArray(found)) return found.flatMap(awaitedIn)
  if (!isRecord(found) || typeof found['task'] !== 'string') return []
  const { task, kwargs, options } = found
  const own = Object.entries(isRecord(options) ? options : {}).filter(([name]) => awaitedBy.has(name))
  const { tasks, header, body } = isRecord(kwargs) ? kwargs : {}
  const isSingle = (found['subtask_type'] ?? null) === null
  return [
    signature(task, [], { options: Object.fromEntries(own) }),
    ...(isSingle ? [] : awaitedIn([tasks, header, body])),
  ]
}
