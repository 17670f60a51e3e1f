/**
 * The limits of a store, as an operator reads and changes them while everything runs. An operator's definition is in the
 * database and overrides the code's: stored over code, pinned over both. It has numbers only; the keys of a limit, and
 * what a job costs, always come from the code.
 */
import type { Clock } from '../core/clock.ts'
import { UsageError } from '../core/errors.ts'
import { checkFields, checkMax } from '../core/fields.ts'
import { amount } from '../core/money.ts'
import type { Sql } from '../db/store.ts'
import type { Bounds } from '../limits/adaptive.ts'
import type { Cause } from '../limits/circuit.ts'
import { guaranteeOf, type LimitGuarantee } from '../limits/exposure.ts'
import { checkKey, type Limit, limit, type LimitOptions } from '../limits/limit.ts'
import { applyChanges, type LimitNumbers, type NumberChanges, numberFields } from '../limits/numbers.ts'
import { type Share, unreserved } from '../limits/share.ts'
import { Bulk, type BulkOptions } from './bulk.ts'
import {
  defineShareBuckets,
  retryOnDeadlock,
  recordSource,
  type SourceDefinition,
} from '../claim/definitions/define.ts'
import { reasonOf } from '../gates/gates.ts'
import { readUsage, type UsageLine, type UsageOptions } from './usage.ts'

/** The sources of a limit's numbers; each overrides those before it. `found`: the fleet found the rate (`adaptive`). */
export type LimitSource = 'code' | 'found' | 'stored' | 'pinned'

/** The definition by one source. */
export interface SourceLine {
  numbers: LimitNumbers
  /** user@host. */
  by: string
  /** Given for an operator's definition. */
  reason?: string
  at: Date
}

/** A version of a limit that is or was in force. */
export interface LimitVersion {
  version: number
  /** The source of the numbers. */
  source: LimitSource
  numbers: LimitNumbers
  /** The user that put it in force: user@host. */
  by: string | undefined
  reason: string | undefined
  at: Date
  /** Other numbers that held besides, because live processes had different definitions in their code. */
  beside: { numbers: LimitNumbers; by: string }[]
}

/** Bad answers of the vendor's to requests of one key, none of which it has accepted since. */
export interface LimitRefusal {
  /** Undefined: the limit has no keys. */
  key: string | undefined
  /** It refused the requests, rejects the credential, or is down. */
  cause: Cause
  /** The vendor's newest answer. */
  answer: string
  /** Bad answers in a row; those of requests that were under way together count as one. */
  count: number
  since: Date
  at: Date
  /** Until then nothing is granted; after it one request at a time. */
  heldUntil: Date
}

/** The use of one key's account by others, as the vendor's counts show it. */
export interface LimitOthers {
  /** Undefined: the limit has no keys. */
  key: string | undefined
  /** Units that the bucket was charged for it in the last 24 hours. */
  units: number
  /** When it was charged last. */
  at: Date
}

/** A limit as it is in force. */
export interface LimitLine extends LimitVersion {
  name: string
  /** True if there is a bucket for each key. */
  keyed: boolean
  /** The field path of the key, if there is one. */
  path: string | undefined
  /** The worker's label that is its key. */
  label: string | undefined
  /** The members of the pool; each attempt gets one. */
  pool: string[] | undefined
  /** Its units are millionths of this currency; undefined: they are not money. */
  currency: string | undefined
  /** True if `burst` was given. */
  classic: boolean
  /** The margin in force: the life of a grant, plus how much the way to the vendor may vary. */
  marginMs: number
  lifeMs: number
  /** True if the margin follows what the fleet has measured; false: it is what is stated. */
  isMeasured: boolean
  /** The bounds of a rate that is found, in units of its window; undefined: what is stated holds. */
  adaptive: Bounds | undefined
  /** A part is kept for jobs of this share; others may use it when it has been idle for this time. */
  share: { name: string; part: number; lendAfterMs: number } | undefined
  guarantee: LimitGuarantee
  /** The definition by each source, including those that are overridden. */
  sources: Partial<Record<LimitSource, SourceLine>>
  /** Paused keys; undefined among them: the whole limit. */
  paused: (string | undefined)[]
  /** Keys of which the vendor refuses requests, the newest first, at most 100. */
  refusals: LimitRefusal[]
  /** Keys of which others have used units in the last 24 hours, the newest first, at most 100. */
  others: LimitOthers[]
  /** A conflict with the change that was just made: waiting jobs that cost more than there is ever room for. */
  warning?: string
}

