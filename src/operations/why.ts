/** Explains why a job waits: every reason, the binding one first, from the same functions that decide claims. */
import type { Sql } from '../db/store.ts'
import { type ParkedRow, parkedOf, parkedText } from '../core/parked.ts'
import { type ParsedHours, writtenHours } from '../core/hours.ts'

/** One reason why a job has not started. */
export interface Reason {
  kind:
    | 'parked'
    | 'scheduled'
    | 'backoff'
    | 'rule'
    | 'snoozed'
    | 'unseen'
    | 'paused'
    | 'closed'
    | 'limit'
    | 'concurrency'
    | 'held'
    | 'restored'
    | 'redis'
    | 'undefined-limit'
    | 'order'
    | 'no-worker'
    | 'slots'
  /** For people; the time is in `notBefore`. */
  text: string
  /** It cannot start before this time for this reason (a lower bound); undefined: unknown. */
  notBefore: Date | undefined
  limit?: string
  key?: string
  /** For `paused` and `closed`: the gate, since when it is closed, and the user that closed it. */
  gate?: string
  since?: Date
  by?: string
}

/** The result of `why`. */
export interface Why {
  id: string
  state: 'waiting' | 'scheduled' | 'running'
  /** The binding one first; empty while running. */
  reasons: Reason[]
  /** The latest of the reasons' times; undefined: it could start now, or the time is unknown. */
  notBefore: Date | undefined
}

/** A pause: its reason, user, and start. */
interface Word {
  reason: string
  by: string
  sinceMs: number
}

/** A bucket in which the job needs room. */
interface Bucket {
  limit: string
  key: string
  /** Number of members, if it is a pool. */
  members: number | null
  avail: number
  /**
   * Units that the job takes, and those that jobs before it in its lane take; `before` is 0 if none of those has costs.
   */
  cost: number
  before: number
  /** The most units that it ever has. */
  most: number
  defined: boolean
  /** The bucket is held until then because the vendor demands a pause. */
  heldMs: number | null
  /** Held for another reason: the store may lack some of the grants. */
  lost: boolean | null
  paused: Word | null
  /** It is shared in Redis, and waits while Redis is unavailable. */
  shared: boolean | null
  /** The number of jobs that may run at a time, if all places are taken; null: this does not stop the job. */
  places: number | null
  nextMs: number
  periodMs: number
}

interface Found {
  id: string
  task: string
  queue: string
  attempt: number
  running: boolean
  due_ms: number | null
  now_ms: number
  ahead: string
  workers: string
  /** Labels that its limits require of a worker. */
  labels: string[] | null
  lanes_before: string
  kin_lanes: string
  kin_jobs: string
  gates: (Word & { gate: string; untilMs: number | null; hours: ParsedHours | null })[] | null
  error: { message?: string } | null
  parked: ParkedRow[] | null
  held: string | null
  raw: boolean
  /** Set if limits are shared in Redis; since when Redis is unavailable, and why. */
  redis: { sinceMs: number | null; why: string | null } | null
  buckets: Bucket[] | null
}

/** Explains an unfinished job; undefined when there is no such job. */
export async function why(sql: Sql, id: string): Promise<Why | undefined> {
  const [found] = await sql.run<Found>('operations/explain_job', [id])
  if (found === undefined) return undefined
  if (found.running) return { id, state: 'running', reasons: [], notBefore: undefined }
  const reasons = [
    ...parked(found),
    ...scheduled(found),
    ...unseen(found),
    ...gates(found),
    ...limits(found),
    ...workers(found),
    ...order(found),
  ]
  const start = (reason: Reason) =>
    reason.notBefore?.getTime() ??
    (['parked', 'no-worker', 'paused', 'redis'].includes(reason.kind) ? Number.MAX_SAFE_INTEGER : 0)
  reasons.sort((a, b) => start(b) - start(a))
  if (reasons.length === 0)
    reasons.push({
      kind: 'slots',
      text: 'nothing holds it back: it waits for a free slot of a worker',
      notBefore: undefined,
    })
  const latest = Math.max(0, ...reasons.map((reason) => reason.notBefore?.getTime() ?? 0))
  return {
    id,
    state: found.due_ms === null ? 'waiting' : 'scheduled',
    reasons,
    notBefore: latest > 0 ? new Date(latest) : undefined,
  }
}

function parked(found: Found): Reason[] {
  return parkedOf(found.parked).map((one) => ({
    kind: 'parked',
    text: `claims failed on it and skip it: ${parkedText(one)}`,
    notBefore: undefined,
    since: one.since,
  }))
}

function scheduled(found: Found): Reason[] {
  if (found.due_ms === null) return []
  const notBefore = new Date(found.due_ms)
  if (found.held === 'snooze') return [{ kind: 'snoozed', text: 'delayed by its handler', notBefore }]
  if (found.held !== null) return [{ kind: 'rule', text: `held by ${found.held}`, notBefore }]
  if (found.attempt === 0) return [{ kind: 'scheduled', text: 'scheduled for later', notBefore }]
  const after = found.error?.message === undefined ? '' : `: ${found.error.message.slice(0, 200)}`
  return [{ kind: 'backoff', text: `attempt ${found.attempt} failed and is tried again${after}`, notBefore }]
}

function unseen(found: Found): Reason[] {
  if (!found.raw) return []
  const text = `sent without the code of task ${found.task}: the next worker that has it checks its input, rules and limits first`
  return [{ kind: 'unseen', text, notBefore: undefined }]
}

