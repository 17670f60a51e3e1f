/**
 * Errors by consequence. Every error has a stable `code` for programs, a message that describes what happened, and, where
 * there is one, the next step. `SluiceError.is` also recognises errors of a second copy of the package.
 */
import { inspect, types } from 'node:util'

const brand = Symbol.for('sluice.error')

/** The base of every error that Sluice throws. */
export class SluiceError extends Error {
  /** Stable, upper-case, for programs: `SLUICE_…`. Never changes its meaning once released. */
  readonly code: string
  /**
   * True if the same operation may succeed when it is repeated. If a handler throws this error, it decides about another
   * attempt.
   */
  readonly retryable: boolean = false
  constructor(code: string, message: string, options?: ErrorOptions) {
    super(message, options)
    this.name = new.target.name
    this.code = code
    Object.defineProperty(this, brand, { value: true })
  }

  /** True for a Sluice error, also one made by another copy of this package. */
  static is(error: unknown): error is SluiceError {
    return typeof error === 'object' && error !== null && (error as Record<symbol, unknown>)[brand] === true
  }
}

/** The caller's mistake: bad input, bad definition, bad configuration. Nothing was stored; repeating it cannot help. */
export class UsageError extends SluiceError {}

/** The store could not be reached or its answer was lost. The outcome may be unknown; repeating with the same id is safe. */
export class StoreError extends SluiceError {
  override readonly retryable = true
}

/** The attempt of one job failed. `retryable`: whether another attempt may succeed. */
export class AttemptError extends SluiceError {
  override readonly retryable: boolean
  /** Earliest next attempt, in ms from now; undefined leaves it to the retry policy. */
  readonly retryAfterMs: number | undefined
  constructor(code: string, message: string, how: { retryable: boolean; retryAfterMs?: number; cause?: unknown }) {
    super(code, message, how.cause === undefined ? undefined : { cause: how.cause })
    this.retryable = how.retryable
    this.retryAfterMs = how.retryAfterMs
  }
}

/** Returns the error for what is called after `close`. */
export function closedError(): StoreError {
  return new StoreError('SLUICE_CLOSED', 'this Sluice is closed; open another')
}

/** True for what a handler returns and meant to throw: as a result, an error would be an empty object. */
export function isMeantToThrow(result: unknown): boolean {
  return typeof result === 'object' && result !== null && (SluiceError.is(result) || types.isNativeError(result))
}

/** True also for what clients throw as a plain object, and for an error of another realm, as under Jest. */
export function isLikeError(value: unknown): value is Error {
  return (
    value instanceof Error ||
    (typeof value === 'object' && value !== null && typeof (value as Error).message === 'string')
  )
}

/** Returns the code of an error: ours, that of a client, or PostgreSQL's SQLSTATE. Undefined: it has none. */
export function codeOf(thrown: unknown): unknown {
  return (thrown as { code?: unknown } | null | undefined)?.code
}

/** What to do after PostgreSQL's 42501 (insufficient_privilege). */
export const privilegeAdvice =
  'run `sluice migrate` and `sluice prune` as the owner of the schema (or as a role that may create it); other roles need usage on it, select, insert, update and delete on its tables, and usage and update on its sequences'

/** Returns the message of an error, or any other thrown value as a text. */
export function textOfError(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown)
}

const fieldsShown = 10

/**
 * Returns a text for something that was thrown and is not like an error. It shows only the class of an object and the names of its
 * first fields, because their values may be secrets.
 */
export function textOfThrown(value: unknown): string {
  if (typeof value === 'string') return value
  const isObject = (typeof value === 'object' && value !== null) || typeof value === 'function'
  return `the handler threw something that is not an Error: ${isObject ? shapeOf(value) : inspect(value)}`
}

function shapeOf(value: object): string {
  const names: string[] = []
  for (const name in value) {
    if (names.length === fieldsShown) break
    names.push(name.slice(0, 100))
  }
  const made = value.constructor as { name?: unknown } | undefined
  const kind = typeof made?.name === 'string' && made.name !== '' ? made.name : 'object'
  return names.length === 0 ? kind : `${kind} with ${names.join(', ')}`
}
