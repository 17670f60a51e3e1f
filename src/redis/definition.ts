/** Definitions of buckets in the form that goes with each call to Redis, and the calendars that Redis does not know. */
import { periodOf } from '../core/calendar.ts'
import type { QuotaRule } from '../limits/quota.ts'
import { lookbackUs, type Rule } from '../limits/rule.ts'

/** A bucket, and the definition by which it is decided. */
export interface RedisBucket {
  /** Its name within the domain, for example `crm:acme`. */
  name: string
  rules: readonly Rule[]
  /** Version of the definition; whole, at least 1, greater for each newer one. */
  version: number
  /** The version from which on every definition has had a concurrency; undefined: this definition has none. */
  countedFrom?: number
  /** True if the vendor itself refunds: what is given back is credited in full. Default false. */
  isFull?: boolean
  /**
   * True if nothing but Sluice's own processes takes from it: after a loss, the seed that an epoch begins with makes it whole,
   * so a new epoch does not close it. Default false.
   */
  isOwn?: boolean
  /** How long grants are remembered, in microseconds; default: as long as the rules look back, at least a minute. */
  keepUs?: number
}

/** The use of a bucket by the store's ledger, under exactly the bucket's definition. */
export interface Seed {
  bucket: RedisBucket
  /** Microseconds from now without a grant; 0: no hold. */
  holdUs: number
  /** For each rule: what a rate owes; the places that a concurrency has given out; else 0. */
  debt: readonly number[]
  /** For each rule: the units in each part of a window, the newest first; else empty. */
  parts: readonly (readonly number[])[]
  /**
   * For each rule: for a quota the starts of the period before, of its period and of the next one, the units that count in each
   * of them, and its margin; else empty. What Redis may have granted a delay later counts in each period that it is then close to.
   */
  spent: readonly (readonly number[])[]
}

const keepLeastUs = 60_000_000

/** A limit as it is published for other languages. */
export interface Published extends RedisBucket {
  /** True if its buckets are `<name>:<key>`, one for each key; false if `<name>` is its only bucket. */
  isKeyed: boolean
  /** True if jobs' places are counted in Redis, so that others may lease places. Default false. */
  isLeased?: boolean
  /** Life of a grant in microseconds: after it, the request must not be written any more. */
  grantUs: number
}

/** Returns the definition as the scripts read it. @param aroundUs times around which calendars' boundaries are included */
export function toJson(bucket: RedisBucket, aroundUs: readonly number[]): object {
  const calendar = (quota: QuotaRule) => ({
    ...inWords(quota),
    periods: aroundUs.map((us) => boundaries(quota, us)),
  })
  return { ...describeRules(bucket, calendar), own: bucket.isOwn === true ? true : undefined }
}

/**
 * Returns for each bucket of a call its definition as the scripts read it, or the number (from 1) of an earlier bucket that has the
 * same. @param nowUs a time around which calendars' boundaries are included; `moreUs`: further ones, by a bucket's index
 */
export function toJsonOnce(
  buckets: readonly RedisBucket[],
  nowUs: number,
  moreUs: ReadonlyMap<number, readonly number[]>,
): (object | number)[] {
  const byText = new Map<string, number>()
  // Mostly they are buckets of one limit, which share its rules: so their definitions are not written to be compared.
  const byRules = new Map<readonly Rule[], number>()
  return buckets.map((bucket, i) => {
    const like = moreUs.has(i) ? undefined : byRules.get(bucket.rules)
    if (like !== undefined && isDefinedAs(bucket, buckets[like - 1])) return like
    const definition = toJson(bucket, [nowUs, ...(moreUs.get(i) ?? [])])
    const text = JSON.stringify(definition)
    const first = byText.get(text)
    if (first === undefined) byText.set(text, i + 1)
    if (!moreUs.has(i)) byRules.set(bucket.rules, first ?? i + 1)
    return first ?? definition
  })
}

