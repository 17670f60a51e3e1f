/** JSON as Python writes it: with NaN and Infinity, integers of any size, and kombu's envelopes of types. */
import { UsageError } from '../core/errors.ts'
import { payloadDepthMax } from '../core/payload.ts'

/** Found only in what `JSON.parse` would refuse, or read inexactly. */
const unusual = /NaN|Infinity|\d{16}|__type__|__bytes__|__base64__/
/**
 * A string, or a number; as a whole, so that no part of one is taken for another. A string without an end goes to the end of the
 * text: otherwise each quotation mark in it would be tried as another beginning, which takes hours in a long text.
 */
const token = /"[^"\\]*(?:\\[^][^"\\]*)*(?:"|\\?$)|-?Infinity|NaN|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g
const odd = /^(?:-?Infinity|NaN|-?\d{16,})$/
const mark = '\u0000number'

/**
 * Reads JSON of Python's. Integers that a number cannot hold become a bigint; dates, decimals and UUIDs that kombu has wrapped
 * (from 5.3 on) become their text, as older versions send them, and bytes a Buffer.
 * @throws SyntaxError when it is no JSON
 */
export function readJson(text: string): unknown {
  if (!unusual.test(text)) return JSON.parse(text)
  const marked = text.replaceAll(token, (found) => (odd.test(found) ? `{"\\u0000number":"${found}"}` : found))
  return JSON.parse(marked, (_key, value: unknown) => (isRecord(value) ? unwrap(value) : value))
}

/**
 * Writes JSON that Python reads as it was meant; a bigint is a whole number there.
 * @param what named in messages
 * @param isPythons the value was read from JSON of Python's, so NaN and Infinity are written as Python does. Default false
 * @throws UsageError SLUICE_BAD_PAYLOAD for NaN, Infinity, functions, symbols and cycles
 */
export function writeJson(value: unknown, what: string, isPythons = false): string {
  const refuse = (why: string): never => {
    throw new UsageError('SLUICE_BAD_PAYLOAD', `${what} ${why}`)
  }
  const isCycle = (error: unknown) => error instanceof TypeError && error.message.includes('circular')
  let hasOdd = false
  try {
    const text = JSON.stringify(value, (key, one: unknown) => {
      if (typeof one === 'function' || typeof one === 'symbol')
        refuse(`has a ${typeof one} at "${key}", which JSON cannot express`)
      const isFinite = typeof one !== 'number' || Number.isFinite(one)
      if (!isFinite && !isPythons) refuse(`is ${one} at "${key}", which JSON cannot express`)
      if (typeof one !== 'bigint' && isFinite) return one
      hasOdd = true
      return `${mark}${one}`
    })
    return hasOdd ? text.replaceAll(/"\\u0000number(-?\d+|NaN|-?Infinity)"/g, '$1') : text
  } catch (error) {
    return isCycle(error) ? refuse('refers to itself, which JSON cannot express') : rethrow(error)
  }
}

function rethrow(error: unknown): never {
  throw error
}

/**
 * Returns a value with text in place of numbers that a number cannot hold, which JSON of JavaScript has not. `textOf` is applied to
 * all text. What is nested so deep that no payload may have it stays as it is.
 */
export function plainJson(value: unknown, textOf: (text: string) => string = (text) => text, depth = 0): unknown {
  const inner = (one: unknown) => plainJson(one, textOf, depth + 1)
  if (typeof value === 'bigint') return String(value)
  if (typeof value === 'number') return Number.isFinite(value) ? value : String(value)
  if (typeof value === 'string') return textOf(value)
  if (depth > payloadDepthMax) return value
  if (Array.isArray(value)) return value.map(inner)
  if (!isRecord(value) || Buffer.isBuffer(value)) return value
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [textOf(name), inner(one)]))
}

/** True for an object that is no array. */
export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function unwrap(value: Record<string, unknown>): unknown {
  const keys = Object.keys(value)
  if (keys.length === 1 && typeof value[mark] === 'string') return numberOf(value[mark])
  if (keys.length !== 2) return value
  if (typeof value['bytes'] === 'string') {
    if ('__bytes__' in value) return Buffer.from(value['bytes'])
    if ('__base64__' in value) return Buffer.from(value['bytes'], 'base64')
  }
  if (!('__value__' in value) || typeof value['__type__'] !== 'string') return value
  const { __type__: type, __value__: inner } = value
  if (type === 'uuid' && isRecord(inner) && typeof inner['hex'] === 'string')
    return inner['hex'].replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5')
  return ['datetime', 'date', 'time', 'decimal'].includes(type) ? inner : value
}

function numberOf(text: string): number | bigint {
  const value = Number(text)
  return Number.isSafeInteger(value) || !/^-?\d+$/.test(text) ? value : BigInt(text)
}
