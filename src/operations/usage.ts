/** The use of limits: sums of the ledger by day and month, which outlive it. */
import { UsageError } from '../core/errors.ts'
import { checkFields, checkMax } from '../core/fields.ts'
import { type Duration, durationMs } from '../core/rate.ts'
import type { Sql } from '../db/store.ts'

/** A filter of usage; see the fields. */
export interface UsageOptions {
  /** Only this limit, each of its keys by itself. Default: all limits, the keys of each together. */
  limit?: string | undefined
  /** With `limit`: only this key. */
  key?: string | undefined
  /** The periods: days, or months of the calendar. Default `'day'`. */
  by?: 'day' | 'month' | undefined
  /** From the period that contains this time on; a span such as `'7d'` is back from now. Default: 30 days, or 12 months. */
  since?: Date | Duration | undefined
  /** Most lines; 1 to 10,000, default 1,000. */
  max?: number | undefined
}

/** The use of a limit, or of a key of it, in a period. */
export interface UsageLine {
  limit: string
  /** Undefined: the limit has no keys, or all of them are together. */
  key: string | undefined
  /** `2026-11-23`, or `2026-11`: in the zone of the limit's quota, else in UTC. */
  period: string
  /** Units that were granted, and used beyond grants, without those that were given back; millionths of a `currency`. */
  units: number
  /** Units that were granted, and given back because they were not used. */
  refunded: number
  /** The currency of a limit in money: `USD`. */
  currency: string | undefined
}

const dayMs = 86_400_000
const periods = { day: 29 * dayMs, month: 335 * dayMs }

/**
 * Reads what limits have used, the newest period first, in each the greatest use first.
 * @param nowMs the time from which the default of `since` counts
 * @throws UsageError SLUICE_BAD_OPTION, SLUICE_BAD_DURATION
 */
export async function readUsage(sql: Sql, options: UsageOptions, nowMs: number): Promise<UsageLine[]> {
  checkFields('SLUICE_BAD_OPTION', '`usage`', options, ['limit', 'key', 'by', 'since', 'max'])
  const { limit, key, by = 'day', max = 1_000 } = options
  if (!Object.hasOwn(periods, by)) throw bad(`by is "${String(by)}"; it must be 'day' or 'month'`)
  if (key !== undefined && limit === undefined) throw bad('a key belongs to a limit; give `limit`, too')
  const most = checkMax(max, 10_000)
  const { since = periods[by] } = options
  const sinceMs = since instanceof Date ? since.getTime() : nowMs - durationMs(since)
  if (!(Math.abs(sinceMs) <= 8e15)) throw bad('since is no valid date')
  type Row = Omit<UsageLine, 'key' | 'currency'> & { key: string | null; currency: string | null }
  const rows = await sql.run<Row & Record<string, unknown>>('operations/read_usage', [
    limit ?? null,
    key ?? null,
    by,
    sinceMs,
    most,
  ])
  return rows.map((row) => ({ ...row, key: row.key ?? undefined, currency: row.currency ?? undefined }))
}

function bad(why: string): UsageError {
  return new UsageError('SLUICE_BAD_OPTION', why)
}
