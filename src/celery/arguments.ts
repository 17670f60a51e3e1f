/** Values of ours as the arguments of a Celery task, and back. */
import { isRecord, plainJson } from './json.ts'
import type { TaskMessage } from './task-message.ts'
import { unreadableError } from './wire.ts'

type Arguments = Pick<TaskMessage, 'args' | 'kwargs'>

/** Returns the arguments that stand for a value: the fields of an object by name, a list by position, else one argument. */
export function argumentsOf(value: unknown): Arguments {
  if (isRecord(value)) return { args: [], kwargs: value }
  if (Array.isArray(value)) return { args: value, kwargs: {} }
  return { args: value === undefined || value === null ? [] : [value], kwargs: {} }
}

/**
 * Returns the arguments of which `inputOf` made a job's input, or that stand for an input that was written by hand: beside other
 * fields, a list `args` has the positional ones.
 */
export function argumentsOfInput(input: unknown): Arguments {
  if (!isRecord(input)) return argumentsOf(input)
  const { args, ...kwargs } = input
  return Array.isArray(args) && args.length > 0 && Object.keys(kwargs).length > 0
    ? { args, kwargs }
    : argumentsOf(input)
}

/**
 * Returns the value of arguments: named ones as an object, positional ones as a list. If there are both, the positional
 * ones are the field `args` of the object. Numbers that a number cannot hold are text.
 * @throws SluiceError SLUICE_CELERY_MESSAGE: it has both, and `args` among the named ones
 */
export function inputOf({ args, kwargs }: Arguments): unknown {
  if (args.length === 0) return plainJson(kwargs)
  if (Object.hasOwn(kwargs, 'args')) throw unreadableError('it has positional arguments beside a named one, "args"')
  return plainJson(Object.keys(kwargs).length === 0 ? args : { ...kwargs, args })
}
