/** Limits whose state is in Redis: grants, and what became of them. The arithmetic is that of limits/decide.ts, in Lua. */
import { randomUUID } from 'node:crypto'
import { type Clock, systemClock } from '../core/clock.ts'
import { StoreError, UsageError } from '../core/errors.ts'
import { scripts } from '../generated/lua.ts'
import { ask, type RedisClient, Script } from './client.ts'
import { inJson, type Published, publishedJson, type RedisBucket, type Seed } from './definition.ts'

/** What is wanted of one set of buckets. */
export interface Item {
  /** How many jobs; each gets its units of all these buckets, or none. */
  want: number
  /** `bucket`: its place in the call's list, from 0. */
  takes: readonly { bucket: number; units: number }[]
}

/** What both calls need. */
export interface RedisCall {
  /** Of the grant (or of what is told of grants); the same id, within a minute, is the same call and gets the same answer. */
  id: string
  buckets: readonly RedisBucket[]
  /** The epoch that the caller knows: with another, nothing is done. Default: any, if the state is whole. */
  epoch?: string
  /** The latest time that the caller's monotonic clock allows Redis's clock to show, in microseconds; default: not known. */
  capUs?: number
  /** Carried out no later than so long after it is sent, in milliseconds, or not at all. Default: the time-out, for each try. */
  withinMs?: number
}

/** A call for grants. */
export interface Reservation extends RedisCall {
  items: readonly Item[]
  /** True for one more request of a job that runs: it has its places already. Default false. */
  isFurther?: boolean
  /** What fits within so many microseconds is granted now, for use from then on; whole, at most 100,000. Default: not ahead. */
  aheadUs?: number
}

/** What became of an item. */
export interface Granted {
  /** So many of those wanted; the first ones. */
  granted: number
  /** It is worth asking again for the rest after so many microseconds; 0: nothing is left. */
  waitUs: number
  /** The bucket that will be the last to have room for the next; undefined: none lacks it. */
  lacking: number | undefined
  /** What was granted may be used so many microseconds after the decision; 0: at once, as always without `aheadUs`. */
  startUs: number
  /** With `aheadUs`: the bucket that lacks room is closed or on hold, whatever was used of it. */
  isHeld: boolean
}

/**
 * What became of grants, in one bucket: of a grant `more` units were used than granted (negative: fewer), or nothing at all was
 * used, so that its places are free too; so many of a grant's places are free again (`grant` unset: nobody knows of which; do not
 * mix the two); the vendor asked for silence of `holdUs`.
 */
export type SettleAct = { bucket: number } & (
  | { grant: string; more: number }
  | { grant: string; isUnused: true }
  | { ended: number; grant?: string }
  | { holdUs: number }
)

/** What is told of grants. The acts are carried out in order. */
export interface Settlement extends RedisCall {
  acts: readonly SettleAct[]
}

/** The caller's definition of a bucket is out of date, and nothing was done; `version`: the one in force. */
export interface Superseded {
  isDecided: false
  why: 'superseded'
  bucket: number
  version: number
}

/**
 * The state is not whole (emptied, restarted, failed over), or is not of the epoch that the caller knows, and nothing was done.
 * `epoch`: what stands; undefined: none. Who gave it, or gave none, begins a new one `instead` of it. Who gave another looks again
 * where it knows it from: that may be newer by now, or this server one that was cut off.
 */
export interface Lost {
  isDecided: false
  why: 'lost'
  epoch: string | undefined
}

/** An answer; `nowUs`: the limits' time at which it was decided. */
export type Decided<T> = { isDecided: true; nowUs: number; results: T[] } | Superseded | Lost

/** Another's epoch stands, whole or not, and nothing was done. */
export interface Owned {
  isDecided: false
  why: 'owned'
  owner: string
}

/** What begins an epoch. */
export interface Beginning {
  /** Random, never used before. */
  epoch: string
  /** Who alone begins epochs here from now on. */
  owner: string
  /** What `Lost` told: where another stands by now, nothing is done. Default: none. */
  instead?: string | undefined
  /**
   * From now on, each bucket that is not Sluice's own grants nothing for as long as its rules look back (of a quota: until its
   * period is over; a minute for concurrency, of which Redis does not know how long it runs), but no longer than this, in
   * microseconds. Default without bound, which is right where nobody knows what was granted; 0: only the seeds count.
   */
  closeUs?: number
  /** Buckets that are written afresh, and what has been used of each by now; ten thousand and more. */
  seeds?: readonly Seed[]
  /** What is in the seeds may have been granted by Redis up to so many microseconds later; until then they grant nothing. */
  delayUs?: number
  /** Carried out no later than so long after it is sent, in milliseconds, or not at all; default 10 s. */
  withinMs?: number
}

