/** Knows the buckets that are in Redis, and the definitions by which Redis decides them. */
import { limitOf } from '../core/bucket.ts'
import type { Store } from '../db/store.ts'
import type { Rule } from '../limits/rule.ts'
import type { Agreed, Stood } from './call.ts'
import { parsePublished, type Published, type RedisBucket } from './definition.ts'
import type { RedisLimiter } from './limiter.ts'
import { countsUnits, drains } from '../limits/kind.ts'

interface Row {
  name: string
  /** Empty: the definition of all keys that have none of their own. */
  key: string
  version: number
  spec: {
    rules: Rule[]
    grantUs: number
    keyed?: boolean
    label?: string
    pool?: string[]
    refund?: string
    published?: boolean
    open?: boolean
  }
}

/** A limit's definition in force, for Redis. */
interface InForce {
  /** The definition without a name. It counts places only if other programs may lease them. */
  readonly bucket: Omit<RedisBucket, 'name'>
  readonly rules: readonly Rule[]
  /** Undefined: only Sluice's own processes take from it. */
  readonly published: Published | undefined
  /** True if the store decides alone while Redis is away. */
  readonly isOpen: boolean
  /** Version in this database; in Redis it is another if several databases share the limits. */
  readonly version: number
  /** True if this database has another one: others have changed it, or know no numbers of single keys. Then both hold. */
  readonly isForeign: boolean
  /** How long a grant may live by Redis's definition, in ms. */
  readonly lifeMs: number
}

/** How databases share limits in Redis. */
export interface Sharing {
  /** This database's name there. */
  owner: string
  /** Number of databases; 1: this one alone. */
  stores: number
}

/** Least ms between two reads of the definitions after denials. */
const freshMs = 500
/** Least ms between two reads of the definitions for an unknown name. */
const missMs = 100

/** The definitions in force, as this process last read them. */
export class SharedDefinitions {
  readonly #store: Store
  readonly #limiter: RedisLimiter
  readonly #given: number
  readonly #reported = new Set<string>()
  #sharing: Sharing | undefined
  /** Of limits, and of keys that have definitions of their own (`crm:acme`). */
  #byName = new Map<string, InForce>()
  /** What was in force for each limit when this process last agreed with other databases. */
  readonly #stood = new Map<string, Stood>()
  #reading: Promise<void> | undefined
  #readMs = -Infinity

  /** @param stores number of databases that share the limits, as given to this process */
  constructor(store: Store, limiter: RedisLimiter, stores: number) {
    this.#store = store
    this.#limiter = limiter
    this.#given = stores
  }

  /** How this database shares limits, as last read; undefined: no process was given a Redis yet. */
  get sharing(): Sharing | undefined {
    return this.#sharing
  }

