/** Knows which buckets others may share, and by which definitions Redis decides them. */
import { limitOf } from '../core/bucket.ts'
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

/** A limit's definition in force, for Redis. */
interface InForce {
  /** Without a name. Only the rules that count units: places are counted by the store, which knows which workers live. */
  readonly bucket: Omit<RedisBucket, 'name'>
  readonly rules: readonly Rule[]
  /** Undefined: only Sluice's own processes take from it. */
  readonly published: Published | undefined
  /** True if the store decides alone while Redis is away. */
  readonly isOpen: boolean
}

/** Least ms between two reads of the definitions after denials. */
const freshMs = 500
/** Least ms between two reads of the definitions for an unknown name. */
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

  /** Returns the definitions that other programs take from. */
  published(): Published[] {
    return [...this.#byName.values()].flatMap(({ published }) => published ?? [])
  }

  /** Makes sure that the definitions of these buckets are read, as far as they exist. */
  async know(takes: Iterable<string>): Promise<void> {
    for (const take of takes) {
      if (take.startsWith(`${limitOf(take)}/`)) continue
      // A limit that had only places may count units by now.
      if (this.#byName.has(limitOf(take))) {
        if (this.bucket(take) === undefined) await this.refresh()
      } else if (this.#store.clock.monotonicMs() - this.#readMs > missMs) await this.read()
    }
  }

  /** Reads the definitions again, unless that was done a moment ago. */
  async refresh(): Promise<void> {
    if (this.#store.clock.monotonicMs() - this.#readMs > freshMs) await this.read()
  }

  /** Reads the definitions as they are from now on: a read that is under way may have begun before. */
  async readNow(): Promise<void> {
    await this.#reading
    await this.read()
  }

  /** Reads the definitions again; calls at the same time share one read. */
  read(): Promise<void> {
    this.#reading ??= this.#read().finally(() => (this.#reading = undefined))
    return this.#reading
  }

  async #read(): Promise<void> {
    const rows = await this.#store.run<Row>('limits/definitions/read_definitions')
    this.#byName = new Map(rows.map((row) => [row.name, inForce(row)]))
    this.#readMs = this.#store.clock.monotonicMs()
  }

  /** Returns a bucket for Redis; undefined: only the store has it. */
  bucket(take: string): RedisBucket | undefined {
    const bucket = this.#of(take)?.bucket
    return bucket === undefined || bucket.rules.length === 0 ? undefined : { name: take, ...bucket }
  }

  /** Returns all rules of a bucket's limit, in their order; undefined: only the store has it. */
  all(take: string): readonly Rule[] | undefined {
    return this.#of(take)?.rules
  }

  /** True if the bucket only has rates of which a unit drains within a second. */
  isQuick(take: string): boolean {
    const rules = this.bucket(take)?.rules ?? []
    return rules.every(({ kind, weight, drain }) => kind === 'rate' && weight / drain <= 1e6)
  }

  /** True if the store may decide alone about a bucket while Redis is away. */
  isOpen(take: string): boolean {
    return this.bucket(take) === undefined || this.#of(take)?.isOpen === true
  }

  #of(take: string): InForce | undefined {
    // Only the store needs the buckets beside a limit's own, to separate the jobs of a share from others.
    return take.startsWith(`${limitOf(take)}/`) ? undefined : this.#byName.get(limitOf(take))
  }
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