/** What stands. */
export interface Epoch {
  /** Undefined: none. */
  id: string | undefined
  /** Whether the state is that epoch's: nothing was lost since it was begun. */
  isWhole: boolean
  owner: string | undefined
  /** What Redis's clock shows. */
  nowUs: number
}

/** Where limits are in Redis. */
export interface RedisLimiterOptions {
  /** Begins every key; default `sluice:`. */
  prefix?: string
  /** Limits that are decided together: one hash slot of a cluster. Default `limits`. */
  domain?: string
  /** After so long an answer is given up; default 2 s. */
  timeoutMs?: number
  clock?: Clock
}

const library = ['bucket', 'epoch', 'state', 'rebuild'].map((name) => scripts[`redis/${name}`] ?? '').join('\n')
/** The text of a script: what all share, and its own part. */
export const scriptOf = (name: 'reserve' | 'settle' | 'begin' | 'stands' | 'probe'): string =>
  `${library}\n${scripts[`redis/${name}`] ?? ''}`
const publishText = scripts['redis/publish'] ?? ''
/** The scripts ask for calendars around now, and a state that was written long before or ahead of it; and the clock goes on. */
const triesMax = 4
/** Ten thousand buckets are written at once. */
const beginMs = 10_000

/** Decides in Redis. Nothing is kept in the process but a guess at Redis's clock, for calendars and deadlines. */
export class RedisLimiter {
  readonly #client: RedisClient
  readonly #keys: string
  readonly #timeoutMs: number
  readonly #clock: Clock
  readonly #reserve: Script
  readonly #settle: Script
  readonly #begin: Script
  readonly #stands: Script
  readonly #publish = new Script(publishText)
  /** What Redis's clock has shown, and when that was heard. */
  #seen: { us: number; atMs: number } | undefined

  /** @param text of a script; tests put the clock under their control by it */
  constructor(client: RedisClient, options: RedisLimiterOptions = {}, text: typeof scriptOf = scriptOf) {
    const { prefix = 'sluice:', domain = 'limits', timeoutMs = 2_000, clock = systemClock } = options
    if (domain === '' || /[{}]/.test(prefix + domain))
      throw new UsageError(
        'SLUICE_BAD_REDIS',
        `Redis keys "${prefix}", "${domain}": a prefix and a domain have no braces, and a domain is not empty`,
      )
    this.#client = client
    this.#keys = `${prefix}{${domain}}:`
    this.#timeoutMs = timeoutMs
    this.#clock = clock
    this.#reserve = new Script(text('reserve'))
    this.#settle = new Script(text('settle'))
    this.#begin = new Script(text('begin'))
    this.#stands = new Script(text('stands'))
  }

  /** The key of a bucket. */
  keyOf(bucket: string): string {
    return `${this.#keys}b:${bucket}`
  }

