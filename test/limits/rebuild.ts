/**
 * The state of a bucket under a changed definition: pure, in the arithmetic of `src/limits/decide.ts`. This is the specification;
 * `src/limits/definitions/rebuild_bucket_state.sql` does the same in the store, and `src/redis/rebuild.lua` in Redis.
 */
import { type Bucket, charge, emptyBucket, room } from '../../src/limits/decide.ts'
import { drains } from '../../src/limits/kind.ts'
import { beginQuota, type QuotaRule, spend, type Spent, unspent } from '../../src/limits/quota.ts'
import { isConcurrency, isPace, isWindow, lookbackUs, paceOf, type Rule, windowParts } from '../../src/limits/rule.ts'
import type { Entry } from './specification.ts'

/** Returns what a rule counts by, as text; a quota with this margin. How the rule is written is not part of it. */
function textOf(rule: Rule | undefined, marginUs: number): string {
  if (rule === undefined) return ''
  const { quota, spanUs, rate: _rate, units: _units, windowUs: _windowUs, classic: _classic, ...counted } = rule
  if (quota === undefined) return JSON.stringify({ ...counted, spanUs })
  return JSON.stringify({ ...counted, spanUs: spanUs - quota.marginUs + marginUs, quota: { ...quota, marginUs } })
}

/**
 * True if what is known of the rule at `k` of a definition holds for the rule at `i` of a later one: it counts in the same way, with
 * its pace. A quota may have had a wider margin: what was granted until now counts by that, since those grants may have lived as long.
 */
function isKept(before: readonly Rule[], k: number, after: readonly Rule[], i: number): boolean {
  const [was, now] = [before[k]?.quota?.marginUs ?? 0, after[i]?.quota?.marginUs ?? 0]
  return (
    textOf(before[k], was) === textOf(after[i], Math.max(was, now)) &&
    textOf(paceOf(before, k), 0) === textOf(paceOf(after, i), 0)
  )
}

/**
 * Returns what counts as if the quota had always been in force, from what was granted and not given back. What counts in
 * the period before is not looked up, because that may be months of grants: while it matters, that period is full.
 */
function respent(quota: QuotaRule, capacity: number, granted: readonly Entry[], atUs: number): Spent {
  const spent = beginQuota(quota, atUs)
  const counted = granted.reduce((sum, one) => spend(quota, sum, one.atUs, one.units), spent)
  return { ...counted, previous: atUs < spent.startUs + quota.marginUs ? capacity : 0 }
}

/** Returns a line that stays below the units that a rule grants in any span: `capacity + drain / weight * span`. */
function leastAllowed({ kind, capacity, drain, weight, partUs }: Rule): Pick<Rule, 'capacity' | 'drain' | 'weight'> {
  switch (kind) {
    case 'rate':
      return { capacity, drain, weight }
    case 'pace':
      return { capacity: 1 + (drain * partUs) / weight, drain, weight }
    case 'window':
      return { capacity: 0, drain: capacity, weight: windowParts * partUs }
    case 'quota':
    case 'concurrency':
      return { capacity, drain: 0, weight }
  }
}

/**
 * Returns what a rate owes that comes into force at `atUs`: the largest sum, over all moments in its last three spans, of
 * what was granted since, less what would have drained. A window longer than the rate's span is held to the looser
 * definition. So where the sum reaches further back than one span, what the definition of the newest grant (`before`)
 * allowed beyond the new rate is subtracted: the smaller of what it allowed until now and until three spans have passed,
 * because in between it is never less than both. The factor makes rounding err on the safe side.
 */
