/** The part of `why` about limits: which have no room for the job, until when at least, and until when about. */
import { many, span } from '../core/figures.ts'
import { amount } from '../core/money.ts'
import { quoted } from '../core/printable.ts'
import { type Bucket, emptyBucket } from '../limits/decide.ts'
import { earliestUs } from '../limits/earliest.ts'
import { unspent } from '../limits/quota.ts'
import { type Rule, windowParts, withPaces } from '../limits/rule.ts'
import type { BucketState, Explanation, NeededBucket, Reason } from './explanation.ts'
import { pausedBy, resumeOf } from './words.ts'

/** Returns the reasons that each limit of a job gives, none if it has room. */
export function limitReasons(found: Explanation): Reason[] {
  const isParked = ({ limit, key }: NeededBucket) =>
    found.parked?.some(({ kind, name }) => kind === 'bucket' && name === `${limit}${key && `:${key}`}`)
  return (found.buckets ?? []).flatMap((bucket): Reason[] => {
    if (isParked(bucket)) return []
    const name = nameOf(bucket)
    const [limit = ''] = bucket.limit.split('/')
    return [...redisAway(found, bucket, name), ...bars(found, bucket, name)].map((bar) => ({
      ...bar,
      limit,
      ...(bucket.key ? { key: bucket.key } : {}),
    }))
  })
}

/** Names a limit with what it allows: `crm (100/min for a1)`. */
function nameOf({ limit: full, key, members, spec }: NeededBucket): string {
  // Bucket names beside a limit with a share (limits/share.ts) are of jobs of the share, or of the others.
  const [limit = '', share] = full.split('/')
  const part = share === '' ? ', the part for jobs outside of its share' : share === undefined ? '' : `, share ${share}`
  const rates = withPaces(spec?.rules ?? []).map(({ rule: { kind, rate } }) =>
    kind === 'concurrency' ? `${rate} at once` : rate,
  )
  const whose = members === null ? key && `for ${key}` : `for any of its ${members} members`
  const text = [rates.join(' and '), whose].filter((text) => text !== '').join(' ')
  return `${limit}${part}${text === '' ? '' : ` (${text})`}`
}

function redisAway({ redis }: Explanation, { shared }: NeededBucket, name: string): Reason[] {
  if (shared !== true || redis === null || redis.sinceMs === null) return []
  const since = new Date(redis.sinceMs)
  const text = `Redis, where ${name} is shared, is unavailable since ${since.toISOString()}: ${redis.why}`
  const todo =
    'make Redis available (`sluice doctor` checks the server); if no process uses it any more, run `sluice limits redis --stores 0`'
  return [{ kind: 'redis-away', text, notBefore: undefined, since, acts: 'operator', todo }]
}

function bars(found: Explanation, bucket: NeededBucket, name: string): Reason[] {
  const { paused, heldMs, lost, cost, before, avail, kept, key } = bucket
  if (!bucket.defined) {
    const text = `limit ${bucket.limit} is not defined in the database`
    const todo = 'start a worker or sender that has its code'
    return [{ kind: 'undefined-limit', text, notBefore: undefined, acts: 'worker', todo }]
  }
  const isCosted = cost !== 1 || before > 0
  const { ahead, now_us: nowUs, clock_offset_us: clockOffsetUs } = found
  const [firstMs, aboutMs] = timesOf(found, bucket, isCosted ? cost + before : cost + ahead)
  if (paused !== null) {
    const what = { limit: bucket.limit, ...(key ? { key } : {}) }
    const since = new Date(paused.sinceMs)
    const bar = { text: `${name} is ${pausedBy(paused)}`, notBefore: undefined, since, by: paused.by }
    const held = heldMs === null ? [] : [holdReason(found, bucket, name, heldMs)]
    return [{ kind: 'paused', ...bar, acts: 'operator', todo: resumeOf(what) }, ...held]
  }
  if (bucket.places !== null) {
    const text = `all ${bucket.places} places of ${name} are taken; the job can start when one of those jobs ends`
    return [{ kind: 'concurrency', text, notBefore: undefined, acts: 'jobs' }]
  }
  const nowMs = (nowUs - clockOffsetUs) / 1_000
  if (avail - kept >= Math.max(1, isCosted ? cost + before : cost) && firstMs <= nowMs) return []
  const notBefore = new Date(Math.max(firstMs, nowMs))
  const times = { notBefore, ...(aboutMs === undefined ? {} : { about: new Date(Math.max(aboutMs, +notBefore)) }) }
  if (heldMs !== null && lost !== true) {
    const held = holdReason(found, bucket, name, heldMs)
    // An accepted request may end the hold sooner, and will hardly do so.
    const about =
      aboutMs === undefined ? {} : { about: new Date(Math.max(aboutMs, +(held.notBefore ?? 0), +notBefore)) }
    return [{ ...held, ...times, ...about }]
  }
  if (heldMs !== null) {
    const text = `${name} is closed: the store was restored or failed over, and may lack some earlier grants`
    return [{ kind: 'restored', text, ...times, acts: 'time' }]
  }
  return [{ kind: 'limit', text: `${name} ${stateOf(bucket, isCosted, ahead)}`, ...times, acts: 'time' }]
}