  /**
   * Grants what fits, item by item; all at one time. A repeated call is harmless.
   * @throws StoreError SLUICE_REDIS_SILENT, SLUICE_REDIS_ANSWER, SLUICE_REDIS_REFUSED; the client's errors
   */
  async reserve({ items, isFurther, aheadUs, ...call }: Reservation): Promise<Decided<Granted>> {
    const width = aheadUs === undefined ? 3 : 5
    const more = {
      ahead: aheadUs,
      items: items.map(({ want, takes }) => ({ want, takes: takes.map(({ bucket, units }) => [bucket + 1, units]) })),
      further: isFurther === true ? true : undefined,
    }
    return this.#decide(this.#reserve, call, more, (numbers) => {
      return items.map((_, i) => {
        const [granted = 0, waitUs = 0, lacking = 0, startUs = 0, held = 0] = numbers.slice(width * i, width * (i + 1))
        return { granted, waitUs, lacking: lacking === 0 ? undefined : lacking - 1, startUs, isHeld: held === 1 }
      })
    })
  }

  /**
   * Tells what became of grants. A repeated call is harmless. Answers of each act what it came to: units charged (negative:
   * given back; 0 for a grant that is not remembered), places freed, the time until which the bucket is held.
   * @throws StoreError SLUICE_REDIS_SILENT, SLUICE_REDIS_ANSWER, SLUICE_REDIS_REFUSED; the client's errors
   */
  async settle({ acts, ...call }: Settlement): Promise<Decided<number>> {
    const told = acts.map(({ bucket, ...act }) => {
      if ('holdUs' in act) return { bucket: bucket + 1, hold: act.holdUs }
      return { bucket: bucket + 1, ...('isUnused' in act ? { grant: act.grant } : act) }
    })
    return this.#decide(this.#settle, call, { acts: told }, (numbers) => numbers)
  }

  /**
   * Begins an epoch, with all that it seeds and closes, or does nothing; of two that find the same loss, one begins, and the other
   * is told which epoch stands. Resolves to the limits' time at which it began. The script is sent exactly once: when this throws,
   * the outcome is unknown, and the epoch may have been begun and its state lost again in between. So an id is never begun again:
   * look what stands (`epoch`), and start over with a new id and new seeds.
   * @throws StoreError SLUICE_REDIS_SILENT, SLUICE_REDIS_ANSWER, SLUICE_REDIS_REFUSED; the client's errors
   */
  async begin({
    epoch: id,
    owner,
    instead,
    closeUs,
    seeds = [],
    delayUs = 0,
    withinMs = beginMs,
  }: Beginning): Promise<{ isDecided: true; atUs: number } | Lost | Owned> {
    // One that arrives when its caller has given it up could begin again what has been lost once more. The clock heard last may be
    // that of a server which is no more.
    await this.#look()
    const most = Math.min(closeUs ?? Infinity, Number.MAX_SAFE_INTEGER)
    const told = seeds.map(({ holdUs: hold, debt, slots, spent }) => ({ hold, debt, slots, spent }))
    const more = { owner, instead, most, seeds: told, delay: delayUs }
    const call = { id, buckets: seeds.map(({ bucket }) => bucket) }
    const reply = await this.#send(this.#begin, [], call, more, withinMs)
    const [kind, ...rest] = reply
    if (kind === 'begun') return { isDecided: true, atUs: Number(rest[0]) }
    if (kind === 'owned') return { isDecided: false, why: 'owned', owner: rest[0] ?? '' }
    const refusal = refusalOf(reply)
    if (refusal?.why === 'lost') return refusal
    throw late()
  }

  /**
   * What stands: to join it, or to begin one `instead` of it.
   * @throws StoreError SLUICE_REDIS_SILENT, SLUICE_REDIS_ANSWER, SLUICE_REDIS_REFUSED; the client's errors
   */
  async epoch(): Promise<Epoch> {
    const call = { id: randomUUID(), buckets: [] }
    const [, shown, whole, id, owner] = await this.#send(this.#stands, [], call, {}, this.#timeoutMs)
    this.#saw(Number(shown))
    return { id: id || undefined, isWhole: whole === '1', owner: owner || undefined, nowUs: Number(shown) }
  }

  /**
   * Writes, as grants do: one that has no memory left, or lacks replicas, answers all that only reads.
   * @throws StoreError SLUICE_REDIS_SILENT, SLUICE_REDIS_REFUSED; the client's errors
   */
  async write(): Promise<void> {
    await ask(this.#client, 'SET', [`${this.#keys}probe`, '1', 'PX', '1000'], this.#timeoutMs, this.#clock)
  }

  /**
   * Publishes a limit's definition, for other languages, unless a newer one stands. Resolves to the version that stands then.
   * It does not expire; a flush takes it along, so publish again now and then.
   * @param isBeginning whatever stands, for an epoch is about to begin
   * @throws StoreError SLUICE_REDIS_SILENT, SLUICE_REDIS_REFUSED; the client's errors
   */
  async publish(definition: Published, isBeginning = false): Promise<number> {
    const { name, ...told } = definition
    const [key, text] = [`${this.#keys}d:${name}`, JSON.stringify(publishedJson(told))]
    const args = [text, isBeginning ? '1' : '0']
    return Number(await this.#publish.run(this.#client, [key], args, this.#timeoutMs, this.#clock))
  }

  async #decide<T>(
    script: Script,
    call: RedisCall,
    more: object,
    read: (numbers: number[]) => T[],
  ): Promise<Decided<T>> {
    const told = await this.#ask(script, [`${this.#keys}a:${call.id}`], call, more)
    if (!told.isDecided) return told
    const [nowUs = 0, , ...results] = told.numbers
    return { isDecided: true, nowUs, results: read(results) }
  }

  /** Runs a script until it has the calendars that it needs, and was not too late. */
  async #ask(
    script: Script,
    own: readonly string[],
    call: RedisCall,
    more: object,
  ): Promise<{ isDecided: true; numbers: number[] } | Lost | Superseded> {
    const { withinMs } = call
    const sentMs = this.#clock.monotonicMs()
    // Without a reading nobody could say until when.
    if (withinMs !== undefined && this.#seen === undefined) await this.#look(withinMs)
    const around: number[][] = call.buckets.map(() => [])
    for (let tries = 0; tries < triesMax; tries++) {
      // Of all tries together: who says how long does something else after it.
      const leftMs =
        withinMs === undefined ? this.#timeoutMs : Math.floor(sentMs + withinMs - this.#clock.monotonicMs())
      if (leftMs < 1) break
      const reply = await this.#send(script, own, call, more, leftMs, around)
      const refusal = refusalOf(reply)
      if (refusal !== undefined) return refusal
      const [kind, ...numbers] = [reply[0], ...reply.slice(1).map(Number)] as [string, ...number[]]
      const [, shownUs, ...missing] = numbers
      if (shownUs !== undefined) this.#saw(shownUs)
      if (kind === 'decided') return { isDecided: true, numbers }
      for (const [i, atUs] of missing.entries()) if (atUs > 0) around[i]?.push(atUs)
    }
    throw late()
  }

  /** Sends a script once. */
  async #send(
    script: Script,
    own: readonly string[],
    { id, epoch, buckets, capUs }: RedisCall,
    more: object,
    withinMs: number,
    around: readonly (readonly number[])[] = [],
  ): Promise<Reply> {
    const keys = [`${this.#keys}epoch`, ...own, ...buckets.map(({ name }) => this.keyOf(name))]
    const guessUs = this.#guessUs()
    const definitions = buckets.map((bucket, i) => inJson(bucket, [guessUs, ...(around[i] ?? [])]))
    // What is carried out later was given up here.
    const untilUs = this.#seen === undefined ? undefined : guessUs + withinMs * 1_000
    const argument = JSON.stringify({ id, epoch, cap: capUs, until: untilUs, buckets: definitions, ...more })
    return listOf(await script.run(this.#client, keys, argument, withinMs, this.#clock), id)
  }

  async #look(withinMs = this.#timeoutMs): Promise<void> {
    const [seconds, micros] = (await ask(this.#client, 'TIME', [], withinMs, this.#clock)) as unknown[]
    this.#saw(Number(seconds) * 1e6 + Number(micros))
  }

  #saw(us: number): void {
    this.#seen = { us, atMs: this.#clock.monotonicMs() }
  }

  #guessUs(): number {
    const { us, atMs } = this.#seen ?? { us: this.#clock.wallMs() * 1_000, atMs: this.#clock.monotonicMs() }
    return Math.floor(us + (this.#clock.monotonicMs() - atMs) * 1_000)
  }
}

const late = (): StoreError =>
  new StoreError(
    'SLUICE_REDIS_ANSWER',
    'Redis finds every call too late, or without its calendar: does its clock step?',
  )

type Reply = [kind: string, ...told: string[]]

/** Why nothing was done, where that is for the caller to see to. */
function refusalOf([kind, ...told]: Reply): Lost | Superseded | undefined {
  if (kind === 'lost') return { isDecided: false, why: 'lost', epoch: told[0] || undefined }
  if (kind !== 'superseded') return undefined
  const [bucket = 1, version = 0] = told.map(Number)
  return { isDecided: false, why: 'superseded', bucket: bucket - 1, version }
}

/** A reply of a script: a word, the call's id, and what is told. Some clients give texts as bytes, and numbers as text or bigint. */
function listOf(reply: unknown, id: string): Reply {
  const [kind, of, ...told] = Array.isArray(reply) ? (reply as unknown[]) : []
  // Replies have no names: when one is lost on an open connection, clients take the next for it.
  if (String(of) !== id)
    throw new StoreError(
      'SLUICE_REDIS_ANSWER',
      'Redis answered something else: replies of this connection are mixed up, so it must be closed; asking again with the same id is safe, but for the beginning of an epoch',
    )
  return [String(kind), ...told.map(String)]
}
