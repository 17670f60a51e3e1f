/** Puts limits in force: each once per process, and never two different ones under one name. */
import { AsyncLocalStorage } from 'node:async_hooks'
import type { Clock } from '../../core/clock.ts'
import { StoreError, UsageError, codeOf } from '../../core/errors.ts'
import type { SluiceEvents } from '../../report/events.ts'
import type { Sql } from '../../db/store.ts'
import { hash64 } from '../../core/hash.ts'
import { inWords } from '../../limits/description.ts'
import type { Limit } from '../../limits/limit.ts'
import { type LimitNumbers, numbersInWords } from '../../limits/numbers.ts'
import { withPaces } from '../../limits/rule.ts'
import { type Share, unreserved } from '../../limits/share.ts'
import { isTransient } from '../claim.ts'
import { currentUser } from '../../core/user.ts'
import { adapt } from './adapt.ts'
import { columnsOf, type Numbers, numbersOnly } from './columns.ts'

/** How often a process records that it still has its definitions, in ms. */
const renewMs = 5_000
/** How many limits a process defines at once. */
const defineAtOnce = 4
/** How long a definition that hits a deadlock or a lock timeout is repeated, in ms. */
const defineMs = 10_000

/** The limits that this process has defined. */
export class Definitions {
  readonly #sql: Sql
  readonly #clock: Clock
  readonly #met = new Map<string, Limit>()
  readonly #defined = new Map<string, Promise<void>>()
  readonly #inForce = new WeakSet<Limit>()
  /** The digest of each definition that this process has recorded, by the limit's name. */
  readonly #digests = new Map<string, string>()
  readonly #warned = new Set<string>()
  readonly #series = new Map<number, Promise<void>>()
  #started = 0
  readonly #onDisagreement: (disagreement: SluiceEvents['versions']) => void
  /** When the last renewal began. */
  #renewedMs = -Infinity
  /** Leaves the caller's transaction: the embedded engine refuses queries beside it, and lets these wait for its end. */
  readonly #outside = AsyncLocalStorage.snapshot()

  /** @param onDisagreement called once for each limit that other live processes define with other rules */
  constructor(sql: Sql, clock: Clock, onDisagreement: (disagreement: SluiceEvents['versions']) => void = () => {}) {
    this.#sql = sql
    this.#clock = clock
    this.#onDisagreement = onDisagreement
  }

