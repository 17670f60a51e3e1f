/** Random histories of buckets, and what is expected of each act in them. */
import { createHash, randomUUID } from 'node:crypto'
import { hash64 } from '../../src/core/hash.ts'
import { periodOf } from '../../src/core/calendar.ts'
import { grantAhead } from './ahead.ts'
import { type Bucket, charge, emptyBucket, neverUs, type Room, room } from '../../src/limits/decide.ts'
import { type Entry, accept, hold, refuse, release, settle } from './specification.ts'
import { rebuild } from './rebuild.ts'
import { type Rule, withPaces } from '../../src/limits/rule.ts'
import { type Act, bucketsOf, type History, keepUs, narrower, needs } from './acts.ts'
import { checkBounds, claimOf, type Kept, keptOf, type Named } from './kept.ts'
import { type Credit, giveBack, second } from './oracle.ts'
import { columnsOf, inFull, rowOf } from './words.ts'

/** Longer than all steps of the clock. */
const farUs = 400 * 86_400 * second

/** A command for a store (stage.sql), its expected answer, and the expected buckets after it. */
export interface Scene {
  command: { kind: string; buckets?: string[]; [field: string]: unknown }
  answer: string | null
  /** null: before all limits are defined. */
  state: string | null
}

/** A history in decide.ts, which computes the expected answer to each act. The store is not used meanwhile. */
export class Twin {
  readonly scenes: Scene[] = []
  readonly #limits: (readonly Rule[])[] = []
  readonly #versions: number[] = []
  /** The rules of each limit's versions, by `limit:version`. */
  readonly #defined = new Map<string, readonly Rule[]>()
  readonly #buckets: Kept[] = []
  readonly #name = `l${randomUUID()}`
  #nowUs: number
  readonly #full: readonly boolean[]
  readonly #isEager: boolean
  #last: { grant: string; buckets: number[]; units: number } | undefined

  constructor({ limits, full, startUs, acts, isEager = false }: History) {
    this.#isEager = isEager
    this.#nowUs = startUs
    this.#full = full
    for (const [i, of] of bucketsOf.entries()) {
      const id = hash64(`${this.#name}.${of}:${i}`)
      const defined = [limits[of] ?? []]
      const need = needs[i] ?? 1
      const begun = { state: undefined, history: [], old: 0, gone: 0, isGrant: false }
      this.#buckets.push({ id, need, limit: of, defined, ...begun })
    }
    this.#play({ kind: 'clock', us: startUs })
    for (const [i, rules] of limits.entries()) this.#define(i, rules)
    for (const act of acts) this.#act(act)
    this.#within()
  }

  /** The buckets' ids, and their names in the store. */
  get buckets(): { ids: string[]; names: string[] } {
    return {
      ids: this.#buckets.map(({ id }) => id),
      names: this.#buckets.map((one) => `${this.#name}.${one.limit}`),
    }
  }

  /** The expected buckets, in full; those of these ids, or all. */
  rows(ids?: readonly string[]): string[] {
    const looked = ids === undefined ? this.#buckets : this.#buckets.filter((one) => ids.includes(one.id))
    return looked.map((one) => rowOf(this.#room(one, this.#nowUs, false, one.need)))
  }

  /** A command, and its expected effects. It compares only the buckets that it names, and all when it names none. */
  #play(command: Scene['command'], answer: string | null = null): void {
    const isSet = this.#limits.length > Math.max(...bucketsOf)
    const state = () => createHash('md5').update(this.rows(command.buckets).join('\n')).digest('hex')
    this.scenes.push({ command, answer, state: isSet ? state() : null })
  }

  #act(act: Act): void {
    if (act.kind === 'pass') this.#clock(this.#nowUs + act.us)
    else if (act.kind === 'jump') this.#jump(act.bucket, act.us)
    else if (act.kind === 'edge') this.#edge(act.bucket, act.margins, act.us)
    else if (act.kind === 'take') this.#take(act.buckets, act.units, act.again)
    else if (act.kind === 'ahead') this.#ahead(act.bucket, act.units)
    else if (act.kind === 'charge') this.#charge(act.buckets, act.shares, act.size)
    else if (act.kind === 'refund') this.#refund(act.bucket, act.ago, act.share)
    else if (act.kind === 'release') this.#release(act.buckets, act.units)
    else if (act.kind === 'hold') this.#hold(act.buckets, act.us, act.trialUs)
    else if (act.kind === 'accept') this.#accept(act.buckets)
    else if (act.kind === 'retire') this.#retire(act.us)
    else this.#define(act.limit, [...act.rules, ...this.#staying(act)])
  }

