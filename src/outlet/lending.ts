/** Runs statements for workers without a store (borrowed-store.ts). */
import { codeOf, StoreError, textOfError, UsageError } from '../core/errors.ts'
import type { Sql, StatementName } from '../db/store.ts'
import type { FunctionName } from '../generated/sql.ts'
import type { StatementResult, ToRun } from './messages.ts'

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
])

/** Runs a statement, and resolves to its result. Never rejects. */
export async function lend(sql: Sql, statement: ToRun): Promise<Pick<StatementResult, 'id' | 'rows' | 'error'>> {
  const { id } = statement
  try {
    return { id, rows: await run(sql, statement) }
  } catch (error) {
    const code = codeOf(error)
    const about = { code: typeof code === 'string' ? code : '', message: textOfError(error) }
    return { id, error: { ...about, isAway: error instanceof StoreError } }
  }
}

/** @throws UsageError SLUICE_NEEDS_STORE; the errors of the store */
async function run(sql: Sql, { name, args, types }: ToRun): Promise<unknown[]> {
  if (functions.has(name)) return sql.call(name as FunctionName, args, types)
  if (files.has(name)) return sql.run(name as StatementName, args)
  throw new UsageError('SLUICE_NEEDS_STORE', `a dispatcher does not run ${name} for workers without a store`)
}
