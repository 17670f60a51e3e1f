/**
 * The limits of a store, as an operator reads and changes them while everything runs. An operator's definition is in the
 * database and overrides the code's: stored over code, pinned over both; of each the numbers of a key come first. It has
 * numbers only; the keys of a limit, and what a job costs, always come from the code.
 */
import type { Clock } from '../core/clock.ts'
import { UsageError } from '../core/errors.ts'
import { checkFields, checkMax } from '../core/fields.ts'
import { amount } from '../core/money.ts'
import type { Sql } from '../db/store.ts'
import { checkKey, type Limit, limit, type LimitOptions } from '../limits/limit.ts'
import { applyChanges, type NumberChanges, numberFields } from '../limits/numbers.ts'
import { unreserved } from '../limits/share.ts'
import { Bulk, type BulkOptions } from './bulk.ts'
import { hasKeys, type LimitLine, type LimitRow, lineOf, type LimitVersion, versionOf } from './limit-line.ts'
import {
  defineShareBuckets,
  retryOnDeadlock,
  recordSource,
  type SourceDefinition,
} from '../claim/definitions/define.ts'
import { reasonOf } from '../gates/gates.ts'
import { readUsage, type UsageLine, type UsageOptions } from './usage.ts'

/** An operator's reason for a change; 1 to 500 characters. */
export interface Why {
  reason: string
  /** Only for this key: for the others the numbers stay as they are. Default: for all keys. */
  key?: string | undefined
}

/** Which definition of a limit is read. */
export interface KeyOption {
  /** The one that holds for this key; default: for all keys without numbers of their own. */
  key?: string | undefined
}

/** Reads and changes the limits of one store. */
export class Limits {
  readonly #sql: Sql
  readonly #clock: Clock
  readonly #bulk: Bulk
  readonly #endHoldsThere: (buckets: readonly string[]) => Promise<void>

  /** @param endHoldsThere ends what bad answers hold of buckets in a second limiter; default: there is none */
  constructor(sql: Sql, clock: Clock, endHoldsThere: (buckets: readonly string[]) => Promise<void> = async () => {}) {
    this.#sql = sql
    this.#clock = clock
    this.#endHoldsThere = endHoldsThere
    this.#bulk = new Bulk(sql)
  }

