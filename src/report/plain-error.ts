/** Errors as plain values, without secrets: with type, message, stack and causes, under the names that pino uses. */
import { inspect } from 'node:util'
import { redactField, redactText } from '../core/redact.ts'

/** An error in a log line. */
export interface PlainError {
  type: string
  message: string
  stack?: string
  cause?: PlainError
  [field: string]: unknown
}

/** A chain of causes may be a circle. */
const causesMax = 8
const charactersMax = 8_192

/** Returns an error, or a record of one, as a plain value. Never throws: an error's fields may be anything. */
export function plainError(error: unknown, depth = 0): PlainError {
  try {
    if (typeof error !== 'object' || error === null) return { type: typeof error, message: clean(error) }
    // Most of these are not the error's own fields.
    const { name, message, stack, cause } = error as { [Field in 'name' | 'message' | 'stack' | 'cause']?: unknown }
    const {
      name: _name,
      message: _message,
      stack: _stack,
      cause: _cause,
      type,
      ...own
    } = error as Record<string, unknown>
    return {
      type: clean(type ?? name ?? 'Error'),
      message: clean(message ?? ''),
      ...(stack === undefined ? {} : { stack: clean(stack) }),
      ...fieldsOf(own),
      ...(cause === undefined || depth >= causesMax ? {} : { cause: plainError(cause, depth + 1) }),
    }
  } catch {
    return { type: 'Error', message: '(an error that cannot be read)' }
  }
}

/** Returns an error's further fields, such as its code, as far as they are short texts and numbers. */
function fieldsOf(own: Record<string, unknown>): Record<string, unknown> {
  const entries = Object.entries(own).filter(
    ([, value]) => ['number', 'boolean'].includes(typeof value) || (typeof value === 'string' && value.length <= 200),
  )
  return Object.fromEntries(entries.map(([name, value]) => [name, redactField(name, value)]))
}

function clean(value: unknown): string {
  return redactText((typeof value === 'string' ? value : inspect(value, { depth: 1 })).slice(0, charactersMax))
}

/** Returns the details of a line with its errors as plain values; `given` may itself be an error. */
export function plainDetails(given: unknown): Record<string, unknown> | undefined {
  if (given === undefined || given === null) return undefined
  if (given instanceof Error) return { err: plainError(given) }
  if (typeof given !== 'object') return { details: given }
  const entries = Object.entries(given as Record<string, unknown>)
  return Object.fromEntries(
    entries
      .filter(([, value]) => value !== undefined)
      .map(([name, value]) => [name, name === 'err' || value instanceof Error ? plainError(value) : value]),
  )
}
