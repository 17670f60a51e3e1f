/** Names of events, services, groups and handlers, and patterns of types. */
import { UsageError } from '../core/errors.ts'

/** Where RabbitMQ keeps the events that no service gets: an exchange, its queue, and the name of that archive. */
export const unrouted = 'sluice.unrouted'

const word = '[A-Za-z0-9_-]+'
const typeText = new RegExp(`^${word}(\\.${word})*$`)
const patternText = new RegExp(`^(${word}|\\*)(\\.(${word}|\\*))*(\\.#)?$|^#$`)
const kinds = {
  service: { is: /^[a-z][a-z0-9_-]{0,39}$/, use: '1 to 40 of a-z, 0-9, "_", "-", beginning with a letter' },
  group: { is: /^[a-z0-9][a-z0-9._-]{0,49}$/, use: '1 to 50 of a-z, 0-9, ".", "_", "-", beginning with a-z or 0-9' },
  handler: { is: /^[A-Za-z0-9._*#-]{1,100}$/, use: '1 to 100 of a-z, A-Z, 0-9, ".", "_", "-"' },
} as const

/** Returns the name of a type of events. @throws UsageError SLUICE_BAD_EVENT */
export function checkType(name: unknown): string {
  if (typeof name === 'string' && name.length <= 100 && typeText.test(name)) return name
  const text = `"${String(name)}" cannot name an event: use words of a-z, A-Z, 0-9, "_", "-", separated by ".", up to 100 characters`
  throw new UsageError('SLUICE_BAD_EVENT', text)
}

/** Returns a name of another kind. @throws UsageError SLUICE_BAD_HANDLER */
export function checkNameOf(kind: keyof typeof kinds, name: unknown): string {
  if (typeof name === 'string' && kinds[kind].is.test(name)) return name
  throw new UsageError('SLUICE_BAD_HANDLER', `"${String(name)}" cannot name a ${kind}: use ${kinds[kind].use}`)
}

/** Returns a pattern of types. @throws UsageError SLUICE_BAD_HANDLER */
export function checkPattern(pattern: unknown): string {
  if (typeof pattern === 'string' && pattern.length <= 100 && patternText.test(pattern)) return pattern
  const text = `"${String(pattern)}" is no pattern of events: words separated by "."; "*" stands for one word, and "#", as the last, for any number`
  throw new UsageError('SLUICE_BAD_HANDLER', text)
}

/** Returns a regular expression, for JavaScript and PostgreSQL alike, of the types that match; undefined: the pattern is a type. */
export function regexOf(pattern: string): string | undefined {
  if (!/[*#]/.test(pattern)) return undefined
  if (pattern === '#') return '^.+$'
  const words = pattern.split('.').map((each) => (each === '*' ? '[^.]+' : each))
  const isOpen = words.at(-1) === '#'
  return `^${words.slice(0, isOpen ? -1 : undefined).join('[.]')}${isOpen ? '([.][^.]+)*' : ''}$`
}

/** True if a pattern matches a type. */
export function matches(pattern: string, type: string): boolean {
  const regex = regexOf(pattern)
  return regex === undefined ? pattern === type : new RegExp(regex).test(type)
}

/** True if some type may match both patterns. */
export function overlap(one: string, other: string): boolean {
  const [a, b] = [one.split('.'), other.split('.')]
  for (let i = 0; i < Math.max(a.length, b.length); i++) {
    const [left, right] = [a[i], b[i]]
    if (left === '#' || right === '#') return true
    if (left === undefined || right === undefined) return false
    if (left !== right && left !== '*' && right !== '*') return false
  }
  return true
}