/** An operator's reason for a change; 1 to 500 characters. */
export interface Why {
  reason: string
}

type Spec = Pick<Limit, 'rules' | 'grantUs' | 'transitUs' | 'classic' | 'keyed' | 'vendor' | 'currency'> & {
  numbers?: LimitNumbers
  path: string | null
  label?: string
  pool?: string[]
  share?: Share
  adaptive?: Bounds
  measured?: boolean
  beside?: LimitVersion['beside']
}

interface Row {
  name: string
  version: number
  spec: Spec
  source: LimitSource
  by: string | null
  reason: string | null
  at_ms: number
  sources: Record<LimitSource, { numbers: LimitNumbers | null; by: string; reason: string | null; atMs: number }> | null
  paused: (string | null)[] | null
  refusals:
    | {
        key: string | null
        cause: Cause
        answer: string
        count: number
        sinceMs: number
        atMs: number
        untilMs: number
      }[]
    | null
  others: { key: string | null; units: number; atMs: number }[] | null
}

/** Reads and changes the limits of one store. */
export class Limits {
  readonly #sql: Sql
  readonly #clock: Clock
  readonly #bulk: Bulk

  constructor(sql: Sql, clock: Clock) {
    this.#sql = sql
    this.#clock = clock
    this.#bulk = new Bulk(sql)
  }

