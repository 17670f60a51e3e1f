/** Limits as users define them: a name, rules, and the key that separates accounts. */
import { inspect } from 'node:util'
import { UsageError } from '../core/errors.ts'
import { checkFields } from '../core/fields.ts'
import type { Duration, Rate } from '../core/rate.ts'
import { checkCircuit } from './circuit.ts'
import { type Amount, type LimitNumbers, numbersOf } from './numbers.ts'
import { checkAlarmAt, type Quota } from './quota.ts'
import { badLimit, type Rule } from './rule.ts'
import { type Takeable, takesOf } from './take.ts'
import { type Bounds, boundsOf } from './adaptive.ts'
import type { VendorName } from '../vendors/profiles.ts'
import type { Answers } from '../vendors/reader.ts'
import { type VendorLimit, vendorOf, type VendorRate } from './vendor.ts'
import { rulesOf } from './rules.ts'
import { type Share, shareOf } from './share.ts'
import { weightsOf } from './weight.ts'
import { checkLabel, isLabel, type Label, membersOf, type PoolMember } from './pool.ts'
import { countsUnits } from './kind.ts'

/** A value that selects one bucket of a limit. */
export type Key = string | number | boolean

/** Inputs that have a key at `Path`, for example `'account.id'`. */
export type HasPath<Path extends string> = Path extends `${infer Head}.${infer Rest}`
  ? { [K in Head]: HasPath<Rest> }
  : { [K in Path]: Key }

/** Inputs that have a number at `Path`, for example `'usage.maxTokens'`. */
export type HasNumber<Path extends string> = Path extends `${infer Head}.${infer Rest}`
  ? { [K in Head]: HasNumber<Rest> }
  : { [K in Path]: number }

/**
 * The cost of a job in a limit, in the limit's units: a number, the field path of a number in the input, or a function of
 * the input. Whole, 0 to 2,147,483,647. A `concurrency` counts one place for each job, whatever it costs. A job of cost 0
 * takes no units, but waits like any other while nothing is free.
 */
export type Cost<In = never> = number | string | ((input: In) => number)

/** The type that an input must have so that a key or a cost can be read from it in this way. */
type Read<By, Path> = By extends string ? Path : By extends (input: infer In) => unknown ? In : unknown

/** Options of a limit; see the fields. It needs a `rate`, `window`, `quota` or `concurrency`; all rules hold together. */
export type LimitOptions = LimitFields & (Needs<'rate'> | Needs<'window'> | Needs<'quota'> | Needs<'concurrency'>)

// Each field has one type only: the compiler combines several types of a field, and prints hundreds for a wrong rate.
type Needs<Field extends keyof LimitRules> = Required<Pick<LimitRules, Field>> & MayLack<Omit<LimitRules, Field>>

type MayLack<Rules> = { [Field in keyof Rules]: Rules[Field] | undefined }

interface LimitRules {
  /** Most units per window, spread evenly: bursts are small, and no job waits for a window to end. One or several. */
  rate?: Amount<'100/min'> | readonly Amount<'100/min'>[]
  /**
   * Most units in any window, at any moments: all may be granted at once, and then none until the window has
   * passed. Counted in 60 equal parts of the window, so up to 1 in 61 of the rate is lost. One or several, each up
   * to 2,147,483,647 units.
   */
  window?: Amount<'100/min'> | readonly Amount<'100/min'>[]
  /**
   * Most units in each minute, hour, day, week (from Monday) or month of the calendar, at any moments; then
   * none until the next period begins. A grant close to the end of a period counts in both. One or several.
   */
  quota?: Quota<'1000/day'> | readonly Quota<'1000/day'>[]
  /** Most jobs at one time, across all workers; whole, 1 to 1,000,000. Further requests of a job take no place. */
  concurrency?: number
}

