/**
 * Checks the names of options: a name that no code reads is a mistake of the caller's, and may widen what the others
 * narrow.
 */
import { UsageError } from './errors.ts'
import { nearest } from './nearest.ts'

/**
 * @param words names that other systems have for it, and the one to write here
 * @throws UsageError with this code when a field is not among the known ones, or what was given is no object; undefined fields
 * count as absent
 */
export function checkFields(
  code: string,
  what: string,
  given: object,
  known: readonly string[],
  words: Readonly<Record<string, string>> = {},
): void {
  // Plain JavaScript may give anything, or leave it out.
  if (typeof given !== 'object' || given === null || Array.isArray(given))
    throw new UsageError(code, `${what} needs an object with its options; there are ${known.join(', ')}`)
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined || known.includes(name)) continue
    const word = Object.hasOwn(words, name) ? words[name] : undefined
    const like = nearest(name, known)
    const near = like === undefined ? '' : `did you mean "${like}"? `
    const meant = word === undefined ? near : `here it is ${word}; `
    throw new UsageError(code, `${what} has no "${name}"; ${meant}there are ${known.join(', ')}`)
  }
}

/** Returns how many lines a list has at most. @throws UsageError SLUICE_BAD_OPTION unless it is a whole number from 1 to `most` */
export function checkMax(max: number, most: number): number {
  if (Number.isInteger(max) && max >= 1 && max <= most) return max
  throw new UsageError('SLUICE_BAD_OPTION', `max is ${max}; it must be a whole number from 1 to ${most}`)
}

/** @throws UsageError SLUICE_BAD_OPTION unless it is an AbortSignal, of any realm, or undefined */
export function checkSignal(signal: unknown): void {
  if (signal === undefined || typeof (signal as Partial<AbortSignal> | null)?.throwIfAborted === 'function') return
  throw new UsageError('SLUICE_BAD_OPTION', '`signal` must be an AbortSignal, such as AbortSignal.timeout(5_000)')
}

/** The fields of `T` that may be undefined as optional ones that are never undefined. */
type Present<T> = { [K in keyof T as undefined extends T[K] ? never : K]: T[K] } & {
  [K in keyof T as undefined extends T[K] ? K : never]?: Exclude<T[K], undefined>
}

/** Returns an object without those of its fields that are undefined. */
export function present<T extends object>(fields: T): Present<T> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Present<T>
}
