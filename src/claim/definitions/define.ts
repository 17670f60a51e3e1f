/** Puts limits in force: each once per process, and never two different ones under one name. */
import type { Clock } from '../../core/clock.ts'
import { UsageError } from '../../core/errors.ts'
import type { Sql } from '../../db/store.ts'
import { inWords, type Limit } from '../../limits/limit.ts'
import { type Share, unreserved } from '../../limits/share.ts'
import { isTransient } from '../claim.ts'
import { currentUser } from '../../core/user.ts'

/** How long a definition that hits a deadlock or a lock timeout is repeated, in ms. */
const defineMs = 10_000

/** The limits that this process has met. */
export class Definitions {
  readonly #sql: Sql
  readonly #clock: Clock
  readonly #met = new Map<string, Limit>()
  readonly #defined = new Map<string, Promise<void>>()
  readonly #inForce = new WeakSet<Limit>()
  readonly #bornMs: number

  constructor(sql: Sql, clock: Clock) {
    this.#sql = sql
    this.#clock = clock
    this.#bornMs = clock.monotonicMs()
  }

  /** True when these limits are in force: there is nothing to wait for. */
  isDefined(limits: readonly Limit[]): boolean {
    return limits.every((limit) => this.#inForce.has(limit))
  }

  /** Puts these limits in force, in transactions of their own. @throws UsageError SLUICE_LIMIT_CONFLICT */
  async define(limits: readonly Limit[]): Promise<void> {
    this.#meet(limits)
    await Promise.all(
      limits.map((limit) => {
        const known = this.#defined.get(limit.name)
        if (known !== undefined) return known
        const defining = this.#define(limit)
        this.#defined.set(limit.name, defining)
        defining.catch(() => this.#defined.delete(limit.name))
        return defining
      }),
    )
    for (const limit of limits) this.#inForce.add(limit)
  }

  /**
   * Puts these limits in force in the caller's transaction, which may be rolled back. @throws UsageError
   * SLUICE_LIMIT_CONFLICT
   */
  async defineIn(tx: Sql, limits: readonly Limit[]): Promise<void> {
    this.#meet(limits)
    for (const limit of limits) await defineLimit(tx, limit, this.#ageMs())
  }

  /** Rejects two different definitions under one name: the first would silently hold for the jobs of both. */
  #meet(limits: readonly Limit[]): void {
    for (const limit of limits) {
      const met = this.#met.get(limit.name)
      if (met === limit) continue
      if (met !== undefined && inWords(met) !== inWords(limit)) {
        throw new UsageError(
          'SLUICE_LIMIT_CONFLICT',
          `limit "${limit.name}" is defined in two ways in this process: ${inWords(met)}; and ${inWords(limit)}. Define it once and import it where it is needed, or give one of them another name`,
        )
      }
      this.#met.set(limit.name, limit)
    }
  }

  #define(limit: Limit): Promise<void> {
    return retryOnDeadlock(this.#clock, () => defineLimit(this.#sql, limit, this.#ageMs()))
  }

  #ageMs(): number {
    return this.#clock.monotonicMs() - this.#bornMs
  }
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
export interface Said {
  source: 'code' | 'stored' | 'pinned'
  /** Null: withdraws the source's definition. */
  limit: Pick<Limit, 'rules' | 'grantUs' | 'transitUs' | 'classic' | 'numbers'> | null
  /** Fields other than numbers, which only code defines. */
  more?: object
  /**
   * For the bucket of the other jobs, beside a share: it borrows the share when that was idle for this long, in
   * microseconds.
   */
  lendUs?: number
  reason?: string
  ageMs?: number
}

/**
 * Records a source's definition of a limit (claim/definitions/define_limit.sql). Resolves to whether it is in force now; undefined: nothing
 * changed.
 * @throws UsageError SLUICE_BAD_ZONE
 */
export async function say(
  sql: Sql,
  name: string,
  { source, limit, more, lendUs, reason, ageMs = 0 }: Said,
): Promise<boolean | undefined> {
  const saying = sql.call<{ define_limit: boolean | null }>(
    'define_limit',
    [
      name,
      source,
      limit && JSON.stringify({ ...numbersOnly(limit), ...more }),
      limit && JSON.stringify(columnsOf(limit, lendUs)),
      currentUser(),
      reason ?? null,
      String(Math.round(ageMs * 1_000)),
    ],
    'text text jsonb jsonb text text bigint',
  )
  const [row] = await saying.catch((error: unknown) => {
    // The store has its own list of zones.
    const zone = limit?.rules.find(({ quota }) => quota)?.quota?.zone
    if (zone === undefined || (error as { code?: unknown }).code !== '22023') throw error
    throw new UsageError('SLUICE_BAD_ZONE', `limit "${name}": the store does not know the time zone "${zone}"`)
  })
  return row?.define_limit ?? undefined
}

/** Returns those fields of a stored definition that an operator's numbers decide. */
function numbersOnly({ rules, grantUs, transitUs, classic, numbers }: NonNullable<Said['limit']>): object {
  return { rules, grantUs, transitUs, classic, numbers }
}

/** Returns the arrays that the store computes with, one element for each rule. */
function columnsOf({ rules, grantUs }: NonNullable<Said['limit']>, lendUs: number | undefined): object {
  const column = (field: 'kind' | 'drain' | 'weight' | 'room' | 'slotUs' | 'spanUs') => rules.map((rule) => rule[field])
  return {
    kind: column('kind'),
    drain: column('drain'),
    weight: column('weight'),
    room: column('room'),
    slot: column('slotUs'),
    span: column('spanUs'),
    margin: rules.some(({ kind }) => kind === 'quota') ? rules.map(({ quota }) => quota?.marginUs ?? 0) : null,
    grant_us: grantUs,
    ...(lendUs === undefined ? {} : { lend_us: lendUs }),
  }
}

/**
 * Records the code's definition of a limit. It takes effect unless an operator's definition overrides it, or it is in
 * force already.
 * @param ageMs age of this process in ms: an older process does not replace the definition of a younger one
 */
export async function defineLimit(sql: Sql, limit: Limit, ageMs = 0): Promise<void> {
  const { keyed, path, vendor, refund, label, pool, share, isPublished, isOpenWithoutStore } = limit
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
  }
  await say(sql, limit.name, { source: 'code', limit, more, ageMs })
  await defineShareBuckets(sql, limit.name, ageMs)
}

type SaidSpec = Omit<NonNullable<Said['limit']>, 'share'> & { share?: Share; keyed?: boolean; path?: string | null }

/**
 * Derives the definitions of the buckets beside a limit with a share (limits/share.ts) from each source's definition.
 * If the limit no longer has a share, jobs may still wait in those buckets: they then allow as much as the limit.
 */
export async function defineShareBuckets(sql: Sql, name: string, ageMs = 0): Promise<void> {
  const rows = await sql.query<{ name: string; source: Said['source']; spec: SaidSpec }>(
    `select name, source, spec from sluice.limit_source where name = $1 or starts_with(name, $1 || '/')`,
    [name],
  )
  const found = (of: string, source: string) => rows.find((row) => row.name === of && row.source === source)?.spec
  const code = found(name, 'code')
  const known = rows.filter((row) => row.name !== name).map((row) => row.name)
  const share = code?.share
  if (code === undefined || (share === undefined && known.length === 0)) return
  const others = `${name}/`
  const more = { keyed: code.keyed, path: code.path, ...(share === undefined ? {} : { lends: share.name }) }
  for (const beside of new Set([...known, ...(share === undefined ? [] : [others, `${name}/${share.name}`])])) {
    for (const source of ['code', 'stored', 'pinned'] as const) {
      const said = found(name, source)
      if (said === undefined) {
        if (found(beside, source) !== undefined) await say(sql, beside, { source, limit: null })
        continue
      }
      const { rules, grantUs, transitUs, classic, numbers } = said
      const isLess = share !== undefined && beside === others
      const limit = {
        grantUs,
        transitUs,
        classic,
        numbers,
        rules: isLess ? rules.map((rule) => unreserved(rule, share)) : rules,
      }
      const lend = isLess ? { lendUs: share.lendUs } : {}
      await say(sql, beside, { source, limit, ...(source === 'code' ? { more } : {}), ...lend, ageMs })
    }
  }
}
