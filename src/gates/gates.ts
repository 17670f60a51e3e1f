/**
 * Gates on queues and tasks, and pauses of limits: they hold jobs back until an operator, or the hour, opens them. They
 * are stored in the database, so they hold for all processes at once.
 */
import os from 'node:os'
import { UsageError } from '../core/errors.ts'
import { hash64 } from '../core/hash.ts'
import { type Hours, type ParsedHours, writtenHours } from '../core/hours.ts'
import { isPattern } from '../core/pattern.ts'
import { dateOf } from '../db/db.ts'
import type { Sql, Store } from '../db/store.ts'
import type { Opens, Rule } from '../tasks/rule.ts'

/** The jobs that a gate holds back, and when; see the fields. */
export interface GateOptions {
  /** Names or patterns (`*` for any text). Default: any queue. */
  queues?: readonly string[]
  /** Names or patterns (`*` for any text). Default: any task. */
  tasks?: readonly string[]
  /** Jobs wait outside these hours. Default: they wait until the gate is removed. */
  hours?: ParsedHours
  /** For people; `why` shows it. 1 to 500 characters. */
  reason: string
}

/**
 * What is paused: the jobs of a queue, of a task (names, or patterns with `*`), or those of a limit, or of one of its
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

/**
 * Puts a gate in force under this name, or changes it; an identical one stays unchanged. Claims in progress still hand
 * out the jobs that they have selected. Idle workers see a gate that opens within some 2 s.
 * @throws UsageError SLUICE_BAD_GATE
 */
export async function defineGate(
  sql: Sql,
  name: string,
  options: GateOptions,
  lastsS: number | null = null,
): Promise<void> {
  const { queues, tasks, hours } = options
  for (const [what, patterns] of Object.entries({ queue: queues, task: tasks })) {
    if (patterns?.length === 0) throw badGate(`the list of ${what}s is empty; leave it out for any ${what}`)
    for (const pattern of patterns ?? []) checkPattern(what, pattern, badGate)
  }
  const { fromMin, toMin, days, zone } = hours ?? { fromMin: null, toMin: null, days: null, zone: null }
  const reason = reasonOf(options.reason, badGate)
  try {
    const params = [name, queues ?? null, tasks ?? null, zone, days, fromMin, toMin, reason, me(), lastsS]
    await sql.call('gate', params)
  } catch (error) {
    // The store has its own list of zones.
    if ((error as { code?: unknown }).code !== '22023') throw error
    throw badGate(`the store does not know the time zone "${zone}"`)
  }
}

/** Removes a gate; returns false if there is none of this name. */
export async function removeGate(sql: Sql, name: string): Promise<boolean> {
  const [row] = await sql.call<{ ungate: boolean }>('ungate', [name])
  return row?.ungate ?? false
}

/** How long a rule's gate lasts unless a worker with the rule renews it; in seconds. */
const ruleGateS = 60

/**
 * Puts the gates of rules that consist of hours alone in force. To be repeated, because they expire with their workers.
 */
export async function renewRuleGates(sql: Sql, rules: readonly Rule[]): Promise<void> {
  for (const { name, tasks, queues, hours } of rules) {
    const options = {
      ...(tasks === undefined ? {} : { tasks }),
      ...(queues === undefined ? {} : { queues }),
      ...(hours === undefined ? {} : { hours }),
      reason: `rule ${name}`,
    }
    // Each version of a rule, and each of two rules with one name, has its own gate: what either closes is closed.
    const gate = `rule:${name}#${hash64(JSON.stringify(options)).slice(-6)}`
    await defineGate(sql, gate, options, ruleGateS)
  }
}

/** How long a result about hours is used, in ms. */
const opensMs = 1_000

/**
 * Returns a function that reads from the store when hours open, once a second; no result is used past the opening in it.
 */
