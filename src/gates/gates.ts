/**
 * Gates on queues and tasks, and pauses of limits: they hold jobs back until an operator, or the hour, opens them. They
 * are stored in the database, so they hold for all processes at once.
 */
import { UsageError, codeOf } from '../core/errors.ts'
import { hash64 } from '../core/hash.ts'
import type { ParsedHours } from '../core/hours.ts'
import { isPattern } from '../core/pattern.ts'
import { currentUser } from '../core/user.ts'
import type { Sql, Store } from '../db/store.ts'

/** The jobs that a gate holds back, and when; see the fields. */
export interface GateOptions {
  /** Names or patterns (`*` for any text). Default: any queue. */
  queues?: readonly string[] | undefined
  /** Names or patterns (`*` for any text). Default: any task. */
  tasks?: readonly string[] | undefined
  /** Jobs wait outside these hours. Default: they wait until the gate is removed. */
  hours?: ParsedHours | undefined
  /** For people; `why` shows it. 1 to 500 characters. */
  reason: string
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
    const params = [name, queues ?? null, tasks ?? null, zone, days, fromMin, toMin, reason, currentUser(), lastsS]
    await sql.call('define_gate', params)
  } catch (error) {
    // The store has its own list of zones.
    if (codeOf(error) !== '22023') throw error
    throw badGate(`the store does not know the time zone "${zone}"`)
  }
}

/** Removes a gate; returns false if there is none of this name. */
export async function removeGate(sql: Sql, name: string): Promise<boolean> {
  const [row] = await sql.call<{ delete_gate: boolean }>('delete_gate', [name])
  return row?.delete_gate ?? false
}

/** A rule that consists of hours alone, for the tasks and queues that it names. */
export interface RuleGate extends Omit<GateOptions, 'reason'> {
  name: string
}

/** How long a rule's gate lasts unless a worker with the rule renews it; in seconds. */
const ruleGateS = 60

/**
 * Puts the gates of rules that consist of hours alone in force. To be repeated, because they expire with their workers.
 */
export async function renewRuleGates(sql: Sql, rules: readonly RuleGate[]): Promise<void> {
  for (const { name, tasks, queues, hours } of rules) {
    const options = { tasks, queues, hours, reason: `rule ${name}` }
    // Each version of a rule, and each of two rules with one name, has its own gate: what either closes is closed.
    const gate = `rule:${name}#${hash64(JSON.stringify(options)).slice(-6)}`
    await defineGate(sql, gate, options, ruleGateS)
  }
}

/** Reads from the store when hours open next, in microseconds since 1970; undefined: they are open. */
export type OpeningReader = (hours: ParsedHours) => Promise<number | undefined>

/** How long a result about hours is used, in ms. */
const opensMs = 1_000

/**
 * Returns a function that reads from the store when hours open, once a second; no result is used past the opening in it.
 */
export function createOpeningReader(store: Store): OpeningReader {
  const known = new Map<ParsedHours, { untilMs: number; at: Promise<number | undefined> }>()
  const compute = (hours: ParsedHours, nowMs: number) => {
    const { zone, days, fromMin, toMin } = hours
    const answer = { untilMs: nowMs + opensMs, at: look([zone, days, fromMin, toMin]) }
    async function look(params: unknown[]): Promise<number | undefined> {
      type Row = { at: string | null; left_us: string | null }
      const [row] = await store.call<Row>('find_hours_opening', params)
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
    return (answer !== undefined && nowMs < answer.untilMs ? answer : compute(hours, nowMs)).at
  }
}

/** Checks a name or pattern of a queue or task. @throws what `bad` returns */
export function checkPattern(what: string, pattern: unknown, bad: Refusal): void {
  if (isPattern(pattern)) return
  throw bad(
    `"${String(pattern)}" cannot name a ${what}: use 1 to 100 of a-z, A-Z, 0-9, ".", "_", "-", ":", and "*" for any text`,
  )
}

/** Checks a reason and returns it; people read it beside the jobs that it concerns. */
export function reasonOf(reason: unknown, bad: Refusal): string {
  if (typeof reason === 'string' && reason.trim() !== '' && reason.length <= 500 && !reason.includes('\u0000'))
    return reason
  throw bad('give a reason of 1 to 500 characters, for the people who will read it')
}

/** Makes the error for a bad option from its message. */
export type Refusal = (why: string) => UsageError

function badGate(why: string): UsageError {
  return new UsageError('SLUICE_BAD_GATE', why)
}
