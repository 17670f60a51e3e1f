/** What a vendor would have seen of random histories of claims, and whether it was ever too much: computed naively from the replies. */
import { expect } from 'vitest'
import { periodOf } from '../../src/core/calendar.ts'
import type { Limit } from '../../src/limits/limit.ts'
import { unreserved } from '../../src/limits/share.ts'
import { type Rule, withPaces } from '../../src/limits/rule.ts'
import { bound, worst } from '../limits/oracle.ts'

/** Time as it passes, and the time of the store's clock, which may be set back. */
export interface Time {
  us: number
  shownUs: number
}

/** Units that a bucket granted, and how many of them it still counts. */
interface Entry extends Time {
  of: string
  units: number
  kept: number
}

interface Bucket {
  entries: Entry[]
  /** How many of them were granted before the limit was last defined. */
  old: number
  /** Jobs with a place, and until when each keeps it without a report. */
  running: Map<string, number>
  heldUs: number
  givenBack: number
}

/** The state of one key of a share. */
interface Kept {
  grantedUs: number
  deniedUs: number
  /** How many grants others had when the share began to be kept. */
  from: number
}

/** Units and places of one bucket that a claim, or a take, was granted. */
export interface Grant {
  bucket: string
  of: string
  units: number
  /** The jobs or takes that run, each with a place. */
  who: string[]
  untilUs?: number
}

/** The number of judgements for each kind of rule and of bucket. */
export type Judged = Record<Exclude<Rule['kind'], 'pace'> | 'others' | 'label' | 'pool' | 'key', number>

/** Judges every grant when it is given. */
export class Witness {
  readonly judged: Judged = {
    rate: 0,
    window: 0,
    quota: 0,
    concurrency: 0,
    others: 0,
    label: 0,
    pool: 0,
    key: 0,
  }
  readonly #limits = new Map<string, Limit>()
  readonly #buckets = new Map<string, Bucket>()
  readonly #shares = new Map<string, Kept>()
  readonly #paused = new Set<string>()
  readonly #time: Time

  constructor(time: Time) {
    this.#time = time
  }

  /** Puts this definition in force; `key`: for this key alone, in place of that of all keys. */
  define(limit: Limit, key?: string): void {
    this.#limits.set(key === undefined ? limit.name : `${limit.name}:${key}`, limit)
    this.#renew(limit.name)
  }

  /** Puts the definition of all keys in force for a key that had its own. */
  undefine(name: string, key: string): void {
    this.#limits.delete(`${name}:${key}`)
    this.#renew(name)
  }

  /** The definition in force for a bucket. */
  limitOf(name: string): Limit {
    const limit = this.#limits.get(name.replace(/\/[^:]*/, '')) ?? this.#limits.get(limitOf(name))
    if (limit === undefined) throw new Error(`nobody defined ${name}`)
    return limit
  }

  pause(what: string): void {
    this.#paused.add(what)
  }

  resume(what: string): void {
    this.#paused.delete(what)
  }

  hold(name: string, us: number): void {
    const bucket = this.#bucket(name)
    bucket.heldUs = Math.max(bucket.heldUs, this.#time.us + us)
  }

  /** All units that one claim, or take, was granted. */
  granted(grants: readonly Grant[]): void {
    for (const { bucket: name, of, units, who, untilUs = Infinity } of grants) {
      const bucket = this.#bucket(name)
      bucket.entries.push({ ...this.#time, of, units, kept: units })
      for (const one of who) {
        expect(bucket.running.has(one), `${one} has one place of ${name}`).toBe(false)
        bucket.running.set(one, untilUs)
      }
    }
    for (const name of new Set(grants.map(({ bucket }) => bucket))) this.#judge(name)
    // A claim decides by the state before it.
    for (const { bucket, units } of grants) this.#note(bucket, units)
  }

  /** Frees a place. */
  ended(name: string, who: string): void {
    this.#bucket(name).running.delete(who)
  }

  /** Returns units that a claim, or take, was granted and did not use. */
  givenBack(name: string, of: string, units: number): void {
    const bucket = this.#bucket(name)
    const entry = bucket.entries.find((one) => one.of === of)
    if (entry === undefined) throw new Error(`${of} was granted nothing of ${name}`)
    entry.kept -= units
    bucket.givenBack += units
  }

  /** The units that a grant took, and still has. */
  unitsOf(name: string, of: string): number {
    return this.#bucket(name).entries.find((one) => one.of === of)?.kept ?? 0
  }

  /** A job of the share requests this bucket (`crm:a`), and gets nothing. */
  denied(name: string): void {
    this.#share(name).deniedUs = this.#time.us
  }

  #renew(limit: string): void {
    for (const [name, bucket] of this.#buckets) if (limitOf(name) === limit) bucket.old = bucket.entries.length
  }

  #bucket(name: string): Bucket {
    const known = this.#buckets.get(name)
    if (known !== undefined) return known
    const made = { entries: [], old: 0, running: new Map<string, number>(), heldUs: 0, givenBack: 0 }
    this.#buckets.set(name, made)
    return made
  }

  /** Begins to keep the share now, if it was not kept. */
  #share(own: string): Kept {
    const share = this.#shares.get(own) ?? { grantedUs: -Infinity, deniedUs: -Infinity, from: 0 }
    if (!this.#isKept(own)) share.from = this.#bucket(own.replace(/^[^:]*/, (name) => `${name}/`)).entries.length
    this.#shares.set(own, share)
    return share
  }

  /** Whether nothing of a share is lent: it was granted or denied units not long ago. */
  #isKept(own: string): boolean {
    const share = this.#shares.get(own)
    const lendUs = this.#limits.get(limitOf(own))?.share?.lendUs
    if (share === undefined || lendUs === undefined) return false
    const { us } = this.#time
    // The time of a denial is recorded once in a quarter of this time.
    return us < share.grantedUs + lendUs || us < share.deniedUs + (lendUs * 3) / 4
  }

  #note(name: string, units: number): void {
    if (/\/[^:]/.test(name) && units > 0) this.#share(name.replace(/\/[^:]*/, '')).grantedUs = this.#time.us
  }

