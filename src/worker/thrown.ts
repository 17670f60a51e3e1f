/** Errors on their way between threads: what a structured clone would leave out of them (code, retryable, …) goes along. */
import { AttemptError, SluiceError } from '../core/errors.ts'

/** An error, or what was thrown instead of one, as it can be sent. */
export interface Thrown {
  /** Undefined: something that is not an error. */
  message?: string
  /** A text that was thrown as such. */
  text?: string
  name?: string
  stack?: string
  /** Its own fields, where they are texts, numbers or booleans. */
  fields?: Record<string, unknown>
  isOurs?: boolean
  cause?: Thrown
}

const depthMax = 3

/** Makes it ready to be sent. Of what a handler throws even a look at it may throw: that too is told. */
export function pack(error: unknown, depth = 0): Thrown {
  if (typeof error === 'string') return { text: error }
  try {
    if (!(error instanceof Error)) return {}
    const { message, name, stack, cause } = error as { [field in 'message' | 'name' | 'stack' | 'cause']: unknown }
    const plain = Object.entries(error).filter(([, value]) => ['string', 'number', 'boolean'].includes(typeof value))
    return {
      message: String(message),
      name: String(name),
      ...(typeof stack === 'string' ? { stack } : {}),
      fields: Object.fromEntries(plain),
      isOurs: SluiceError.is(error),
      ...(cause === undefined || depth === depthMax ? {} : { cause: pack(cause, depth + 1) }),
    }
  } catch {
    return { message: 'what was thrown cannot be read', name: 'Error' }
  }
}

/** The error again; an error of ours means what it meant. */
export function unpack(thrown: Thrown): unknown {
  const { message, text, name, stack, fields, isOurs, cause } = thrown
  if (text !== undefined) return text
  if (message === undefined) return {}
  const inner = cause === undefined ? {} : { cause: unpack(cause) }
  const error = isOurs ? new AttemptError('', message, { retryable: false, ...inner }) : new Error(message, inner)
  return Object.assign(Object.defineProperty(error, 'name', { value: name, writable: true }), { stack }, fields)
}
