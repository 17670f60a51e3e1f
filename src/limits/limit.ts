/** Limits as users define them: a name, rules, and the key that tells accounts apart. */
import { inspect } from 'node:util'
import { UsageError } from '../core/errors.ts'
import { type Duration, durationMs, parseRate, type Rate } from '../core/rate.ts'

/** What may tell buckets of one limit apart. */
export type Key = string | number | boolean

/** Inputs that have a key at `Path`, for example `'account.id'`. */
export type HasPath<Path extends string> = Path extends `${infer Head}.${infer Rest}`
  ? { [K in Head]: HasPath<Rest> }
  : { [K in Path]: Key }

/** What a limit may be given; see the fields. */
export interface LimitOptions {
  /** At most so many units per window; several rates hold together. */
  rate: Rate | readonly Rate[]
  /**
   * Asks for the classic token bucket of this capacity, refilled at the full rate: a vendor then sees up to
   * burst + rate - 1 in a window. Whole, at least 1. Default: the safe small bucket, which never exceeds the rate.
   */
  burst?: number
  /** How much the time from the check before writing until the vendor counts may vary; default 100 ms, at most a day. */
  transit?: Duration
}

/** One rule in the integers that the store computes with: a microsecond drains `drain`, a unit weighs `weight`. */
export interface Rule {
  rate: string
  units: number
  windowUs: number
  drain: number
  weight: number
  /** Capacity in units. */
  room: number
}

/** A named limit for jobs whose input is `In`. Made by {@link limit}. */
export interface Limit<in In = never> {
  readonly name: string
  readonly rules: readonly Rule[]
  /** Life of a grant in microseconds: past it, the request may not be written any more. */
  readonly grantUs: number
  /** How much the way to the vendor may vary, in microseconds. */
  readonly transitUs: number
  /** `true` when `burst` was given: the bucket is the classic one. */
  readonly classic: boolean
  /** There is a bucket for each key. */
  readonly keyed: boolean
  /** The field path of the key, when there is one; stored, so that SQL and other languages can send. */
  readonly path: string | undefined
  /** The key of an input; undefined for a limit without keys. @throws UsageError SLUICE_MISSING_KEY */
  keyOf(input: In): string | undefined
}

const grantMs = 100
const transitMaxUs = 86_400_000_000

/**
 * Defines a limit.
 * @param name unique; a-z, 0-9, `.`, `_`, `-`, beginning with a letter, up to 63 characters
 * @param options the rate or rates; `by` is a field path of the input, or a function of it: one bucket for each value.
 * Without `by` all jobs share one bucket.
 * @throws UsageError SLUICE_BAD_LIMIT, SLUICE_BAD_RATE, SLUICE_BAD_DURATION
 * @example limit('crm', { rate: '100/min', by: 'accountId' })
 */
export function limit(name: string, options: LimitOptions): Limit<unknown>
export function limit<const Path extends string>(
  name: string,
  options: LimitOptions & { by: Path },
): Limit<HasPath<Path>>
export function limit<In>(name: string, options: LimitOptions & { by: (input: In) => Key }): Limit<In>
export function limit(name: string, options: LimitOptions & { by?: string | ((input: never) => Key) }): Limit<never> {
  if (!/^[a-z][a-z0-9._-]{0,62}$/.test(name)) {
    throw new UsageError(
      'SLUICE_BAD_LIMIT',
      `"${name}" cannot name a limit: use a-z, 0-9, ".", "_", "-", beginning with a letter, up to 63 characters`,
    )
  }
  const rates = [options.rate].flat()
  if (rates.length === 0) throw new UsageError('SLUICE_BAD_LIMIT', `limit "${name}" has no rate`)
  const { burst, by } = options
  if (burst !== undefined && !(Number.isSafeInteger(burst) && burst >= 1)) {
    throw new UsageError(
      'SLUICE_BAD_LIMIT',
      `limit "${name}": burst is ${burst}; it must be a whole number of at least 1`,
    )
  }
  const parsed = rates.map((rate) => ({ rate, ...parseRate(rate) }))
  const grantUs = Math.min(grantMs * 1_000, ...parsed.map((rule) => Math.floor(rule.windowUs / 10)))
  const transitUs = Math.ceil(durationMs(options.transit ?? 100) * 1_000)
  if (transitUs > transitMaxUs)
    throw new UsageError('SLUICE_BAD_LIMIT', `limit "${name}": transit is ${options.transit}; it may be at most a day`)
  return {
    name,
    rules: parsed.map((rule) => level(name, rule, burst, grantUs + transitUs)),
    grantUs,
    transitUs,
    classic: burst !== undefined,
    keyed: by !== undefined,
    path: typeof by === 'string' ? by : undefined,
    keyOf: (input) => (by === undefined ? undefined : readKey(name, by, input)),
  }
}

/** A definition in words, the same for the same definition; what a key function does is not in them. */
export function inWords({ rules, classic, transitUs, keyed, path }: Limit): string {
  const rates = rules.map((rule) => rule.rate).join(' and ')
  const burst = classic ? `, burst ${rules.map((rule) => rule.room).join(' and ')}` : ''
  return `${rates}${burst}, transit ${transitUs / 1_000} ms, ${keyed ? `by ${path ?? 'a function'}` : 'without keys'}`
}

/**
 * A level rule (token bucket, GCRA). The safe one: B = max(1, floor(N/10)), refilled at (N - B + 1) / W' where
 * W' = W + J, so that any half-open window of W at the vendor holds at most N arrivals (limits/guarantee.ts).
 */
function level(
  name: string,
  rule: { rate: string; units: number; windowUs: number },
  burst: number | undefined,
  marginUs: number,
): Rule {
  const room = burst ?? Math.max(1, Math.floor(rule.units / 10))
  const refill = burst === undefined ? rule.units - room + 1 : rule.units
  const windowUs = burst === undefined ? rule.windowUs + marginUs : rule.windowUs
  const shared = gcd(refill, windowUs)
  const drain = refill / shared
  const weight = windowUs / shared
  if (!Number.isSafeInteger(room * weight)) {
    throw new UsageError(
      'SLUICE_BAD_LIMIT',
      `limit "${name}": ${rule.rate} with a burst of ${room} is beyond exact arithmetic (2^53); choose a smaller burst or a rounder rate`,
    )
  }
  return { ...rule, drain, weight, room }
}

function gcd(a: number, b: number): number {
  return b === 0 ? a : gcd(b, a % b)
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
  const text = String(key)
  if (text.length > 512 || /[\u0000\u001f]/.test(text)) {
    throw new UsageError(
      'SLUICE_BAD_KEY',
      `limit "${name}": a key is at most 512 characters, without the control characters U+0000 and U+001F`,
    )
  }
  return text
}

/** What stands at a field path (`account.id`) of an input; undefined when nothing does. */
export function fieldOf(input: unknown, path: string): unknown {
  const step = (value: unknown, name: string) =>
    typeof value === 'object' && value !== null && Object.hasOwn(value, name)
      ? (value as Record<string, unknown>)[name]
      : undefined
  return path.split('.').reduce(step, input)
}