function gates(found: Found): Reason[] {
  return (found.gates ?? []).map(({ gate, untilMs, hours, ...word }) => {
    const notBefore = untilMs === null ? undefined : new Date(untilMs)
    const [, what = '', name = ''] = /^(pause:queue|pause:task|rule):([^#]*)/.exec(gate) ?? []
    const text =
      what === 'rule'
        ? `closed by rule ${name}${openHours(hours)}`
        : what === ''
          ? `closed by ${gate}${openHours(hours)}: ${word.reason}`
          : `${what.slice('pause:'.length)} ${name} is ${pausedBy(word)}`
    const kind = notBefore === undefined ? 'paused' : 'closed'
    return { kind, text, notBefore, gate, since: new Date(word.sinceMs), by: word.by }
  })
}

function openHours(hours: ParsedHours | null): string {
  if (hours === null) return ''
  const { from, to, days, zone } = writtenHours(hours)
  return ` (${from}-${to}${hours.days === null ? '' : ` ${days}`} ${zone})`
}

function pausedBy({ reason, by, sinceMs }: Word): string {
  return `paused since ${new Date(sinceMs).toISOString()} by ${by}: ${reason}`
}

function limits(found: Found): Reason[] {
  const isParked = ({ limit, key }: Bucket) =>
    found.parked?.some(({ kind, name }) => kind === 'bucket' && name === `${limit}${key && `:${key}`}`)
  return (found.buckets ?? []).flatMap((bucket): Reason[] => {
    if (isParked(bucket)) return []
    const whose =
      bucket.members === null ? bucket.key && ` for ${bucket.key}` : ` for any of its ${bucket.members} members`
    // Bucket names beside a limit with a share (limits/share.ts) are of jobs of the share, or of the others.
    const [limit = '', share] = bucket.limit.split('/')
    const name = `limit ${limit}${share === '' ? ', the part for jobs outside of its share,' : share === undefined ? '' : `, share ${share},`}${whose}`
    return [...away(found, bucket, name), ...bars(found, bucket, name)].map((bar) => ({
      ...bar,
      limit,
      ...(bucket.key ? { key: bucket.key } : {}),
    }))
  })
}

function away({ redis }: Found, { shared }: Bucket, name: string): Reason[] {
  if (shared !== true || redis === null || redis.sinceMs === null) return []
  const since = new Date(redis.sinceMs)
  const text = `Redis, where ${name} is shared, is unavailable since ${since.toISOString()}: ${redis.why}`
  return [{ kind: 'redis', text, notBefore: undefined, since }]
}

function bars(found: Found, bucket: Bucket, name: string): Reason[] {
  const { paused, heldMs, lost } = bucket
  if (!bucket.defined) {
    const text = `limit ${bucket.limit} is not defined in the database: start a worker or sender that has its code`
    return [{ kind: 'undefined-limit', text, notBefore: undefined }]
  }
  if (paused !== null) {
    const { sinceMs, by } = paused
    const bar = { text: `${name} is ${pausedBy(paused)}`, notBefore: undefined, since: new Date(sinceMs), by }
    return [{ kind: 'paused', ...bar }, ...(heldMs === null ? [] : [silence(found, name, heldMs, heldMs)])]
  }
  if (bucket.places !== null) {
    const text = `all ${bucket.places} places of ${name} are taken; the job can start when one of those jobs ends`
    return [{ kind: 'concurrency', text, notBefore: undefined }]
  }
  const { avail, cost, before, most } = bucket
  const isCosted = cost !== 1 || before > 0
  // Jobs before it in its lane take their units first.
  const later = isCosted ? Math.max(0, cost + before - most) : Math.max(0, Number(found.ahead) - Math.max(0, avail - 1))
  const nextMs = bucket.nextMs + later * bucket.periodMs
  if (avail >= Math.max(1, cost + before) && nextMs <= found.now_ms) return []
  if (heldMs !== null) return [lost ? gap(name, heldMs, nextMs) : silence(found, name, heldMs, nextMs)]
  const notBefore = new Date(Math.max(nextMs, found.now_ms))
  const text = isCosted
    ? `needs ${cost} of ${name}, which has ${avail} free${before > 0 ? `, and ${before} are for ${found.ahead} job(s) before this one` : ''}`
    : `${name} has ${avail} free and ${found.ahead} job(s) before this one`
  return [{ kind: 'limit', text, notBefore }]
}

function silence({ redis }: Found, name: string, heldMs: number, nextMs: number): Reason {
  const others =
    redis === null ? '' : ', other users of the limit in Redis have used it up, or it is closed there after a loss'
  const text = `${name} is held: the vendor demanded a pause${others}`
  return { kind: 'held', text, notBefore: new Date(Math.max(nextMs, heldMs)) }
}

function gap(name: string, heldMs: number, nextMs: number): Reason {
  const text = `${name} is closed: the store was restored or failed over, and may lack some earlier grants`
  return { kind: 'restored', text, notBefore: new Date(Math.max(nextMs, heldMs)) }
}

function workers(found: Found): Reason[] {
  if (Number(found.workers) > 0) return []
  const bearing = found.labels === null ? '' : ` and has the label ${found.labels.join(', ')}`
  return [
    {
      kind: 'no-worker',
      text: `no worker that knows task ${found.task} listens on queue ${found.queue}${bearing}`,
      notBefore: undefined,
    },
  ]
}

function order(found: Found): Reason[] {
  const [ahead, kin, lanes] = [found.ahead, found.kin_lanes, found.lanes_before].map(Number) as [number, number, number]
  const parts = [
    ...(ahead > 0 ? [`${ahead} job(s) of its own lane`] : []),
    ...(kin > 0
      ? [`${found.kin_jobs} job(s) of its fair key in ${kin} lane(s) of higher priority or longer waiting`]
      : []),
    ...(lanes > 0 ? [`the next turn of ${lanes} other lane(s)`] : []),
  ]
  if (parts.length === 0) return []
  return [{ kind: 'order', text: `before it come ${parts.join(' and ')}`, notBefore: undefined }]
}
