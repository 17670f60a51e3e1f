/**
 * Proves from a bucket's ledger that no window held more than was promised. It does not use the code that decides grants:
 * only what a definition states (units, window, burst, margin), and which row granted or gave back how much when.
 *
 * A window is checked at each grant that ends it, by what had been granted and not been given back until then. That is at
 * least what was kept in the end, so no later refund can hide an excess.
 */
import { type ClockOffset, type CountedPeriod, level, Periods } from './quota-periods.ts'
import type { Limit } from './limit.ts'
import { calendarInWords, paceOf, type Rule } from './rule.ts'
import { countsUnits, slides } from './kind.ts'

/** The guarantees that a rule can give; the name belongs to each "0 exceeded". */
export type GuaranteeName = 'safe rate' | 'bucket' | 'exact window' | 'quota' | 'places'

/** A version of a limit, as the store keeps it. */
export type Defined = Pick<Limit, 'rules' | 'grantUs' | 'transitUs' | 'classic'> & {
  /** `full`: the vendor itself refunds, so what is given back counts from that moment, not from the grant. */
  refund?: 'decays' | 'full'
}

/** At most `most` units in any half-open span. */
interface Bound {
  /** Index of the rule that promises it. */
  rule: number
  spanUs: number
  most: number
  /** True for the span that counts for the vendor. */
  isMain: boolean
  /** True for a rule that counts (a window), false for a bucket that drains. */
  isCount: boolean
}

/** The promise of a rule, in numbers. */
export interface Promised {
  guarantee: GuaranteeName
  /** As it was written; with a burst as `bucket(B, rate)`. */
  rate: string
  /** Half-open span in microseconds; for a quota its shortest period; 0: at every moment. */
  spanUs: number
  /** Units in the span, or jobs at one time. */
  most: number
}

/** Divides and rounds up; BigInt, because a span times a rate may pass 2^53. */
const ceilDiv = (a: bigint, b: bigint): number => Number((a + b - 1n) / b)

/**
 * Returns the most units of a rule in a half-open span: B + ceil(L r) - 1 for a bucket, N in each W + J for a window; with a
 * pace of slack E also ceil((L + E) N / (W + J + E)) if that is more.
 */
function mostIn(rule: Rule, defined: Defined, spanUs: number): number {
  const wideUs = rule.windowUs + defined.grantUs + defined.transitUs
  switch (rule.kind) {
    case 'rate':
      return mostOfRate(rule, defined, spanUs, wideUs)
    case 'window':
      return rule.units * Math.ceil(spanUs / wideUs)
    case 'quota':
      return rule.units * (Math.ceil(spanUs / rule.windowUs) + 1)
    case 'pace':
    case 'concurrency':
      return Infinity
  }
}

function mostOfRate(rule: Rule, defined: Defined, spanUs: number, wideUs: number): number {
  const isClassic = rule.classic ?? defined.classic
  const refill = isClassic ? rule.units : rule.units - rule.capacity + 1
  const most = rule.capacity + ceilDiv(BigInt(spanUs) * BigInt(refill), BigInt(isClassic ? rule.windowUs : wideUs)) - 1
  const slackUs = paceOf(defined.rules, defined.rules.indexOf(rule))?.partUs
  if (slackUs === undefined) return most
  return Math.max(most, ceilDiv(BigInt(spanUs + slackUs) * BigInt(rule.units), BigInt(wideUs + slackUs)))
}

/** Returns what a rule promises for the span that counts for the vendor. */
export function promised(rule: Rule, defined: Defined): Promised {
  const spanUs = rule.windowUs + defined.grantUs + defined.transitUs
  const most = mostIn(rule, defined, spanUs)
  const { rate, units } = rule
  switch (rule.kind) {
    case 'rate':
    case 'pace':
      return (rule.classic ?? defined.classic)
        ? { guarantee: 'bucket', rate: `bucket(${rule.capacity}, ${rate})`, spanUs, most }
        : { guarantee: 'safe rate', rate, spanUs, most }
    case 'window':
      return { guarantee: 'exact window', rate, spanUs, most }
    case 'quota':
      return { guarantee: 'quota', rate: `${rate}${calendarInWords(rule)}`, spanUs: rule.windowUs, most: units }
    case 'concurrency':
      return { guarantee: 'places', rate, spanUs: 0, most: units }
  }
}

