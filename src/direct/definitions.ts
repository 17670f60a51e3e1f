/** The definitions of limits in Redis, which all programs that share the limits use. */
import { limitOf } from '../core/bucket.ts'
import type { Clock } from '../core/clock.ts'
import { StoreError, UsageError } from '../core/errors.ts'
import type { Log } from '../core/log.ts'
import { scripts } from '../generated/lua.ts'
import type { Limit } from '../limits/limit.ts'
import { checkReply, type RedisClient, Script } from '../redis/client.ts'
import { parsePublished, publishedJson, type RedisBucket } from '../redis/definition.ts'
import { countsUnits } from '../limits/kind.ts'

/** Parameters of `DirectDefinitions`; see the fields. */
export interface DefinitionsOptions {
  limits: readonly Limit[]
  redis: RedisClient
  /** Beginning of every key. */
  prefix: string
  clock: Clock
  log: Log
}

/** A definition that is in force. */
interface InForce {
  text: string
  bucket: Omit<RedisBucket, 'name'>
  lifeMs: number
  hasPlaces: boolean
}

const answerMs = 2_000
/** After how long a definition is read again. */
const knownMs = 10_000

/** The definitions, as this process last read them. */
export class DirectDefinitions {
  readonly #options: DefinitionsOptions
  readonly #define = new Script(scripts['direct/define'] ?? '')
  readonly #byName = new Map<string, InForce>()
  #readMs = -Infinity
  #reading: Promise<void> | undefined

  constructor(options: DefinitionsOptions) {
    this.#options = options
  }

  /** Puts the definitions of this process's code in force, for all workers. */
  async define(): Promise<void> {
    for (const limit of this.#options.limits) this.#set(limit, await this.#propose(limit, true))
  }

  /**
   * Reads all definitions, which other programs may have changed.
   * @throws UsageError SLUICE_NO_SUCH_LIMIT: nobody has published one; SLUICE_NEEDS_STORE: only a program with a store may take from it
   */
  read(): Promise<void> {
    this.#reading ??= this.#read().finally(() => (this.#reading = undefined))
    return this.#reading
  }

  /** Reads the definitions again, unless that was done in the last seconds. */
  async refresh(): Promise<void> {
    if (this.#options.clock.monotonicMs() - this.#readMs > knownMs) await this.read()
  }

  async #read(): Promise<void> {
    const { limits, clock } = this.#options
    for (const limit of limits) {
      const text = await this.#runScript(limit)
      if (typeof text === 'string') this.#set(limit, text)
      // A flush deletes definitions; the known one stays valid.
      else if (!this.#byName.has(limit.name)) throw unpublishedError(limit)
    }
    this.#readMs = clock.monotonicMs()
  }

  /** Publishes definitions that a flush has deleted. */
  async restore(): Promise<void> {
    for (const limit of this.#options.limits) this.#set(limit, await this.#propose(limit, false))
  }

  async #propose(limit: Limit, replaces: boolean): Promise<string> {
    return String(await this.#runScript(limit, ownText(limit), replaces ? '1' : '0'))
  }

  /** Resolves to the definition in force then. */
  async #runScript(limit: Limit, ...args: string[]): Promise<unknown> {
    const { redis, clock } = this.#options
    const key = this.#keyOf(limit)
    const [named, text] = [await this.#define.run(redis, [key], args, answerMs, clock)].flat() as unknown[]
    checkReply(named, key)
    return text
  }

  #set(limit: Limit, text: string): void {
    const known = this.#byName.get(limit.name)
    if (known?.text === text) return
    const read = parseDefinition(limit, text)
    if (known !== undefined && !text.endsWith(ownText(limit).slice(1)))
      this.#options.log.warn('another program has defined a limit otherwise than this one: its definition holds', {
        limit: limit.name,
      })
    this.#byName.set(limit.name, read)
  }

  #keyOf({ name }: Limit): string {
    return `${this.#options.prefix}{limits}:d:${name}`
  }

  /** Does nothing: the definitions were read before the first grant. */
  async know(): Promise<void> {}

  /** Returns a bucket for Redis; undefined: this process does not have its limit. */
  bucket(bucket: string): RedisBucket | undefined {
    const found = this.#byName.get(limitOf(bucket))
    return found && { name: bucket, ...found.bucket }
  }

  /** True if the bucket has places. */
  hasPlaces(bucket: string): boolean {
    return this.#byName.get(limitOf(bucket))?.hasPlaces === true
  }

  /** Returns for how long a grant of these buckets may be used, in ms. */
  lifeMs(buckets: readonly string[]): number {
    return Math.min(...buckets.map((bucket) => this.#byName.get(limitOf(bucket))?.lifeMs ?? 0))
  }
}

/** Returns the definition that a limit has by this process's code, without a version. */
function ownText({ rules, grantUs, keyed, label, refund }: Limit): string {
  const isLeased = !rules.every(countsUnits)
  const isKeyed = keyed || label !== undefined
  const leased = isLeased ? { countedFrom: 1, isLeased } : {}
  return JSON.stringify(publishedJson({ rules, grantUs, isKeyed, isFull: refund === 'full', ...leased }))
}

/** Reads a published definition. @throws UsageError SLUICE_NEEDS_STORE */
function parseDefinition(limit: Limit, text: string): InForce {
  const { isKeyed, grantUs, ...bucket } = parsePublished(text)
  const { version, counted, leased } = JSON.parse(text) as { version: number; counted?: number; leased?: boolean }
  const hasPlaces = !bucket.rules.every(countsUnits)
  if (isKeyed !== (limit.keyed || limit.label !== undefined) || (hasPlaces && leased !== true)) {
    const why = hasPlaces && leased !== true ? 'has places, which only the store counts' : 'has other keys there'
    throw new UsageError(
      'SLUICE_NEEDS_STORE',
      `limit "${limit.name}" ${why}: give this worker the DATABASE_URL of the program that has defined it`,
    )
  }
  const own = { ...bucket, version, ...(counted === undefined ? {} : { countedFrom: counted }) }
  return { text, bucket: own, lifeMs: grantUs / 1_000, hasPlaces }
}

function unpublishedError({ name }: Limit): StoreError | UsageError {
  return new UsageError(
    'SLUICE_NO_SUCH_LIMIT',
    `the limits in this Redis belong to a database, which has published no limit "${name}": give it \`published: true\` there, or give this worker another prefix (SLUICE_REDIS_PREFIX)`,
  )
}
