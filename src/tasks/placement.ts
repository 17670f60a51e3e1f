/**
 * Computes where a job waits: its queue, priority, limit keys and fair key determine the lane. `store/lane_id.sql`
 * computes the same.
 */
import { UsageError } from '../core/errors.ts'
import { even, hashed } from '../core/hash.ts'
import { costOf, type Expect, turnOf } from '../limits/cost.ts'
import { checkKey, fieldOf, type Limit } from '../limits/limit.ts'
import { bucketName, splitBucket } from '../limits/pool.ts'
import { shareBucketName, shareOfBuckets, unreserved } from '../limits/share.ts'
import { checkWeight } from '../limits/weight.ts'
import type { NewJob } from '../store/send.ts'
import type { Ruled } from './rule.ts'
import { checkName } from './checks.ts'
import type { AnyTask } from './task.ts'

/** The place where a job waits. */
export type Placement = Pick<NewJob, 'lane' | 'queue' | 'priority' | 'weight' | 'fair' | 'buckets' | 'costs'>

/** A new place for a job that the store has already (claim/finish/readmit_jobs.sql): fields that are left out stay as they are. */
export interface Readmission extends Placement {
  task?: string
  tags?: readonly string[]
  /** `delayUs`: from now; `atUs`: since 1970. Whole microseconds. */
  delayUs?: number | null
  atUs?: number
  waitUs?: number | null
  once?: boolean | null
  onFailed?: string | null
  ruled?: readonly Ruled[]
  /** Why it is delayed. */
  delayReason?: string
}

/**
 * The record of a job: it gives the costs of limits that its task no longer names, and what was expected of the
 * job.
 */
type Had = { readonly buckets: readonly string[] | null; readonly costs: readonly number[] | null }

/** The sources of a job's costs besides its task and input. */
type Known = Partial<Had> & { readonly expect?: Expect | undefined }

/**
 * Computes a job's place.
 * @throws UsageError SLUICE_MISSING_KEY, SLUICE_BAD_KEY, SLUICE_BAD_OPTION, SLUICE_BAD_COST, SLUICE_COST_ABOVE_CAPACITY
 */
export function placementOf(
  task: AnyTask,
  stored: unknown,
  queue: string,
  priority: number,
  buckets: readonly string[],
  known: Known = {},
): Placement {
  const key = task.fair === undefined ? undefined : fairKey(task.fair, stored)
  const fair = key === undefined ? null : `${task.name}:${key}`
  const weight = weightOf(task, stored, key ?? splitBucket(buckets.find((bucket) => bucket.includes(':')) ?? '').key)
  const costs = costsOf(task, stored, buckets, known)
  const parts = [queue, task.name, String(priority), fair ?? '', ...buckets]
  // As parts of their own: a key may end like this, too.
  if (weight !== 1) parts.push(`\u001e${weight}`)
  if (costs !== null) parts.push('\u001d')
  const lane = even(hashed(parts.join('\u001f')))
  return { lane, queue, priority, weight, fair, buckets: buckets.length === 0 ? null : [...buckets], costs }
}

/**
 * Returns the weight: the task's, else that of the limit whose keys are the fair keys. @param key the fair key, if a
 * field gave it
 */
function weightOf(task: AnyTask, stored: unknown, key: string | undefined): number {
  const { weight: given } = task
  if (typeof given === 'function') return checkWeight(evaluate(task, 'weight', () => given(stored as never)))
  return given ?? ownLimit(task)?.weights.get(key ?? '') ?? 1
}

/** Returns the limit whose keys are the task's fair keys. */
function ownLimit({ limits, fair }: AnyTask): Limit | undefined {
  return limits.find((limit) => (fair === undefined ? limit.keyed : limit.path === fair))
}

/**
 * Returns the units of each of `buckets`, and of the turn: the cost in the first limit that other fair keys share. Null:
 * all jobs of the task take 1. If one may take more, a job that takes 1 waits in the same lane.
 */
function costsOf(task: AnyTask, stored: unknown, buckets: readonly string[], known: Known): number[] | null {
  if (task.limits.every((limit) => limit.cost === 1) && (known.costs ?? null) === null) return null
  const limits = buckets.map((bucket) => task.limits.find(({ name }) => name === splitBucket(bucket).limit))
  const units = buckets.map((bucket, i) => {
    const limit = limits[i]
    const had = known.costs?.[known.buckets?.indexOf(bucket) ?? -1]
    // The expected cost is computed only once, because it depends on the moment.
    if (limit === undefined || (limit.learn !== undefined && had !== undefined)) return had ?? 1
    return costOf(asTaken(limit, bucket), stored, known.expect)
  })
  const keyed = task.limits.find((limit) => limit.keyed)
  const isOwn = (limit: Limit) => (task.fair === undefined ? limit === keyed : limit.path === task.fair)
  const at = limits.findIndex((limit) => limit !== undefined && !isOwn(limit))
  const shared = limits[at]
  return [...units, shared === undefined ? 1 : turnOf(shared, units[at] ?? 1)]
}

