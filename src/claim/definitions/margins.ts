/** Measures the margins of limits, and puts them in force for the whole fleet, as versions of their definitions. */
import { hostname } from 'node:os'
import { newId } from '../../core/hash.ts'
import { currentUser } from '../../core/user.ts'
import { perStore, type Store } from '../../db/store.ts'
import type { Limit } from '../../limits/limit.ts'
import {
  aheadMostUs,
  isMeasured,
  joinMargins,
  type Margin,
  mayCharge,
  nextMargin,
  statedMargin,
} from '../../limits/margin.ts'
import type { Rule } from '../../limits/rule.ts'
import { rulesOf } from '../../limits/rules.ts'
import { type ChargeAgain, type Report, Samples, type WayMeter } from '../../limits/samples.ts'
import { columnsOf, type Numbers, numbersOnly } from './columns.ts'
import { defineShareBuckets, retryOnDeadlock } from './define.ts'
import { countsUnits, slides } from '../../limits/kind.ts'

/** How often a process reports what it has measured, in ms. */
const reportMs = 5_000
/**
 * Other processes may assume that a process has ended if it has not reported for a minute, so after half a minute it
 * joins again.
 */
const absentMs = 30_000
/** Each process reads the definitions for a second limiter at least so often, in microseconds, also if that was away once. */
const readUs = 20_000_000

/** Limits of a job or a take. */
type Limits = readonly Pick<Limit, 'name' | 'rules'>[]

interface Row {
  name: string
  version: number
  spec: Numbers & { rules: Rule[]; beside?: unknown; share?: unknown }
  known: number
  age: number | null
  late: number
  late_of_all: number
  way: number | null
  fixed: boolean
  read: number
}

/** Measures the margins of the limits under which one process may call. */
export class Margins {
  readonly #store: Store
  readonly #process = newId()
  readonly #samples = new Map<string, Samples>()
  readonly #joined = new Map<string, Promise<void>>()
  /** When a limit was last reported. */
  readonly #recordedMs = new Map<string, number>()
  /** The newest definition, and when this process saw it first. */
  readonly #seen = new Map<string, { version: number; sinceMs: number }>()
  /** Limits of which a slow answer may be charged once more, with their windows, in ms. */
  readonly #charged = new Map<string, readonly number[]>()
  readonly #followers: (() => Promise<void>)[] = []
  /** How far ahead of time units are granted, in ms. */
  #aheadMs = aheadMostUs / 1_000
  #reportedMs: number

  constructor(store: Store) {
    this.#store = store
    this.#reportedMs = store.clock.monotonicMs()
  }

  /**
   * Makes the margins of these limits wide enough for a process that has measured nothing, unless this process has
   * reported within the last 30 s. Call it before a grant is requested.
   */
  async join(limits: Limits): Promise<void> {
    for (const { name, rules } of limits) {
      const sinceMs = this.#store.clock.monotonicMs() - (this.#recordedMs.get(name) ?? -Infinity)
      let joining = this.#joined.get(name)
      if (joining === undefined) {
        if (sinceMs < absentMs || !rules.some(countsUnits)) continue
        joining = this.#join(name).finally(() => this.#joined.delete(name))
        this.#joined.set(name, joining)
      }
      await joining
    }
  }

  /**
   * Registers a second limiter, which grants units up to `aheadMs` ahead of time. `read` is called when this process has
   * changed a margin to join. `join` waits for it.
   */
  follow(aheadMs: number, read: () => Promise<void>): void {
    this.#followers.push(read)
    this.#aheadMs = Math.max(this.#aheadMs, aheadMs)
  }

  /** Records the age at which a grant was used for a call or a request, in ms; `isLate`: it was too old to be used. */
  recordAge(limits: Limits, ageMs: number, isLate: boolean): void {
    for (const { name } of limits) this.#samples.get(name)?.recordAge(ageMs, isLate)
  }