  /** Returns all limits that are defined in the database, by name. */
  async list(): Promise<LimitLine[]> {
    return (await this.#sql.run<Row>('operations/read_limits', [null])).map(lineOf)
  }

  /** Returns one limit, with what it guarantees. @throws UsageError SLUICE_NO_SUCH_LIMIT */
  async show(name: string): Promise<LimitLine> {
    const [row] = await this.#sql.run<Row>('operations/read_limits', [name])
    if (row === undefined) throw noSuchLimit(name)
    return lineOf(row)
  }

  /**
   * Returns the versions that were in force, the newest first; `max`: 1 to 1000, default 20.
   * @throws UsageError SLUICE_NO_SUCH_LIMIT, SLUICE_BAD_OPTION
   */
  async history(name: string, options: { max?: number } = {}): Promise<LimitVersion[]> {
    checkFields('SLUICE_BAD_OPTION', '`history`', options, ['max'])
    const most = checkMax(options.max ?? 20, 1_000)
    const rows = await this.#sql.run<Row>('operations/read_limit_versions', [name, most])
    if (rows.length === 0) throw noSuchLimit(name)
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
   * left out keeps its stored value, else the code's; null removes it.
   * @throws UsageError SLUICE_NO_SUCH_LIMIT, SLUICE_BAD_LIMIT, SLUICE_BAD_RATE, SLUICE_BAD_DURATION
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
   * SLUICE_BAD_LIMIT
   */
  unset(name: string, why: Partial<Why> = {}): Promise<boolean> {
    return this.#drop('stored', name, why)
  }

  /**
   * Removes the pinned definition. Returns false if there was none. @throws UsageError SLUICE_NO_SUCH_LIMIT,
   * SLUICE_BAD_LIMIT
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
   * Ends what a vendor's bad answers hold of a limit, or of one key of it: its jobs start again at once. Resolves to the
   * number of keys. A credential that is rejected still is held again at the next rejection.
   * @throws UsageError SLUICE_NO_SUCH_LIMIT, SLUICE_BAD_KEY
   */
  async reset(name: string, options: { key?: string } = {}): Promise<number> {
    checkFields('SLUICE_BAD_OPTION', '`reset`', options, ['key'])
    const { key } = options
    await this.show(name)
    const params = [name, key === undefined ? '' : checkKey(name, key)]
    const [row] = await this.#sql.call<{ reset_limit: string }>('reset_limit', params)
    return Number(row?.reset_limit ?? 0)
  }

  async #put(source: 'stored' | 'pinned', name: string, changes: NumberChanges, why: Why): Promise<LimitLine> {
    checkFields('SLUICE_BAD_LIMIT', 'an operator’s definition', changes, numberFields, {
      reason: 'the last argument, `{ reason }`',
    })
    if (Object.values(changes).every((value) => value === undefined))
      throw bad(name, `give at least one of ${numberFields.join(', ')}`)
    const reason = reasonOf(why?.reason, (text) => bad(name, text))
    const { sources, numbers, share, currency } = await this.show(name)
    const below = source === 'pinned' ? numbers : (sources.stored ?? sources.found ?? sources.code)?.numbers
    // Costs come from the code.
    const made = limit(name, { cost: 1, ...applyChanges(below ?? {}, changes) } as LimitOptions)
    const isUncounted = made.rules.every(({ kind }) => kind === 'concurrency')
    if (made.currency !== currency && !isUncounted)
      throw bad(name, `its costs are in ${currency ?? 'units that are no money'}, so its numbers must be, too`)
    // This comes before anything is stored, because the part left to the other jobs has to be exact, too.
    if (share !== undefined) for (const rule of made.rules) unreserved(rule, { mille: Math.round(share.part * 1_000) })
    await this.#record(name, { source, limit: made, reason })
    const line = await this.show(name)
    const warning = line.source === source ? await this.#readCostWarning(name, made) : undefined
    return warning === undefined ? line : { ...line, warning }
  }

  async #drop(source: 'stored' | 'pinned', name: string, { reason }: Partial<Why>): Promise<boolean> {
    const { sources } = await this.show(name)
    const why = reason === undefined ? {} : { reason: reasonOf(reason, (text) => bad(name, text)) }
    if (sources[source] === undefined) return false
    return (await this.#record(name, { source, limit: null, ...why })) !== undefined
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
  async #readCostWarning(name: string, { rules, currency }: Limit): Promise<string | undefined> {
    const [row] = await this.#sql.run<{ cost: number | null }>('tasks/read_greatest_cost', [name])
    const capacity = Math.min(...rules.flatMap((rule) => (rule.kind === 'concurrency' ? [] : [rule.capacity])))
    if ((row?.cost ?? 0) <= capacity) return undefined
    return `some waiting jobs cost up to ${amount(row?.cost ?? 0, currency)}, and there is never room for more than ${amount(capacity, currency)}: those jobs will fail as impossible. Raise the limit again, then retry them`
  }
}

function versionOf({ version, spec, source, by, reason, at_ms: atMs }: Row): LimitVersion {
  return {
    version,
    source,
    numbers: spec.numbers ?? {},
    by: by ?? undefined,
    reason: reason ?? undefined,
    at: new Date(atMs),
    beside: spec.beside ?? [],
  }
}

function lineOf(row: Row): LimitLine {
  const { spec, sources, paused, refusals, others } = row
  return {
    name: row.name,
    ...versionOf(row),
    keyed: spec.keyed,
    path: spec.path ?? undefined,
    label: spec.label,
    pool: spec.pool,
    currency: spec.currency,
    classic: spec.classic,
    marginMs: (spec.grantUs + spec.transitUs) / 1_000,
    lifeMs: spec.grantUs / 1_000,
    isMeasured: spec.measured === true,
    adaptive: spec.adaptive && { floor: spec.adaptive.floor, ceiling: spec.adaptive.ceiling },
    share: spec.share && {
      name: spec.share.name,
      part: spec.share.mille / 1_000,
      lendAfterMs: spec.share.lendUs / 1_000,
    },
    guarantee: guaranteeOf(spec),
    sources: Object.fromEntries(
      Object.entries(sources ?? {}).map(([source, { numbers, by, reason, atMs }]) => [
        source,
        { numbers: numbers ?? {}, by, ...(reason === null ? {} : { reason }), at: new Date(atMs) },
      ]),
    ),
    refusals: (refusals ?? []).map(({ key, sinceMs, atMs, untilMs, ...refusal }) => ({
      key: key ?? undefined,
      ...refusal,
      since: new Date(sinceMs),
      at: new Date(atMs),
      heldUntil: new Date(untilMs),
    })),
    others: (others ?? []).map(({ key, units, atMs }) => ({ key: key ?? undefined, units, at: new Date(atMs) })),
    paused: (paused ?? []).map((key) => key ?? undefined),
  }
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
