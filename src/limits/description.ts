/** A limit in words: what must not differ between two definitions under one name. */
import type { Limit } from './limit.ts'
import { calendarInWords, withPaces } from './rule.ts'
import { shareInWords } from './share.ts'
import { weightsInWords } from './weight.ts'

/** Returns a definition in words, the same for the same definition; they do not include what a key function does. */
export function inWords({
  rules,
  classic,
  transitUs,
  keyed,
  path,
  label,
  pool,
  weights,
  share,
  isPublished,
  alarmAt,
  adaptive,
  circuit,
}: Limit): string {
  const all = withPaces(rules)
    .map(({ rule }) => `${rule.kind === 'rate' ? '' : `${rule.kind} `}${rule.rate}${calendarInWords(rule)}`)
    .join(' and ')
  const capacities = rules.flatMap((rule) => (rule.kind === 'rate' ? [rule.capacity] : []))
  const keys =
    label !== undefined
      ? `by label ${label}`
      : pool !== undefined
        ? `for each of ${pool.map(({ key }) => key).join(', ')}`
        : keyed
          ? `by ${path ?? 'a function'}`
          : 'without keys'
  return `${all}${classic ? `, burst ${capacities.join(' and ')}` : ''}, transit ${transitUs / 1_000} ms, ${keys}${weightsInWords(weights)}${shareInWords(share)}${isPublished ? ', published' : ''}${alarmAt === undefined ? '' : `, alarms at ${alarmAt.join(' and ') || 'no share'}`}${adaptive === undefined ? '' : `, adaptive from ${adaptive.floor} to ${adaptive.ceiling}`}${circuit === 0 ? '' : `, circuit ${circuit}`}`
}