  /**
   * Records that a request was answered `tookMs` after it was written; undefined: it failed. `charge` charges it once
   * more under the limits that it is called with, because it may have arrived later than their margins allow;
   * undefined: that is not possible. If the charge fails, or comes so late that the request may have left their
   * windows, these limits get the stated margin at once.
   */
  recordAnswer(limits: Limits, tookMs: number | undefined, charge?: ChargeAgain): void {
    if (tookMs === undefined) return this.applyStatedMargin(limits)
    const nowMs = this.#store.clock.monotonicMs()
    const slow = limits.filter(({ name }) => {
      const samples = this.#samples.get(name)
      if (this.#isAbsent(name, nowMs)) samples?.recordAbsence(nowMs)
      return samples?.recordAnswer(tookMs, nowMs, charge !== undefined && this.#charged.has(name))
    })
    if (slow.length === 0 || charge === undefined) return
    const checkLateness = () => {
      const agoMs = tookMs + this.#store.clock.monotonicMs() - nowMs
      this.applyStatedMargin(
        slow.filter(({ name }) => agoMs + this.#aheadMs >= Math.min(...(this.#charged.get(name) ?? [0]))),
      )
    }
    charge(new Set(slow.map(({ name }) => name))).then(checkLateness, () => this.applyStatedMargin(slow))
  }

  /** Returns the callbacks that measure the way of one request under these limits; `charge` as in `recordAnswer`. */
  measureWay(limits: Limits, charge?: ChargeAgain): WayMeter {
    let rest = limits
    const overdueMsOf = ({ name }: Limits[number]) =>
      (this.#charged.has(name) ? this.#samples.get(name)?.overdueMs : undefined) ?? Infinity
    return {
      recordAnswer: (tookMs) => this.recordAnswer(tookMs === undefined ? limits : rest, tookMs, charge),
      overdueMs: () => {
        const ms = Math.min(...rest.map(overdueMsOf))
        return ms === Infinity ? undefined : ms
      },
      recordOverdue: (afterMs) => {
        const over = new Set(rest.filter((one) => overdueMsOf(one) <= afterMs))
        rest = rest.filter((one) => !over.has(one))
        this.recordAnswer([...over], afterMs, charge)
      },
    }
  }

  /**
   * Gives these limits the stated margin at once, because a grant was used in a way that is not measured, or the vendor
   * refused a request that they allow.
   */
  applyStatedMargin(limits: Limits): void {
    const nowMs = this.#store.clock.monotonicMs()
    const first = limits.filter(({ name }) => this.#samples.get(name)?.recordDoubt(nowMs) === true)
    if (first.length > 0) void this.#report(first.map(({ name }) => name)).catch(() => {})
  }

  /** Reports what was measured, and looks at the margins, unless that was done in the last 5 s. */
  async renew(): Promise<void> {
    const { clock } = this.#store
    if (this.#samples.size === 0 || clock.monotonicMs() < this.#reportedMs + reportMs) return
    this.#reportedMs = clock.monotonicMs()
    await this.#report([...this.#samples.keys()])
  }

  async #join(name: string): Promise<void> {
    const samples = this.#samples.get(name) ?? new Samples()
    try {
      await this.#record(new Map([[name, samples]]))
      if (await this.#widen(name)) await Promise.all(this.#followers.map((read) => read()))
      this.#samples.set(name, samples)
    } catch (error) {
      // The next caller joins again.
      this.#recordedMs.delete(name)
      throw error
    }
  }

  /** Makes the margin at least as wide as the stated one. Resolves to true if that was a change. */
  async #widen(name: string): Promise<boolean> {
    // It repeats this when another process changed the definition first.
    for (;;) {
      const [row] = await this.#read([name])
      if (row === undefined) return false
      this.#learn(row)
      const all = joinMargins(row.spec, statedMarginOf(row))
      if (isSame(row.spec, all) || row.fixed) return false
      if (await this.#put(row, all, 'another process began')) return true
    }
  }

  async #report(names: readonly string[]): Promise<void> {
    const reports = await this.#record(new Map([...this.#samples].filter(([name]) => names.includes(name))))
    for (const row of await this.#read(names)) {
      const { boundMs = 0, latePart = 0 } = reports.get(row.name) ?? {}
      if (await this.#look(row, latePart)) this.#samples.get(row.name)?.allowBound(boundMs)
    }
  }

  /** Resolves to what was reported of each limit, with the bound that its margin has to allow for. */
  async #record(samples: ReadonlyMap<string, Samples>): Promise<ReadonlyMap<string, Report>> {
    const nowMs = this.#store.clock.monotonicMs()
    for (const [name, one] of samples) if (this.#isAbsent(name, nowMs)) one.recordAbsence(nowMs)
    const reports = new Map(
      [...samples].map(([name, one]) => [name, one.report(nowMs, this.#charged.get(name), this.#aheadMs)]),
    )
    const seen = [...reports].map(([name, { ages, ageUs, latePart, answers, leastUs, mostUs, isSound }]) => {
      return { name, ages, age: ageUs, late: latePart, answers, least: leastUs, most: mostUs, sound: isSound }
    })
    await retryOnDeadlock(this.#store.clock, () =>
      this.#store.call('record_measurements', [this.#process, hostname(), JSON.stringify(seen)]),
    )
    for (const { name } of seen) this.#recordedMs.set(name, nowMs)
    const atMs = this.#store.clock.monotonicMs()
    return new Map(
      [...reports].map(([name, one]) => [name, { ...one, boundMs: samples.get(name)?.recordReport(one, atMs) ?? 0 }]),
    )
  }

  /** True if other processes may have assumed that this one has ended, because it has not reported for so long. */
  #isAbsent(name: string, nowMs: number): boolean {
    return nowMs - (this.#recordedMs.get(name) ?? nowMs) > absentMs
  }

  #read(names: readonly string[]): Promise<Row[]> {
    return this.#store.run<Row>('limits/definitions/read_measurements', [names])
  }

  #learn({ name, spec, fixed }: Row): void {
    if (!fixed && spec.beside === undefined && isMeasured(spec.numbers) && mayCharge(spec.rules))
      this.#charged.set(
        name,
        windowsUsOf(spec).map((us) => us / 1_000),
      )
    else this.#charged.delete(name)
  }

  /**
   * Puts another margin in force, if what was measured calls for it. Resolves to true if the margin that is then in force,
   * also by a second limiter, allows for the way as it was measured.
   */
  async #look(row: Row, latePart: number): Promise<boolean> {
    this.#learn(row)
    const { name, version, spec, age, late, late_of_all: latePartOfAll, way } = row
    const nowMs = this.#store.clock.monotonicMs()
    if (this.#seen.get(name)?.version !== version) this.#seen.set(name, { version, sinceMs: nowMs })
    const steadyUs = (nowMs - (this.#seen.get(name)?.sinceMs ?? nowMs)) * 1_000
    const stated = statedMarginOf(row)
    if (spec.beside !== undefined) return false
    const next = nextMargin({
      inForce: spec,
      stated,
      measured: { ageUs: age ?? undefined, latePart, latePartMost: late, latePartOfAll, wayUs: way ?? undefined },
      isMeasured: isMeasured(spec.numbers),
      isFixed: row.fixed,
      rules: spec.rules,
      steadyUs,
    })
    if (row.fixed) {
      if (next !== undefined) await this.#put(row, next, 'others count by it')
      return false
    }
    const isEnough = ({ transitUs }: Margin) => transitUs >= Math.min(way ?? Infinity, stated.transitUs)
    const isKnown = this.#followers.length === 0 || steadyUs >= readUs
    if (next === undefined) return isKnown && isEnough(spec)
    const ms = (us: number | null) => (us === null ? 'an unknown time' : `${Math.ceil(us / 1_000)} ms`)
    return (
      (await this.#put(row, next, `grants were used after ${ms(age)}; answers varied by ${ms(way)}`)) &&
      this.#followers.length === 0 &&
      isEnough(next)
    )
  }

  /** Resolves to false if the definition, or who calls under it, may have changed since it was read. */
  async #put(row: Row, margin: Margin, why: string): Promise<boolean> {
    const { name, version, known, read, spec } = row
    const { classic, numbers } = spec
    const made = rulesWith(name, numbers, margin)
    // With these numbers it is beyond exact arithmetic.
    if (made === undefined) return true
    const limit = { ...made, classic, numbers }
    const text = JSON.stringify(numbersOnly(limit))
    const params = [name, version, 'measured', known, read, text, JSON.stringify(columnsOf(limit)), currentUser(), why]
    const [put] = await retryOnDeadlock(this.#store.clock, () =>
      this.#store.call<{ adapt_limit: boolean }>('adapt_limit', params),
    )
    if (put?.adapt_limit === true && spec.share !== undefined) await defineShareBuckets(this.#store, name)
    return put?.adapt_limit === true
  }
}

function isSame(one: Margin, other: Margin): boolean {
  return one.grantUs === other.grantUs && one.transitUs === other.transitUs
}

function statedMarginOf({ name, spec }: Row): Margin {
  return statedMargin(name, spec.numbers.transit, windowsUsOf(spec))
}

function windowsUsOf({ rules }: Row['spec']): number[] {
  return rules.filter(slides).map(({ windowUs }) => windowUs)
}

/** Returns the rules of numbers with a margin; undefined: there are none that can be computed with. */
function rulesWith(name: string, numbers: Numbers['numbers'], margin: Margin) {
  try {
    const { rules, grantUs, transitUs } = rulesOf(name, numbers, margin)
    return { rules, grantUs, transitUs }
  } catch {
    return undefined
  }
}

/** Returns what a process measures for the limits of a store; the same for the same store. */
export const marginsOf = perStore((store) => new Margins(store))
