/** What is left out because claims failed by its data, and how people are told of it. */
import { redactText } from './redact.ts'

/** One thing that is left out until it is released. */
export interface Parked {
  kind: 'job' | 'lane' | 'bucket'
  /** The job's id, `limit:key` of a bucket, `task in queue, lane id` of a lane. */
  name: string
  /** The database's error, by which the claim failed. */
  error: string
  /** Its SQLSTATE. */
  code: string | undefined
  since: Date
}

/** One thing that is parked, as SQL tells of it. */
export type ParkedRow = Pick<Parked, 'kind' | 'name' | 'error'> & { code: string | null; at_ms: number }

/** Things that are parked, from rows; none from null. */
export function parkedOf(rows: readonly ParkedRow[] | null | undefined): Parked[] {
  return (rows ?? []).map(({ kind, name, error, code, at_ms: atMs }) => ({
    kind,
    name,
    error,
    code: code ?? undefined,
    since: new Date(atMs),
  }))
}

/** What is parked, by what, and the command that releases it: for people. */
export function parkedText({ kind, name, error, code, since }: Parked): string {
  const why = `${code === undefined ? '' : `${code}: `}${redactText(error).replaceAll(/\s+/g, ' ').slice(0, 200)}`
  const word = /^[\w.:-]+$/.test(name) ? name : `'${name.replaceAll("'", String.raw`'\''`)}'`
  return `${kind} ${name} since ${since.toISOString()} (${why}), \`sluice release ${word}\``
}