interface LimitFields {
  /** Time zone by whose clocks periods of a `quota` begin; an IANA name, default UTC. */
  zone?: string | undefined
  /**
   * Instant from which periods of a `quota` are counted (a billing cycle): a month from the 31st begins on the last day of
   * shorter months. A Date or an ISO instant; default: the calendar's own periods.
   */
  anchor?: Date | string | undefined
  /**
   * Shares of each quota at which a key that has used so much of it raises an alarm, once in a period (docs/budgets.md): above
   * 0, up to 1, at most 8; none: `[]`. Default: 0.8 for quotas of a day or longer that hold at least 100 units.
   */
  alarmAt?: readonly number[] | undefined
  /**
   * Makes the `rate` a classic token bucket of this capacity, refilled at the full rate: a vendor then sees up to
   * burst + rate - 1 in a window. Whole, at least 1; for `rate` only. Default: a small bucket that never exceeds the rate.
   */
  burst?: number | undefined
  /**
   * How units come back when an attempt used less than it was granted: `decays` (default) gives them back less what has
   * drained since, so that the rate is never exceeded; `full` is for vendors that themselves refund (Shopify).
   */
  refund?: 'decays' | 'full' | undefined
  /**
   * Finds out what the vendor allows: it begins at the one `rate`, refusals lower it and full windows without a refusal
   * raise it, for the whole fleet, between `floor` (default 1) and `ceiling` (default 100 times the rate), in units of its
   * window. Without keys. Default false: the stated rate holds.
   */
  adaptive?: boolean | { readonly [Field in keyof Bounds]?: Bounds[Field] | undefined } | undefined
  /**
   * How much the time from the check before writing until the vendor counts may vary, at most a day. Default `measured`: 100 ms,
   * and less when the answers to `fetch` show that it varies less (docs/margins.md).
   */
  transit?: Duration | 'measured' | undefined
  /**
   * How takes outside of jobs (`take`, `tryTake`, `fetch` of the limit) go on while the store is away: `closed` rejects with
   * the store's error; `open` grants without a charge and counts the grants. Jobs wait in any case. If limits are shared in
   * Redis and Redis is away, `closed` makes jobs wait and takes reject; `open` uses the store alone. Default `closed`.
   */
  onStoreError?: 'closed' | 'open' | undefined
  /**
   * True if other programs take from it too, in Redis (docs/redis.md): its definition is published there, and after a loss
   * of Redis's state it is closed until their grants have left its windows. Default false: only Sluice's own processes take
   * from it, and it is not closed, because the store has their grants.
   */
  published?: boolean | undefined
  /**
   * The vendor: by name (`'github'`), so that its answers are read as it documents them (docs/vendors.md); or what it
   * states that it allows, and how it counts if that is known: `sluice limits` and `sluice doctor` warn if that could be
   * exceeded. It limits nothing.
   */
  vendor?: VendorName | Rate | VendorLimit | undefined
  /**
   * How many of the vendor's failures in a row (5xx, no answer), of at least two jobs, hold the key's jobs, which are then
   * tried one at a time; rejected credentials of three jobs hold them, too. Whole, 2 to 1000; true: 5; default false: only
   * a refusal holds jobs.
   */
  circuit?: number | boolean | undefined
  /**
   * Up to 64 accounts, keys, addresses or services of which an attempt gets the one with the most room (`ctx.pool`). The
   * limit's numbers apply to each of them by itself. Not with `by`.
   */
  pool?: readonly (string | PoolMember)[] | undefined
  /**
   * Turns that a key gets compared with others, if turns go by this limit's keys and the task has no `weight` of its own:
   * `{ acme: 3 }`. Whole, 1 to 1000; default 1. Needs `by`, a field path or a function.
   */
  weights?: Readonly<Record<string, number>> | undefined
  /** A part that is reserved for jobs with `share: 'interactive'`: `{ interactive: 0.3 }`; one share, in thousandths. */
  shares?: Readonly<Record<string, number>> | undefined
  /** Idle time after which the reserved part is lent to others; 1 s to 1 h. Default: the longest window; for places a minute. */
  lendAfter?: Duration | undefined
}

/** How costs are learned: as a quantile of what earlier jobs used, separately for each value of a field. */
export interface Learning {
  readonly quantile: number
  readonly by: string | undefined
}

/** A named limit for jobs whose input is `In`. Made by {@link limit}. */
export interface Limit<in In = never> extends Takeable {
  readonly name: string
  readonly rules: readonly Rule[]
  /** Life of a grant in microseconds: after it, the request must not be written any more. */
  readonly grantUs: number
  /** How much the time on the way to the vendor may vary, in microseconds. */
  readonly transitUs: number
  /** True if `burst` was given: the bucket is the classic token bucket. */
  readonly classic: boolean
  /** True if there is a bucket for each key of an input. */
  readonly keyed: boolean
  /** Field path of the key, if there is one; stored, so that SQL and other languages can send. */
  readonly path: string | undefined
  /** The numbers that an operator may change while everything runs; see `Sluice.limits`. */
  readonly numbers: LimitNumbers
  /** The limit as the vendor states it. */
  readonly vendor: VendorRate | undefined
  /** How the vendor's answers are read; undefined: by the headers that many vendors share. */
  readonly answers: Answers | undefined
  /** The bounds between which the rate is found; undefined: the stated rate holds. */
  readonly adaptive: Bounds | undefined
  /** How many of the vendor's failures in a row open the circuit; 0: it never opens. */
  readonly circuit: number
  /** How much of what an attempt did not use is given back when it settles. */
  readonly refund: 'decays' | 'full'
  /** Name of the worker's label whose value is the key. */
  readonly label: string | undefined
  /** Members of the pool; each attempt gets one. */
  readonly pool: readonly PoolMember[] | undefined
  /** Its units are millionths of this currency, `USD`; undefined: they are not money. */
  readonly currency: string | undefined
  /** The cost of a job; `limits/cost.ts` reads it. */
  readonly cost: Cost<In>
  /** How the cost of a job is learned; undefined: a job takes its declared cost. */
  readonly learn?: Learning | undefined
  /** The share for which a part of the limit is reserved. */
  readonly share: Share | undefined
  /** Turns of the keys that have a weight other than one. */
  readonly weights: ReadonlyMap<string, number>
  /** Shares of its quotas at which an alarm is raised; undefined: the default. */
  readonly alarmAt: readonly number[] | undefined
  /** True if takes outside of jobs are granted while the store is away. */
  readonly isOpenWithoutStore: boolean
  /** True if other programs take from it too. */
  readonly isPublished: boolean
  /** Returns the key of an input; undefined for a limit without keys. @throws UsageError SLUICE_MISSING_KEY */
  keyOf(input: In): string | undefined
}

