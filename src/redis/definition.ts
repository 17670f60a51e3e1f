/** Definitions of buckets as they go with each call to Redis, and the calendars that it does not know. */
import { periodOf } from '../core/calendar.ts'
import type { QuotaRule } from '../limits/quota.ts'
import type { Rule } from '../limits/rule.ts'

/** A bucket, and the definition that it is decided by. */
export interface RedisBucket {
  /** Its name within the domain, for example `crm:acme`. */
  name: string
  rules: readonly Rule[]
  /** Of the definition; whole, at least 1, greater for each newer one. */
  version: number
  /** The version from which on every definition has had a concurrency; undefined: this one has none. */
  countedFrom?: number
  /** True where the vendor itself refunds: what is given back counts in full. Default false. */
  isFull?: boolean
  /**
   * True where nobody but Sluice's own processes takes of it: it is whole after a loss by the seed that an epoch begins with,
   * so a new epoch does not close it. Default false.
   */
  isOwn?: boolean
  /** How long grants are remembered, in microseconds; default: as long as the rules look back, at least a minute. */
  keepUs?: number
}

/** What a bucket has used, as somebody else than Redis knows it, under the bucket's very definition. */
export interface Seed {
  bucket: RedisBucket
  /** No grant for so many microseconds from now. */
  holdUs: number
  /** For each rule: what a rate owes; of a concurrency the places that are taken; else 0. */
  debt: readonly number[]
  /** For each rule: of a window the units in each of its parts, the newest first; else empty. */
  slots: readonly (readonly number[])[]
  /**
   * For each rule: of a quota where the period before, its period and the next one begin, the units that count in each of them,
   * and its margin; else empty. What Redis may have granted a delay later counts in each period that it is then close to.
   */
  spent: readonly (readonly number[])[]
}

const keepLeastUs = 60_000_000

/** A limit as it is published for other languages. */
export interface Published extends RedisBucket {
  /** Its buckets are `<name>:<key>`, one for each key; else `<name>` is its only one. */
  isKeyed: boolean
  /** The life of a grant in microseconds: past it, the request may not be written any more. */
  grantUs: number
}

/** The definition as the scripts read it; `aroundUs`: times that its calendars' boundaries are around. */
export function inJson(bucket: RedisBucket, aroundUs: readonly number[]): object {
  const calendar = (quota: QuotaRule) => ({
    margin: quota.marginUs,
    periods: aroundUs.map((us) => boundaries(quota, us)),
  })
  return { ...written(bucket, calendar), own: bucket.isOwn === true ? true : undefined }
}

/** The definition as it is published: with calendars in words, whose boundaries each caller works out. */
export function publishedJson({ isKeyed, grantUs, ...bucket }: Omit<Published, 'name'>): object {
  const calendar = ({ marginUs, unit, zone, anchorUs }: QuotaRule) => ({
    margin: marginUs,
    calendar: { unit, zone, anchor: anchorUs ?? undefined },
  })
  return { keyed: isKeyed, grant: grantUs, ...written(bucket, calendar) }
}

function written(
  { rules, version, countedFrom, isFull, keepUs }: Omit<RedisBucket, 'name'>,
  calendar: (quota: QuotaRule) => object,
): object {
  return {
    version,
    counted: countedFrom,
    full: isFull === true ? true : undefined,
    keep: keepUs ?? Math.max(keepLeastUs, ...rules.map((rule) => rule.spanUs)),
    rules: rules.map(({ drain, weight, room, slotUs, spanUs, quota }) => {
      const own = { drain, weight, room, slot: slotUs, span: spanUs }
      return quota === undefined ? own : { ...own, ...calendar(quota) }
    }),
  }
}

/** Calendars are asked once a period, since it takes longer than all the rest. */
const known = new WeakMap<QuotaRule, number[]>()

/** Where periods begin: the one before the one that holds `atUs`, that one, and three more. */
function boundaries(quota: QuotaRule, atUs: number): number[] {
  const last = known.get(quota)
  if (last !== undefined && atUs >= (last[1] ?? Infinity) && atUs < (last[2] ?? 0)) return last
  const { startUs, endUs } = periodOf(quota, atUs)
  const list = [periodOf(quota, startUs - 1).startUs, startUs, endUs]
  for (let more = 0; more < 2; more++) list.push(periodOf(quota, list.at(-1) ?? endUs).endUs)
  known.set(quota, list)
  return list
}
