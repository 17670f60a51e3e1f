/** Checks what may be stored as a job's input or result: JSON that PostgreSQL can keep, within bounds. */
import { types } from 'node:util'
import { UsageError } from './errors.ts'

/** Longest JSON text of one input or result, in bytes. */
export const payloadBytesMax = 262_144
/** Deepest nesting of one input or result. */
export const payloadDepthMax = 32

/** Bounds of a JSON text: its longest length in bytes, and its deepest nesting. */
export interface PayloadBounds {
  readonly bytesMax: number
  readonly depthMax: number
}

/**
 * Payloads in one statement, in characters; the last may exceed it. With many more the answer would come too late over a slow network,
 * and the embedded engine would not take the message.
 */
export const statementCharsMax = 8 * 2 ** 20

/** Returns how many of the first items one statement takes, by the length of their payloads: at least one, at most `most`. */
export function countForStatement<T>(items: readonly T[], most: number, lengthOf: (item: T) => number): number {
  let count = 0
  for (let length = 0; count < Math.min(most, items.length) && length < statementCharsMax; count++)
    length += lengthOf(items[count] as T)
  return count
}

const payloadBounds: PayloadBounds = { bytesMax: payloadBytesMax, depthMax: payloadDepthMax }

/**
 * Returns the JSON text of a value.
 * @param what named in messages, for example `input of "sync-contact"`
 * @param onLoss for the result of an attempt: its call has been made, so a Map in the result is no reason to fail the job. What
 * JSON makes of it is stored, and `onLoss` gets the text about what is missing
 * @param bounds default 256 KiB, and 32 levels
 * @throws UsageError SLUICE_BAD_PAYLOAD for BigInt, cycles, NaN, Infinity, functions, symbols, `\u0000`, lone surrogates,
 * nesting that is too deep, and without `onLoss` for invalid Dates, and for Map, Set and instances of classes without `toJSON`;
 * SLUICE_PAYLOAD_TOO_LARGE
 */
export function encodePayload(
  value: unknown,
  what: string,
  onLoss?: (text: string) => void,
  bounds = payloadBounds,
): string {
  if (value === undefined) return 'null'
  const { bytesMax, depthMax } = bounds
  const losses = onLoss && { first: '', n: 0 }
  check(value, { what, losses, depthMax }, '', 0, [])
  if (losses && losses.n > 0) onLoss(losses.n === 1 ? losses.first : `${losses.first}; ${losses.n - 1} more like it`)
  const text = JSON.stringify(value)
  const bytes = Buffer.byteLength(text)
  if (bytes > bytesMax) {
    throw new UsageError(
      'SLUICE_PAYLOAD_TOO_LARGE',
      `${what} is ${bytes} bytes of JSON; at most ${bytesMax} are stored: keep the data elsewhere and send a reference`,
    )
  }
  return text
}

interface Rules {
  what: string
  /** What JSON writes in part; undefined: it is refused. */
  losses: { first: string; n: number } | undefined
  depthMax: number
}

const textOf = ({ what }: Rules, path: string, why: string) =>
  `${what}${path === '' ? '' : ` at ${path.slice(1)}`} ${why}`

function refuse(rules: Rules, path: string, why: string): never {
  throw new UsageError('SLUICE_BAD_PAYLOAD', textOf(rules, path, why))
}

/** Refuses what JSON writes in part, or counts it. */
function refuseLoss(rules: Rules, path: string, why: string): void {
  if (rules.losses === undefined) refuse(rules, path, why)
  if (rules.losses.n++ === 0) rules.losses.first = textOf(rules, path, why)
}

function check(value: unknown, rules: Rules, path: string, depth: number, above: object[]): void {
  switch (typeof value) {
    case 'string':
      if (value.includes('\u0000'))
        refuse(rules, path, 'contains \\u0000, which PostgreSQL cannot store: remove it or encode the bytes as base64')
      if (!value.isWellFormed())
        refuse(rules, path, 'contains half of a surrogate pair: use String.prototype.toWellFormed() first')
      return
    case 'number':
      if (!Number.isFinite(value)) refuse(rules, path, `is ${value}, which JSON cannot express`)
      return
    case 'bigint':
      refuse(rules, path, 'is a BigInt, which JSON cannot express: send it as a string')
      return
    case 'function':
    case 'symbol':
      refuse(rules, path, `is a ${typeof value}, which JSON cannot express`)
      return
    case 'object':
      break
    default:
      return
  }
  if (value === null) return
  if (above.includes(value)) refuse(rules, path, 'refers back to itself: JSON cannot express cycles')
  if (depth >= rules.depthMax) refuse(rules, path, `is nested deeper than ${rules.depthMax} levels`)
  above.push(value)
  if (value instanceof Date && Number.isNaN(value.getTime()))
    refuseLoss(rules, path, 'is an invalid Date, which JSON would store as null')
  const { toJSON } = value as { toJSON?: unknown }
  if (typeof toJSON === 'function') {
    // JSON stores what `toJSON` returns, and does not call the `toJSON` of that value again.
    const stored: unknown = toJSON.call(value, path.slice(path.lastIndexOf('.') + 1))
    if (typeof stored !== 'object' || stored === null) check(stored, rules, path, depth, above)
    else checkFields(stored, rules, path, depth, above)
  } else checkFields(value, rules, path, depth, above)
  above.pop()
}

function checkFields(value: object, rules: Rules, path: string, depth: number, above: object[]): void {
  // JSON writes the fields of an instance, so in a result only an Error (its message is no such field), and an instance without
  // fields (a Map), are a loss.
  const isLost = rules.losses === undefined || types.isNativeError(value) || Object.keys(value).length === 0
  if (!isPlain(value) && isLost) {
    refuseLoss(
      rules,
      path,
      `is of the class ${value.constructor?.name || '(unnamed)'}, which JSON would store as a plain or empty object: use plain objects and arrays, or give the class a toJSON()`,
    )
  }
  for (const [key, inner] of Object.entries(value)) {
    if (key.includes('\u0000') || !key.isWellFormed()) {
      refuse(rules, path, 'has a key with \\u0000 or half of a surrogate pair, which PostgreSQL cannot store')
    }
    check(inner, rules, `${path}.${key}`, depth + 1, above)
  }
}

/** True for an array, or an object without a class, also one from another realm, whose `Object` is a different one. */
function isPlain(value: object): boolean {
  if (Array.isArray(value)) return true
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === null || Object.getPrototypeOf(prototype) === null
}

/** True for a response, of any copy of fetch: as a payload it would be an empty object. */
export function isResponse(value: unknown): value is Response {
  return (
    typeof value === 'object' &&
    (value as { [Symbol.toStringTag]?: string } | null)?.[Symbol.toStringTag] === 'Response'
  )
}
