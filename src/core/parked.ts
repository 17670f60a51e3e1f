/** What is parked because claims failed on its data, and how it is reported to people. */
import { redactText } from './redact.ts'

/** One job, lane or bucket that claims skip until it is released. */
export interface Parked {
  kind: 'job' | 'lane' | 'bucket'
  /** The id of a job, `limit:key` of a bucket, or `task in queue, lane id` of a lane. */
  name: string
  /** The database's error by which the claim failed. */
  error: string
  /** Its SQLSTATE. */
  code: string | undefined
  since: Date
}

/** One parked thing, as SQL returns it. */
export type ParkedRow = Pick<Parked, 'kind' | 'name' | 'error'> & { code: string | null; at_ms: number }

/** Converts rows to parked things; null gives an empty list. */
export function parkedOf(rows: readonly ParkedRow[] | null | undefined): Parked[] {
  return (rows ?? []).map(({ kind, name, error, code, at_ms: atMs }) => ({
    kind,
    name,
    error,
    code: code ?? undefined,
    since: new Date(atMs),
  }))
}

/** Returns one line for people: what is parked, by which error, and the command that releases it. */
export function parkedText({ kind, name, error, code, since }: Parked): string {
  const why = `${code === undefined ? '' : `${code}: `}${redactText(error).replaceAll(/\s+/g, ' ').slice(0, 200)}`
  const word = /^[\w.:-]+$/.test(name) ? name : `'${name.replaceAll("'", String.raw`'\''`)}'`
  return `${kind} ${name} since ${since.toISOString()} (${why}), \`sluice release ${word}\``
}