/** Returns the spans that each rule is checked in: the vendor's with the margin, and for a bucket shorter and longer ones. */
function boundsOf(defined: Defined): Bound[] {
  return defined.rules.flatMap((rule, i) => {
    if (!slides(rule)) return []
    const { spanUs } = promised(rule, defined)
    const others = rule.kind === 'rate' ? [1, Math.ceil(spanUs / 10), rule.windowUs, 3 * spanUs] : []
    return [spanUs, ...others].map((us) => ({
      rule: i,
      spanUs: us,
      most: mostIn(rule, defined, us),
      isMain: us === spanUs,
      isCount: others.length === 0,
    }))
  })
}

/** Returns how far back grants matter for a definition, in microseconds. */
export function lookback(defined: Defined): number {
  const quotas = defined.rules.flatMap((rule) => (rule.kind === 'quota' ? [rule.spanUs] : []))
  return Math.max(0, ...quotas, ...boundsOf(defined).map(({ spanUs }) => spanUs))
}

/** A row of a bucket's ledger. */
export interface LedgerRow {
  n: number
  atUs: number
  version: number
  /** Units granted; negative: given back; without a claim: used beyond what was granted, which was not known before. */
  units: number
  /** How many microseconds before `atUs` each of the units may be used; undefined: all at `atUs`. */
  earlierUs?: readonly number[] | undefined
  /** Id of the grant; null: the row neither granted nor gave back anything. */
  claim: string | null
  /** The state that the row left, one number for each rule; only the places of a concurrency are read. */
  debt: readonly number[]
  /** True if the units were charged for what others have used of the vendor's account: they are none of the limit's. */
  isOthers?: boolean
  /** For units given back: number (n) of the row that granted them; null: it is not known. */
  granted: number | null
}

/** A window that held more than was promised. */
export interface Excess {
  version: number
  rule: number
  /** Where the window begins: at its first grant; for a quota the start of its period by the store's clock. */
  fromUs: number
  /** Time of its first grant. */
  firstUs: number
  /** Length of the half-open window; 0: a moment. */
  spanUs: number
  /** Time of its last grant. */
  lastUs: number
  units: number
  most: number
}

/** The findings about one rule in a bucket's rows. */
export interface Seen {
  /** The most units in the span that the rule promises for; for a concurrency the most places. */
  worst: number
  /** How many windows, each ended by a grant, held too much. */
  exceeded: number
  /** The worst of those windows. */
  excess: Excess | undefined
}

interface Sum {
  /** Index of the first grant that is in the span. */
  first: number
  units: number
  /** How many of the units were used beyond what was granted. */
  over: number
}

/** Follows one bucket's rows, which must come in their order. Keeps the grants of the longest span, in arrays of numbers. */
export class BucketProof {
  readonly #versions: ReadonlyMap<number, Defined>
  readonly #fromUs: number
  readonly #ahead: ClockOffset
  readonly #longestUs: number
  /** For each grant: number of its row, time, units kept, units used beyond it, version. */
  readonly #n: number[] = []
  readonly #at: number[] = []
  readonly #units: number[] = []
  readonly #over: number[] = []
  readonly #version: number[] = []
  #bounds: readonly Bound[] = []
  readonly #sums = new Map<number, Sum>()
  #periods: readonly Periods[] = []
  #last: LedgerRow | undefined
  /** Results by `version:rule`. */
  readonly seen = new Map<string, Seen>()
  /** Pairs of rows between which rows are missing or out of order. */
  readonly gaps: { after: LedgerRow; before: LedgerRow }[] = []
  grants = 0
  /** Units charged for what others have used. */
  others = 0

