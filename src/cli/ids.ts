/** Ids of jobs and events as people write them: whole, or only the beginning. */
import { SluiceError, UsageError } from '../core/errors.ts'
import { isId } from '../core/hash.ts'
import type { Sql } from '../db/store.ts'

interface Found {
  id: string
  task?: string
  state?: string
  type?: string
}

/** The shortest beginning of an id. The first eight digits are the minute in which the job was sent. */
const digitsMin = 6
/** How many jobs the error for an ambiguous beginning lists. */
const listedMax = 10

/** Checks that a text may be an id or its beginning, before a store is opened. @throws UsageError SLUICE_BAD_ID */
export function checkIdStart(text: string): void {
  void digitsOf(text)
}

/**
 * Returns the id of the job that begins with a text; a whole id as it is, whether or not there is such a job.
 * @throws UsageError SLUICE_BAD_ID, SLUICE_AMBIGUOUS_ID (several jobs, which it lists); SluiceError SLUICE_NO_SUCH_JOB
 */
export async function idOf(sql: Sql, text: string): Promise<string> {
  if (isId(text)) return text.toLowerCase()
  const id = await only('job', text, (params) => sql.run<Found>('operations/find_ids', params))
  if (id === undefined) throw noSuchJob(text)
  return id
}

/**
 * Returns the id of the event in the store that begins with a text; without one, and for a whole id, the text as it is.
 * @throws UsageError SLUICE_AMBIGUOUS_ID (several events, which it lists)
 */
export async function eventIdOf(sql: Sql, text: string): Promise<string> {
  if (isId(text) || !isStart(text)) return text
  return (await only('event', text, (params) => sql.run<Found>('events/find_event_ids', params))) ?? text
}

/** Returns the only id that begins with a text; undefined: there is none. */
async function only(what: 'job' | 'event', text: string, find: (params: unknown[]) => Promise<Found[]>) {
  const digits = digitsOf(text)
  const found = await find([uuidOf(digits.padEnd(32, '0')), uuidOf(digits.padEnd(32, 'f')), listedMax + 1])
  if (found.length < 2) return found[0]?.id
  const lines = found.slice(0, listedMax).map(({ id, task, state, type }) => `${id} (${type ?? `${task}, ${state}`})`)
  const more = found.length > listedMax ? ', and others' : ''
  throw new UsageError('SLUICE_AMBIGUOUS_ID', `several ${what} ids begin with ${text}: ${lines.join(', ')}${more}`)
}

const bare = (text: string) => text.toLowerCase().replaceAll('-', '')

function isStart(text: string): boolean {
  const digits = bare(text)
  return /^[0-9a-f]+$/.test(digits) && digits.length >= digitsMin && digits.length <= 32
}

function digitsOf(text: string): string {
  if (isStart(text)) return bare(text)
  throw new UsageError(
    'SLUICE_BAD_ID',
    `"${text}" is not a job id (a UUIDv7), nor the beginning of one (at least ${digitsMin} digits)`,
  )
}

function uuidOf(digits: string): string {
  return digits.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5')
}

/** Makes the error for a missing job: not a UsageError, so the exit code is 1. */
export function noSuchJob(id: string): SluiceError {
  const text = `there is no job ${id}, or its record is past its retention; \`sluice events show ${id}\` if it is an event`
  return new SluiceError('SLUICE_NO_SUCH_JOB', text)
}