  #judge(name: string): void {
    const limit = this.limitOf(name)
    const bucket = this.#bucket(name)
    expect(this.#paused, name).not.toContain(limit.name)
    expect(this.#paused, name).not.toContain(name)
    expect(bucket.heldUs, `until when ${name} is held`).toBeLessThanOrEqual(this.#time.us)
    if (limit.pool !== undefined) expect(limit.pool.map(({ key }) => `${limit.name}:${key}`)).toContain(name)
    if (name.includes('/:') || name.endsWith('/')) return this.#judgeOthers(name, limit, bucket)
    const kind =
      limit.pool !== undefined ? 'pool' : limit.label !== undefined ? 'label' : limit.keyed ? 'key' : undefined
    if (kind !== undefined) this.judged[kind]++
    for (const { rule, pace } of withPaces(limit.rules)) {
      if (rule.kind !== 'pace') this.judged[rule.kind]++
      this.#fits(`${name} of ${rule.kind} ${rule.rate}`, rule, bucket, { from: bucket.old, slack: 0, pace })
    }
  }

  /** The part of others in a limit while its share has requests. */
  #judgeOthers(name: string, limit: Limit, bucket: Bucket): void {
    const own = name.replace('/', '')
    const { share } = limit
    if (share === undefined || !this.#isKept(own)) return
    this.judged.others++
    const from = Math.max(bucket.old, this.#share(own).from)
    for (const { rule } of withPaces(limit.rules)) {
      // Units that they had borrowed of a rate, and refunded, may be granted to them once more.
      const slack = rule.kind === 'rate' ? bucket.givenBack : 0
      this.#fits(`${name} of ${rule.kind} ${rule.rate}`, unreserved(rule, share), bucket, {
        from,
        slack,
        isLevel: true,
      })
    }
  }

  /** The windows and the period that end with the newest grant; `from`: the first grant under these numbers. */
  #fits(
    what: string,
    rule: Rule,
    { entries, running }: Bucket,
    { from, slack, pace, isLevel = false }: { from: number; slack: number; pace?: Rule | undefined; isLevel?: boolean },
  ): void {
    if (rule.kind === 'concurrency') {
      const count = [...running.values()].filter((untilUs) => untilUs > this.#time.us).length
      expect(count, `places of ${what}`).toBeLessThanOrEqual(rule.capacity)
    } else if (rule.kind === 'quota') {
      expect(this.#inPeriod(rule, entries), `units in a period of ${what}`).toBeLessThanOrEqual(rule.capacity)
    } else {
      const grants = entries.map(({ us, kept }) => [us, kept] as const)
      const last = grants.length - 1
      const isBorrowed = isLevel && rule.kind === 'rate'
      const all = isBorrowed ? grants.slice(from) : grants
      const most = worst(all, rule.windowUs, 'half-open', all.length - 1)
      expect(most, `units in a window of ${what}`).toBeLessThanOrEqual(bound(rule, rule.windowUs, pace) + slack)
      const spanUs = 3 * rule.windowUs
      const since = grants.slice(from)
      if (isLevel && rule.kind === 'window') return
      expect(worst(since, spanUs, 'half-open', last - from), what).toBeLessThanOrEqual(
        bound(rule, spanUs, pace) + slack,
      )
    }
  }

  /** Most units in any period that the newest grant may be counted in. */
  #inPeriod({ quota: of }: Rule, entries: readonly Entry[]): number {
    const newest = entries.at(-1)
    if (of === undefined || newest === undefined) return 0
    const { marginUs } = of
    const sums = [-marginUs, 0, marginUs].map((by) => {
      const { startUs, endUs } = periodOf(of, newest.shownUs + by)
      const isIn = ({ shownUs }: Entry) => shownUs >= startUs - marginUs && shownUs < endUs + marginUs
      return isIn(newest) ? entries.filter(isIn).reduce((sum, { kept }) => sum + kept, 0) : 0
    })
    return Math.max(...sums)
  }
}

/** `crm` of `crm:a`, `crm/:a` and `crm/interactive:a`. */
function limitOf(bucket: string): string {
  return bucket.replace(/[/:].*$/s, '')
}