export function openingsOn(store: Store): Opens {
  const known = new Map<ParsedHours, { untilMs: number; at: Promise<number | undefined> }>()
  const ask = (hours: ParsedHours, nowMs: number) => {
    const { zone, days, fromMin, toMin } = hours
    const answer = { untilMs: nowMs + opensMs, at: look([zone, days, fromMin, toMin]) }
    async function look(params: unknown[]): Promise<number | undefined> {
      type Row = { at: string | null; left_us: string | null }
      const [row] = await store.call<Row>('opens', params)
      if (row === undefined || row.at === null) return undefined
      answer.untilMs = Math.min(answer.untilMs, nowMs + Number(row.left_us) / 1_000)
      return Number(row.at)
    }
    answer.at.catch(() => known.delete(hours))
    known.set(hours, answer)
    return answer
  }
  return (hours) => {
    const nowMs = store.clock.monotonicMs()
    const answer = known.get(hours)
    return (answer !== undefined && nowMs < answer.untilMs ? answer : ask(hours, nowMs)).at
  }
}

/** Pauses and resumes; a `Sluice` has these methods. */
export interface Pauses {
  /**
   * Stops starting waiting jobs of a queue, a task, a limit or one of its keys, in all processes, from now on; running
   * jobs continue, with all their requests. If it is paused already, only the reason changes. For a limit the call waits
   * for claims in progress; for queues and tasks these still hand out the jobs that they have selected, which takes a
   * second at most.
   * @param why `reason`, 1 to 500 characters: `why` shows it for each waiting job
   * @throws UsageError SLUICE_BAD_PAUSE, SLUICE_NO_SUCH_LIMIT
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
      const reason = reasonOf(why.reason, badPause)
      if (!('limit' in what)) {
        const patterns = 'queue' in what ? { queues: [what.queue] } : { tasks: [what.task] }
        return defineGate(sql, gateOf(what), { ...patterns, reason })
      }
      const [row] = await sql.call<{ pause: boolean }>('pause', [what.limit, what.key ?? '', reason, me()])
      if (row?.pause === true) return
      throw new UsageError(
        'SLUICE_NO_SUCH_LIMIT',
        `no limit "${what.limit}" is defined in the database; \`sluice limits\` lists those that are`,
      )
    },
    async resume(what) {
      checkPausable(what)
      if (!('limit' in what)) return removeGate(sql, gateOf(what))
      const [row] = await sql.call<{ resume: boolean }>('resume', [what.limit, what.key ?? ''])
      return row?.resume ?? false
    },
    async pauses() {
      const rows = await sql.run<Line>('gates/pauses')
      return rows.map((row) => ({ ...nameOf(row), ...said(row) }))
    },
  }
}

function said({ reason, by, created_ms: sinceMs, closed: isClosed, until_ms: untilMs }: Line) {
  return { reason, by, since: new Date(sinceMs), isClosed, until: dateOf(untilMs) ?? undefined }
}

function nameOf(row: Line): Pick<Pause, 'what' | 'gate'> {
  const what = whatOf(row)
  if (what !== undefined) return { what, gate: undefined }
  return { what, gate: { name: row.name, queues: row.queues, tasks: row.tasks, hours: hoursOf(row) } }
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

function checkPattern(what: string, pattern: unknown, bad: Refusal): void {
  if (isPattern(pattern)) return
  throw bad(
    `"${String(pattern)}" cannot name a ${what}: use 1 to 100 of a-z, A-Z, 0-9, ".", "_", "-", ":", and "*" for any text`,
  )
}

/** Checks a reason and returns it; it is for people who find jobs waiting. */
export function reasonOf(reason: unknown, bad: Refusal): string {
  if (typeof reason === 'string' && reason.trim() !== '' && reason.length <= 500 && !reason.includes('\u0000'))
    return reason
  throw bad('give a reason of 1 to 500 characters: people who find jobs waiting will read it')
}

type Refusal = (why: string) => UsageError

function badGate(why: string): UsageError {
  return new UsageError('SLUICE_BAD_GATE', why)
}

function badPause(why: string): UsageError {
  return new UsageError('SLUICE_BAD_PAUSE', why)
}

/** Returns the user of this process: user@host. */
export function me(): string {
  const user = () => {
    try {
      return os.userInfo().username
    } catch {
      // A container may run as a user without a name.
      return String(process.getuid?.() ?? 'unknown')
    }
  }
  return `${user()}@${os.hostname()}`
}