  /** Reads how this database shares limits, and under which epoch. */
  async readSharing(): Promise<{ epoch: string | undefined; owner: string | undefined; stores: number }> {
    if (this.#given > 1) await this.#store.run('limits/redis/record_redis_stores', [this.#given])
    const [row] = await this.#store.run<Sharing & { epoch: string }>('limits/redis/read_redis_epoch')
    this.#sharing = row && { owner: row.owner, stores: row.stores }
    return { epoch: row?.epoch, owner: row?.owner, stores: row?.stores ?? 1 }
  }

  /** Reads all definitions, and publishes those that other programs take from. @param isBeginning as in `publish` of the limiter */
  async publish(isBeginning = false): Promise<void> {
    await this.readSharing()
    await this.read()
    // If databases share the limits, their agreement on definitions publishes them.
    if ((this.#sharing?.stores ?? 1) > 1) return
    for (const { published } of this.#byName.values())
      if (published !== undefined) await this.#limiter.publish(published, isBeginning)
  }

  /** Makes sure that the definitions of these buckets are read, as far as they exist. */
  async know(buckets: Iterable<string>): Promise<void> {
    for (const name of buckets) {
      if (name.startsWith(`${limitOf(name)}/`)) continue
      // A limit that had only places may count units by now.
      if (this.#byName.has(limitOf(name))) {
        if (this.bucket(name) === undefined) await this.refresh()
      } else if (this.#store.clock.monotonicMs() - this.#readMs > missMs) await this.read()
    }
  }

  /** Reads the definitions again, unless that was done a moment ago. */
  async refresh(): Promise<void> {
    if (this.#store.clock.monotonicMs() - this.#readMs > freshMs) await this.read()
  }

  /** Reads the present definitions. It does not share a read that is under way, because that may have begun before a change. */
  async readNow(): Promise<void> {
    await this.#reading
    await this.readSharing()
    await this.read()
  }

  /** Reads the definitions again; calls at the same time share one read. */
  read(): Promise<void> {
    this.#reading ??= this.#read().finally(() => (this.#reading = undefined))
    return this.#reading
  }

  async #read(): Promise<void> {
    const all = await this.#store.run<Row>('limits/definitions/read_definitions')
    if (this.#sharing === undefined) await this.readSharing()
    const rows = all.filter(({ key }) => key === '')
    const agreed = await this.#agree(rows)
    this.#byName = new Map(rows.map((row, i) => [row.name, inForce(row, agreed[i])]))
    for (const row of all) {
      const ofAll = this.#byName.get(row.name)
      if (row.key === '' || ofAll === undefined) continue
      // Other programs know only the definition of all keys: then that one holds in Redis, and the key's own in the store.
      const isOthers = ofAll.published !== undefined || (this.#sharing?.stores ?? 1) > 1
      const own = isOthers ? { ...ofAll, published: undefined, isForeign: true } : inForce(row, undefined)
      this.#byName.set(`${row.name}:${row.key}`, own)
    }
    this.#readMs = this.#store.clock.monotonicMs()
  }

  /** Agrees with other databases, if any share the limits. */
  async #agree(rows: readonly Row[]): Promise<Agreed[]> {
    const { owner, stores } = this.#sharing ?? { owner: '', stores: 1 }
    if (stores === 1) return []
    const all = rows.map((row) => {
      return { ...publishedOf(row), isPublished: row.spec.published === true, stood: this.#stood.get(row.name) }
    })
    const agreed = await this.#limiter.agree(owner, all)
    for (const [i, { version, text, stood }] of agreed.entries()) {
      this.#stood.set(rows[i]?.name ?? '', stood)
      const key = `${rows[i]?.name} ${version}`
      if (text === undefined || this.#reported.has(key)) continue
      this.#reported.add(key)
      const words =
        'another database has changed a limit that is shared in Redis: until this one follows, both definitions hold'
      this.#store.log.warn(words, { limit: rows[i]?.name })
    }
    return agreed
  }

  /** Returns a bucket for Redis; undefined: only the store has it. */
  bucket(name: string): RedisBucket | undefined {
    const bucket = this.#findInForce(name)?.bucket
    return bucket === undefined || bucket.rules.length === 0 ? undefined : { name, ...bucket }
  }

  /** True if Redis counts places of a bucket, too: other programs may lease them. */
  isLeased(name: string): boolean {
    return this.bucket(name)?.rules.every(countsUnits) === false
  }

  /** Returns all rules of a bucket's limit, in their order; undefined: only the store has it. */
  rulesOf(name: string): readonly Rule[] | undefined {
    return this.#findInForce(name)?.rules
  }

  /** Returns the version of a bucket's limit in this database; undefined: it has another definition than Redis. */
  localVersionOf(name: string): number | undefined {
    const of = this.#findInForce(name)
    return of?.isForeign === false ? of.version : undefined
  }

  /**
   * Returns by how many ms grants of the store live longer than Redis's definitions of their buckets allow, as far as
   * known here.
   */
  lateMs(buckets: readonly string[], lifeMs: number): number {
    return Math.max(0, ...buckets.map((name) => lifeMs - (this.#findInForce(name)?.lifeMs ?? lifeMs)))
  }

  /** True if the bucket only has rates of which a unit drains within a second. */
  isQuick(name: string): boolean {
    const rules = this.bucket(name)?.rules ?? []
    return rules.every((rule) => drains(rule) && rule.weight / rule.drain <= 1e6)
  }

  /** True if the store may decide alone about a bucket while Redis is away. */
  isOpen(name: string): boolean {
    return this.bucket(name) === undefined || this.#findInForce(name)?.isOpen === true
  }

  #findInForce(name: string): InForce | undefined {
    // Only the store needs the buckets beside a limit's own, to separate the jobs of a share from others.
    if (name.startsWith(`${limitOf(name)}/`)) return undefined
    return this.#byName.get(name) ?? this.#byName.get(limitOf(name))
  }
}

function inForce(row: Row, agreed: Agreed | undefined): InForce {
  const { version, spec } = row
  const local = publishedOf(row)
  const there = agreed?.text === undefined ? local : parsePublished(agreed.text)
  const isPublished = agreed?.isPublished ?? spec.published === true
  const isLeased = isPublished && agreed === undefined && !spec.rules.every(countsUnits)
  return {
    rules: spec.rules,
    bucket: {
      rules: there.rules.filter((rule) => isLeased || countsUnits(rule)),
      ...(isLeased ? { countedFrom: 1 } : {}),
      version: agreed?.version ?? version,
      isFull: there.isFull === true,
      isOwn: !isPublished,
    },
    published: isPublished ? { ...local, ...(isLeased ? { countedFrom: 1, isLeased } : {}) } : undefined,
    isOpen: spec.open === true,
    version,
    isForeign: agreed?.text !== undefined,
    lifeMs: there.grantUs / 1_000,
  }
}

function publishedOf({ name, version, spec }: Row): Published {
  const { rules, grantUs, keyed, label, pool, refund } = spec
  const isKeyed = keyed === true || label !== undefined || pool !== undefined
  return { name, rules, version, isFull: refund === 'full', grantUs, isKeyed }
}
