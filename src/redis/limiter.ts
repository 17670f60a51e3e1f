/** Limits whose state is in Redis: grants, and their settlement. The arithmetic is that of limits/decide.ts, in Lua. */
import { randomUUID } from 'node:crypto'
import { type Clock, systemClock } from '../core/clock.ts'
import { StoreError, UsageError } from '../core/errors.ts'
import { scripts } from '../generated/lua.ts'
import { checkReply, mixedError, sendCommand, type RedisClient, Script } from './client.ts'
import type {
  DenialCause,
  RedisCall,
  Reservation,
  Granted,
  Settlement,
  Superseded,
  Lost,
  Decided,
  Owned,
  Beginning,
  Joining,
  Epoch,
  Agreed,
  Stood,
} from './call.ts'
import { toJsonOnce, type Published, publishedJson, type Seed } from './definition.ts'

/** Options of a limiter in Redis; see the fields. */
export interface RedisLimiterOptions {
  /** Beginning of every key; default `sluice:`. */
  prefix?: string
  /** Name of the limits that are decided together: one hash slot of a cluster. Default `limits`. */
  domain?: string
  /** Longest wait for an answer; default 2 s. */
  timeoutMs?: number
  clock?: Clock
}

const library = ['bucket', 'epoch', 'state', 'rebuild'].map((name) => scripts[`redis/${name}`] ?? '').join('\n')
const withSeeds = `${library}\n${scripts['redis/seed'] ?? ''}`
/** Returns the text of a script: what all share, and its own part. */
export const scriptOf = (name: 'reserve' | 'settle' | 'begin' | 'join' | 'stands' | 'check'): string =>
  `${name === 'begin' || name === 'join' ? withSeeds : library}\n${scripts[`redis/${name}`] ?? ''}`
const [publishText, agreeText] = [scripts['redis/publish'] ?? '', scripts['redis/agree'] ?? '']
/** The causes of a denial, in the order of their numbers in a reply. */
const causes: readonly DenialCause[] = ['used', 'held', 'others', 'behind']
/** Number of definitions that are agreed on in one call. */
const agreeMax = 200
/** A script may need calendars around now, and around a state written long before or ahead of it; meanwhile the clock goes on. */
const triesMax = 4
/** Time to write a portion of the seeds with which an epoch begins, or a database joins it, in ms. */
const beginMs = 10_000
/** Number of seeds in a portion: a script that writes so many takes some hundred ms, while no other command is carried out. */
const seedsMax = 2_000

/** Decides limits in Redis. Keeps nothing in the process but an estimate of Redis's clock, for calendars and deadlines. */
export class RedisLimiter {
  readonly #client: RedisClient
  readonly #keys: string
  readonly #timeoutMs: number
  readonly #clock: Clock
  readonly #reserve: Script
  readonly #settle: Script
  readonly #begin: Script
  readonly #stands: Script
  readonly #join: Script
  readonly #publish = new Script(publishText)
  readonly #agree = new Script(agreeText)
  /** The last reading of Redis's clock, and when that answer arrived. */
  #seen: { us: number; atMs: number } | undefined

  /** @param text returns the text of a script; tests use it to control the clock */
  constructor(client: RedisClient, options: RedisLimiterOptions = {}, text: typeof scriptOf = scriptOf) {
    const { prefix = 'sluice:', domain = 'limits', timeoutMs = 2_000, clock = systemClock } = options
    if (domain === '' || /[{}]/.test(prefix + domain))
      throw new UsageError(
        'SLUICE_BAD_REDIS',
        `Redis keys "${prefix}", "${domain}": prefix and domain must have no braces, and the domain must not be empty`,
      )
    this.#client = client
    this.#keys = `${prefix}{${domain}}:`
    this.#timeoutMs = timeoutMs
    this.#clock = clock
    this.#reserve = new Script(text('reserve'))
    this.#settle = new Script(text('settle'))
    this.#begin = new Script(text('begin'))
    this.#join = new Script(text('join'))
    this.#stands = new Script(text('stands'))
  }

  /** Returns the key of a bucket. */
  keyOf(bucket: string): string {
    return `${this.#keys}b:${bucket}`
  }