  /** Returns all limits that are defined in the database, by name. */
  async list(): Promise<LimitLine[]> {
    return (await this.#sql.run<LimitRow>('operations/read_limits', [null, ''])).map((row) => lineOf(row))
  }

  /** Returns one limit, with what it guarantees. @throws UsageError SLUICE_NO_SUCH_LIMIT, SLUICE_BAD_LIMIT (no keys), SLUICE_BAD_KEY */
  async show(name: string, options: KeyOption = {}): Promise<LimitLine> {
    checkFields('SLUICE_BAD_OPTION', '`show`', options, ['key'])
    const row = await this.#read(name, options.key)
    if (options.key !== undefined) refuseKeyless(row)
    return lineOf(row, options.key)
  }

  /**
   * Returns the versions that were in force, the newest first; `max`: 1 to 1000, default 20.
   * With `key` those of one key: none before it had numbers of its own.
   * @throws UsageError SLUICE_NO_SUCH_LIMIT, SLUICE_BAD_OPTION
   */
  async history(name: string, options: KeyOption & { max?: number } = {}): Promise<LimitVersion[]> {
    checkFields('SLUICE_BAD_OPTION', '`history`', options, ['max', 'key'])
    const most = checkMax(options.max ?? 20, 1_000)
    const row = await this.#read(name, options.key)
    if (options.key !== undefined) refuseKeyless(row)
    const rows = await this.#sql.run<LimitRow>('operations/read_limit_versions', [name, most, options.key ?? ''])
    return rows.map(versionOf)
  }

  /**
   * Returns what limits have used, by day or month, the newest first: exactly what the ledger granted and did not get back.
   * Days are kept for 400 days (`retention.usage`).
   * @throws UsageError SLUICE_BAD_OPTION; SLUICE_NO_SUCH_LIMIT
   */
  async usage(options: UsageOptions = {}): Promise<UsageLine[]> {
    const lines = await readUsage(this.#sql, options, this.#clock.wallMs())
    if (lines.length === 0 && options.limit !== undefined) await this.show(options.limit)
    return lines
  }

  /**
   * Stores numbers, which override the code's until `unset`, from the next claim on, in all processes. A field that is
   * left out keeps its stored value, else the code's; null removes it. With `key` they hold for that key alone.
   * @throws UsageError SLUICE_NO_SUCH_LIMIT, SLUICE_BAD_LIMIT, SLUICE_BAD_KEY, SLUICE_BAD_RATE, SLUICE_BAD_DURATION
   */
  set(name: string, changes: NumberChanges, why: Why): Promise<LimitLine> {
    return this.#put('stored', name, changes, why)
  }

  /**
   * Like `set`, but overrides everything until `unpin`; fields that are left out stay as in force. For incidents. @throws
   * as `set`
   */
  pin(name: string, changes: NumberChanges, why: Why): Promise<LimitLine> {
    return this.#put('pinned', name, changes, why)
  }

  /**
   * Removes the stored definition. Returns false if there was none. @throws UsageError SLUICE_NO_SUCH_LIMIT,
   * SLUICE_BAD_LIMIT, SLUICE_BAD_KEY, SLUICE_BAD_OPTION
   */
  unset(name: string, why: Partial<Why> = {}): Promise<boolean> {
    return this.#drop('stored', name, why)
  }

  /**
   * Removes the pinned definition. Returns false if there was none. @throws UsageError SLUICE_NO_SUCH_LIMIT,
   * SLUICE_BAD_LIMIT, SLUICE_BAD_KEY, SLUICE_BAD_OPTION
   */
  unpin(name: string, why: Partial<Why> = {}): Promise<boolean> {
    return this.#drop('pinned', name, why)
  }

  /**
   * Moves jobs that are waiting or scheduled from one key of a limit to another, in portions; resolves to their number.
   * Running jobs keep their bucket, and new ones use the key in their input. If the key is also the fair key, that
   * changes, too.
   * @throws UsageError SLUICE_NO_SUCH_LIMIT, SLUICE_BAD_LIMIT (no keys), SLUICE_BAD_KEY
   */
  async rekey(name: string, keys: { from: string; to: string }, options: BulkOptions = {}): Promise<number> {
    checkFields('SLUICE_BAD_OPTION', '`rekey`', keys, ['from', 'to'])
    const { keyed } = await this.show(name)
    if (!keyed) throw new UsageError('SLUICE_BAD_LIMIT', `limit "${name}" has no keys`)
    const [from, to] = [checkKey(name, keys.from), checkKey(name, keys.to)]
    return from === to ? 0 : this.#bulk.rekey({ name, from, to }, options)
  }

  /**
   * Ends what a vendor's bad answers hold of a limit, or of one key of it, and lets the jobs that it refused begin now.
   * Resolves to the number of keys. A credential that is rejected still is held again at the next rejection. Holds in
   * Redis end if this process is connected to it.
   * @throws UsageError SLUICE_NO_SUCH_LIMIT, SLUICE_BAD_KEY
   */
  async reset(name: string, options: { key?: string } = {}): Promise<number> {
    checkFields('SLUICE_BAD_OPTION', '`reset`', options, ['key'])
    const { key } = options
    const { label, pool } = await this.show(name)
    const params = [name, key === undefined ? '' : checkKey(name, key)]
    const held = await this.#sql.run<{ id: string; bucket: string }>('operations/find_refused_buckets', params)
    // First in Redis: what it denies the store would hold again.
    await this.#endHoldsThere(held.map(({ bucket }) => bucket))
    await this.#sql.call('accept_buckets', [held.map(({ id }) => id), null, null])
    // Each of them is due at the time that the vendor stated, whether its limits have room or not. Jobs do not name the
    // value of a label, or the member of a pool.
    const ofKey = key === undefined || label !== undefined || pool !== undefined ? {} : { key }
    await this.#bulk.retry({ state: 'scheduled', reason: 'throttled', limit: name, ...ofKey }, {})
    return held.length
  }

  async #put(source: 'stored' | 'pinned', name: string, changes: NumberChanges, why: Why): Promise<LimitLine> {
    checkFields('SLUICE_BAD_LIMIT', 'an operator’s definition', changes, numberFields, {
      reason: 'the last argument, `{ reason }`',
    })
    if (Object.values(changes).every((value) => value === undefined))
      throw bad(name, `give at least one of ${numberFields.join(', ')}`)
    checkWhy(why ?? {})
    const reason = reasonOf(why?.reason, (text) => bad(name, text))
    const { key } = why
    const row = await this.#read(name, key)
    if (key !== undefined) await this.#refuseOthers(row)
    const { sources, numbers, share, currency } = lineOf(row)
    const below = source === 'pinned' ? numbers : (sources.stored ?? sources.found ?? sources.code)?.numbers
    // Costs come from the code.
    const made = limit(name, { cost: 1, ...applyChanges(below ?? {}, changes) } as LimitOptions)
    const isUncounted = made.rules.every(({ kind }) => kind === 'concurrency')
    if (made.currency !== currency && !isUncounted)
      throw bad(name, `its costs are in ${currency ?? 'units that are no money'}, so its numbers must be, too`)
    // This comes before anything is stored, because the part left to the other jobs has to be exact, too.
    if (share !== undefined) for (const rule of made.rules) unreserved(rule, { mille: Math.round(share.part * 1_000) })
    await this.#record(name, { source, limit: made, reason, ...(key === undefined ? {} : { key }) })
    const line = await this.show(name, { key })
    const warning = line.source === source ? await this.#readCostWarning(name, made, key) : undefined
    return warning === undefined ? line : { ...line, warning }
  }

  async #drop(source: 'stored' | 'pinned', name: string, given: Partial<Why>): Promise<boolean> {
    checkWhy(given)
    const { reason, key } = given
    const { sources } = lineOf(await this.#read(name, key))
    const why = reason === undefined ? {} : { reason: reasonOf(reason, (text) => bad(name, text)) }
    if (sources[source] === undefined) return false
    const of = key === undefined ? {} : { key }
    return (await this.#record(name, { source, limit: null, ...why, ...of })) !== undefined
  }

  /** Reads the definition of all keys, or of one. */
  async #read(name: string, key?: string): Promise<LimitRow> {
    const of = key === undefined ? '' : checkKey(name, key)
    const [row] = await this.#sql.run<LimitRow>('operations/read_limits', [name, of])
    if (row === undefined) throw noSuchLimit(name)
    return row
  }

  /** Refuses numbers for one key where there are no keys, or other programs count by the numbers of all keys. */
  async #refuseOthers(row: LimitRow): Promise<void> {
    const { name, spec } = row
    refuseKeyless(row)
    const [sharing] = await this.#sql.run<{ stores: number }>('limits/redis/read_redis_epoch')
    if (spec.published !== true && (sharing?.stores ?? 1) === 1) return
    const who =
      spec.published === true
        ? 'it is published in Redis, where other programs'
        : 'several databases share it in Redis, and they'
    throw bad(name, `${who} count each key by the same numbers, so no key can have numbers of its own`)
  }