  /** True when these limits are in force, and were renewed lately: there is nothing to do. */
  isDefined(limits: readonly Limit[]): boolean {
    return limits.length === 0 || (!this.#isDue() && limits.every((limit) => this.#inForce.has(limit)))
  }

  /** Puts these limits in force, in transactions of their own. @throws UsageError SLUICE_LIMIT_CONFLICT */
  async define(limits: readonly Limit[]): Promise<void> {
    this.#meet(limits)
    await Promise.all(
      limits.map((limit) => {
        const known = this.#defined.get(limit.name)
        if (known !== undefined) return known
        const defining = this.#runInSeries(() => this.#define(limit))
        this.#defined.set(limit.name, defining)
        defining.catch(() => this.#defined.delete(limit.name))
        return defining
      }),
    )
    for (const limit of limits) this.#inForce.add(limit)
    // If it fails, the next one is due 5 s later.
    if (this.#isDue()) void this.renew().catch(() => {})
  }

  /**
   * Puts these limits in force in the caller's transaction; and in transactions of their own after it, since it may be
   * rolled back. @throws UsageError SLUICE_LIMIT_CONFLICT
   */
  async defineIn(tx: Sql, limits: readonly Limit[]): Promise<void> {
    this.#meet(limits)
    for (const limit of limits) if (!this.#inForce.has(limit)) await defineLimit(tx, limit)
    // If it fails, the next send does it.
    void this.#outside(() => this.define(limits)).catch(() => {})
  }

  /** Rejects two different definitions under one name: the first would silently hold for the jobs of both. */
  #meet(limits: readonly Limit[]): void {
    for (const limit of limits) {
      const met = this.#met.get(limit.name)
      if (met === limit) continue
      if (met !== undefined && inWords(met) !== inWords(limit)) {
        throw new UsageError(
          'SLUICE_LIMIT_CONFLICT',
          `limit "${limit.name}" is defined in two ways in this process: ${inWords(met)}; and ${inWords(limit)}. Define it once and import it where it is needed, or give one of them another name; a server that loads changed files anew (hot reload) has to be restarted`,
        )
      }
      this.#met.set(limit.name, limit)
    }
  }

  /**
   * Records that this process still has its definitions, unless it did so in the last 5 s. If processes with other
   * definitions live, those that nobody records for 15 s are ended. What was ended by mistake is recorded again.
   */
  async renew(): Promise<void> {
    if (!this.#isDue() || this.#digests.size === 0) return
    this.#renewedMs = this.#clock.monotonicMs()
    const rows = await this.#sql.call<{ renew_definitions: Renewal }>(
      'renew_definitions',
      [[...this.#digests.keys()], [...this.#digests.values()]],
      'text[] text[]',
    )
    const { missing = [], others = [] } = rows[0]?.renew_definitions ?? {}
    for (const name of missing) {
      const limit = this.#met.get(name)
      if (limit !== undefined) await this.#define(limit)
    }
    for (const other of others) this.#warn(other)
    for (const limit of this.#met.values()) await adapt(this.#sql, limit)
  }

  #isDue(): boolean {
    return this.#clock.monotonicMs() >= this.#renewedMs + renewMs
  }

  #warn({ name, numbers, by }: Required<Renewal>['others'][number]): void {
    const mine = this.#met.get(name)?.numbers
    const other = numbersInWords(numbers)
    if (mine === undefined || this.#warned.has(`${name} ${other}`)) return
    this.#warned.add(`${name} ${other}`)
    this.#onDisagreement({ limit: name, mine: numbersInWords(mine), other, by })
  }

  /**
   * Defines a few limits at a time, because with hundreds of them the last ones would wait too long for a connection.
   * While the store is away, all that wait fail with the first, because each of them would wait as long.
   */
  #runInSeries(define: () => Promise<void>): Promise<void> {
    const at = this.#started++ % defineAtOnce
    const defining = (this.#series.get(at) ?? Promise.resolve()).then(define)
    const next = defining.catch((error: unknown) => {
      if (error instanceof StoreError) throw error
    })
    next.catch(() => {
      if (this.#series.get(at) === next) this.#series.delete(at)
    })
    this.#series.set(at, next)
    return defining
  }

  async #define(limit: Limit): Promise<void> {
    this.#digests.set(limit.name, await retryOnDeadlock(this.#clock, () => defineLimit(this.#sql, limit)))
  }
}

/** The store's reply to a process that renews its definitions. */
interface Renewal {
  missing?: string[]
  others?: { name: string; numbers: LimitNumbers; by: string }[]
}

/** Repeats work that was rolled back by a deadlock or a lock timeout, for some 10 s. */
export async function retryOnDeadlock<T>(clock: Clock, work: () => Promise<T>): Promise<T> {
  const untilMs = clock.monotonicMs() + defineMs
  for (;;) {
    try {
      return await work()
    } catch (error) {
      if (!isTransient(error) || clock.monotonicMs() > untilMs) throw error
      await clock.sleep(50 + clock.random() * 100)
    }
  }
}

/** A source's definition of a limit: all of it, or only what its numbers decide. */
export interface SourceDefinition {
  source: 'code' | 'stored' | 'pinned' | 'found' | 'measured'
  /** Null: withdraws the source's definition. */
  limit: Numbers | null
  /** Fields other than numbers, which only code defines. */
  more?: object
  /**
   * For the bucket of the other jobs, beside a share: it borrows the share when that was idle for this long, in
   * microseconds.
   */
  lendUs?: number
  reason?: string
  /** The key for which an operator defines numbers; left out: all keys. */
  key?: string
  /** Identifies a definition of code; left out: an operator's. */
  digest?: string
}

/** The types of `define_limit`'s arguments, as each of its callers names them: a statement is prepared once, under its name. */
export const sourceTypes = 'text text text jsonb jsonb text text text'

/**
 * Records a source's definition of a limit (claim/definitions/define_limit.sql). Resolves to whether it is in force now; undefined: nothing
 * changed.
 * @throws UsageError SLUICE_BAD_ZONE
 */
export async function recordSource(
  sql: Sql,
  name: string,
  { source, limit, more, lendUs, reason, digest = '', key = '' }: SourceDefinition,
): Promise<boolean | undefined> {
  const recording = sql.call<{ define_limit: boolean | null }>(
    'define_limit',
    [
      name,
      source,
      digest,
      limit && JSON.stringify({ ...numbersOnly(limit), ...more }),
      limit && JSON.stringify(columnsOf(limit, lendUs)),
      currentUser(),
      reason ?? null,
      key,
    ],
    sourceTypes,
  )
  const [row] = await recording.catch((error: unknown) => {
    // The store has its own list of zones.
    const zone = limit?.rules.find(({ quota }) => quota)?.quota?.zone
    if (zone === undefined || codeOf(error) !== '22023') throw error
    throw new UsageError('SLUICE_BAD_ZONE', `limit "${name}": the store does not know the time zone "${zone}"`)
  })
  return row?.define_limit ?? undefined
}

/**
 * Records the code's definition of a limit. It takes effect unless an operator's definition overrides it, or it is in
 * force already. Resolves to its digest.
 * @param as the digest, by default a hash of the definition. Definitions of one digest replace each other.
 */
export async function defineLimit(sql: Sql, limit: Limit, as?: string): Promise<string> {
  const { keyed, path, vendor, refund, label, pool, share, isPublished, isOpenWithoutStore } = limit
  const { adaptive, alarmAt, currency } = limit
  const more = {
    keyed,
    path: path ?? null,
    ...(vendor === undefined ? {} : { vendor }),
    ...(label === undefined ? {} : { label }),
    ...(pool === undefined ? {} : { pool: pool.map(({ key }) => key) }),
    ...(refund === 'full' ? { refund } : {}),
    ...(share === undefined ? {} : { share }),
    ...(isPublished ? { published: true } : {}),
    ...(isOpenWithoutStore ? { open: true } : {}),
    ...(adaptive === undefined ? {} : { adaptive }),
    ...(alarmAt === undefined ? {} : { alarmAt }),
    ...(currency === undefined ? {} : { currency }),
  }
  const digest = as ?? hash64(JSON.stringify([numbersOnly(limit), more]))
  await recordSource(sql, limit.name, { source: 'code', limit, more, digest })
  await defineShareBuckets(sql, limit.name)
  return digest
}

type StoredSpec = Omit<NonNullable<SourceDefinition['limit']>, 'share'> & {
  share?: Share
  keyed?: boolean
  path?: string | null
}

/** A source's definition, as it is stored. */
type SourceRow = Required<Pick<SourceDefinition, 'source' | 'digest' | 'key'>> & { name: string; spec: StoredSpec }

/**
 * Derives the definitions of the buckets beside a limit with a share (limits/share.ts) from each source's definition.
 * If the limit no longer has a share, jobs may still wait in those buckets: they then allow as much as the limit.
 */
export async function defineShareBuckets(sql: Sql, name: string): Promise<void> {
  const rows = await sql.run<SourceRow>('limits/definitions/read_share_sources', [name])
  const own = rows.filter((row) => row.name === name)
  const known = rows.filter((row) => row.name !== name)
  const code = own.filter((row) => row.source === 'code')
  const [newest] = code
  if (newest === undefined) return
  const shares = code.flatMap(({ spec: { share } }) => (share === undefined ? [] : [share.name]))
  const beside = shares.length === 0 ? [] : [`${name}/`, ...shares.map((share) => `${name}/${share}`)]
  for (const bucket of new Set([...known.map((row) => row.name), ...beside])) {
    for (const row of known.filter((one) => one.name === bucket && !own.some((of) => isOfSameSource(of, one))))
      await recordSource(sql, bucket, { source: row.source, digest: row.digest, key: row.key, limit: null })
    for (const row of own) await recordSource(sql, bucket, besideDefinition(row, newest.spec, bucket === `${name}/`))
  }
}

function isOfSameSource(one: SourceRow, other: SourceRow): boolean {
  return one.source === other.source && one.digest === other.digest && one.key === other.key
}

/**
 * Returns the definition of a bucket beside a limit, by one source of the limit.
 * @param newest what the newest code defines for the limit
 * @param isForOthers it is the bucket of the jobs outside of the share
 */
function besideDefinition(
  { source, digest, key, spec }: SourceRow,
  newest: StoredSpec,
  isForOthers: boolean,
): SourceDefinition {
  const { rules, grantUs, transitUs, classic, numbers } = spec
  // An operator's numbers have the share of the newest code.
  const { share, keyed, path } = source === 'code' ? spec : newest
  const lent = isForOthers ? share : undefined
  // Paces are left out, so that what is left to others is all there is.
  const left = lent === undefined ? rules : withPaces(rules).map(({ rule }) => unreserved(rule, lent))
  const more = { keyed, path, ...(share === undefined ? {} : { lends: share.name }) }
  return {
    source,
    digest,
    key,
    limit: { grantUs, transitUs, classic, numbers, rules: left },
    ...(source === 'code' ? { more } : {}),
    ...(lent === undefined ? {} : { lendUs: lent.lendUs }),
  }
}