function stateOf(
  { avail, kept, cost, before, rivals, others: used, spec }: NeededBucket,
  isCosted: boolean,
  ahead: number,
): string {
  const foreign = used === null ? '' : `, and others have used ${used} of the account`
  const reserved = kept > 0 ? `, ${amount(kept, spec?.currency)} kept for jobs that have waited longer` : ''
  const others = `${reserved}${rivals > 0 ? `, about ${rivals} of other keys in between` : ''}${foreign}`
  if (isCosted) {
    const inUnits = (units: number) => amount(units, spec?.currency)
    const first = before > 0 ? `, after ${inUnits(before)} for ${many(ahead, 'job')} ahead` : ''
    return `has ${inUnits(avail)} free, and the job needs ${inUnits(cost)}${first}${others}`
  }
  return `${avail > 0 ? `has ${avail} free` : 'is used up'}${ahead > 0 ? `; ${ahead} ahead` : ''}${others}`
}

/** Distinguishes a vendor's pause from Redis's causes: others have used the limit up there, or its state was begun anew. */
function holdReason({ redis }: Explanation, bucket: NeededBucket, name: string, heldMs: number): Reason {
  const { cause, heldForMs, spec, refusal } = bucket
  const notBefore = new Date(heldMs)
  if (cause === 'used') {
    const text = `other programs have used up ${name} in Redis`
    return { kind: 'redis-used', text, notBefore, acts: 'time' }
  }
  if (cause === 'spent') {
    const text = `${name} is held until ${notBefore.toISOString()}: the vendor has nothing left until then, as its count shows`
    return { kind: 'held', text, notBefore, acts: 'time' }
  }
  const spanMs = Math.max(0, ...(spec?.rules ?? []).map(({ spanUs }) => spanUs / 1_000))
  if (cause === 'closed' && redis !== null && redis.begunMs + spanMs > heldMs - (heldForMs ?? 0)) {
    const begun = new Date(redis.begunMs).toISOString()
    const text = `Redis lost its state and began anew at ${begun}: ${name} is closed for ${span(spanMs)} from then, while earlier grants count`
    return { kind: 'redis-begun', text, notBefore, acts: 'time' }
  }
  if (refusal !== null) return refusalReason(refusal, bucket, name, notBefore)
  const long = heldForMs === null ? '' : ` of ${span(heldForMs)}`
  const text = `${name} is held until ${notBefore.toISOString()}: the vendor demanded a pause${long}`
  return { kind: 'held', text, notBefore, acts: 'time' }
}

const deeds = {
  refused: ['refused requests', 'refused a request'],
  credential: ['rejects the credential', 'rejects the credential'],
  down: ['failed to serve requests', 'is down'],
} as const

/** Explains what the vendor's bad answers hold: one request at a time shows whether it accepts them again. */
function refusalReason(
  { cause, answer, n, sinceMs }: NonNullable<NeededBucket['refusal']>,
  { limit, key, tried }: NeededBucket,
  name: string,
  notBefore: Date,
): Reason {
  const since = `${answer}${n > 1 ? `, ${n} times in a row since ${new Date(sinceMs).toISOString()}` : ''}`
  const [all, one] = deeds[cause]
  const text =
    tried === true
      ? `the vendor ${all} of ${name} (${since}); one request is under way to see whether it accepts them again`
      : `${name} is held until ${notBefore.toISOString()}, or until a request is accepted: the vendor ${one} (${since})`
  const times = { kind: 'held', text, notBefore: tried === true ? undefined : notBefore } as const
  if (cause !== 'credential') return { ...times, acts: 'time' }
  const todo = `correct the credential, then \`sluice limits reset ${limit.split('/')[0]}${key ? ` --key ${quoted(key)}` : ''}\``
  return { ...times, acts: 'operator', todo }
}

/**
 * Returns when the units that come before the job, and its own, can have been granted at the earliest; and about when they
 * will be, with those of other keys that take turns.
 */
function timesOf(found: Explanation, bucket: NeededBucket, units: number): [number, number | undefined] {
  const { spec, isLent, kept, cost, rivals, nextMs } = bucket
  const states = bucket.states.flatMap((some) => some ?? [])
  const isKnown = ({ version, quota }: BucketState) =>
    version === null ||
    (version === bucket.version && (quota !== null || spec?.rules.every(({ kind }) => kind !== 'quota') === true))
  if (spec === null || isLent || states.length === 0 || !states.every(isKnown)) return [nextMs, undefined]
  const { now_us: nowUs, clock_offset_us: clockOffsetUs, kin_jobs: kin } = found
  const at = (wanted: number) => {
    // Of several buckets, one has served at least its part.
    const least = Math.max(cost, Math.ceil(wanted / states.length))
    const all = states.map((state) =>
      earliestUs(spec.rules, bucketOf(spec.rules, state, bucket.reopens ?? 0), nowUs, least, nowUs - clockOffsetUs),
    )
    return (Math.min(...all) - clockOffsetUs) / 1_000
  }
  return [at(units), at(units + Math.max(kept, (kin + rivals) * Math.max(1, cost)))]
}

function bucketOf(rules: readonly Rule[], state: BucketState, reopensUs: number): Bucket {
  if (state.version === null) return { ...emptyBucket(rules, state.atUs), holdUs: reopensUs }
  const { atUs, debt, parts, quota, holdUs } = state
  return {
    atUs,
    debt: debt ?? rules.map(() => 0),
    parts: parts?.map((list) => [...list, ...Array<number>(windowParts + 1).fill(0)].slice(0, windowParts + 1)) ?? [],
    spent: rules.map((_, i) => {
      const [beforeUs, startUs, endUs, previous, current, next] = quota?.[i] ?? []
      if (endUs === undefined || !endUs) return unspent
      return { ...unspent, beforeUs, startUs, endUs, previous, current, next } as typeof unspent
    }),
    holdUs,
    trialUs: 0,
    aheadUs: 0,
  }
}