/** Returns a limit with the rules of the given bucket, which may hold less if it is beside a share. */
function asTaken(limit: Limit, bucket: string): Limit {
  const { share, rules } = limit
  return share === undefined || shareOfBuckets([bucket]) !== ''
    ? limit
    : { ...limit, rules: rules.map((rule) => unreserved(rule, share)) }
}

/**
 * Returns where a job waits by the task's current definition, if that demands a bucket that the job does not wait for (a
 * limit was added, or takes its key from elsewhere); else undefined. Limits that the task no longer names stay: other
 * workers may still run the code that names them, and two versions must not pass a job back and forth. Keys that a rule
 * gave stay, too.
 * @throws UsageError SLUICE_MISSING_KEY, SLUICE_BAD_KEY
 */
export function placementNow(
  task: AnyTask,
  job: { readonly input: unknown; readonly queue: string; readonly priority: number } & Had,
  ruledKeys?: Readonly<Record<string, string>>,
): Placement | undefined {
  if (task.limits.length === 0) return undefined
  const { input, queue, priority } = job
  const had = job.buckets ?? []
  // A key for a limit that the task no longer has is not needed, and is no mistake.
  const given =
    ruledKeys &&
    Object.entries(ruledKeys).filter(([name]) => task.limits.some((limit) => limit.name === name && limit.keyed))
  const share = task.limits.some((limit) => limit.share !== undefined) ? shareOfBuckets(had) : undefined
  const demanded = bucketsOf(task, input, given && Object.fromEntries(given), share)
  if (demanded.every((bucket) => had.includes(bucket))) return undefined
  const isNamed = (bucket: string) => task.limits.some(({ name }) => name === splitBucket(bucket).limit)
  return placementOf(task, input, queue, priority, [...demanded, ...had.filter((bucket) => !isNamed(bucket))], job)
}

/**
 * Returns the queue that a definition, or a send, gives; undefined: none. @throws UsageError SLUICE_BAD_TASK,
 * SLUICE_BAD_OPTION
 */
export function queueOf(task: AnyTask, queue: AnyTask['queue'], stored: unknown): string | undefined {
  const named = typeof queue === 'function' ? evaluate(task, 'queue', () => queue(stored as never)) : queue
  if (named !== undefined) checkName('queue', named)
  return named
}

/**
 * Returns the names of the buckets in which a job of this input needs room: those of its limits, then those beside them
 * (limits/share.ts).
 * @param keys by limit, instead of those in the input
 * @param share that the job belongs to, instead of the task's
 * @throws UsageError SLUICE_MISSING_KEY, SLUICE_BAD_KEY, SLUICE_BAD_RULE
 */
export function bucketsOf(
  task: AnyTask,
  stored: unknown,
  keys: Readonly<Record<string, string>> = {},
  share = task.share,
): string[] {
  const unknown = Object.keys(keys).find((name) => !task.limits.some((limit) => limit.name === name && limit.keyed))
  if (unknown !== undefined) {
    throw new UsageError(
      'SLUICE_BAD_RULE',
      `a rule gives a key for "${unknown}", which is not a keyed limit of task "${task.name}"`,
    )
  }
  const own = task.limits.map((limit) => {
    const given = Object.hasOwn(keys, limit.name) ? keys[limit.name] : undefined
    const key = given === undefined ? keyOf(limit, stored) : checkKey(limit.name, given)
    return bucketName(limit, key)
  })
  if (task.limits.every((limit) => limit.share === undefined)) return own
  const beside = task.limits.flatMap((limit, i) =>
    limit.share === undefined ? [] : [shareBucketName(own[i] ?? '', limit.share.name === share ? share : '')],
  )
  return [...own, ...beside]
}

/** Calls a function of the input. @throws UsageError SLUICE_BAD_OPTION when it throws */
function evaluate<T>(task: AnyTask, what: string, call: () => T): T {
  try {
    return call()
  } catch (cause) {
    const message = `the ${what} function of task "${task.name}" threw: ${String(cause)}`
    throw new UsageError('SLUICE_BAD_OPTION', message, { cause })
  }
}

/** Returns the key of each bucket by its limit's name; '' for a bucket without one. */
export function keysOf(buckets: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    buckets.map((bucket) => {
      const { limit, key = '' } = splitBucket(bucket)
      return [limit, key]
    }),
  )
}

function keyOf(limit: Limit, stored: unknown): string | undefined {
  try {
    return limit.keyOf(stored as never)
  } catch (error) {
    if (error instanceof UsageError) throw error
    throw new UsageError('SLUICE_MISSING_KEY', `the key function of limit "${limit.name}" threw: ${String(error)}`, {
      cause: error,
    })
  }
}

function fairKey(path: string, input: unknown): string {
  const value = fieldOf(input, path)
  if (typeof value !== 'string' && typeof value !== 'number' && typeof value !== 'boolean') {
    throw new UsageError(
      'SLUICE_MISSING_KEY',
      `the fair key "${path}" of the input is ${JSON.stringify(value)}; it must be a string, number or boolean`,
    )
  }
  // It separates the parts of a lane's name.
  if (String(value).includes('\u001f'))
    throw new UsageError('SLUICE_BAD_KEY', `the fair key "${path}" of the input has the control character U+001F`)
  return String(value)
}
