/** Signatures: tasks that Celery sends later, after the one that carries them. */
import { checkFields, present } from '../core/fields.ts'
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
  /**
   * `group`: it stands for the tasks in the argument `tasks`, which are sent side by side; `chord`: for those in `header`, and for
   * `body`, which is sent when all of them have ended.
   */
  readonly subtask_type?: 'group' | 'chord'
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
export function writeSignature(signature: Signature): Record<string, unknown> {
  const { task, args, kwargs, immutable, options, subtask_type = null } = signature
  return { task, args, kwargs, options, subtask_type, immutable }
}

/** Options of a task with tasks that follow it. */
const followNames = ['chord', 'chain', 'link', 'link_error']

/** What was read: a chord is read with each of its members, so that chords inside of chords would be read millions of times. */
const readBefore = new WeakMap<object, Signature>()

/**
 * Reads a task that another message carries, a group or a chord. A chain is its first task, with the others among its options.
 * @throws SluiceError SLUICE_CELERY_MESSAGE: not a signature
 */
export function readSignature(found: unknown): Signature {
  const known = isRecord(found) ? readBefore.get(found) : undefined
  if (known !== undefined) return known
  const read = readAnew(found)
  readBefore.set(found as object, read).set(read, read)
  return read
}

function readAnew(found: unknown): Signature {
  if (!isRecord(found) || typeof found['task'] !== 'string') throw unreadableError('a task that follows it has no name')
  const { task, args = [], kwargs = {}, options = {}, immutable = false, subtask_type: type = null } = found
  if (type !== null && type !== 'group' && type !== 'chain' && type !== 'chord')
    throw unreadableError(`a ${JSON.stringify(type)} follows it; only single tasks, groups, chains and chords may`)
  if (!Array.isArray(args) || !isRecord(kwargs) || !isRecord(options))
    throw unreadableError(`the arguments or options of "${task}", which follows it, have the wrong form`)
  // What follows it in turn is sent by whoever executes it, perhaps here, when it is too late to refuse anything.
  for (const name of followNames) for (const one of [options[name] ?? []].flat()) readSignature(one)
  if (type !== null && args.length > 0) throw unreadableError(`a ${type} with arguments of its own follows it`)
  if (type === 'chain') return firstOf(readSteps(kwargs['tasks']), options, immutable === true)
  if (type === null) return { task, args, kwargs, options, immutable: immutable === true }
  const read: Signature = { task, args: [], kwargs, options, immutable: immutable === true, subtask_type: type }
  if (type === 'group') readSignatures(kwargs['tasks'])
  else beginningOf(read, '', [])
  return read
}

type Options = Signature['options']

/** Returns options with further tasks that follow a success, or a failure. */
function followedBy(options: Options, { link = [], link_error = [] }: Options): Options {
  const [callbacks, errbacks] = [options['link'] ?? [], options['link_error'] ?? []]
  return { ...options, link: [callbacks, link].flat(), link_error: [errbacks, link_error].flat() }
}

/** Returns the first task of a chain, with the options of the whole as Celery's workers distribute them. */
function firstOf(steps: readonly Signature[], whole: Options, immutable: boolean): Signature {
  const { task_id, group_id, group_index, chord, link, link_error, chain: after = [], ...own } = whole
  const [first, ...rest] = steps.map((one, n) => {
    const isLast = n === steps.length - 1
    const ending = { ...present({ task_id, group_id }), ...one.options, ...present({ group_index, chord }) }
    const options = { ...(isLast ? ending : one.options), ...(n === 0 ? own : {}) }
    return { ...one, options: followedBy(options, isLast ? { link, link_error } : { link_error }) }
  })
  if (first === undefined) throw unreadableError('an empty chain follows it')
  const chain = [after, ...rest.toReversed(), first.options['chain'] ?? []].flat()
  return { ...first, immutable: immutable || first.immutable, options: { ...first.options, chain } }
}

