/** Measures the margin of one limit in one process. It reads no clock: callers pass the time. */

import { aheadMostUs, wayUsStated } from './margin.ts'

/** "Nearly all" grants are all but this part of them, in the last reports. */
const lateMost = 0.01
const reportsMax = 12
/** If fewer grants than this came too late between two reports, a report counts none. */
const lateLeast = 5
/**
 * The first report of a process states no greater part of late grants than this, unless all were late: the process was cold (code not
 * compiled, connections not open), which shows nothing of the store. So its report does not make a life grow beyond what is stated.
 */
const latePartCold = 0.5
/** Answers are remembered by intervals of a minute, for ten of them. */
const intervalMs = 60_000
const intervalsMax = 10
/**
 * How many answers decide the bound. The newest minutes that have so many are used, at least two of them, so that a
 * slow start does not cost ten minutes.
 */
const boundAnswers = 200
const boundIntervals = 2
/** How much older than its window, in ms, a request may be and still lie in an open one: the margin, and the time between reports. */
const openMs = 10_000
/**
 * A request can be charged once more only if so many ms of its window are left after the quickest answer. A request without an answer
 * is charged 100 ms after that, and so has 100 ms less.
 */
const recordMs = 400
/** If all answers take longer than this, in ms, none is charged once more. */
const leastMsMost = 400
/**
 * A bound is raised when it was reported so many ms ago or more, because another process may be about to shrink the margin by
 * what it read before. `claim/definitions/adapt_limit.sql` refuses what was read three seconds ago.
 */
const raiseMs = 4_000
/** A bound is lowered only to less than this part of its present value. */
const worthwhile = 0.8

interface Interval {
  readonly n: number
  answers: number
  leastMs: number
  /** The slowest answer that was not charged once more. */
  mostMs: number
  readonly counts: Counts
  /** False if a request may have been sent that was not measured, or the vendor refused one. */
  isSound: boolean
  /** False if some answer could not be charged once more, so the way is what was measured. */
  isCharged: boolean
}

/** The report of a process about a limit, in microseconds. */
export interface Report {
  /** Number of grants whose age is known. */
  readonly ages: number
  /** The age that nearly all of them had at most. */
  readonly ageUs: number
  /** The part of those since the last report that were too old. */
  readonly latePart: number
  readonly answers: number
  readonly leastUs: number
  readonly mostUs: number
  readonly isSound: boolean
  /** The bound that the process will use when the margin allows for it, in ms. */
  readonly boundMs: number
}

/** How many took each number of ms, rounded up. */
type Counts = Map<number, number>

function count(counts: Counts, ms: number, n = 1): void {
  counts.set(ms, (counts.get(ms) ?? 0) + n)
}

/** Returns the counts, the longest time first, each with how many took longer. */
function* longestFirst(counts: Counts): Generator<{ ms: number; longer: number }> {
  let longer = 0
  for (const [ms, n] of [...counts].toSorted(([a], [b]) => b - a)) {
    yield { ms, longer }
    longer += n
  }
}

function total(counts: Counts): number {
  return [...counts.values()].reduce((sum, n) => sum + n, 0)
}

/** Charges a request once more under these limits. Rejects if it may not have been charged. */
export type ChargeAgain = (limits: ReadonlySet<string>) => Promise<void>

/** Measures the way of the one request of a grant. */
export interface WayMeter {
  /** Called when the request is answered, this many ms after the check; undefined: it failed, so nothing is known of its way. */
  recordAnswer(tookMs: number | undefined): void
  /** Returns the time after which the request, without an answer, is overdue, in ms; undefined: it never is. */
  overdueMs(): number | undefined
  /**
   * Called when the request is overdue, this many ms after the check. The limits for which it is overdue do not wait
   * for the answer.
   */
  recordOverdue(afterMs: number): void
}

