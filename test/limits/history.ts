import { createHash, randomUUID } from 'node:crypto'
import { expect } from 'vitest'
import { hash64 } from '../../src/core/hash.ts'
import { periodOf } from '../../src/core/calendar.ts'
import {
  type Bucket,
  charge,
  emptyBucket,
  type Entry,
  hold,
  neverUs,
  rebuild,
  release,
  type Room,
  room,
} from '../../src/limits/decide.ts'
import type { Rule } from '../../src/limits/limit.ts'
import { type Act, bucketsOf, type History, keepUs } from './acts.ts'
import { bound, giveBack, type Grant, type Known, worst, worstPeriod } from './oracle.ts'

/** A grant as the twin remembers it: under its name, with the version of the limit that it was decided by. */
interface Named extends Known {
  id: string
  version: number
}

interface Kept {
  id: string
  limit: number
  /** The rules under which `state` was last written, and all that were in force since. */
  defined: (readonly Rule[])[]
  state: Bucket | undefined
  history: Named[]
  /** How many of `history` were granted before the limit was last defined. */
  old: number
  /** How many of `history` the ledger knows no more. */
  gone: number
  /** The newest row of the ledger is the newest grant. */
  isGrant: boolean
}

/** What a store is told to do (stage.sql), what it has to answer, and what the buckets have to be after it. */
export interface Scene {
  command: { kind: string; buckets?: string[]; [field: string]: unknown }
  answer: string | null
  /** null: before all limits are defined. */
  state: string | null
}

/** As text, in one order of fields: equal as JSON means equal to the store. */
function inFull(rules: readonly Rule[]): string {
  const fields = ['kind', 'rate', 'units', 'windowUs', 'drain', 'weight', 'room', 'slotUs', 'spanUs']
  return JSON.stringify(rules, [...fields, 'quota', 'unit', 'zone', 'anchorUs', 'marginUs'])
}

/** What a bucket was granted and kept, in order. */
function keptOf(one: Kept): Entry[] {
  return one.history.slice(one.gone).map(({ atUs, units, refunded }) => ({ atUs, units: units - refunded }))
}

/** An array as PostgreSQL writes it; none is empty text. */
function inBraces(list: readonly (number | readonly number[])[]): string {
  if (list.length === 0) return ''
  return `{${list.map((one) => (typeof one === 'number' ? one : inBraces(one))).join(',')}}`
}

/** A history in decide.ts: what the store has to answer to each act. Nothing is asked of the store meanwhile. */
export class Twin {
  readonly scenes: Scene[] = []
  readonly #limits: (readonly Rule[])[] = []
  readonly #versions: number[] = []
  readonly #buckets: Kept[] = []
  readonly #name = `l${randomUUID()}`
  #nowUs: number
  #last: { grant: string; buckets: number[] } | undefined

  constructor({ limits, startUs, acts }: History) {
    this.#nowUs = startUs
    for (const [i, of] of bucketsOf.entries()) {
      const id = hash64(`${this.#name}.${of}:${i}`)
      const defined = [limits[of] ?? []]
      this.#buckets.push({ id, limit: of, defined, state: undefined, history: [], old: 0, gone: 0, isGrant: false })
    }
    this.#play({ kind: 'clock', us: startUs })
    for (const [i, rules] of limits.entries()) this.#define(i, rules)
    for (const act of acts) this.#act(act)
    this.#within()
  }

  /** Which buckets, and how the store calls them. */
  get buckets(): { ids: string[]; names: string[] } {
    return {
      ids: this.#buckets.map(({ id }) => id),
      names: this.#buckets.map((one) => `${this.#name}.${one.limit}`),
    }
  }

  /** The buckets as they have to be now, in full; those of these ids, or all. */
  rows(ids?: readonly string[]): string[] {
    const looked = ids === undefined ? this.#buckets : this.#buckets.filter((one) => ids.includes(one.id))
    return looked.map((one) => {
      const { bucket, avail, nextUs } = this.#room(one)
      const spent = bucket.spent.map((it) => [it.beforeUs, it.startUs, it.endUs, it.previous, it.current, it.next])
      // A hold that is over means nothing any more, and a bucket that was retired knows of none.
      const holdUs = bucket.holdUs > bucket.atUs ? bucket.holdUs : 0
      const [debt, slots, periods] = [inBraces(bucket.debt), inBraces(bucket.slots), inBraces(spent)]
      return `at ${bucket.atUs} debt ${debt} slots ${slots} quota ${periods} hold ${holdUs} avail ${avail} next ${nextUs}`
    })
  }