/** Returns true if all but the rules is the same. */
function isDefinedAs(one: RedisBucket, other: RedisBucket | undefined): boolean {
  return (
    one.version === other?.version &&
    one.countedFrom === other.countedFrom &&
    one.isFull === other.isFull &&
    one.isOwn === other.isOwn &&
    one.keepUs === other.keepUs
  )
}

/** A published definition, of which the version may be decided later. */
type Unversioned = Omit<Published, 'name' | 'version'> & { version?: number }

/** Returns the definition as it is published: with calendars in words, whose boundaries each caller computes. */
export function publishedJson({ isKeyed, grantUs, isLeased, ...bucket }: Unversioned): object {
  return { keyed: isKeyed, grant: grantUs, leased: isLeased, ...describeRules(bucket, inWords) }
}

function inWords({ marginUs, unit, zone, anchorUs }: QuotaRule): object {
  return { margin: marginUs, calendar: { unit, zone, anchor: anchorUs ?? undefined } }
}

function describeRules(
  { rules, version, countedFrom, isFull, keepUs }: Omit<RedisBucket, 'name' | 'version'> & { version?: number },
  calendar: (quota: QuotaRule) => object,
): object {
  return {
    version,
    counted: countedFrom,
    full: isFull === true ? true : undefined,
    keep: keepUs ?? Math.max(keepLeastUs, ...rules.map(lookbackUs)),
    rules: rules.map(({ kind, drain, weight, capacity, partUs, spanUs, quota }) => {
      const slot = kind === 'pace' ? { slot: 0, pace: partUs } : { slot: partUs }
      const own = { drain, weight, room: capacity, ...slot, span: spanUs }
      return quota === undefined ? own : { ...own, ...calendar(quota) }
    }),
  }
}

/** Boundaries are computed once a period, because that takes longer than all the rest. */
const known = new WeakMap<QuotaRule, number[]>()

/** Returns where periods begin: the one before the one that contains `atUs`, that one, and three more. */
function boundaries(quota: QuotaRule, atUs: number): number[] {
  const last = known.get(quota)
  if (last !== undefined && atUs >= (last[1] ?? Infinity) && atUs < (last[2] ?? 0)) return last
  const { startUs, endUs } = periodOf(quota, atUs)
  const list = [periodOf(quota, startUs - 1).startUs, startUs, endUs]
  for (let more = 0; more < 2; more++) list.push(periodOf(quota, list.at(-1) ?? endUs).endUs)
  known.set(quota, list)
  return list
}

/** Reads the text of a definition that another database agreed on, back into rules. */
export function parsePublished(text: string): Omit<Published, 'name' | 'version'> {
  const { keyed, grant, keep, full, rules } = JSON.parse(text) as {
    keyed: boolean
    grant: number
    keep: number
    full?: boolean
    rules: {
      drain: number
      weight: number
      room: number
      slot: number
      span: number
      pace?: number
      margin?: number
      calendar?: { unit: QuotaRule['unit']; zone: string; anchor?: number }
    }[]
  }
  const own = rules.map(({ drain, weight, room, slot, span, pace, margin = 0, calendar }): Rule => {
    const level = pace === undefined ? 'rate' : 'pace'
    const kind = drain === 0 ? 'concurrency' : calendar !== undefined ? 'quota' : slot > 0 ? 'window' : level
    const partUs = pace ?? slot
    const rule = {
      kind,
      rate: '',
      units: room,
      windowUs: 0,
      drain,
      weight,
      capacity: room,
      partUs,
      spanUs: span,
    } as const
    if (calendar === undefined) return rule
    const { unit, zone, anchor = null } = calendar
    return { ...rule, quota: { unit, zone, marginUs: margin, anchorUs: anchor } }
  })
  return { rules: own, isKeyed: keyed, grantUs: grant, keepUs: keep, ...(full === true ? { isFull: true } : {}) }
}
