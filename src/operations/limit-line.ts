/** A limit as it is in force: its numbers, their sources, and the keys that are not as the others. */
import type { Bounds } from '../limits/adaptive.ts'
import type { Cause } from '../limits/circuit.ts'
import { guaranteeOf, type LimitGuarantee } from '../limits/exposure.ts'
import type { Limit } from '../limits/limit.ts'
import type { LimitNumbers } from '../limits/numbers.ts'
import type { Share } from '../limits/share.ts'

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

/** The numbers that an operator has defined for one key of a limit. */
export interface KeyNumbers extends SourceLine {
  key: string
  /** Pinned numbers of all keys override those that are stored for one. */
  source: 'stored' | 'pinned'
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
  /** The key whose definition it is; undefined: that of all keys without numbers of their own. */
  key: string | undefined
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
  /** The numbers of single keys, by key; pinned ones, where a key has both. */
  keyNumbers: KeyNumbers[]
  /** Paused keys; undefined among them: the whole limit. */
  paused: (string | undefined)[]
  /** Keys of which the vendor refuses requests, the newest first, at most 100. */
  refusals: LimitRefusal[]
  /** Keys of which others have used units in the last 24 hours, the newest first, at most 100. */
  others: LimitOthers[]
  /** A conflict with the change that was just made: waiting jobs that cost more than there is ever room for. */
  warning?: string
}

type Spec = Pick<Limit, 'rules' | 'grantUs' | 'transitUs' | 'classic' | 'keyed' | 'vendor' | 'currency'> & {
  numbers?: LimitNumbers
  path: string | null
  label?: string
  pool?: string[]
  share?: Share
  adaptive?: Bounds
  published?: boolean
  measured?: boolean
  beside?: LimitVersion['beside']
}

/** A row of `read_limits.sql`. */
export interface LimitRow {
  name: string
  version: number
  spec: Spec
  source: LimitSource
  by: string | null
  reason: string | null
  at_ms: number
  sources: Record<LimitSource, { numbers: LimitNumbers | null; by: string; reason: string | null; atMs: number }> | null
  key_numbers:
    | { key: string; source: KeyNumbers['source']; numbers: LimitNumbers; by: string; reason: string; atMs: number }[]
    | null
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

/** What a limit has keys by. */
type Keys = Pick<LimitLine, 'keyed'> & Partial<Pick<LimitLine, 'label' | 'pool'>>

/** Returns whether single keys of a limit can have numbers of their own. */
export function hasKeys({ keyed, label, pool }: Keys): boolean {
  return (keyed || label !== undefined) && pool === undefined
}

/** Returns a version of a limit. */
export function versionOf({ version, spec, source, by, reason, at_ms: atMs }: LimitRow): LimitVersion {
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

/** Returns a limit; `key`: with the definition of this key, and only what is of it. */
export function lineOf(row: LimitRow, key?: string): LimitLine {
  const { spec, sources } = row
  const isOf = (one: string | null) => key === undefined || one === null || one === key
  const [keyNumbers, paused, refusals, others] = [
    row.key_numbers?.filter((one) => isOf(one.key)),
    row.paused?.filter(isOf),
    row.refusals?.filter((one) => isOf(one.key)),
    row.others?.filter((one) => isOf(one.key)),
  ]
  return {
    name: row.name,
    key,
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
    keyNumbers: (keyNumbers ?? []).map(({ atMs, ...one }) => ({ ...one, at: new Date(atMs) })),
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