function owedByRate(rule: Rule, before: readonly Rule[], granted: readonly Entry[], atUs: number): number {
  // Over more than its window a rate with a pace allows what the pace does, which is more.
  const lines = before.filter((old, i) => !isConcurrency(old) && !paceOf(before, i)).map(leastAllowed)
  const { capacity: atOnce } = leastAllowed(rule)
  const beyond = (us: number) => {
    const allowed = lines.map(({ capacity: units, drain, weight }) => (units + (us * drain) / weight) * (1 - 1e-12))
    return Math.floor((Math.min(...allowed) - atOnce - (us * rule.drain) / rule.weight) * rule.weight)
  }
  const last = beyond(lookbackUs(rule))
  let units = 0
  let most = 0
  for (const entry of granted.toReversed()) {
    const ageUs = atUs - entry.atUs
    if (ageUs >= lookbackUs(rule)) break
    units += entry.units
    const owes = Number(BigInt(units) * BigInt(rule.weight) - BigInt(rule.drain) * BigInt(ageUs))
    most = Math.max(most, ageUs < rule.spanUs ? owes : owes - Math.max(0, Math.min(beyond(ageUs), last)))
  }
  return most
}

/** Returns the place of the rule at `i`, with its pace, in the definition before; undefined: it had no such rule. */
function sameRule(before: readonly Rule[], after: readonly Rule[], i: number): number | undefined {
  const first = isPace(after[i] as Rule) ? i - 1 : i
  const at = before.findIndex((_, k) => isKept(before, k, after, first))
  return at < 0 ? undefined : at + i - first
}

/**
 * Returns the bucket under a changed definition: as if the new rules had been in force for as long as they look back.
 * `granted` is what was granted and not given back, in order. So no window that reaches into the new definition holds more
 * than the new rules allow; spans of a rate that are longer than its window, up to three times as long, hold no more than
 * the looser definition allows; and nothing older delays the bucket. Running jobs keep their places, unless a definition
 * in between did not count them: then the new definition counts them anew, and until then none count. A rule that the
 * definition of the bucket's state had too keeps what that state has of it.
 * @param defined every definition since the bucket's state was written: first the one of that state, last the one in force
 * @param before the definition that the newest grant was given under; default: the one of the bucket's state
 */
export function rebuild(
  defined: readonly (readonly Rule[])[],
  granted: readonly Entry[],
  bucket: Bucket,
  before = defined[0] ?? [],
): Bucket {
  const { atUs, holdUs, trialUs, aheadUs } = bucket
  const after = defined.at(-1) ?? []
  const wasCounted = defined.every((rules) => rules.some(isConcurrency))
  const places = (defined[0] ?? []).findIndex(isConcurrency)
  const running = wasCounted ? (bucket.debt[places] ?? 0) : 0
  const kept = after.map((_, i) => sameRule(defined[0] ?? [], after, i))
  const rules = after.map((rule) => {
    const seen = granted.filter((entry) => entry.atUs > atUs - rule.spanUs)
    let own = emptyBucket([rule], seen[0]?.atUs ?? atUs)
    for (const entry of seen) own = charge([rule], room([rule], own, entry.atUs).bucket, entry.units)
    return room([rule], own, atUs).bucket
  })
  const owes = (rule: Rule, i: number) => {
    if (isConcurrency(rule)) return running
    const own = kept[i] === undefined ? rules[i]?.debt[0] : bucket.debt[kept[i]]
    if (kept[i] === undefined && drains(rule)) return owedByRate(rule, before, granted, atUs)
    return own ?? 0
  }
  const spent = after.map(({ quota, capacity: units }, i) => {
    if (quota === undefined) return unspent
    return bucket.spent[kept[i] ?? -1] ?? respent(quota, units, granted, atUs)
  })
  const none = Array<number>(windowParts + 1).fill(0)
  const parts = after.map((rule, i) => (isWindow(rule) && bucket.parts[kept[i] ?? -1]) || (rules[i]?.parts[0] ?? none))
  return {
    atUs,
    spent: after.some(({ quota }) => quota) ? spent : [],
    debt: after.map(owes),
    parts: after.some(isWindow) ? parts : [],
    holdUs,
    trialUs,
    aheadUs,
  }
}
