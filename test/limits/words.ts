/** How the twin of a history writes rules, lists and buckets for a store. */
import type { Room } from '../../src/limits/decide.ts'
import type { Rule } from '../../src/limits/rule.ts'

/** As text, with the fields in one order, because the store compares JSON by meaning. */
export function inFull(rules: readonly Rule[]): string {
  const fields = ['kind', 'rate', 'units', 'windowUs', 'drain', 'weight', 'capacity', 'partUs', 'spanUs']
  return JSON.stringify(rules, [...fields, 'classic', 'quota', 'unit', 'zone', 'anchorUs', 'marginUs'])
}

/** An array as PostgreSQL writes it; none is empty text. */
function inBraces(list: readonly (number | readonly number[])[]): string {
  if (list.length === 0) return ''
  return `{${list.map((one) => (typeof one === 'number' ? one : inBraces(one))).join(',')}}`
}

/** The columns of a definition in the store. */
export function columnsOf(rules: readonly Rule[]): object {
  const column = (field: 'kind' | 'drain' | 'weight' | 'capacity' | 'partUs' | 'spanUs') =>
    rules.map((rule) => rule[field])
  const [drain, weight, capacity] = [column('drain'), column('weight'), column('capacity')]
  const margin = rules.some(({ quota }) => quota) ? rules.map(({ quota }) => quota?.marginUs ?? 0) : null
  const [kind, part_us, span] = [column('kind'), column('partUs'), column('spanUs')]
  return { kind, drain, weight, capacity, part_us, span, margin, grant_us: 100_000 }
}

/** A bucket, and what is free in it. */
export function rowOf(room: Room): string {
  const { bucket, avail, units, places, nextUs } = room
  const spent = bucket.spent.map((it) => [it.beforeUs, it.startUs, it.endUs, it.previous, it.current, it.next])
  // A hold that is over has no effect any more, and a bucket that was retired has none.
  const holdUs = bucket.holdUs > bucket.atUs ? bucket.holdUs : 0
  const [debt, parts, periods] = [inBraces(bucket.debt), inBraces(bucket.parts), inBraces(spent)]
  const used = `at ${bucket.atUs} debt ${debt} parts ${parts} quota ${periods} hold ${holdUs}`
  return `${used} avail ${avail} units ${units} places ${places} next ${nextUs}`
}