  /** A command, and what follows from it. Only the buckets that it names are looked at, all when it names none. */
  #play(command: Scene['command'], answer: string | null = null): void {
    const isSet = this.#limits.length > Math.max(...bucketsOf)
    const state = () => createHash('md5').update(this.rows(command.buckets).join('\n')).digest('hex')
    this.scenes.push({ command, answer, state: isSet ? state() : null })
  }

  #act(act: Act): void {
    if (act.kind === 'pass') this.#clock(this.#nowUs + act.us)
    else if (act.kind === 'jump') this.#jump(act.bucket, act.us)
    else if (act.kind === 'edge') this.#edge(act.bucket, act.margins, act.us)
    else if (act.kind === 'take') this.#take(act.buckets, act.again)
    else if (act.kind === 'charge') this.#charge(act.buckets, act.shares)
    else if (act.kind === 'refund') this.#refund(act.bucket, act.ago, act.share)
    else if (act.kind === 'release') this.#release(act.buckets, act.units)
    else if (act.kind === 'hold') this.#hold(act.buckets, act.us)
    else if (act.kind === 'retire') this.#retire(act.us)
    else this.#define(act.limit, act.rules)
  }

  /** Every window and period of every bucket against the bound of every rule, from the list of all grants. */
  #within(limit?: number): void {
    for (const one of this.#buckets) {
      const kept = one.history.map(({ atUs, units, refunded }): Grant => [atUs, units - refunded])
      for (const rule of one.limit === (limit ?? one.limit) ? (this.#limits[one.limit] ?? []) : []) {
        if (rule.kind === 'concurrency') continue
        expect(worstPeriod(kept, rule, one.old)).toBeLessThanOrEqual(rule.room)
        // Also those that began under the definition before.
        if (rule.kind !== 'quota')
          expect(worst(kept, rule.windowUs, 'half-open', one.old)).toBeLessThanOrEqual(bound(rule, rule.windowUs))
        const spanUs = 3 * rule.windowUs
        expect(worst(kept.slice(one.old), spanUs)).toBeLessThanOrEqual(bound(rule, spanUs))
      }
    }
  }

  #room(one: Kept, nowUs = this.#nowUs, isFurther = false): Room {
    const rules = this.#limits[one.limit] ?? []
    const { state = emptyBucket(rules, nowUs) } = one
    const isStale = one.state !== undefined && one.defined.length > 1
    return room(rules, isStale ? rebuild(one.defined, keptOf(one), state) : state, nowUs, isFurther)
  }

  #write(one: Kept, state: Bucket): void {
    one.defined = [this.#limits[one.limit] ?? []]
    one.state = state
    one.isGrant = false
  }

  #grant(one: Kept, id: string, units: number, isFurther = false): void {
    const { bucket } = this.#room(one)
    const version = this.#versions[one.limit] ?? 0
    one.history.push({ id, atUs: bucket.atUs, units, refunded: 0, version })
    this.#write(one, charge(this.#limits[one.limit] ?? [], bucket, units, isFurther))
    one.isGrant = true
  }

  #clock(us: number, look: Kept[] = this.#buckets): void {
    this.#nowUs = us
    this.#play({ kind: 'clock', us, buckets: look.map((one) => one.id) })
  }

  #jump(number: number, us: number): void {
    const picked = this.#pick([number])
    const [nextUs = neverUs] = picked.map((one) => this.#room(one).nextUs)
    this.#clock(nextUs < neverUs ? nextUs + us : this.#nowUs, picked)
  }

  #edge(number: number, margins: number, us: number): void {
    const picked = this.#pick([number])
    const ends = (this.#limits[picked[0]?.limit ?? 0] ?? []).flatMap(({ quota: of }) => {
      return of === undefined ? [] : [periodOf(of, this.#nowUs).endUs + margins * of.marginUs + us]
    })
    this.#clock(ends[0] ?? this.#nowUs, picked)
  }

  #take(numbers: number[], again: boolean): void {
    const repeat = again && this.#last !== undefined ? this.#last : undefined
    const kept = this.#pick(repeat?.buckets ?? numbers)
    const grant = repeat?.grant ?? randomUUID()
    const command = { kind: 'take', grant, buckets: kept.map((one) => one.id) }
    for (const one of kept)
      if (one.state !== undefined && one.defined.length > 1) this.#write(one, this.#room(one, 0).bucket)
    if (repeat !== undefined) return this.#play(command, 'true 0')
    const denied = kept.map((one) => this.#room(one, this.#nowUs, true)).filter((one) => one.avail < 1)
    if (denied.length > 0) {
      const wait = Math.max(1, Math.max(...denied.map((one) => one.nextUs)) - this.#nowUs)
      return this.#play(command, `false ${wait}`)
    }
    for (const one of kept) this.#grant(one, grant, 1, true)
    this.#last = { grant, buckets: numbers }
    return this.#play(command, 'true 0')
  }

  /** As a claim does it: what is free in each bucket is looked up, some of it is charged, in one statement for all. */
  #charge(numbers: number[], shares: number[]): void {
    const kept = this.#pick(numbers)
    const units = kept.map((one, i) => Math.ceil(Math.min(this.#room(one).avail, 1_000) * (shares[i] ?? 0)))
    const claim = randomUUID()
    for (const [i, one] of kept.entries()) if ((units[i] ?? 0) > 0) this.#grant(one, claim, units[i] ?? 0)
    this.#play({ kind: 'charge', claim, now: this.#nowUs, buckets: kept.map((one) => one.id), units })
  }

  #refund(number: number, ago: number, share: number): void {
    const [one] = this.#pick([number]) as [Kept]
    const index = one.history.length - ago
    const known = index < one.gone ? undefined : one.history[index]
    const units = Math.ceil(((known?.units ?? 0) - (known?.refunded ?? 0)) * share)
    if (units > 0 && !one.history.slice(index).some((grant) => grant.version !== this.#versions[one.limit])) {
      const { bucket } = this.#room(one, 0)
      this.#write(one, giveBack(this.#limits[one.limit] ?? [], one.history, index, units, bucket))
    }
    this.#play({ kind: 'refund', buckets: [one.id], claim: known?.id ?? randomUUID(), units: [units] })
  }

  #release(numbers: number[], units: number): void {
    const kept = this.#pick(numbers)
    for (const one of kept) {
      const rules = this.#limits[one.limit] ?? []
      if (one.state !== undefined && rules.some((rule) => rule.kind === 'concurrency'))
        this.#write(one, release(rules, this.#room(one, 0).bucket, units))
    }
    this.#play({ kind: 'release', buckets: kept.map((one) => one.id), units: kept.map(() => units) })
  }

  #hold(numbers: number[], us: number): void {
    const kept = this.#pick(numbers)
    for (const one of kept) {
      const { bucket } = this.#room(one)
      const held = hold(bucket, us)
      if (held.holdUs > bucket.holdUs) this.#write(one, held)
    }
    this.#play({ kind: 'hold', buckets: kept.map((one) => one.id), us })
  }

  #retire(us: number): void {
    this.#nowUs += us
    const beforeUs = this.#nowUs - keepUs
    const retired = this.#buckets.filter((one) => {
      const { history, state } = one
      const kept = history.findIndex(({ atUs }) => atUs >= beforeUs)
      one.gone = Math.max(one.gone, Math.min(kept < 0 ? history.length : kept, history.length - (one.isGrant ? 1 : 0)))
      if (state === undefined) return true
      const { bucket } = this.#room(one)
      if (state.atUs >= beforeUs || bucket.holdUs > this.#nowUs || bucket.debt.some((debt) => debt > 0)) return false
      Object.assign(one, {
        state: undefined,
        defined: [this.#limits[one.limit] ?? []],
        gone: history.length,
        isGrant: false,
      })
      return true
    })
    this.#play({ kind: 'retire', us: this.#nowUs, keep: keepUs }, String(retired.length))
    // Asked for again it would be granted anew: nobody asks after days.
    this.#last = undefined
  }

  #define(number: number, rules: readonly Rule[]): void {
    this.#within(number)
    if (inFull(rules) !== inFull(this.#limits[number] ?? [])) {
      this.#versions[number] = (this.#versions[number] ?? 0) + 1
      for (const one of this.#buckets)
        if (one.limit === number && this.#limits[number] !== undefined) one.defined.push(rules)
    }
    this.#limits[number] = rules
    for (const one of this.#buckets) if (one.limit === number) one.old = one.history.length
    const column = (field: 'drain' | 'weight' | 'room' | 'slotUs' | 'spanUs') => rules.map((rule) => rule[field])
    this.#play({
      kind: 'define',
      name: `${this.#name}.${number}`,
      spec: { rules },
      drain: column('drain'),
      weight: column('weight'),
      room: column('room'),
      slot: column('slotUs'),
      span: column('spanUs'),
    })
  }

  #pick(numbers: number[]): Kept[] {
    return this.#buckets.filter((_, i) => numbers.includes(i))
  }
}