/** How long ledger rows, and buckets that are not used any more, are kept, in microseconds: 7 days. */
export const ledgerUs = 7 * 86_400_000_000

/** The most that a job may cost: the store keeps costs in 32 bits. */
export const costMax = 2 ** 31 - 1

/** Names that other limiters have for options of a limit, with ours for each: errors of unknown options suggest it. */
const wordsOfOthers = {
  key: '`by`',
  max: "`rate: '100/min'`",
  limit: "`rate: '100/min'`",
  points: "`rate: '100/min'`",
  duration: "`rate: '100/min'`",
  period: "`rate: '100/min'`",
  interval: "`rate: '100/min'`",
  maxConcurrent: '`concurrency`',
}

const limitFields = [
  'rate',
  'window',
  'quota',
  'zone',
  'anchor',
  'alarmAt',
  'concurrency',
  'burst',
  'adaptive',
  'refund',
  'transit',
  'onStoreError',
  'published',
  'vendor',
  'circuit',
  'pool',
  'weights',
  'shares',
  'lendAfter',
  'by',
  'cost',
]

/**
 * Defines a limit.
 * @param name unique; a-z, 0-9, `.`, `_`, `-`, beginning with a letter, up to 63 characters
 * @param options its rules and settings; `by` is a field path of the input, a function of it, or a label of the worker:
 * there is one bucket for each value. Without `by` all jobs share one bucket. `cost` is what a job takes, default 1; a task may
 * override it.
 * @throws UsageError SLUICE_BAD_LIMIT, SLUICE_BAD_RATE, SLUICE_BAD_DURATION, SLUICE_BAD_ZONE, SLUICE_BAD_COST, SLUICE_BAD_POOL,
 * SLUICE_BAD_LABEL
 * @example limit('crm', { rate: '100/min', by: 'accountId' })
 * @example limit('hubspot', { quota: '10000/day', zone: 'America/New_York' })
 * @example limit('export', { window: ['100/s', '1000/h', '10000/day'], concurrency: 5 })
 * @example limit('spend', { quota: '50 USD/month', by: 'tenant', cost: ({ tokens }) => money(tokens * 0.00001) })
 * @example limit('tokens', { window: '30000/min', by: 'model', cost: 'maxTokens' })
 */
export function limit<
  const By extends string | Label | ((input: never) => Key) | undefined = undefined,
  const Costs extends Cost | undefined = undefined,
>(
  name: string,
  options: LimitOptions & {
    /** The key: a field path of the input, a function of it, or a label of the worker. Default: one bucket for all jobs. */
    by?: By
    /** What a job takes: a number, the field path of one, or a function of the input. Default 1; a task may override it. */
    cost?: Costs
  },
): Limit<NoInfer<Read<By, HasPath<By & string>> & Read<Costs, HasNumber<Costs & string>>>>
export function limit(
  name: string,
  options: LimitOptions & { by?: string | Label | ((input: never) => Key); cost?: Cost },
): Limit<never> {
  if (!/^[a-z][a-z0-9._-]{0,62}$/.test(name)) {
    throw new UsageError(
      'SLUICE_BAD_LIMIT',
      `"${name}" cannot name a limit: use a-z, 0-9, ".", "_", "-", beginning with a letter, up to 63 characters`,
    )
  }
  checkFields('SLUICE_BAD_LIMIT', `limit "${name}"`, options, limitFields, wordsOfOthers)
  const { burst, pool } = options
  const label = isLabel(options.by) ? checkLabel(options.by.label) : undefined
  const by = isLabel(options.by) ? undefined : checkBy(name, options.by)
  if (pool !== undefined && options.by !== undefined)
    throw new UsageError('SLUICE_BAD_POOL', `limit "${name}": a pool has its own keys; give it \`pool\` or \`by\``)
  const { rules, grantUs, transitUs, currency, hasQuotas } = rulesOf(name, options)
  const hasOneBucket = options.by === undefined && pool === undefined && options.shares === undefined
  const self: Limit<never> = {
    ...takesOf(() => self),
    name,
    rules,
    grantUs,
    transitUs,
    classic: burst !== undefined,
    keyed: by !== undefined,
    path: typeof by === 'string' ? by : undefined,
    numbers: numbersOf(options),
    ...vendorOf(name, options.vendor),
    adaptive: boundsOf(name, options.adaptive, rules, hasOneBucket && burst === undefined),
    circuit: checkCircuit(name, options.circuit),
    refund: checkRefund(name, options.refund),
    currency,
    cost: checkCost(name, options.cost ?? (currency === undefined ? 1 : undefined), rules.some(countsUnits)),
    share: shareOf(name, options, rules, label === undefined && pool === undefined),
    weights: weightsOf(name, options.weights, by !== undefined, (key) => checkKey(name, key)),
    alarmAt: checkAlarmAt(name, options.alarmAt, hasQuotas),
    isOpenWithoutStore: options.onStoreError === 'open',
    isPublished: checkPublished(name, options.published),
    label,
    pool: pool === undefined ? undefined : membersOf(name, pool, (key) => checkKey(name, key)),
    keyOf: (input) => (by === undefined ? undefined : readKey(name, by, input)),
  }
  return self
}

