/** Which buckets others may share, and by which definitions they are decided in Redis. */
import type { Store } from '../db/store.ts'
import type { Rule } from '../limits/rule.ts'
import type { Published, RedisBucket } from './definition.ts'

interface Row {
  name: string
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

/** A limit as it is in force, for Redis. */
interface InForce {
  /** Without a name. Of what counts units: places are the store's to count, which knows who lives. */
  readonly bucket: Omit<RedisBucket, 'name'>
  readonly rules: readonly Rule[]
  /** Undefined: only Sluice's own processes take of it. */
  readonly published: Published | undefined
  /** The store decides alone while Redis is away. */
  readonly isOpen: boolean
}

/** Denials have them read anew, so often at most. */
const freshMs = 500
/** So often a name that is not known is looked for, at most. */
const missMs = 100

/** The definitions in force, as this process last read them. */
export class SharedDefinitions {
  readonly #store: Store
  #byName = new Map<string, InForce>()
  #reading: Promise<void> | undefined
  #readMs = -Infinity

  constructor(store: Store) {
    this.#store = store
  }

  /** Those that other programs take of. */
  published(): Published[] {
    return [...this.#byName.values()].flatMap(({ published }) => published ?? [])
  }

  /** Has all of these been read? One whose limit is new may be looked for. */
  async know(takes: Iterable<string>): Promise<void> {
    for (const take of takes) {
      if (take.startsWith(`${nameOf(take)}/`)) continue
      // One that counted only places may count units by now.
      if (this.#byName.has(nameOf(take))) {
        if (this.bucket(take) === undefined) await this.refresh()
      } else if (this.#store.clock.monotonicMs() - this.#readMs > missMs) await this.read()
    }
  }

  /** Reads them anew, unless that was done a moment ago. */
  async refresh(): Promise<void> {
    if (this.#store.clock.monotonicMs() - this.#readMs > freshMs) await this.read()
  }

  /** Reads them as they are from now on: one that is under way may have begun before. */
  async readNow(): Promise<void> {
    await this.#reading
    await this.read()
  }

  /** Reads them anew. */
  read(): Promise<void> {
    this.#reading ??= this.#read().finally(() => (this.#reading = undefined))
    return this.#reading
  }

  async #read(): Promise<void> {
    const rows = await this.#store.run<Row>('limits/definitions/inforce')
    this.#byName = new Map(rows.map((row) => [row.name, inForce(row)]))
    this.#readMs = this.#store.clock.monotonicMs()
  }

  /** A bucket for Redis; undefined: it is only the store's. */
  bucket(take: string): RedisBucket | undefined {
    const bucket = this.#of(take)?.bucket
    return bucket === undefined || bucket.rules.length === 0 ? undefined : { name: take, ...bucket }
  }

  /** All rules of a bucket's limit, in their order; undefined: it is only the store's. */
  all(take: string): readonly Rule[] | undefined {
    return this.#of(take)?.rules
  }

  /** Whether it counts nothing but what drains within a second. */
  isQuick(take: string): boolean {
    const rules = this.bucket(take)?.rules ?? []
    return rules.every(({ kind, weight, drain }) => kind === 'rate' && weight / drain <= 1e6)
  }

  /** Whether the store may decide alone about a bucket. */
  isOpen(take: string): boolean {
    return this.bucket(take) === undefined || this.#of(take)?.isOpen === true
  }

  #of(take: string): InForce | undefined {
    // What a share leaves to others is the store's own way of telling jobs apart.
    return take.startsWith(`${nameOf(take)}/`) ? undefined : this.#byName.get(nameOf(take))
  }
}

/** Of the limit that a bucket is of. */
function nameOf(take: string): string {
  return take.split(/[:@*/]/, 1)[0] ?? take
}

function inForce({ name, version, spec }: Row): InForce {
  const { rules, grantUs, keyed, label, pool, refund, published, open } = spec
  const isFull = refund === 'full'
  return {
    rules,
    bucket: { rules: rules.filter(({ kind }) => kind !== 'concurrency'), version, isFull, isOwn: published !== true },
    published:
      published === true
        ? {
            name,
            rules,
            version,
            isFull,
            grantUs,
            isKeyed: keyed === true || label !== undefined || pool !== undefined,
            ...(rules.some(({ kind }) => kind === 'concurrency') ? { countedFrom: version } : {}),
          }
        : undefined,
    isOpen: open === true,
  }
}
