/** Ids of jobs and events as people write them: whole, or only the beginning or the end, as tables show them. */
import { SluiceError, UsageError } from '../core/errors.ts'
import { isId } from '../core/hash.ts'
import type { Sql } from '../db/store.ts'

interface Found {
  id: string
  task?: string
  state?: string
  type?: string
}

/** Finds what has an id with this beginning, or this end; `most` at most. */
type Find = (digits: string, most: number) => Promise<Found[]>

/** The fewest digits of a part of an id. The first eight are the minute in which the job was sent. */
const digitsMin = 6
/** The fewest digits of an end without a leading `…`: a mistyped beginning must not find a strange job by its end. */
const endDigitsMin = 8
/** How many matches the error for an ambiguous part lists. */
const listedMax = 10

/** Checks that a text may be an id, its beginning or its end, before a store is opened. @throws UsageError SLUICE_BAD_ID */
export function checkIdPart(text: string): void {
  if (!isIdPart(text))
    throw new UsageError(
      'SLUICE_BAD_ID',
      `"${text}" is not a job id (a UUIDv7), nor the beginning or the end of one (at least ${digitsMin} digits, and an end with a leading …)`,
    )
}

/**
 * Returns the id of the job that begins or ends with a text; a whole id as it is, whether or not there is such a job.
 * @throws UsageError SLUICE_BAD_ID, SLUICE_AMBIGUOUS_ID (several jobs, which it lists); SluiceError SLUICE_NO_SUCH_JOB
 */
export async function idOf(sql: Sql, text: string): Promise<string> {
  if (isId(text)) return text.toLowerCase()
  checkIdPart(text)
  const byStart: Find = (digits, most) => sql.run('operations/find_ids', [...rangeOf(digits), most])
  const byEnd: Find = (digits, most) => sql.run('operations/find_ids_by_end', [digits, most])
  const id = await only('job', text, byStart, byEnd)
  if (id === undefined) throw noSuchJob(text)
  return id
}

/**
 * Returns the id of the event in the store that begins with a text; without one, and for a whole id, the text as it is.
 * @throws UsageError SLUICE_AMBIGUOUS_ID (several events, which it lists)
 */
export async function eventIdOf(sql: Sql, text: string): Promise<string> {
  if (isId(text) || !isIdPart(text)) return text
  const byStart: Find = (digits, most) => sql.run('events/find_event_ids', [...rangeOf(digits), most])
  return (await only('event', text, byStart)) ?? text
}

/**
 * Returns the id among these that begins or ends with a text; without one, and for a whole id, the text as it is.
 * @throws UsageError SLUICE_AMBIGUOUS_ID (several, which it lists)
 */
export async function idAmong(text: string, read: () => Promise<{ id: string; type: string }[]>): Promise<string> {
  if (isId(text) || !isIdPart(text)) return text
  const all = new Map((await read()).map((one) => [one.id, one]))
  const matching = (is: (id: string) => boolean) => [...all.values()].filter(({ id }) => is(bare(id)))
  const byStart: Find = async (digits) => matching((id) => id.startsWith(digits))
  const byEnd: Find = async (digits) => matching((id) => id.endsWith(digits))
  return (await only('event', text, byStart, byEnd)) ?? text
}

/** Returns the only id that begins with a text, else the only one that ends with it; undefined: there is none. */
async function only(what: 'job' | 'event', text: string, byStart: Find, byEnd: Find = async () => []) {
  const digits = bare(text)
  const begun = isCut(text) ? [] : await byStart(digits, listedMax + 1)
  const found = begun.length > 0 || !mayBeEnd(text) ? begun : await byEnd(digits, listedMax + 1)
  if (found.length < 2) return found[0]?.id
  const lines = found.slice(0, listedMax).map(({ id, task, state, type }) => `${id} (${type ?? `${task}, ${state}`})`)
  const more = found.length > listedMax ? ', and others' : ''
  const how = begun.length > 0 ? 'begin' : 'end'
  throw new UsageError('SLUICE_AMBIGUOUS_ID', `several ${what} ids ${how} with ${text}: ${lines.join(', ')}${more}`)
}

/** Without hyphens, and without the mark of a cut. */
const bare = (text: string) => text.toLowerCase().replaceAll(/-|…|\.\.\./g, '')
/** True if the beginning is cut, as in tables: the text is an end. */
const isCut = (text: string) => /^(…|\.\.\.)/.test(text)
/** True if the end is cut: the text is a beginning. */
const isBeginning = (text: string) => /(…|\.\.\.)$/.test(text)
const mayBeEnd = (text: string) => isCut(text) || (bare(text).length >= endDigitsMin && !isBeginning(text))

/** True for an id, its beginning, or its end. */
export function isIdPart(text: string): boolean {
  const digits = bare(text)
  return /^[0-9a-f]+$/.test(digits) && digits.length >= digitsMin && digits.length <= 32
}

/** Returns the first and the last id that begin with these digits. */
function rangeOf(digits: string): [string, string] {
  return [uuidOf(digits.padEnd(32, '0')), uuidOf(digits.padEnd(32, 'f'))]
}

function uuidOf(digits: string): string {
  return digits.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5')
}

/** Makes the error for a missing job: not a UsageError, so the exit code is 1. */
export function noSuchJob(id: string): SluiceError {
  const why = `there is no job ${id}, or its record is past its retention`
  // As in operations/find_ids_by_end.sql.
  const bound = 'an end finds only unfinished jobs, the last 100,000 done ones and the last 100,000 failed ones'
  const end = mayBeEnd(id) ? bound : `the end of an id is written …${bare(id)}`
  const text = `${why}; ${isId(id) || isBeginning(id) ? '' : `${end}; `}\`sluice events show ${id}\` if it is an event`
  return new SluiceError('SLUICE_NO_SUCH_JOB', text)
}
