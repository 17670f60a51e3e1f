/** The filter of jobs that lists, counts, exports and bulk operations share: checked, and converted for `engine.page_jobs`. */
import { UsageError } from '../core/errors.ts'
import { type Duration, durationMs } from '../core/rate.ts'
import type { JobReason } from '../core/reasons.ts'

/** The states of a job. The last three are final. */
export type State = 'scheduled' | 'waiting' | 'dispatched' | 'running' | 'done' | 'failed' | 'cancelled'

/** A filter of jobs; a job must match every field that is given. */
export interface JobFilter {
  /** One state, or several states of unfinished jobs; default: any unfinished state. */
  state?: State | readonly State[]
  task?: string
  queue?: string
  tag?: string
  /** Why the job ended as it did (`exhausted`, `refused`, …), or is scheduled: `retry`, `delay`, `throttled`, `snoozed`, `held`. */
  reason?: JobReason
  /** A part of the last error's message; case does not matter. */
  error?: string
  /** The code of the last error: `SLUICE_HTTP_STATUS`, `ECONNREFUSED`. */
  errorCode?: string
  /** At least this many attempts have failed. */
  failures?: number
  /** Jobs that use this limit: any of its keys, or with `key` that one. */
  limit?: string
  /** A key of `limit`. */
  key?: string
  /** Finished jobs that ended, and others that were created, at this time or later. A time, or how long ago (`'2h'`). */
  since?: Date | Duration
  /** Finished jobs that ended, and others that were created, before this time. */
  until?: Date | Duration
  /** Last claimed by a worker at this time or later; a time, or how long ago. */
  dispatchedSince?: Date | Duration
  /** Last claimed by a worker before this time. */
  dispatchedUntil?: Date | Duration
  /** Fields of the input, by path (`account.id`), and the values they must have; `5` and `'5'` are the same here. */
  input?: Readonly<Record<string, string | number | boolean>>
}

/** The table that has the jobs of a filter, and the filter as `engine.page_jobs` takes it. */
export interface Search {
  table: 'job' | 'done' | 'failed'
  fields: { dispatchedSince?: string; dispatchedUntil?: string; [name: string]: unknown }
  /** A field other than `state` is given. */
  isNarrow: boolean
}

/** The states of jobs that have not ended. */
export const unfinished: readonly State[] = ['scheduled', 'waiting', 'dispatched', 'running']
const tables: Record<State, Search['table']> = {
  scheduled: 'job',
  waiting: 'job',
  dispatched: 'job',
  running: 'job',
  done: 'done',
  failed: 'failed',
  cancelled: 'done',
}
const texts = ['task', 'queue', 'tag', 'reason', 'error', 'errorCode', 'limit', 'key'] as const
const times = ['since', 'until', 'dispatchedSince', 'dispatchedUntil'] as const
const known = new Set<string>(['state', ...texts, 'failures', ...times, 'input'])

/**
 * Checks a filter and converts it for `engine.page_jobs`.
 * @param ago resolves to the time this many seconds ago by the store's clock, as ISO text
 * @param states the states that it matches when it gives none
 * @throws UsageError SLUICE_BAD_FILTER for unknown fields and bad values, because a filter that is wider than intended
 * would change too many jobs; SLUICE_BAD_DURATION
 */