/** The samples of one process and one limit. */
export class Samples {
  /** Ages since the last report, and of each report before. */
  #ages: Counts = new Map()
  #known: Counts[] = []
  #used = 0
  #late = 0
  #intervals: Interval[] = []
  /** An answer that took longer is charged once more. */
  #boundMs = Infinity
  /** The bound that holds once the margin allows for it. */
  #nextMs = Infinity
  /** The bounds that were reported: the newest ones, and the last before `raiseMs`. */
  #reported: { boundMs: number; atMs: number }[] = []
  #reports = 0

  /** Records the age at which a grant was used; `isLate`: it was too old to be used. */
  recordAge(ageMs: number, isLate: boolean): void {
    count(this.#ages, Math.max(0, Math.ceil(ageMs)))
    if (isLate) this.#late++
    else this.#used++
  }

  /** Records how long after it was written a request was answered. Returns true if the caller has to charge it once more. */
  recordAnswer(tookMs: number, nowMs: number, canCharge: boolean): boolean {
    const interval = this.#intervalAt(nowMs)
    interval.answers++
    count(interval.counts, Math.ceil(tookMs))
    interval.leastMs = Math.min(interval.leastMs, tookMs)
    interval.isCharged &&= canCharge
    if (this.#isCharged && tookMs > this.#boundMs) return true
    interval.mostMs = Math.max(interval.mostMs, tookMs)
    return false
  }

  /** Time without an answer, in ms, after which a request counts as answered slowly; undefined: none does. */
  get overdueMs(): number | undefined {
    if (!this.#isCharged || this.#boundMs === Infinity) return undefined
    return Math.max(0, ...this.#intervals.map(({ leastMs }) => leastMs).filter(Number.isFinite)) + wayUsStated / 1_000
  }

  /** Records that others can read this report from now on. Returns the bound that the margin has to allow for: the least of the newest. */
  recordReport({ boundMs }: Report, nowMs: number): number {
    const reported = [...this.#reported, { boundMs, atMs: nowMs }]
    const first = reported.findLastIndex(({ atMs }) => atMs <= nowMs - raiseMs)
    this.#reported = reported.slice(Math.max(0, first))
    return Math.min(...this.#reported.map((one) => one.boundMs))
  }

  /** Records that the margin in force allows for this bound. From now on, answers beyond it, or beyond a lower bound, are charged once more. */
  allowBound(boundMs: number): void {
    this.#boundMs = Math.min(boundMs, this.#nextMs)
  }

  /** Records that other processes may have assumed that this one has ended: the margin may no longer allow for any bound. */
  recordAbsence(nowMs: number): void {
    this.#reported = [{ boundMs: 0, atMs: nowMs }]
    this.#boundMs = 0
  }

  get #isCharged(): boolean {
    return this.#intervals.every(({ isCharged }) => isCharged)
  }

  /**
   * Records that the way of a request is unknown, or that the vendor refused a request that the limit allows. Returns
   * whether that is new.
   */
  recordDoubt(nowMs: number): boolean {
    const interval = this.#intervalAt(nowMs)
    const isNew = this.#intervals.every(({ isSound }) => isSound)
    interval.isSound = false
    return isNew
  }

  /**
   * Returns what is known, and begins to count late grants anew.
   * @param windowsMs the limit's windows
   * @param aheadMs how far ahead of time units are granted
   */
  report(nowMs: number, windowsMs: readonly number[] = [1_000], aheadMs = aheadMostUs / 1_000): Report {
    this.#drop(nowMs)
    const n = this.#used + this.#late
    const isCold = this.#known.length === 0 && this.#used > 0
    if (n > 0) this.#known.push(this.#ages)
    this.#known = this.#known.slice(-reportsMax)
    const part = this.#late >= lateLeast ? this.#late / n : 0
    const latePart = isCold ? Math.min(part, latePartCold) : part
    this.#ages = new Map()
    this.#late = this.#used = 0
    const ages: Counts = new Map()
    for (const each of this.#known) for (const [ms, many] of each) count(ages, ms, many)
    const known = total(ages)
    let ageMs = 0
    for (const { ms, longer } of longestFirst(ages)) if (longer <= known * lateMost) ageMs = ms
    const toUs = (ms: number) => (Number.isFinite(ms) ? Math.ceil(ms * 1_000) : 0)
    const leastMs = Math.min(...this.#intervals.map((interval) => interval.leastMs))
    this.#nextMs = this.#chooseBound(leastMs, Math.min(...windowsMs), aheadMs)
    this.#reports++
    // A lower bound needs no wider margin, so it holds at once.
    this.#boundMs = Math.min(this.#boundMs, this.#nextMs)
    return {
      ages: known,
      ageUs: toUs(ageMs),
      latePart,
      answers: this.#intervals.reduce((sum, { answers }) => sum + answers, 0),
      leastUs: toUs(leastMs),
      mostUs: toUs(this.#slowestMs(leastMs, nowMs - Math.max(...windowsMs) - openMs)),
      isSound: this.#intervals.every(({ isSound }) => isSound),
      boundMs: this.#nextMs,
    }
  }

  /**
   * Returns the bound that costs the least of the rate: each answer beyond it is charged once more, and the margin allows
   * for those within. Infinity: what is stated costs less than any.
   */
  #chooseBound(leastMs: number, windowMs: number, aheadMs: number): number {
    if (!this.#isCharged) return Infinity
    const counts: Counts = new Map()
    for (const [i, interval] of this.#intervals.toReversed().entries())
      if (i < boundIntervals || total(counts) < boundAnswers)
        for (const [ms, n] of interval.counts) count(counts, ms, n)
    // A process that has not called for a while does not know how long an answer takes.
    if (counts.size === 0) return this.#reports === 0 ? Infinity : 0
    if (leastMs > Math.min(leastMsMost, windowMs - aheadMs - recordMs)) return Infinity
    const answers = total(counts)
    const statedMs = wayUsStated / 1_000
    let [bound, least] = [Infinity, statedMs / windowMs]
    for (const { ms, longer } of longestFirst(counts)) {
      const cost = longer / answers + (ms - leastMs) / windowMs
      if (ms - leastMs < statedMs && cost < least) [bound, least] = [ms, cost]
    }
    return bound < this.#boundMs && bound > this.#boundMs * worthwhile ? this.#boundMs : bound
  }

  /**
   * Returns the time that no answer exceeds without being charged once more. Where none is charged, that is half as much
   * again as was measured, because nothing covers what varies more.
   * @param sinceMs requests since then may be in open windows
   */
  #slowestMs(leastMs: number, sinceMs: number): number {
    if (this.#nextMs === Infinity) {
      let mostMs = -Infinity
      for (const interval of this.#intervals)
        for (const ms of [interval.mostMs, ...interval.counts.keys()]) mostMs = Math.max(mostMs, ms)
      return mostMs + (mostMs - leastMs) / 2 + 1
    }
    const open = this.#intervals.filter(({ n }) => n >= Math.floor(sinceMs / intervalMs))
    return Math.max(this.#nextMs, this.#boundMs, ...open.map(({ mostMs }) => mostMs))
  }

  #intervalAt(nowMs: number): Interval {
    const n = Math.floor(nowMs / intervalMs)
    const newest = this.#intervals.at(-1)
    if (newest !== undefined && newest.n >= n) return newest
    const interval = {
      n,
      answers: 0,
      leastMs: Infinity,
      mostMs: -Infinity,
      counts: new Map(),
      isSound: true,
      isCharged: true,
    }
    this.#intervals.push(interval)
    this.#drop(nowMs)
    return interval
  }

  #drop(nowMs: number): void {
    const first = Math.floor(nowMs / intervalMs) - intervalsMax
    if ((this.#intervals[0]?.n ?? first + 1) <= first) this.#intervals = this.#intervals.filter(({ n }) => n > first)
  }
}
