/** Explains why a job waits: every reason, the binding one first, from the same functions that decide claims. */
import type { Sql } from '../db/store.ts'
import { many } from '../core/figures.ts'
import { parkedOf, parkedText } from '../core/parked.ts'
import { type ParsedHours, writtenHours } from '../core/hours.ts'
import type { Explanation, Reason } from './explanation.ts'
import { isPlaces } from '../tasks/remote.ts'
import { limitReasons } from './why-limits.ts'
import { pausedBy, resumeOf } from './words.ts'

/** The result of `why`. */
export interface Why {
  id: string
  state: Explanation['state']
  /** The binding one first; empty while dispatched or running. */
  reasons: Reason[]
  /** The latest of the reasons' times, a bound as far as these are. Undefined: it could start now, or no time is known. */
  notBefore: Date | undefined
  /**
   * An estimate of its start, if time alone brings it about and workers have free slots: jobs of other keys take turns
   * evenly, and cost the same. For a limit with one rule it is mostly right within a factor of two, for a quota within a period.
   */
  about: Date | undefined
}

/** Explains an unfinished job; undefined when there is no such job. */
export async function why(sql: Sql, id: string): Promise<Why | undefined> {
  const [found] = await sql.run<Explanation>('operations/explain_job', [id])
  if (found === undefined) return undefined
  const { state } = found
  if (state === 'dispatched' || state === 'running')
    return { id, state, reasons: [], notBefore: undefined, about: undefined }
  if (found.granted_ms !== null) return granted(id, new Date(found.granted_ms))
  if (found.ends_by !== null)
    return { id, state, reasons: [ending(found.ends_by)], notBefore: undefined, about: undefined }
  const reasons = [
    ...parked(found),
    ...scheduled(found),
    ...unseen(found),
    ...gates(found),
    ...limitReasons(found),
    ...workers(found),
    ...order(found),
  ]
  const start = (reason: Reason) => reason.notBefore?.getTime() ?? (isStuck(reason) ? Number.MAX_SAFE_INTEGER : 0)
  reasons.sort((a, b) => start(b) - start(a))
  if (reasons.length === 0)
    reasons.push({
      kind: 'slots',
      text: 'it can start now, as soon as a worker has a free slot',
      notBefore: undefined,
      acts: 'jobs',
      ...(isRemote(found) ? { todo: `if it goes on waiting, ${doctor}` } : {}),
    })
  const late = hopeless(found, reasons)
  reasons.push(...late)
  const latest = Math.max(0, ...reasons.map(({ notBefore }) => notBefore?.getTime() ?? 0))
  const about = Math.max(latest, ...reasons.map((reason) => reason.about?.getTime() ?? 0))
  const isTimely = reasons.every(({ kind, acts }) => acts === 'time' || kind === 'order' || kind === 'slots')
  const isUnknown = late.length > 0 || reasons.some(({ kind, about: known }) => kind === 'limit' && known === undefined)
  return {
    id,
    state,
    reasons,
    notBefore: latest > 0 ? new Date(latest) : undefined,
    about: about > 0 && isTimely && !isUnknown ? new Date(about) : undefined,
  }
}

/** The reason of a job that has to begin before one of the others can end. What the vendor's answers hold may end sooner. */
function hopeless({ expires_ms: expiresMs }: Explanation, reasons: readonly Reason[]): Reason[] {
  const isLate = ({ kind, acts, notBefore }: Reason) =>
    expiresMs !== null && acts === 'time' && kind !== 'held' && (notBefore?.getTime() ?? 0) > expiresMs
  if (expiresMs === null || !reasons.some(isLate)) return []
  const text = `it has to begin by ${new Date(expiresMs).toISOString()} (\`maxWait\`), so it fails unless it can begin sooner`
  return [{ kind: 'expired', text, notBefore: undefined, acts: 'time' }]
}

/** A job that was granted ahead of time waits for nothing but its instant. */
function granted(id: string, notBefore: Date): Why {
  const text = 'its limit has granted it: a worker has it, and begins it at this instant'
  return {
    id,
    state: 'waiting',
    reasons: [{ kind: 'granted', text, notBefore, acts: 'time' }],
    notBefore,
    about: notBefore,
  }
}

/** True if the reason stays until somebody acts. */
function isStuck({ acts }: Reason): boolean {
  return acts === 'worker' || acts === 'operator'
}

/** The reason of a job that claims pass over, and that the next round of a worker ends. */
function ending(by: string): Reason {
  const at = { notBefore: undefined, acts: 'time' as const }
  if (by === 'expired')
    return { kind: 'expired', text: 'it could not begin in time, and fails within 2 s while any worker runs', ...at }
  const text =
    'it costs more than a limit of it holds now: while any worker runs it fails within 2 s, unless only older code forbids it'
  return { kind: 'limit', text, ...at }
}

function parked({ parked: rows }: Explanation): Reason[] {
  return parkedOf(rows).map((one) => ({
    kind: 'parked',
    text: `workers skip it, because the database could not compute with its data: ${parkedText(one)}`,
    notBefore: undefined,
    since: one.since,
    acts: 'operator',
    todo: 'correct its data, or cancel the job; then release it',
  }))
}