function checkBy<By extends string | ((input: never) => Key) | undefined>(name: string, by: By): By {
  const isPath = typeof by === 'string' && by.split('.').every((step) => step !== '')
  if (by === undefined || typeof by === 'function' || isPath) return by
  throw badLimit(
    name,
    `by is ${inspect(by, { depth: 0 })}; it is a field path such as 'account.id', a function of the input, or label('ip')`,
  )
}

function checkRefund(name: string, refund: 'decays' | 'full' = 'decays'): 'decays' | 'full' {
  if (refund === 'decays' || refund === 'full') return refund
  throw badLimit(name, `refund is ${inspect(refund)}; it is 'decays' or 'full'`)
}

function checkPublished(name: string, published: unknown = false): boolean {
  if (typeof published === 'boolean') return published
  throw badLimit(name, `published is ${inspect(published)}; it is true or false`)
}

/** Returns the cost that a limit, or a task, declares, if it is valid. @throws UsageError SLUICE_BAD_COST */
export function checkCost(name: string, cost: Cost | undefined, hasUnits: boolean): Cost {
  if (cost === undefined)
    throw new UsageError('SLUICE_BAD_COST', `cost of limit "${name}": a limit in money needs one, such as money(0.002)`)
  const isWhole = Number.isInteger(cost) && (cost as number) >= 0 && (cost as number) <= costMax
  const isRead = typeof cost === 'function' || (typeof cost === 'string' && cost !== '')
  const why =
    cost !== 1 && !hasUnits
      ? 'a concurrency alone counts jobs, whatever they cost; give it a rate, a window or a quota too'
      : `it is ${inspect(cost)}; it must be a whole number from 0 to ${costMax}, a field path of the input or a function of it`
  if (!(isWhole || isRead) || (cost !== 1 && !hasUnits))
    throw new UsageError('SLUICE_BAD_COST', `cost of limit "${name}": ${why}`)
  return cost
}

function readKey(name: string, by: string | ((input: never) => Key), input: unknown): string {
  const key = typeof by === 'function' ? by(input as never) : fieldOf(input, by)
  const isKey =
    typeof key === 'number' ? Number.isFinite(key) : typeof key === 'boolean' || (typeof key === 'string' && key !== '')
  if (!isKey) {
    const from = typeof by === 'string' ? `field "${by}"` : 'the key function'
    throw new UsageError(
      'SLUICE_MISSING_KEY',
      `limit "${name}" takes its key from ${from}, which gave ${inspect(key, { depth: 0 })}; every job needs a string, number or boolean there`,
    )
  }
  return checkKey(name, String(key))
}

/** Returns a key of a limit, as the store has it, if it is valid. @throws UsageError SLUICE_BAD_KEY */
export function checkKey(name: string, text: string): string {
  if (typeof text !== 'string' || text === '' || text.length > 512 || /[\u0000\u001f]/.test(text)) {
    throw new UsageError(
      'SLUICE_BAD_KEY',
      `limit "${name}": a key has 1 to 512 characters, without the control characters U+0000 and U+001F`,
    )
  }
  // It may have been cut in the middle of a character.
  return text.toWellFormed()
}

/** Returns the value at a field path (`account.id`) of an input; undefined if there is none. */
export function fieldOf(input: unknown, path: string): unknown {
  const step = (value: unknown, name: string) =>
    typeof value === 'object' && value !== null && Object.hasOwn(value, name)
      ? (value as Record<string, unknown>)[name]
      : undefined
  return path.split('.').reduce(step, input)
}