  /** In a transaction of its own, so that a long transaction of a caller does not block all claims. */
  #record(name: string, what: SourceDefinition): Promise<boolean | undefined> {
    return retryOnDeadlock(this.#clock, async () => {
      const recorded = await recordSource(this.#sql, name, what)
      await defineShareBuckets(this.#sql, name)
      return recorded
    })
  }

  /** Returns a warning if waiting jobs cost more than there is ever room for: those fail at the next claim. */
  async #readCostWarning(name: string, { rules, currency }: Limit, key?: string): Promise<string | undefined> {
    const params = [name, key === undefined ? null : `${name}:${key}`]
    const [row] = await this.#sql.run<{ cost: number | null }>('tasks/read_greatest_cost', params)
    const capacity = Math.min(...rules.flatMap((rule) => (rule.kind === 'concurrency' ? [] : [rule.capacity])))
    if ((row?.cost ?? 0) <= capacity) return undefined
    return `some waiting jobs cost up to ${amount(row?.cost ?? 0, currency)}, and there is never room for more than ${amount(capacity, currency)}: those jobs will fail as impossible. Raise the limit again, then retry them`
  }
}

/** A misspelt `key` would concern all keys. */
function checkWhy(why: Partial<Why>): void {
  checkFields('SLUICE_BAD_OPTION', 'the last argument', why, ['reason', 'key'])
}

function refuseKeyless({ name, spec }: LimitRow): void {
  if (hasKeys(spec)) return
  throw bad(name, spec.pool === undefined ? 'it has no keys' : 'the members of a pool have no numbers of their own')
}

function bad(name: string, why: string): UsageError {
  return new UsageError('SLUICE_BAD_LIMIT', `limit "${name}": ${why}`)
}

function noSuchLimit(name: string): UsageError {
  return new UsageError(
    'SLUICE_NO_SUCH_LIMIT',
    `no limit "${name}" is defined in the database; \`sluice limits\` lists those that are, and a worker or a sender defines those of its tasks`,
  )
}
