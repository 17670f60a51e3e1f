/** The place of a value in an answer. */
import type { Answer } from './answer.ts'

/**
 * The name of a header; or, with `#/` before it, a JSON pointer into the body, in which `*` stands for every element.
 * Names in a pointer contain neither `/` nor `~`.
 */
export type Source = string

/** True if a value stands in the body. */
export function isInBody(source: Source): boolean {
  return source.startsWith('#/')
}

function valuesAt(value: unknown, path: readonly string[]): unknown[] {
  const [name, ...rest] = path
  if (name === undefined) return [value]
  if (typeof value !== 'object' || value === null) return []
  if (name === '*') return Object.values(value).flatMap((one) => valuesAt(one, rest))
  return Object.hasOwn(value, name) ? valuesAt((value as Record<string, unknown>)[name], rest) : []
}

/** Returns the values of a source as text, in order; none if it is not there. */
export function textsAt(answer: Answer, source: Source): string[] {
  if (!isInBody(source)) {
    const text = answer.headers.get(source)
    return text === null ? [] : [text]
  }
  return valuesAt(answer.body, source.slice(2).split('/')).flatMap((value) =>
    ['string', 'number', 'boolean'].includes(typeof value) ? [String(value)] : [],
  )
}

/**
 * Returns the numbers of a source, which are not negative; none if it is not there or malformed. A header that was sent
 * twice has several, with commas between them; parameters after a semicolon do not count.
 */
export function numbersAt(answer: Answer, source: Source): number[] {
  return textsAt(answer, source)
    .flatMap((text) => text.split(','))
    .map((part) => part.replace(/;.*$/s, '').trim())
    .flatMap((text) => (/^\d+(?:\.\d+)?$/.test(text) ? [Number(text)] : []))
    .filter((number) => number <= Number.MAX_SAFE_INTEGER)
}