  /**
   * Grants what fits, item by item, all at one time. A repeated call is harmless.
   * @throws StoreError SLUICE_REDIS_SILENT, SLUICE_REDIS_ANSWER, SLUICE_REDIS_REFUSED; the client's errors
   */
  async reserve({ items, isFurther, aheadUs, leaseUs, ...call }: Reservation): Promise<Decided<Granted>> {
    const width = aheadUs === undefined ? 3 : 6
    const more = {
      ahead: aheadUs,
      lease: leaseUs,
      items: items.map(({ want, takes, afterUs }) => ({
        want,
        takes: takes.map(({ bucket, units }) => [bucket + 1, units]),
        after: afterUs,
      })),
      further: isFurther === true ? true : undefined,
    }
    return this.#decide(this.#reserve, call, more, (numbers) => {
      const unreadable = numbers.slice(width * items.length)
      return items.map((_, i) => {
        const of = (place: number) => (place < width && numbers[width * i + place]) || 0
        const lacking = of(2) === 0 ? undefined : of(2) - 1
        const cause = unreadable.includes(of(2)) ? 'unreadable' : (causes[of(4)] ?? 'used')
        return { granted: of(0), waitUs: of(1), lacking, startUs: of(3), cause, quietUs: of(5) }
      })
    })
  }

  /**
   * Records what happened to grants. A repeated call is harmless. Resolves to the effect of each act: units charged (negative:
   * given back; 0 for a grant that is not remembered), places freed, places leased (0: others may have them), or the time until which the bucket is held.
   * @throws StoreError SLUICE_REDIS_SILENT, SLUICE_REDIS_ANSWER, SLUICE_REDIS_REFUSED; the client's errors
   */
  async settle({ acts, ...call }: Settlement): Promise<Decided<number>> {
    const values = acts.map(({ bucket, ...act }) => {
      if ('holdUs' in act) return { bucket: bucket + 1, hold: act.holdUs }
      if ('renewUs' in act) {
        const { grant, renewUs: renew, places } = act
        return { bucket: bucket + 1, grant, renew, places }
      }
      return { bucket: bucket + 1, ...('isUnused' in act ? { grant: act.grant } : act) }
    })
    return this.#decide(this.#settle, call, { acts: values }, (numbers) => numbers)
  }

  /**
   * Begins an epoch, with all that it seeds and closes, or does nothing. If two callers find the same loss, one begins, and the
   * other gets the epoch in force. Resolves to the limits' time at which it began. Each portion is sent exactly once: when this
   * throws, the outcome is unknown, and the epoch may have begun and its state may have been lost again since. So an id is never
   * begun again: look which epoch is in force (`epoch`), and start over with a new id and new seeds.
   * @throws StoreError SLUICE_REDIS_SILENT, SLUICE_REDIS_ANSWER, SLUICE_REDIS_REFUSED; the client's errors
   */
  async begin({
    epoch: id,
    owner,
    stores,
    instead,
    closeUs,
    seeds = [],
    before,
    delayUs = 0,
    withinMs = beginMs,
  }: Beginning): Promise<{ isDecided: true; atUs: number } | Lost | Owned> {
    // A call that arrives after its caller has given up could begin again what has been lost once more. The clock is read first,
    // because the last reading may be from a server that is gone.
    await this.#look()
    const most = Math.min(closeUs ?? Infinity, Number.MAX_SAFE_INTEGER)
    for (let from = 0; ; from += seedsMax) {
      await before?.()
      const some = seeds.slice(from, from + seedsMax)
      const portion = { follows: from > 0 || undefined, goes_on: from + seedsMax < seeds.length || undefined }
      const more = { owner, stores, instead, most, seeds: some.map(seedJson), delay: delayUs, ...portion }
      const reply = await this.#send(this.#begin, [], { id, buckets: some.map(({ bucket }) => bucket) }, more, withinMs)
      const { kind, values } = reply
      if (kind === 'begun') return { isDecided: true, atUs: Number(values[0]) }
      if (kind === 'portion') continue
      const refusal = refusalOf(reply)
      if (refusal?.why === 'lost' || refusal?.why === 'owned') return refusal
      throw late()
    }
  }

  /**
   * Takes part in an epoch that another database began, and adds what this one has used, or does nothing. When this throws,
   * the outcome is unknown: look which epoch is in force, and join with a new id `instead` of the one that is found. What was added
   * already is not added again.
   * @throws StoreError SLUICE_REDIS_SILENT, SLUICE_REDIS_ANSWER, SLUICE_REDIS_REFUSED; the client's errors
   */
  async join({ id, epoch, seeds, before, delayUs: delay, ...own }: Joining): Promise<Decided<never> | Owned> {
    for (let from = 0; ; from += seedsMax) {
      await before?.()
      const [some, goesOn] = [seeds.slice(from, from + seedsMax), from + seedsMax < seeds.length]
      const more = { ...own, joins: epoch, seeds: some.map(seedJson), delay, goes_on: goesOn || undefined }
      const call = { id, buckets: some.map(({ bucket }) => bucket), withinMs: beginMs }
      const answer = await this.#run(this.#join, [], call, more)
      if (!answer.isDecided) return answer
      if (!goesOn) return { isDecided: true, nowUs: answer.numbers[0] ?? 0, results: [] }
    }
  }

  /**
   * Returns the epoch in force, so that the caller can join it, or begin one `instead` of it. @param ofOwner whose part in it
   * is returned too
   * @throws StoreError SLUICE_REDIS_SILENT, SLUICE_REDIS_ANSWER, SLUICE_REDIS_REFUSED; the client's errors
   */
  async readEpoch(ofOwner?: string): Promise<Epoch> {
    const call = { id: randomUUID(), buckets: [] }
    const reply = await this.#send(this.#stands, [], call, { owner: ofOwner }, this.#timeoutMs)
    const [shown, whole, id, owner, mine, stores] = reply.values.map(String)
    this.#recordTime(Number(shown))
    const [isWhole, nowUs] = [whole === '1', Number(shown)]
    const [known, by, own] = [id || undefined, owner || undefined, mine || undefined]
    return { id: known, isWhole, owner: by, mine: own, stores: Number(stores), nowUs }
  }

  /**
   * Deletes the epoch in force: nothing is granted until a process has begun another. Resolves to
   * whether one was in force.
   * @throws StoreError SLUICE_REDIS_SILENT, SLUICE_REDIS_REFUSED; the client's errors
   */
  async endEpoch(): Promise<boolean> {
    // Not every user of the scripts may send DEL.
    const reply = await sendCommand(this.#client, 'PEXPIRE', [`${this.#keys}epoch`, '0'], this.#timeoutMs, this.#clock)
    return Number(reply) === 1
  }

  /**
   * Writes a key, as grants do: a server that has no memory left, or lacks replicas, still answers all reads.
   * @throws StoreError SLUICE_REDIS_SILENT, SLUICE_REDIS_REFUSED; the client's errors
   */
  async write(): Promise<void> {
    await sendCommand(this.#client, 'SET', [`${this.#keys}written`, '1', 'PX', '1000'], this.#timeoutMs, this.#clock)
  }

  /**
   * Publishes a limit's definition, for other languages, unless a newer one is in force. Resolves to the version in force then.
   * The definition does not expire, but a flush removes it, so publish it again now and then.
   * @param isBeginning true to replace whatever is in force, because an epoch is about to begin
   * @throws StoreError SLUICE_REDIS_SILENT, SLUICE_REDIS_REFUSED; the client's errors
   */
  async publish(definition: Published, isBeginning = false): Promise<number> {
    const { name, ...values } = definition
    const [key, text] = [`${this.#keys}d:${name}`, JSON.stringify(publishedJson(values))]
    const args = [text, isBeginning ? '1' : '0']
    return Number(await this.#publish.run(this.#client, [key], args, this.#timeoutMs, this.#clock))
  }

  /**
   * Agrees with other databases on definitions: the one that was changed last holds for all. Resolves to the version of each, the
   * same in all databases, the definition's text if it is another than the given one, and whether any database publishes it, as
   * this does. @param limits each with what was in force when this process last agreed, because Redis may have lost it since
   * @throws StoreError SLUICE_REDIS_SILENT, SLUICE_REDIS_REFUSED; the client's errors
   */
  async agree(
    owner: string,
    limits: readonly (Published & { isPublished: boolean; stood?: Stood | undefined })[],
  ): Promise<Agreed[]> {
    const agreed: Agreed[] = []
    for (let from = 0; from < limits.length; from += agreeMax) {
      const some = limits.slice(from, from + agreeMax).map(({ name, version, isPublished, stood, ...values }) => {
        return { name, version, published: isPublished, stood, text: JSON.stringify(publishedJson(values)) }
      })
      const keys = some.flatMap(({ name }) => [`${this.#keys}v:${name}`, `${this.#keys}d:${name}`])
      const argument = JSON.stringify({ owner, limits: some })
      const reply = (await this.#agree.run(this.#client, keys, argument, this.#timeoutMs, this.#clock)) as unknown[]
      for (const [i, { text, version: own }] of some.entries()) {
        const [version, standing = '', isPublished] = reply.slice(3 * i, 3 * i + 3).map(String)
        agreed.push({
          version: Number(version),
          text: standing === text ? undefined : standing,
          isPublished: isPublished === '1',
          stood: { version: Number(version), text: standing, own },
        })
      }
    }
    return agreed
  }

  async #decide<T>(
    script: Script,
    call: RedisCall,
    more: object,
    read: (numbers: number[]) => T[],
  ): Promise<Decided<T>> {
    const answer = await this.#run(script, [`${this.#keys}a:${call.id}`], call, more)
    if (!answer.isDecided) {
      // Only epochs have owners.
      if (answer.why === 'owned') throw late()
      return answer
    }
    const [nowUs = 0, , ...results] = answer.numbers
    return { isDecided: true, nowUs, results: read(results) }
  }

  /** Runs a script until it has the calendars that it needs, and was not too late. */
  async #run(
    script: Script,
    own: readonly string[],
    call: RedisCall,
    more: object,
  ): Promise<{ isDecided: true; numbers: number[] } | Lost | Superseded | Owned> {
    const { withinMs } = call
    const sentMs = this.#clock.monotonicMs()
    // Without a reading of Redis's clock there is no `until` to send.
    if (withinMs !== undefined && this.#seen === undefined) await this.#look(withinMs)
    const around = new Map<number, number[]>()
    for (let tries = 0; tries < triesMax; tries++) {
      // The time left for all tries together: a caller with a deadline does something else after it.
      const leftMs =
        withinMs === undefined ? this.#timeoutMs : Math.floor(sentMs + withinMs - this.#clock.monotonicMs())
      if (leftMs < 1) break
      const reply = await this.#send(script, own, call, more, leftMs, around)
      const refusal = refusalOf(reply)
      if (refusal !== undefined) return refusal
      const numbers = reply.values.map(Number)
      const [, shownUs] = numbers
      if (shownUs !== undefined) this.#recordTime(shownUs)
      if (reply.kind === 'decided') return { isDecided: true, numbers }
      for (const [i, atUs] of numbers.slice(2).entries()) if (atUs > 0) around.set(i, [...(around.get(i) ?? []), atUs])
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
    around: ReadonlyMap<number, readonly number[]> = new Map(),
  ): Promise<Reply> {
    const keys = [`${this.#keys}epoch`, ...own, ...buckets.map(({ name }) => this.keyOf(name))]
    const guessUs = this.#guessUs()
    const definitions = toJsonOnce(buckets, guessUs, around)
    // A command that is carried out later than this was given up here.
    const untilUs = this.#seen === undefined ? undefined : guessUs + withinMs * 1_000
    const argument = JSON.stringify({ id, epoch, cap: capUs, until: untilUs, buckets: definitions, ...more })
    return replyOf(await script.run(this.#client, keys, argument, withinMs, this.#clock), id)
  }

  async #look(withinMs = this.#timeoutMs): Promise<void> {
    const reply = await sendCommand(this.#client, 'TIME', [], withinMs, this.#clock)
    const [seconds = NaN, micros = NaN] = Array.isArray(reply) ? (reply as unknown[]).map(Number) : []
    const us = seconds * 1e6 + micros
    // What is no number would be looked for in calendars without end.
    if (!Number.isFinite(us)) throw mixedError()
    this.#recordTime(us)
  }

  #recordTime(us: number): void {
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
    'Redis rejected every try as too late, or lacked its calendar: look whether the clock of Redis steps',
  )

const seedJson = ({ holdUs: hold, debt, parts, spent }: Seed): object => ({ hold, debt, parts, spent })

interface Reply {
  kind: string
  /** The values after the call's id: texts, or bytes, and numbers, which some clients return as texts or bigints. */
  values: unknown[]
}

/** Returns why nothing was done, if the caller can do something about it. */
function refusalOf({ kind, values }: Reply): Lost | Superseded | Owned | undefined {
  const [text = ''] = values.slice(0, 1).map(String)
  if (kind === 'owned') return { isDecided: false, why: 'owned', owner: text }
  if (kind === 'lost') return { isDecided: false, why: 'lost', epoch: text || undefined }
  if (kind !== 'superseded') return undefined
  const [bucket = 1, version = 0] = values.map(Number)
  return { isDecided: false, why: 'superseded', bucket: bucket - 1, version }
}

/** Reads a script's reply: a word, the call's id, and values. */
function replyOf(reply: unknown, id: string): Reply {
  const [kind, of, ...values] = Array.isArray(reply) ? (reply as unknown[]) : []
  checkReply(of, id)
  return { kind: String(kind), values }
}
