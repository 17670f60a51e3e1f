/**
 * Shares: a part of a limit that is reserved for some jobs. All jobs take from the limit's own bucket (`crm:acct`). Jobs of
 * the share also take from `crm/interactive:acct`, which allows as much and records when the share was last used; all other
 * jobs also take from `crm/:acct`, which allows what is not reserved. So nothing is compared: two ordinary buckets hold together.
 */
import { inspect } from 'node:util'
import { UsageError } from '../core/errors.ts'
import { type Duration, durationMs } from '../core/rate.ts'
import { gcd, type Rule } from './rule.ts'

/** The share of a limit, as it is stored. */
export interface Share {
  readonly name: string
  /** The reserved part, in thousandths. */
  readonly mille: number
  /** Idle microseconds after which its part is lent to others. */
  readonly lendUs: number
}

const lendMinUs = 1_000_000
const lendMaxUs = 3_600_000_000
const lendPlacesUs = 60_000_000

/**
 * Returns the share that a limit reserves a part for; undefined: none.
 * @param isPlain the limit's bucket is known when a job is sent: it has no pool and no label
 * @throws UsageError SLUICE_BAD_LIMIT, SLUICE_BAD_DURATION
 */
export function shareOf(
  limit: string,
  { shares, lendAfter }: { shares?: unknown; lendAfter?: Duration | undefined },
  rules: readonly Rule[],
  isPlain: boolean,
): Share | undefined {
  const refuse = (why: string): never => {
    throw new UsageError('SLUICE_BAD_LIMIT', `limit "${limit}": ${why}`)
  }
  if (shares === undefined)
    return lendAfter === undefined ? undefined : refuse('lendAfter belongs to `shares`, and it has none')
  if (typeof shares !== 'object' || shares === null || Array.isArray(shares) || Object.keys(shares).length !== 1)
    return refuse('its shares are an object with the part of one share: { interactive: 0.3 }')
  if (!isPlain) return refuse('a limit by label, or with a pool, has no shares')
  const [name, part] = Object.entries(shares)[0] as [string, unknown]
  if (!/^[a-z][a-z0-9._-]{0,62}$/.test(name))
    return refuse(`"${name}" cannot name a share: use a-z, 0-9, ".", "_", "-", beginning with a letter`)
  const mille = Math.round(Number(part) * 1_000)
  if (typeof part !== 'number' || mille < 1 || mille > 999 || Math.abs(part * 1_000 - mille) > 1e-6)
    return refuse(`the part of its share ${name} is ${inspect(part)}; it must be between 0 and 1, in whole thousandths`)
  for (const { kind, rate, units } of rules)
    if (reserved(units, mille) < 1)
      refuse(`${part} of its ${kind} ${rate} is less than one whole unit, so nothing would be kept for ${name}`)
  const longestUs = Math.max(...rules.map((rule) => rule.windowUs))
  const lendUs =
    lendAfter === undefined
      ? Math.min(lendMaxUs, Math.max(lendMinUs, longestUs > 0 ? longestUs : lendPlacesUs))
      : Math.ceil(durationMs(lendAfter) * 1_000)
  if (lendUs < lendMinUs || lendUs > lendMaxUs) refuse(`lendAfter is ${lendAfter}; it may be 1 s to 1 h`)
  // The part that is left to other jobs must be exact arithmetic, too.
  for (const rule of rules) unreserved(rule, { mille })
  return { name, mille, lendUs }
}

function reserved(units: number, mille: number): number {
  return Math.floor((units * mille) / 1_000)
}

/** Returns what a rule leaves to jobs outside of the share; at least one unit, if an operator made the rule very small. */
export function unreserved<R extends Rule>(rule: R, { mille }: Pick<Share, 'mille'>): R {
  const left = (units: number) => Math.max(1, units - reserved(units, mille))
  const capacity = left(rule.capacity)
  if (rule.kind !== 'rate') return { ...rule, units: left(rule.units), capacity }
  const [drain, weight] = refill(rule, mille, left(rule.units) - capacity + 1)
  if (!Number.isSafeInteger(drain) || !Number.isSafeInteger(weight * capacity))
    throw new UsageError(
      'SLUICE_BAD_LIMIT',
      `what a share of ${mille / 1_000} leaves of ${rule.rate} is beyond exact arithmetic (2^53); choose a rounder part or rate`,
    )
  const shared = gcd(drain, weight)
  const span = Math.ceil((capacity * weight) / drain)
  return { ...rule, drain: drain / shared, weight: weight / shared, capacity, spanUs: Math.max(rule.spanUs, span) }
}

/**
 * Returns what others get of a rate's drain and weight, exactly; for the small bucket, at most `most` units in its window and
 * margin: its burst is whole units, so with the exact remainder others might get one of the share's units in a window.
 */
function refill({ units, capacity, drain, weight }: Rule, mille: number, most: number): [number, number] {
  const inWindow = units - capacity + 1
  const isSmall = capacity === Math.max(1, Math.floor(units / 10)) && inWindow % drain === 0
  if (isSmall && inWindow * (1_000 - mille) > most * 1_000) return [most, weight * (inWindow / drain)]
  return [drain * (1_000 - mille), weight * 1_000]
}

/** Returns the name of a share if one of the limits has it, else throws. @throws UsageError with `code` */
export function checkShare(
  code: string,
  task: string,
  limits: readonly { share: Share | undefined }[],
  share: string,
): string {
  if (limits.some((limit) => limit.share?.name === share)) return share
  throw new UsageError(code, `no limit of task "${task}" has a share "${share}": give one of them \`shares\``)
}

/** Returns a share in words, the same for the same share. */
export function shareInWords(share: Share | undefined): string {
  return share === undefined
    ? ''
    : `, ${share.mille / 10} % for ${share.name}, lent after ${share.lendUs / 1_000_000} s`
}

/**
 * Returns the bucket beside a limit's own (`crm:acct`): `crm/interactive:acct` for a job of the share, `crm/:acct` for
 * any other job (share `''`).
 */
export function shareBucketName(bucket: string, share: string): string {
  return bucket.replace(/^[^:]*/, (limit) => `${limit}/${share}`)
}

/** Returns the share of a job with these buckets; `''`: no share; undefined: none of its limits has shares. */
export function shareOfBuckets(buckets: readonly string[]): string | undefined {
  return buckets.map((bucket) => /^[^:@*/]*\/([^:]*)/.exec(bucket)?.[1]).find((share) => share !== undefined)
}
