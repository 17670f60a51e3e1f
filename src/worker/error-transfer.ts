/** Passes errors between threads, with the fields that a structured clone would leave out (code, retryable, …). */
import { AttemptError, isLikeError, SluiceError, textOfThrown } from '../core/errors.ts'

/** An error, or a value thrown instead of one, in a form that can be sent. */
export interface Thrown {
  message?: string
  /** The text, if a text was thrown, or what was thrown has no fields. */
  text?: string
  name?: string
  stack?: string
  /** Its own fields that are texts, numbers or booleans. */
  fields?: Record<string, unknown>
  /** The parts of the response in an HTTP client's error, which show whether the vendor refused the request. */
  answer?: { headers?: Headings; response?: { status: unknown; headers: Headings } }
  isOurs?: boolean
  cause?: Thrown
}

/** Headers as a plain object. */
type Headings = Record<string, string | number>

const depthMax = 3

/** Returns the headers of any client as a plain object. */
function headingsOf(headers: unknown): Headings {
  if (typeof headers !== 'object' || headers === null) return {}
  const all = headers instanceof Headers ? [...headers] : Object.entries(headers)
  return Object.fromEntries(all.filter(([, value]) => ['string', 'number'].includes(typeof value)))
}

function answerIn(error: object): Pick<Thrown, 'answer'> {
  const { headers, response } = error as {
    headers?: unknown
    response?: { status?: unknown; headers?: unknown } | null
  }
  if (typeof response === 'object' && response !== null && typeof response.status === 'number')
    return { answer: { response: { status: response.status, headers: headingsOf(response.headers) } } }
  return headers === undefined ? {} : { answer: { headers: headingsOf(headers) } }
}

/**
 * Converts a thrown value to a form that can be sent. Even reading a value that a handler throws may throw; that is
 * reported, too.
 */
export function pack(error: unknown, depth = 0): Thrown {
  if (typeof error === 'string') return { text: error }
  try {
    if (typeof error !== 'object' || error === null) return { text: textOfThrown(error) }
    // A plain object with the status of a response is as good as an error with one.
    const { name = 'Error', stack, cause } = error as { [field in 'name' | 'stack' | 'cause']?: unknown }
    const message = isLikeError(error) ? error.message : textOfThrown(error)
    const plain = Object.entries(error).filter(([, value]) => ['string', 'number', 'boolean'].includes(typeof value))
    return {
      message: String(message),
      name: String(name),
      ...(typeof stack === 'string' ? { stack } : {}),
      fields: Object.fromEntries(plain),
      ...answerIn(error),
      isOurs: SluiceError.is(error),
      ...(cause === undefined || depth === depthMax ? {} : { cause: pack(cause, depth + 1) }),
    }
  } catch {
    return { message: 'what was thrown cannot be read', name: 'Error' }
  }
}

/** Restores the error; a Sluice error keeps its meaning. */
export function unpack(thrown: Thrown): unknown {
  const { message = '', text, name, stack, fields, answer, isOurs, cause } = thrown
  if (text !== undefined) return text
  const inner = cause === undefined ? {} : { cause: unpack(cause) }
  const error = isOurs ? new AttemptError('', message, { retryable: false, ...inner }) : new Error(message, inner)
  return Object.assign(Object.defineProperty(error, 'name', { value: name, writable: true }), { stack }, fields, answer)
}