/** Returns the task that follows the others of a chord, with what follows the chord as a whole. @param rest what comes next, in order */
export function bodyOf({ kwargs, options }: Signature, rest: readonly Signature[]): Signature {
  const body = readSignature(kwargs['body'])
  const { task_id: _task, chain = [], link, link_error, ...own } = options
  const after = [...rest.toReversed(), chain, body.options['chain'] ?? []].flat()
  return { ...body, options: followedBy({ ...body.options, ...own, chain: after }, { link, link_error }) }
}

/** Returns the members of a chord, with its options and these. */
function headerOf({ kwargs: { header }, options }: Signature, placed: (n: number) => Options): Signature[] {
  const group = isRecord(header) ? header : { kwargs: { tasks: header } }
  const {
    task_id: _task,
    group_id: _group,
    group_index: _index,
    chord: _chord,
    chain: _chain,
    ...given
  } = {
    ...(isRecord(group['options']) ? group['options'] : {}),
    ...options,
  }
  const { link: _callbacks, link_error: _errbacks, ...own } = given
  const { tasks } = isRecord(group['kwargs']) ? group['kwargs'] : {}
  if (!Array.isArray(tasks)) throw unreadableError('the members of a chord that follows it are no list')
  const members = tasks.map((one: unknown, n) => {
    const of = isRecord(one) && isRecord(one['options']) ? one['options'] : {}
    return readSignature(isRecord(one) ? { ...one, options: { ...of, ...own, ...placed(n) } } : one)
  })
  if (members.every(endsInOne)) return members
  throw unreadableError('a member of a chord that follows it ends in a group')
}

/**
 * Returns the tasks with which a chord begins: its members, each with its place, and with what is sent after the last of them.
 * @param groupId the name under which they are counted @param rest what follows the chord in a chain, in order
 */
export function beginningOf(chord: Signature, groupId: string, rest: readonly Signature[]): Signature[] {
  const body = bodyOf(chord, rest)
  return headerOf(chord, (n) => ({ chord: body, group_id: groupId, group_index: n }))
}

/** Returns true if one result is that of all. */
function endsInOne({ subtask_type: type, kwargs, options }: Signature): boolean {
  const [last = type === 'chord' ? kwargs['body'] : undefined] = [options['chain'] ?? []].flat()
  return type !== 'group' && (last === undefined || endsInOne(readSignature(last)))
}

/** Reads the tasks of a chain, in order. @throws SluiceError SLUICE_CELERY_MESSAGE: also if a group is not the last of them */
export function readSteps(found: unknown): Signature[] {
  const steps = readSignatures(found)
  if (steps.slice(0, -1).every(({ subtask_type: type }) => type !== 'group')) return steps
  throw unreadableError('tasks follow a group in a chain, which Celery itself makes a chord of')
}

/** Returns what is sent for a task, or a group: its members, with the group's own options. */
export function membersOf(signature: Signature): Signature[] {
  if (signature.subtask_type !== 'group') return [signature]
  const { task_id: _task, group_id: _group, group_index: _index, chord: _chord, ...given } = signature.options
  const { link: _callbacks, link_error: _errbacks, ...own } = given
  return readSignatures(signature.kwargs['tasks'])
    .flatMap(membersOf)
    .map((one) => ({ ...one, options: followedBy({ ...one.options, ...own }, given) }))
}

/** Returns all tasks of which results may be awaited if a task, or a group, is sent: with the rest of chains that it begins. */
export function tasksIn(signature: Signature): Signature[] {
  return membersOf(signature).flatMap((one) => {
    if (one.subtask_type === 'chord') {
      const body = bodyOf(one, [])
      return [...headerOf(one, () => ({ chord: body })), body].flatMap(tasksIn)
    }
    const rest = [one.options['chain'] ?? []].flat().map(readSignature)
    return [one, ...rest.flatMap(tasksIn)]
  })
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