  /** @param fromUs only windows that a grant at this time or later ends are checked, and rows must be complete from there on */
  constructor(versions: ReadonlyMap<number, Defined>, fromUs: number, ahead = level) {
    this.#versions = versions
    this.#fromUs = fromUs
    this.#ahead = ahead
    this.#longestUs = Math.max(0, ...[...versions.values()].map(lookback))
  }

  /** Adds the next row. */
  add(row: LedgerRow): void {
    const last = this.#last
    this.#last = row
    if (last !== undefined && last.atUs >= this.#fromUs && row.n !== last.n + 1)
      this.gaps.push({ after: last, before: row })
    const defined = this.#versions.get(row.version)
    if (defined === undefined) return
    if (last?.version !== row.version) this.#judgeBy(defined)
    if (row.units < 0 && defined.refund !== 'full') this.#giveBack(row.granted, -row.units)
    else if (row.isOthers === true) this.others += row.atUs < this.#fromUs ? 0 : row.units
    else if (row.units !== 0) this.#count(row)
    this.#places(row, last, defined)
  }

  #judgeBy(defined: Defined): void {
    this.#bounds = boundsOf(defined)
    this.#sums.clear()
    const total = (list: readonly number[]) => list.reduce((sum, one) => sum + one, 0)
    const all = { first: 0, units: total(this.#units), over: total(this.#over) }
    for (const { spanUs } of this.#bounds) this.#sums.set(spanUs, { ...all })
    this.#periods = defined.rules.flatMap(({ quota }, i) =>
      quota === undefined ? [] : [new Periods(i, quota, this.#ahead)],
    )
    for (const periods of this.#periods)
      for (const [i, atUs] of this.#at.entries()) periods.count(atUs, this.#units[i] ?? 0, this.#over[i])
  }

  #count(row: LedgerRow): void {
    if (row.units > 0 && row.claim !== null) this.grants++
    for (const us of row.earlierUs ?? []) this.#enter({ ...row, atUs: row.atUs - us, units: 1 })
    if (row.earlierUs === undefined) this.#enter(row)
  }

  #enter(row: LedgerRow): void {
    const { n, atUs, units, version, claim } = row
    const over = claim === null ? units : 0
    this.#n.push(n)
    this.#at.push(atUs)
    this.#units.push(units)
    this.#over.push(over)
    this.#version.push(version)
    for (const [spanUs, sum] of this.#sums) {
      sum.units += units
      sum.over += over
      while ((this.#at[sum.first] ?? atUs) <= atUs - spanUs) {
        sum.over -= this.#over[sum.first] ?? 0
        sum.units -= this.#units[sum.first++] ?? 0
      }
    }
    for (const periods of this.#periods) periods.count(atUs, units, over)
    this.#forget(atUs - this.#longestUs)
    if (units > 0 && claim !== null) this.#judge(row)
  }

  #judge(row: LedgerRow): void {
    if (row.atUs < this.#fromUs) return
    for (const bound of this.#bounds) this.#judgeSpan(row, bound)
    for (const periods of this.#periods) this.#judgePeriods(row, periods, periods.count(row.atUs, 0))
  }

  #judgeSpan(row: LedgerRow, { rule, spanUs, most: bound, isMain, isCount }: Bound): void {
    const { first, units, over } = this.#sums.get(spanUs) ?? { first: 0, units: 0, over: 0 }
    // A rate owes the units that were used beyond a grant, and grants less after that. A window counts them when it can
    // no longer deny them.
    const own = bound + (isCount ? over : 0)
    const seen = this.#seenOf(row.version, rule)
    const oldest = this.#version[first] ?? row.version
    if (isMain) seen.worst = Math.max(seen.worst, units)
    if (units <= own) return
    const most = Math.max(own, this.#looser(oldest, row.version, spanUs))
    if (units <= most) return
    const firstUs = this.#at[first] ?? row.atUs
    const excess = { version: row.version, rule, fromUs: firstUs, firstUs, spanUs, lastUs: row.atUs }
    note(seen, { ...excess, units, most })
  }

  /**
   * Returns the most that an earlier definition allowed since the version `from`: a window that contains a change is
   * held to the looser definition.
   */
  #looser(from: number, to: number, spanUs: number): number {
    let most = 0
    for (let version = from; version < to; version++) {
      const before = this.#versions.get(version)
      most = Math.max(most, Math.min(...(before?.rules.map((one) => mostIn(one, before, spanUs)) ?? [])))
    }
    return most
  }

  #judgePeriods(row: LedgerRow, { rule }: Periods, periods: readonly CountedPeriod[]): void {
    const bound = (this.#versions.get(row.version) as Defined).rules[rule]?.units ?? 0
    const seen = this.#seenOf(row.version, rule)
    for (const { startUs, endUs, firstUs, units, over } of periods) {
      const own = bound + over
      seen.worst = Math.max(seen.worst, units)
      if (units <= own) continue
      const oldest = this.#version[lowerBound(this.#at, firstUs)] ?? row.version
      const most = Math.max(own, this.#looser(oldest, row.version, endUs - startUs))
      const excess = { version: row.version, rule, fromUs: startUs, firstUs, spanUs: endUs - startUs, lastUs: row.atUs }
      if (units > most) note(seen, { ...excess, units, most })
    }
  }

  /** Checks places. A place is taken in a row with a claim; counting running jobs anew after a change takes none. */
  #places(row: LedgerRow, last: LedgerRow | undefined, defined: Defined): void {
    for (const [rule, one] of defined.rules.entries()) {
      if (countsUnits(one)) continue
      const most = one.units
      const units = row.debt[rule] ?? 0
      const before = last?.version === row.version ? (last.debt[rule] ?? 0) : 0
      if (row.claim === null || units <= before || row.atUs < this.#fromUs) continue
      const seen = this.#seenOf(row.version, rule)
      seen.worst = Math.max(seen.worst, units)
      const at = { fromUs: row.atUs, firstUs: row.atUs, spanUs: 0, lastUs: row.atUs }
      if (units > most) note(seen, { version: row.version, rule, ...at, units, most })
    }
  }

  /** Takes units out of the grant that they were given back from, the earliest first; of a grant, no more than its own units. */
  #giveBack(granted: number | null, units: number): void {
    if (granted === null) return
    for (let i = lowerBound(this.#n, granted); units > 0 && this.#n[i] === granted; i++) {
      const back = Math.min(units, this.#units[i] ?? 0)
      units -= back
      this.#units[i] = (this.#units[i] ?? 0) - back
      for (const sum of this.#sums.values()) if (i >= sum.first) sum.units -= back
      for (const periods of this.#periods) periods.count(this.#at[i] ?? 0, -back)
    }
  }

  /** Drops grants that no span reaches any more, once there are many of them. */
  #forget(beforeUs: number): void {
    if (this.#at.length < 1_024 || (this.#at[this.#at.length >> 1] ?? beforeUs) >= beforeUs) return
    const gone = lowerBound(this.#at, beforeUs)
    for (const list of [this.#n, this.#at, this.#over, this.#units, this.#version]) list.splice(0, gone)
    for (const sum of this.#sums.values()) sum.first -= gone
  }

  #seenOf(version: number, rule: number): Seen {
    const key = `${version}:${rule}`
    const seen = this.seen.get(key) ?? { worst: 0, exceeded: 0, excess: undefined }
    this.seen.set(key, seen)
    return seen
  }
}

/** Returns the index of the first value that is not less than `value` in an ascending list. */
function lowerBound(list: readonly number[], value: number): number {
  let [low, high] = [0, list.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if ((list[middle] ?? 0) < value) low = middle + 1
    else high = middle
  }
  return low
}

/** Counts an excess, and records it if it is the worst. */
function note(seen: Seen, excess: Excess): void {
  seen.exceeded++
  const worst = seen.excess
  if (worst === undefined || excess.units - excess.most > worst.units - worst.most) seen.excess = excess
}