export async function searchOf(
  ago: (seconds: number) => Promise<string>,
  filter: JobFilter,
  states = unfinished,
): Promise<Search> {
  for (const [name, value] of Object.entries(filter)) {
    if (!known.has(name)) throw bad(`has no field "${name}"; its fields are ${[...known].join(', ')}`)
    if (value === undefined) throw bad(`has "${name}": undefined; leave the field out to match any value`)
  }
  for (const name of texts) {
    const value = filter[name]
    if (value !== undefined && (typeof value !== 'string' || value === '' || value.includes('\u0000')))
      throw bad(`needs a text for "${name}"`)
  }
  const { state, input = {}, failures, limit, key } = filter
  if (key !== undefined && limit === undefined) throw bad('has a "key" without a "limit"')
  if (failures !== undefined && !(Number.isInteger(failures) && failures >= 1 && failures <= 2 ** 31 - 1))
    throw bad('needs a whole number from 1 for "failures"')
  const wanted = state === undefined ? states : [state].flat()
  const table = tableOf(wanted)
  const values = Object.entries(input)
  if (values.some(([path, value]) => path === '' || !['string', 'number', 'boolean'].includes(typeof value)))
    throw bad('needs texts, numbers or booleans as values of "input", by the path of a field')
  const { state: _, ...narrow } = filter
  return {
    table,
    fields: {
      ...Object.fromEntries(texts.flatMap((name) => (filter[name] === undefined ? [] : [[name, filter[name]]]))),
      states: wanted,
      ...(failures === undefined ? {} : { failures }),
      ...(await timesOf(ago, filter)),
      ...(values.length === 0
        ? {}
        : { paths: values.map(([path]) => path.split('.')), values: values.map(([, value]) => String(value)) }),
    },
    isNarrow: Object.keys(narrow).some((name) => name !== 'input') || values.length > 0,
  }
}

/**
 * Fixes a filter to this moment, for later use: durations are counted back from now, and jobs that are created (finished
 * ones: that end) from now on do not match.
 * @throws UsageError SLUICE_BAD_FILTER, SLUICE_BAD_DURATION
 */
export async function asOfNow(ago: (seconds: number) => Promise<string>, filter: JobFilter): Promise<JobFilter> {
  const given = Object.entries(await timesOf(ago, filter)).map(([name, at]) => [name, new Date(at)] as const)
  const fixed = Object.fromEntries(given) as Pick<JobFilter, (typeof times)[number]>
  // A Date has whole ms: round up.
  const nowMs = Date.parse(await ago(0)) + 1
  const untilMs = Math.min(nowMs, (fixed.until as Date | undefined)?.getTime() ?? nowMs)
  return { ...filter, ...fixed, until: new Date(untilMs) }
}

/** Converts the times of a filter to ISO texts. */
async function timesOf(
  ago: (seconds: number) => Promise<string>,
  filter: JobFilter,
): Promise<{ [name in (typeof times)[number]]?: string }> {
  const found: { [name in (typeof times)[number]]?: string } = {}
  for (const name of times) if (filter[name] !== undefined) found[name] = await time(ago, filter[name])
  return found
}

// PostgreSQL does not read the years that JavaScript writes with a sign.
const [firstMs, lastMs] = [Date.parse('0001-01-01T00:00:00Z'), Date.parse('9999-12-31T23:59:59.999Z')]

/** Converts a time to ISO text; durations are counted back by the store's clock. */
async function time(ago: (seconds: number) => Promise<string>, at: Date | Duration): Promise<string> {
  if (at instanceof Date) {
    const ms = Math.min(lastMs, Math.max(firstMs, at.getTime()))
    if (Number.isFinite(ms)) return new Date(ms).toISOString()
    throw bad('has a time that is not a valid Date')
  }
  const seconds = durationMs(at) / 1_000
  if (seconds > 36_500 * 86_400) throw bad('looks back more than 100 years')
  return await ago(seconds)
}

function tableOf(states: readonly State[]): Search['table'] {
  const odd = states.find((state) => !Object.hasOwn(tables, state))
  if (odd !== undefined || states.length === 0)
    throw bad(`has an unknown state "${odd ?? ''}"; the states are ${Object.keys(tables).join(', ')}`)
  const [table = 'job', ...others] = new Set(states.map((state) => tables[state]))
  if (others.length === 0) return table
  throw bad(`has the states ${states.join(', ')}, which are in different tables; query them one after the other`)
}

function bad(why: string): UsageError {
  return new UsageError('SLUICE_BAD_FILTER', `the filter ${why}`)
}
