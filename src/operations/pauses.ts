/** Pauses of queues, tasks and limits, as an operator sets, ends and lists them. */
import { UsageError } from '../core/errors.ts'
import { checkFields } from '../core/fields.ts'
import { type Hours, writtenHours } from '../core/hours.ts'
import { currentUser } from '../core/user.ts'
import { dateOf } from '../db/db.ts'
import type { Sql } from '../db/store.ts'
import { mustKnow } from './known.ts'
import { checkPattern, defineGate, reasonOf, removeGate } from '../gates/gates.ts'

/**
 * The object of a pause: the jobs of a queue, of a task (names, or patterns with `*`), or those of a limit, or of one of its
 * keys.
 */
export type Pausable = { queue: string } | { task: string } | { limit: string; key?: string }

/** Something that holds jobs back, now or at other hours. */
export interface Pause {
  /** The argument for `resume`; undefined for a gate that was defined by name. */
  what: Pausable | undefined
  /** For a gate that was defined by name: its name, queues, tasks and hours. */
  gate: { name: string; queues: string[] | null; tasks: string[] | null; hours: Required<Hours> | null } | undefined
  reason: string
  /** The user that created it: user@host. */
  by: string
  since: Date
  /** True if it holds jobs back now. */
  isClosed: boolean
  /** When it opens by itself; undefined: not by time. */
  until: Date | undefined
}

/** Pauses and resumes; a `Sluice` has these methods. */
export interface Pauses {
  /**
   * Stops starting waiting jobs of a queue, a task, a limit or one of its keys, in all processes, from now on; running
   * jobs continue, with all their requests. If it is paused already, only the reason changes. For a limit the call waits
   * for claims in progress; for queues and tasks these still hand out the jobs that may begin at once, which takes a
   * second at most. Workers give back what was granted ahead of time, as soon as they are notified.
   * @param why `reason`, 1 to 500 characters: `why` shows it for each waiting job
   * @throws UsageError SLUICE_BAD_PAUSE; SLUICE_NO_SUCH_QUEUE, SLUICE_NO_SUCH_TASK, SLUICE_NO_SUCH_LIMIT for a name without `*`
   * that no worker, sender or job has had
   */
  pause(what: Pausable, why: { reason: string }): Promise<void>
  /**
   * Ends this pause (another one, or a vendor's Retry-After, may still hold jobs back) and wakes the workers. Returns
   * false if there was none.
   * @throws UsageError SLUICE_BAD_PAUSE
   */
  resume(what: Pausable): Promise<boolean>
  /** All gates and pauses, whether they hold jobs back now or at other hours. */
  pauses(): Promise<Pause[]>
}

/** Returns the pauses of a store. */
export function pausesOn(sql: Sql): Pauses {
  return {
    async pause(what, why) {
      checkPausable(what)
      const reason = reasonOf(why?.reason, badPause)
      if (!('limit' in what)) {
        const [kind, name] = 'queue' in what ? (['queue', what.queue] as const) : (['task', what.task] as const)
        // A pattern may be for what is yet to come.
        if (!name.includes('*')) await mustKnow(sql, kind, name)
        const patterns = kind === 'queue' ? { queues: [name] } : { tasks: [name] }
        return defineGate(sql, gateOf(what), { ...patterns, reason })
      }
      await checkKeyOf(sql, what)
      const [row] = await sql.call<{ pause_limit: boolean }>('pause_limit', [
        what.limit,
        what.key ?? '',
        reason,
        currentUser(),
      ])
      if (row?.pause_limit === true) return
      throw new UsageError(
        'SLUICE_NO_SUCH_LIMIT',
        `no limit "${what.limit}" is defined in the database; \`sluice limits\` lists those that are`,
      )
    },
    async resume(what) {
      checkPausable(what)
      if (!('limit' in what)) return removeGate(sql, gateOf(what))
      const [row] = await sql.call<{ resume_limit: boolean }>('resume_limit', [what.limit, what.key ?? ''])
      return row?.resume_limit ?? false
    },
    async pauses() {
      return (await sql.run<Line>('operations/read_pauses')).map(pauseOf)
    },
  }
}

function pauseOf(row: Line): Pause {
  const { name, queues, tasks, reason, by, created_ms: sinceMs, closed: isClosed, until_ms: untilMs } = row
  const what = whatOf(row)
  const gate = what === undefined ? { name, queues, tasks, hours: hoursOf(row) } : undefined
  return { what, gate, reason, by, since: new Date(sinceMs), isClosed, until: dateOf(untilMs) ?? undefined }
}

interface Line {
  name: string
  queues: string[] | null
  tasks: string[] | null
  limit: string | null
  key: string | null
  zone: string | null
  days: number[] | null
  from_min: number | null
  to_min: number | null
  reason: string
  by: string
  created_ms: number
  closed: boolean
  until_ms: number | null
}

function gateOf(what: { queue: string } | { task: string }): string {
  return 'queue' in what ? `pause:queue:${what.queue}` : `pause:task:${what.task}`
}

function whatOf({ name, limit, key }: Line): Pausable | undefined {
  if (limit !== null) return key === null ? { limit } : { limit, key }
  const [, kind, pattern = ''] = /^pause:(queue|task):(.*)$/.exec(name) ?? []
  if (kind === undefined) return undefined
  return kind === 'queue' ? { queue: pattern } : { task: pattern }
}

function hoursOf({ zone, days, from_min: from, to_min: to }: Line): Required<Hours> | null {
  if (zone === null || from === null || to === null) return null
  return writtenHours({ fromMin: from, toMin: to, days, zone })
}

/** @throws UsageError SLUICE_BAD_PAUSE */
function checkPausable(what: Pausable): void {
  // A misspelled `key` would pause all keys of the limit.
  checkFields('SLUICE_BAD_PAUSE', 'what to pause or resume', what, ['queue', 'task', 'limit', 'key'])
  const { queue, task, limit, key } = what as Record<string, unknown>
  const given = [queue, task, limit].filter((one) => one !== undefined)
  const isText = (one: unknown) =>
    one === undefined || (typeof one === 'string' && /^[^\u0000\u001f]{1,512}$/u.test(one))
  if (given.length !== 1 || ![...given, key].every(isText) || (key !== undefined && limit === undefined)) {
    throw badPause('name one thing: a queue, a task, or a limit (and a key of it, if not all of its keys are meant)')
  }
  if (queue !== undefined) checkPattern('queue', queue, badPause)
  if (task !== undefined) checkPattern('task', task, badPause)
}

/** A pause of a key that the limit cannot have would hold nothing. @throws UsageError SLUICE_BAD_PAUSE */
async function checkKeyOf(sql: Sql, { limit, key }: { limit: string; key?: string }): Promise<void> {
  if (key === undefined) return
  const [row] = await sql.run<{ members: string[] | null; keyed: boolean }>('operations/read_keys', [limit])
  if (row === undefined || row.members?.includes(key) === true) return
  if (row.members !== null)
    throw badPause(`"${key}" is not a member of the pool "${limit}"; its members are ${row.members.join(', ')}`)
  if (!row.keyed) throw badPause(`limit "${limit}" has no keys; leave out the key to pause all of it`)
}

function badPause(why: string): UsageError {
  return new UsageError('SLUICE_BAD_PAUSE', why)
}