function scheduled(found: Explanation): Reason[] {
  if (found.due_ms === null) return []
  const at = { notBefore: new Date(found.due_ms), acts: 'time' as const }
  if (found.delay_reason === 'snooze') return [{ kind: 'snoozed', text: 'delayed by its handler', ...at }]
  if (found.delay_reason === 'throttled')
    return [
      {
        kind: 'throttled',
        text: `the vendor refused attempt ${found.attempt}, or was down${errorSuffix(found)}`,
        ...at,
      },
    ]
  if (found.delay_reason === 'older-code')
    return [{ kind: 'limit', text: 'older code that still runs does not allow its cost', ...at }]
  if (found.delay_reason !== null) return [{ kind: 'rule', text: `held by ${found.delay_reason}`, ...at }]
  if (found.attempt === 0) return [{ kind: 'delay', text: 'scheduled for later', ...at }]
  return [
    { kind: 'retry', text: `attempt ${found.attempt} failed, and another one follows${errorSuffix(found)}`, ...at },
  ]
}

const errorMax = 200

function errorSuffix({ error }: Explanation): string {
  const { message } = error ?? {}
  if (message === undefined) return ''
  return message.length > errorMax ? `: ${message.slice(0, errorMax - 1).toWellFormed()}…` : `: ${message}`
}

function unseen({ raw, task }: Explanation): Reason[] {
  if (!raw) return []
  const text = `sent without the code of task ${task}: the next worker that has it checks its input, rules and limits first`
  return [{ kind: 'unseen', text, notBefore: undefined, acts: 'jobs' }]
}

function gates(found: Explanation): Reason[] {
  return (found.gates ?? []).map(({ gate, untilMs, hours, ...word }): Reason => {
    const notBefore = untilMs === null ? undefined : new Date(untilMs)
    const [, what = '', name = ''] = /^(pause:queue|pause:task|rule):([^#]*)/.exec(gate) ?? []
    const text =
      what === 'rule'
        ? `closed by rule ${name}${openHours(hours)}`
        : what === ''
          ? `closed by ${gate}${openHours(hours)}: ${word.reason}`
          : `${what.slice('pause:'.length)} ${name} is ${pausedBy(word)}`
    const at = { notBefore, gate, since: new Date(word.sinceMs), by: word.by }
    if (notBefore !== undefined) return { kind: 'closed', text, ...at, acts: 'time' }
    const todo = what.startsWith('pause:') ? resumeOf({ [what.slice('pause:'.length)]: name }) : '`sluice pauses`'
    return { kind: 'paused', text, ...at, acts: 'operator', todo }
  })
}

function openHours(hours: ParsedHours | null): string {
  if (hours === null) return ''
  const { from, to, days, zone } = writtenHours(hours)
  return ` (${from}-${to}${hours.days === null ? '' : ` ${days}`} ${zone})`
}

/** A job that Celery workers execute. */
function isRemote({ buckets }: Explanation): boolean {
  return (buckets ?? []).some(({ limit }) => isPlaces(limit))
}

/** Only a look at the broker shows that. */
const doctor = '`sluice doctor` with AMQP_URL shows why its Celery workers get nothing'

function workers(found: Explanation): Reason[] {
  const { count, slots } = found.workers
  if (slots > 0) return []
  if (count > 0) {
    const text =
      'no worker that could run it has a slot now: a dispatcher has none while its broker is away, or its fleet has no workers'
    return [
      {
        kind: 'no-worker',
        text,
        notBefore: undefined,
        acts: 'worker',
        todo: isRemote(found) ? doctor : '`sluice status` shows the reason, for a fleet with AMQP_URL',
      },
    ]
  }
  const bearing = found.labels === null ? '' : ` and has the label ${found.labels.join(', ')}`
  return [
    {
      kind: 'no-worker',
      text: `no worker that knows task ${found.task} serves queue ${found.queue}${bearing}`,
      notBefore: undefined,
      acts: 'worker',
      todo: isRemote(found)
        ? 'Celery workers execute it: start `sluice dispatch`, which gives it to them'
        : 'start one (`sluice work`); `sluice tasks` lists who serves what',
    },
  ]
}

function order(found: Explanation): Reason[] {
  const { ahead, kin_lanes: kin, kin_jobs: jobs, lanes_before: lanes, fair } = found
  const same = fair === null ? 'of the same kind' : `for ${fair}`
  const parts = [
    ...(ahead > 0 ? [`${many(ahead, 'job')} ${same}`] : []),
    ...(kin > 0 ? [`${many(jobs, 'job')} ${same} of higher priority, longer waiting or tried before`] : []),
    ...(lanes > 0 ? [`one job of each of ${many(lanes, 'other key')}`] : []),
  ]
  if (parts.length === 0) return []
  return [{ kind: 'order', text: `ahead of it: ${parts.join(', and ')}`, notBefore: undefined, acts: 'jobs' }]
}