  /** Checks every window and period of every bucket against the bound of every rule, from the list of all grants. */
  #within(limit?: number): void {
    for (const one of this.#buckets) {
      // No bound holds for refunds by the vendor itself.
      if (this.#full[one.limit] === true) continue
      const rules = one.limit === (limit ?? one.limit) ? (this.#limits[one.limit] ?? []) : []
      // Of units that were granted ahead, any may be those that were not used.
      for (const cut of ['first', 'last'] as const) checkBounds(one, rules, cut)
    }
  }

  #room(one: Kept, nowUs = this.#nowUs, isFurther = false, need = 1): Room {
    const rules = this.#limits[one.limit] ?? []
    const { state = emptyBucket(rules, nowUs) } = one
    const isStale = one.state !== undefined && one.defined.length > 1
    const newest = one.history.findLast(({ units }) => units > 0)
    const before = this.#defined.get(`${one.limit}:${newest?.version}`)
    return room(rules, isStale ? rebuild(one.defined, keptOf(one), state, before) : state, nowUs, isFurther, need)
  }

  #write(one: Kept, state: Bucket): void {
    one.defined = [this.#limits[one.limit] ?? []]
    one.state = state
    one.isGrant = false
  }

  #grant(one: Kept, id: string, units: number, isFurther = false, places = units): void {
    const { bucket } = this.#room(one)
    const version = this.#versions[one.limit] ?? 0
    one.history.push({ id, atUs: bucket.atUs, units, refunded: 0, version })
    this.#write(one, charge(this.#limits[one.limit] ?? [], bucket, units, isFurther, places))
    one.isGrant = true
  }

  #clock(us: number, look: Kept[] = this.#buckets): void {
    this.#nowUs = us
    this.#play({ kind: 'clock', us, buckets: look.map((one) => one.id) })
  }

  #jump(number: number, us: number): void {
    const picked = this.#pick([number])
    const [nextUs = neverUs] = picked.map((one) => this.#room(one, this.#nowUs, false, one.need).nextUs)
    // Usage beyond grants may be a debt of lifetimes at a rate of one a day.
    this.#clock(nextUs < this.#nowUs + farUs ? nextUs + us : this.#nowUs, picked)
  }

  #edge(number: number, margins: number, us: number): void {
    const picked = this.#pick([number])
    const ends = (this.#limits[picked[0]?.limit ?? 0] ?? []).flatMap(({ quota: of }) => {
      return of === undefined ? [] : [periodOf(of, this.#nowUs).endUs + margins * of.marginUs + us]
    })
    this.#clock(ends[0] ?? this.#nowUs, picked)
  }

  #take(numbers: number[], of: number, again: boolean): void {
    const repeat = again && this.#last !== undefined ? this.#last : undefined
    const kept = this.#pick(repeat?.buckets ?? numbers)
    const grant = repeat?.grant ?? randomUUID()
    const units = repeat?.units ?? of
    const command = { kind: 'take', grant, buckets: kept.map((one) => one.id), units: kept.map(() => units) }
    // Redis repeats its answer without a look at the buckets.
    if (repeat === undefined || !this.#isEager) this.#renew(kept)
    if (repeat !== undefined) return this.#play(command, 'true 0')
    const denied = kept
      .map((one) => this.#room(one, this.#nowUs, true, units))
      .filter((one) => one.units < Math.max(units, 1) || one.places < 1)
    if (denied.length > 0) {
      const wait = Math.max(1, Math.max(...denied.map((one) => one.nextUs)) - this.#nowUs)
      return this.#play(command, `false ${wait}`)
    }
    for (const one of kept) this.#grant(one, grant, units, true)
    this.#last = { grant, buckets: numbers, units }
    return this.#play(command, 'true 0')
  }

  /** Writes the states of buckets whose limit has changed since. */
  #renew(kept: readonly Kept[]): void {
    for (const one of kept)
      if (one.state !== undefined && one.defined.length > 1) this.#write(one, this.#room(one, 0).bucket)
  }

  /** The buckets that a call names. */
  #called(numbers: number[]): Kept[] {
    const kept = this.#pick(numbers)
    if (this.#isEager) this.#renew(kept)
    return kept
  }

  /** As in a claim: reads the room of each bucket, and charges some of it, in one statement for all. */
  #charge(numbers: number[], shares: number[], size: number): void {
    const kept = this.#called(numbers)
    const free = kept.map((one, i) => Math.ceil(Math.min(this.#room(one).avail, 1_000) * (shares[i] ?? 0)))
    const units = free.map((all) => (size > 0 ? all : 0))
    const places = free.map((all) => Math.ceil(all / Math.max(size, 1)))
    const claim = randomUUID()
    for (const [i, one] of kept.entries())
      if ((places[i] ?? 0) > 0) this.#grant(one, claim, units[i] ?? 0, false, places[i])
    this.#play({ kind: 'charge', claim, now: this.#nowUs, buckets: kept.map((one) => one.id), units, places })
  }

  /** As in a claim ahead of time: a row at the last instant. */
  #ahead(number: number, units: number): void {
    const [one] = this.#pick([number]) as [Kept]
    const rules = this.#limits[one.limit] ?? []
    const given = grantAhead(rules, this.#room(one).bucket, this.#nowUs, units)
    const claim = randomUUID()
    const { bucket, instantsUs = [] } = given ?? {}
    if (bucket !== undefined && instantsUs.length > 0) {
      const version = this.#versions[one.limit] ?? 0
      one.history.push({ id: claim, atUs: bucket.atUs, units: instantsUs.length, refunded: 0, version, instantsUs })
      this.#write(one, bucket)
      one.isGrant = true
    }
    this.#play(
      { kind: 'ahead', buckets: [one.id], claim, now: this.#nowUs, units },
      given === undefined ? 'never' : instantsUs.join(),
    )
  }

  #refund(number: number, ago: number, share: number): void {
    const [one] = this.#called([number]) as [Kept]
    const index = one.history.length - ago
    const known = index < one.gone ? undefined : one.history[index]
    // Usage beyond a grant is never refunded.
    const left = known === undefined || known.id === '' ? 0 : known.units - known.refunded
    if (share < 0) return this.#overrun(one, known, Math.max(1, Math.ceil(left * -share)))
    const units = Math.ceil(left * share)
    const full = this.#full[one.limit] ?? false
    if (units > 0) {
      const { bucket } = this.#room(one, 0)
      // It is not known which units of a grant ahead were not used: all but the first count as later grants.
      const own = (known?.instantsUs ?? []).slice(1).map((atUs): Entry => ({ atUs, units: 1 }))
      const credit: Credit = (rules, atUs, back, since, to) => {
        // Windows and quotas count all of them at the last instant.
        const { parts, spent } = settle(rules, atUs, -back, since, to, full)
        return { ...settle(rules, known?.instantsUs?.[0] ?? atUs, -back, [...own, ...since], to, full), parts, spent }
      }
      this.#write(one, giveBack(this.#limits[one.limit] ?? [], one.history, index, units, bucket, credit))
    }
    this.#play({ kind: 'refund', buckets: [one.id], claim: claimOf(known), units, full })
  }

  /** Also for a grant that the ledger does not have, or without units: then its time is unknown, and it counts now. */
  #overrun(one: Kept, known: Named | undefined, units: number): void {
    const { bucket } = this.#room(one)
    const grantedUs = known === undefined || known.id === '' || known.units === 0 ? bucket.atUs : known.atUs
    const version = this.#versions[one.limit] ?? 0
    one.history.push({ id: '', atUs: bucket.atUs, units, refunded: 0, version })
    this.#write(one, settle(this.#limits[one.limit] ?? [], grantedUs, units, [], bucket))
    one.isGrant = true
    this.#play({ kind: 'overrun', buckets: [one.id], claim: claimOf(known), units, now: this.#nowUs })
  }

  #release(numbers: number[], units: number): void {
    const kept = this.#called(numbers)
    for (const one of kept) {
      const rules = this.#limits[one.limit] ?? []
      if (one.state !== undefined && rules.some((rule) => rule.kind === 'concurrency'))
        this.#write(one, release(rules, this.#room(one, 0).bucket, units))
    }
    this.#play({ kind: 'release', buckets: kept.map((one) => one.id), units: kept.map(() => units) })
  }

  #hold(numbers: number[], us: number, trialUs: number | null): void {
    const kept = this.#called(numbers)
    for (const one of kept) {
      const { bucket } = this.#room(one)
      const held = trialUs === null ? hold(bucket, us) : refuse(bucket, us, trialUs)
      if (held.holdUs > bucket.holdUs || held.trialUs !== bucket.trialUs) this.#write(one, held)
    }
    this.#play({ kind: 'hold', buckets: kept.map((one) => one.id), us, trialUs })
  }

  #accept(numbers: number[]): void {
    const kept = this.#pick(numbers)
    for (const one of kept) {
      const { bucket } = this.#room(one)
      if (bucket.trialUs > 0) this.#write(one, accept(bucket))
    }
    this.#play({ kind: 'accept', buckets: kept.map((one) => one.id) })
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
    // A repeated request would be granted anew; but no caller repeats one after days.
    this.#last = undefined
  }

  /** The last rule of the limit that counts units, with its pace, if it stays. */
  #staying({ limit, stays, isNarrower }: Extract<Act, { kind: 'redefine' }>): readonly Rule[] {
    const last = withPaces(this.#limits[limit] ?? []).findLast(({ rule }) => rule.kind !== 'concurrency')
    if (last === undefined || stays !== true) return []
    return [isNarrower === true ? narrower(last.rule) : last.rule, ...(last.pace === undefined ? [] : [last.pace])]
  }

  #define(number: number, rules: readonly Rule[]): void {
    this.#within(number)
    if (inFull(rules) !== inFull(this.#limits[number] ?? [])) {
      this.#versions[number] = (this.#versions[number] ?? 0) + 1
      for (const one of this.#buckets)
        if (one.limit === number && this.#limits[number] !== undefined) one.defined.push(rules)
    }
    this.#limits[number] = rules
    this.#defined.set(`${number}:${this.#versions[number] ?? 0}`, rules)
    for (const one of this.#buckets) if (one.limit === number) one.old = one.history.length
    const spec = { rules, ...(this.#full[number] === true ? { refund: 'full' } : {}) }
    this.#play({ kind: 'define', name: `${this.#name}.${number}`, spec, columns: columnsOf(rules) })
  }

  #pick(numbers: number[]): Kept[] {
    return this.#buckets.filter((_, i) => numbers.includes(i))
  }
}
