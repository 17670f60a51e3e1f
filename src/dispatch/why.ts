/** Why a job waits: every reason, the binding one first, from the same functions that dispatch decides by. */
import type { Db } from '../db/db.ts'
import { statements } from '../generated/sql.ts'

/** One reason why a job has not started. */
export interface Reason {
  kind:
    | 'scheduled'
    | 'backoff'
    | 'rule'
    | 'snoozed'
    | 'unseen'
    | 'limit'
    | 'concurrency'
    | 'held'
    | 'undefined-limit'
    | 'order'
    | 'no-worker'
    | 'slots'
  /** For people. */
  text: string
  /** It cannot start before this time on this account (a lower bound); undefined: no telling. */
  notBefore: Date | undefined
  limit?: string
  key?: string
}

/** The answer of `why`. */
export interface Why {
  id: string
  state: 'waiting' | 'scheduled' | 'running'
  /** The binding one first; empty while running. */
  reasons: Reason[]
  /** The latest of the reasons' times; undefined: it could start now, or there is no telling. */
  notBefore: Date | undefined
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
  lanes_before: string
  error: { message?: string } | null
  held: string | null
  raw: boolean
  buckets:
    | {
        limit: string
        key: string
        avail: number
        defined: boolean
        held: boolean
        /** So many may run at one time, and do; null: not what bars it. */
        places: number | null
        nextMs: number
        periodMs: number
      }[]
    | null
}

/** Explains an unfinished job; undefined when there is no such job. */
export async function why(db: Db, id: string, inSchema: (sql: string) => string): Promise<Why | undefined> {
  const [found] = await db.query<Found>(inSchema(statements['dispatch/why'] as string), [id])
  if (found === undefined) return undefined
  if (found.running) return { id, state: 'running', reasons: [], notBefore: undefined }
  const reasons = [...scheduled(found), ...unseen(found), ...limits(found), ...workers(found), ...order(found)]
  const start = (reason: Reason) =>
    reason.notBefore?.getTime() ?? (reason.kind === 'no-worker' ? Number.MAX_SAFE_INTEGER : 0)
  reasons.sort((a, b) => start(b) - start(a))
  if (reasons.length === 0)
    reasons.push({ kind: 'slots', text: 'nothing bars it: it waits for a free slot of a worker', notBefore: undefined })
  const latest = Math.max(0, ...reasons.map((reason) => reason.notBefore?.getTime() ?? 0))
  return {
    id,
    state: found.due_ms === null ? 'waiting' : 'scheduled',
    reasons,
    notBefore: latest > 0 ? new Date(latest) : undefined,
  }
}

function scheduled(found: Found): Reason[] {
  if (found.due_ms === null) return []
  const notBefore = new Date(found.due_ms)
  const until = `until ${notBefore.toISOString()}`
  if (found.held === 'snooze') return [{ kind: 'snoozed', text: `put off by its handler ${until}`, notBefore }]
  if (found.held !== null) return [{ kind: 'rule', text: `held by ${found.held} ${until}`, notBefore }]
  if (found.attempt === 0) return [{ kind: 'scheduled', text: `scheduled for ${notBefore.toISOString()}`, notBefore }]
  const after = found.error?.message === undefined ? '' : ` after: ${found.error.message.slice(0, 200)}`
  return [
    {
      kind: 'backoff',
      text: `attempt ${found.attempt} failed; the next one is due ${notBefore.toISOString()}${after}`,
      notBefore,
    },
  ]
}

function unseen(found: Found): Reason[] {
  if (!found.raw) return []
  const text = `sent without the code of task ${found.task}: the next worker that has it checks its input, rules and limits first`
  return [{ kind: 'unseen', text, notBefore: undefined }]
}

function limits(found: Found): Reason[] {
  return (found.buckets ?? []).flatMap((bucket): Reason[] => {
    const name = bucket.limit
    const key = bucket.key ? ` for ${bucket.key}` : ''
    const where = { limit: name, ...(bucket.key ? { key: bucket.key } : {}) }
    if (!bucket.defined) {
      return [
        {
          kind: 'undefined-limit',
          text: `limit ${name} is not defined in the database: start a worker or sender that has its code`,
          notBefore: undefined,
          ...where,
        },
      ]
    }
    if (bucket.places !== null) {
      const text = `all ${bucket.places} places of limit ${name}${key} are taken; it goes on when one of those jobs ends`
      return [{ kind: 'concurrency', text, notBefore: undefined, ...where }]
    }
    // Those before it in its lane take their units first.
    const nextMs = bucket.nextMs + Math.max(0, Number(found.ahead) - Math.max(0, bucket.avail - 1)) * bucket.periodMs
    if (bucket.avail >= 1 && nextMs <= found.now_ms) return []
    const notBefore = new Date(Math.max(nextMs, found.now_ms))
    const text = bucket.held
      ? `limit ${name}${key} is held until ${new Date(bucket.nextMs).toISOString()}: the vendor asked for silence`
      : `limit ${name}${key} has ${bucket.avail} free and ${found.ahead} job(s) before this one`
    return [{ kind: bucket.held ? 'held' : 'limit', text, notBefore, ...where }]
  })
}

function workers(found: Found): Reason[] {
  if (Number(found.workers) > 0) return []
  return [
    {
      kind: 'no-worker',
      text: `no worker that knows task ${found.task} listens on queue ${found.queue}`,
      notBefore: undefined,
    },
  ]
}

function order(found: Found): Reason[] {
  const ahead = Number(found.ahead)
  const lanes = Number(found.lanes_before)
  if (ahead === 0 && lanes === 0) return []
  const parts = [
    ...(ahead > 0 ? [`${ahead} job(s) of its own lane`] : []),
    ...(lanes > 0 ? [`the next turn of ${lanes} other lane(s)`] : []),
  ]
  return [{ kind: 'order', text: `before it come ${parts.join(' and ')}`, notBefore: undefined }]
}
