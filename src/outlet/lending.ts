/** Runs statements for workers without a store (borrowed-store.ts). */
import type { Clock } from '../core/clock.ts'
import { codeOf, StoreError, textOfError, UsageError } from '../core/errors.ts'
import { RecentMap } from '../core/recent-map.ts'
import type { Sql, StatementName } from '../db/store.ts'
import { sourceTypes } from '../claim/definitions/define.ts'
import type { FunctionName } from '../generated/sql.ts'
import { answerMs, type StatementResult, type ToRun } from './messages.ts'

/** The statements that attempts need, and nothing else. */
const functions: ReadonlySet<string> = new Set<FunctionName>([
  // Further grants, and what was really used.
  'acquire_grants',
  'settle_attempt',
  'learn_costs',
  // The answers of vendors.
  'refuse_buckets',
  'accept_buckets',
  'count_failures',
  'charge_others',
  'park_buckets',
  // Margins.
  'record_measurements',
  'adapt_limit',
  'define_limit',
  'charge_again',
  // Progress and lines of the log, and hours of rules.
  'record_notes',
  'find_hours_opening',
])
const files: ReadonlySet<string> = new Set<StatementName>([
  'limits/ledger/forget_failures',
  'limits/definitions/read_measurements',
  'limits/definitions/read_share_sources',
  // What jobs of a task use.
  'tasks/read_learned_costs',
])

/** How many statements run at once: the dispatcher's own share its few connections with them. */
const underWayMost = 2
/** How many results are known for messages that arrive again: more than run while a message can be on its way. */
const resultsMost = 5_000

/** Parameters of `Lender`; see the fields. */
export interface LenderOptions {
  sql: Sql
  clock: Clock
  /** The dispatcher's name. */
  from: string
}

/** Runs the statements of all workers of one dispatcher. */
export class Lender {
  readonly #options: LenderOptions
  readonly #results = new RecentMap<string, Promise<string | undefined>>(resultsMost)
  #underWay = 0
  /** Statements that wait for others to end. */
  readonly #waiting: (() => void)[] = []

  constructor(options: LenderOptions) {
    this.#options = options
  }

  /**
   * Runs a statement in its turn, and resolves to the message with its result; undefined: its worker has given up. The same
   * statement runs once, however often its message arrives. Never rejects.
   */
  lend(statement: ToRun): Promise<string | undefined> {
    const known = this.#results.get(statement.id)
    if (known !== undefined) return known
    const result = this.#runInTurn(statement)
    this.#results.set(statement.id, result)
    return result
  }

  async #runInTurn(statement: ToRun): Promise<string | undefined> {
    const { sql, clock, from } = this.#options
    const sinceMs = clock.monotonicMs()
    if (this.#underWay < underWayMost) this.#underWay++
    else await new Promise<void>((resolve) => this.#waiting.push(resolve))
    try {
      return clock.monotonicMs() - sinceMs < answerMs ? await answer(sql, statement, from) : undefined
    } finally {
      const next = this.#waiting.shift()
      if (next === undefined) this.#underWay--
      else next()
    }
  }
}

/** Runs a statement. Resolves to the message with its result, or with what was thrown, also if the result cannot be sent. */
async function answer(sql: Sql, statement: ToRun, from: string): Promise<string> {
  const head = { type: 'result', from, id: statement.id } as const
  try {
    const rows = await run(sql, statement)
    return JSON.stringify({ ...head, rows } satisfies StatementResult)
  } catch (error) {
    const code = codeOf(error)
    const about = { code: typeof code === 'string' ? code : '', message: textOfError(error) }
    return JSON.stringify({
      ...head,
      error: { ...about, isAway: error instanceof StoreError },
    } satisfies StatementResult)
  }
}

/** @throws UsageError SLUICE_NEEDS_STORE; the errors of the store */
async function run(sql: Sql, { name, args }: ToRun): Promise<unknown[]> {
  // Another program may have written the message.
  if (Array.isArray(args)) {
    // Types become a part of the SQL, so no message has any.
    const types = name === 'define_limit' ? sourceTypes : undefined
    if (functions.has(name)) return sql.call(name as FunctionName, args, types)
    if (files.has(name)) return sql.run(name as StatementName, args)
  }
  throw new UsageError('SLUICE_NEEDS_STORE', `a dispatcher does not run ${name} for workers without a store`)
}
