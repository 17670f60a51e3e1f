/** A new job, and the parameters of the statements that insert it. */
import { hashed } from '../core/hash.ts'

/** A job that was checked and placed (tasks/admit.ts), as it is stored. */
export interface NewJob {
  id: string
  /** The caller chose the id, so it may have been sent before. */
  given: boolean
  lane: string
  queue: string
  task: string
  priority: number
  weight: number
  fair: string | null
  /** `limit:key` or `limit`, for each limit of the task. */
  buckets: string[] | null
  /** Units for each of `buckets`, and then what the job adds to the turn of its fair key; null: all are 1. */
  costs: number[] | null
  /** JSON text. */
  input: string
  delayUs: number | null
  atUs: number | null
  tags: string[] | null
  key: string | null
  /** It replaces a job with the same key that has not begun. */
  replaces: boolean
  /** After this time no attempt of it begins, in microseconds; null: no bound. */
  waitUs: number | null
  /** At most once: not tried again after an attempt whose outcome is unknown. */
  once: boolean
  /** The task of the job that is sent when this one fails. */
  onFailed: string | null
  /** The changes that rules made to it; null, or one element without a list: no rules have been applied. */
  ruled: readonly object[] | object | null
  /** Names that its task had before, separated by U+001F; null: none, or the caller chose no id. */
  formerly: string | null
  /** Why a rule discarded it, so that it never runs; null: it runs. */
  discard: string | null
  /** Notify idle workers of it. */
  notifies: boolean
}

/** The SQL types of the parameters of `engine.send_jobs`, in order. */
export const sendTypes = 'json uuid[] integer[] text text boolean boolean'

/**
 * Returns the parameters of `engine.send_jobs`. `known`: an earlier try may have inserted the jobs; `alone`: the statement is a
 * transaction of its own.
 */
export function sendParams(jobs: readonly NewJob[], known: boolean, alone: boolean): unknown[] {
  const lanes: object[] = []
  const position = new Map<string, number>()
  const indexes = jobs.map(({ lane, queue, task, priority, weight, fair, buckets }) => {
    let at = position.get(lane)
    if (at === undefined) {
      at = lanes.push({ lane, queue, task, priority, weight, fair: fair?.toWellFormed(), buckets: joined(buckets) })
      position.set(lane, at)
    }
    return at
  })
  const extras = jobs.map(extra)
  return [
    JSON.stringify(lanes),
    idsOf(jobs),
    `{${indexes.join(',')}}`,
    linesOf(jobs),
    extras.every((one) => one === null) ? null : extras.map((one) => one ?? 'null').join('\n'),
    known || jobs.some((job) => job.given),
    jobs.some((job) => job.notifies) ? alone : null,
  ]
}

/** The SQL types of the parameters of `engine.send_replacing`, in order. */
export const replacingTypes = 'text integer json uuid[] integer[] text text boolean boolean'

/** The SQL types of the parameters of `engine.send_lane_jobs`, in order. */
export const sendLaneTypes = 'bigint bigint text text integer integer text text uuid[] text boolean'

/** Returns whether `engine.send_lane_jobs` takes these jobs: they are of one lane and have nothing but an input, as almost all have. */
export function areAlike(jobs: readonly NewJob[]): boolean {
  const lane = jobs[0]?.lane
  return jobs.every((job) => job.lane === lane && !job.given && extra(job) === null)
}

/**
 * Returns whether `engine.send_and_claim_job` takes this job: an ordinary one without a label or a pool, which only other claims
 * resolve to buckets.
 */
export function isClaimedAtSend(job: NewJob): boolean {
  return areAlike([job]) && job.buckets?.some((bucket) => /^[^:]*[@*]/.test(bucket)) !== true
}

// Text instead of arrays: ids and lines of JSON need no quotes, and quoting an array takes longer than all the rest.
const idsOf = (jobs: readonly NewJob[]) => `{${jobs.map((job) => job.id).join(',')}}`
/** Half of a surrogate pair becomes U+FFFD, as in a parameter that is a text; PostgreSQL refuses it in JSON. */
const joined = (texts: readonly string[] | null) => texts?.join('\u001f').toWellFormed() ?? null
const linesOf = (jobs: readonly NewJob[]) => jobs.map((job) => job.input).join('\n')

/** Returns the parameters of `engine.send_lane_jobs`. `alone`: the statement is a transaction of its own. */
export function laneParams(jobs: readonly NewJob[], alone: boolean): unknown[] {
  const { lane, queue, task, priority, weight, fair, buckets } = jobs[0] as NewJob
  return [
    classOf(queue, task, buckets),
    lane,
    queue,
    task,
    priority,
    weight,
    fair,
    joined(buckets),
    idsOf(jobs),
    linesOf(jobs),
    jobs.some((job) => job.notifies) ? alone : null,
  ]
}

/** Computes the class as `engine.class_id` does; null: it may depend on labels, whose order only the store knows. */
function classOf(queue: string, task: string, buckets: readonly string[] | null): string | null {
  return buckets?.some((bucket) => /^[^:]*@/.test(bucket)) ? null : hashed(`${queue}\u001f${task}`)
}

/** The fields that few jobs have, as JSON; null: it has none of them. */
function extra({ delayUs, atUs, tags, waitUs, once, onFailed, ruled, costs, formerly }: NewJob): string | null {
  // Most jobs have none of them, and a bulk send looks at each of its jobs.
  if (!once && [delayUs, atUs, tags, waitUs, onFailed, ruled, costs, formerly].every((value) => value === null))
    return null
  const all = { delayUs, atUs, tags: joined(tags), waitUs, once: once || null, onFailed, ruled, costs, formerly }
  return JSON.stringify(Object.fromEntries(Object.entries(all).filter(([, value]) => value !== null)))
}

/** Returns the parameters of `engine.discard_job`. */
export function discardParams({ id, task, queue, priority, tags, input, discard, ruled }: NewJob): unknown[] {
  return [id, task, queue, priority, tags, input, discard, JSON.stringify(ruled)]
}
