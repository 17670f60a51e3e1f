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
  takes: string[] | null
  /** Units for each of `takes`, and then what the job adds to the turn of its fair key; null: all are 1. */
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
  /** What rules did to it; null: no rules have been applied. */
  ruled: readonly unknown[] | null
  /** Names that its task had before, separated by U+001F; null: none, or the caller chose no id. */
  formerly: string | null
  /** Why a rule discarded it, so that it never runs; null: it runs. */
  discard: string | null
  /** Notify idle workers of it. */
  notifies: boolean
}

/** The SQL types of the parameters of `engine.send_jobs`, in order. */
export const sendTypes =
  'bigint[] text[] text[] integer[] integer[] text[] text[] uuid[] integer[] text bigint[] bigint[] text[] text[] boolean boolean'

/**
 * Returns the parameters of `engine.send_jobs`: arrays with one element per lane, then arrays with one per job. `alone`: the
 * statement is a transaction of its own.
 */
export function sendParams(jobs: readonly NewJob[], known: boolean, alone: boolean): unknown[] {
  const lanes: NewJob[] = []
  const position = new Map<string, number>()
  const lane = jobs.map((job) => {
    let at = position.get(job.lane)
    if (at === undefined) position.set(job.lane, (at = lanes.push(job)))
    return at
  })
  const column = <T>(rows: (T | null)[]): (T | null)[] | null => (rows.every((value) => value === null) ? null : rows)
  return [
    lanes.map((job) => job.lane),
    lanes.map((job) => job.queue),
    lanes.map((job) => job.task),
    lanes.map((job) => job.priority),
    lanes.map((job) => job.weight),
    lanes.map((job) => job.fair),
    lanes.map((job) => joined(job.takes)),
    idsOf(jobs),
    `{${lane.join(',')}}`,
    linesOf(jobs),
    column(jobs.map((job) => job.delayUs)),
    column(jobs.map((job) => job.atUs)),
    column(jobs.map((job) => joined(job.tags))),
    column(jobs.map(extra)),
    known,
    jobs.some((job) => job.notifies) ? alone : null,
  ]
}

/** The SQL types of the parameters of `engine.send_replacing`, in order. */
export const replacingTypes = 'text integer jsonb text boolean'

/** Returns the parameters of `engine.send_replacing`, for a statement that is a transaction of its own. */
export function replacingParams(job: NewJob, keySeconds: number, known: boolean): unknown[] {
  const { lane, queue, task, priority, weight, fair, id, delayUs: delay_us, atUs: at_us } = job
  const lists = { takes: joined(job.takes), tags: joined(job.tags) }
  const one = { lane, queue, task, priority, weight, fair, id, delay_us, at_us, extra: extra(job), ...lists }
  // As a parameter of its own, a text with half of a character would be sent in this form.
  const whole = (_: string, value: unknown) => (typeof value === 'string' ? value.toWellFormed() : value)
  return [job.key, keySeconds, JSON.stringify({ ...one, alone: job.notifies ? true : null }, whole), job.input, known]
}

/** The SQL types of the parameters of `engine.send_lane_jobs`, in order. */
export const sendLaneTypes = 'bigint bigint text text integer integer text text uuid[] text boolean'

/** Returns whether `engine.send_lane_jobs` takes these jobs: they are of one lane and have nothing but an input, as almost all have. */
export function areAlike(jobs: readonly NewJob[]): boolean {
  const lane = jobs[0]?.lane
  return jobs.every(
    (job) =>
      job.lane === lane &&
      !job.given &&
      job.delayUs === null &&
      job.atUs === null &&
      job.tags === null &&
      extra(job) === null,
  )
}

/**
 * Returns whether `engine.send_and_claim_job` takes this job: an ordinary one without a label or a pool, which only other claims
 * resolve to buckets.
 */
export function isClaimedAtSend(job: NewJob): boolean {
  return areAlike([job]) && job.takes?.some((bucket) => /^[^:]*[@*]/.test(bucket)) !== true
}

// Text instead of arrays: ids and lines of JSON need no quotes, and quoting an array takes longer than all the rest.
const idsOf = (jobs: readonly NewJob[]) => `{${jobs.map((job) => job.id).join(',')}}`
const joined = (texts: readonly string[] | null) => texts?.join('\u001f') ?? null
const linesOf = (jobs: readonly NewJob[]) => jobs.map((job) => job.input).join('\n')

/** Returns the parameters of `engine.send_lane_jobs`. `alone`: the statement is a transaction of its own. */
export function laneParams(jobs: readonly NewJob[], alone: boolean): unknown[] {
  const { lane, queue, task, priority, weight, fair, takes } = jobs[0] as NewJob
  return [
    classOf(queue, task, takes),
    lane,
    queue,
    task,
    priority,
    weight,
    fair,
    joined(takes),
    idsOf(jobs),
    linesOf(jobs),
    jobs.some((job) => job.notifies) ? alone : null,
  ]
}

/** Computes the class as `engine.class_id` does; null: it may depend on labels, whose order only the store knows. */
function classOf(queue: string, task: string, takes: readonly string[] | null): string | null {
  return takes?.some((bucket) => /^[^:]*@/.test(bucket)) ? null : hashed(`${queue}\u001f${task}`)
}

/** The fields that few jobs have, as JSON; null: it has none of them. */
function extra({ waitUs, once, onFailed, ruled, costs, formerly }: NewJob): string | null {
  if (waitUs === null && !once && onFailed === null && ruled === null && costs === null && formerly === null)
    return null
  return JSON.stringify({
    costs: costs ?? undefined,
    waitUs: waitUs ?? undefined,
    once: once || undefined,
    onFailed: onFailed ?? undefined,
    ruled: ruled ?? undefined,
    formerly: formerly ?? undefined,
  })
}

/** Returns the parameters of `engine.discard_job`. */
export function discardParams({ id, task, queue, priority, tags, input, discard, ruled }: NewJob): unknown[] {
  return [id, task, queue, priority, tags, input, discard, JSON.stringify(ruled)]
}
