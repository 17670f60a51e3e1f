/** Parked jobs, lanes and buckets, on whose data claims failed, and their words for people. */
import { quoted } from './printable.ts'
import { redactText } from './redact.ts'

/** A thing that claims skip until it is released: a job, jobs of a task in a queue (a lane), or a limit's key (a bucket). */
export interface Parked {
  kind: 'job' | 'jobs' | 'limit'
  /** The id of a job, `task in queue`, or `limit:key`: what `release` takes. Several may have the same task and queue. */
  name: string
  /** The database's error by which the claim failed. */
  error: string
  /** Its SQLSTATE. */
  code: string | undefined
  since: Date
}

/** One parked thing, as SQL returns it. */
export interface ParkedRow {
  kind: 'job' | 'lane' | 'bucket'
  /** For a lane: `task in queue, lane id`. */
  name: string
  error: string
  code: string | null
  at_ms: number
}

const kinds = { job: 'job', lane: 'jobs', bucket: 'limit' } as const

/** Returns the name that users give to `release`: several lanes of a task in a queue have the same. */
export function userName(name: string): string {
  return name.replace(/ in (\S+), lane -?\d+$/, ' in $1')
}

/** Converts rows to parked things; null gives an empty list. */
export function parkedOf(rows: readonly ParkedRow[] | null | undefined): Parked[] {
  return (rows ?? []).map(({ kind, name, error, code, at_ms: atMs }) => ({
    kind: kinds[kind],
    name: kind === 'lane' ? userName(name) : name,
    error,
    code: code ?? undefined,
    since: new Date(atMs),
  }))
}

/** Its name in words, and the arguments of `sluice release`. */
const inWords: Record<Parked['kind'], (name: string) => [string, string[]]> = {
  job: (name) => [`job ${name}`, [name]],
  jobs(name) {
    const [task = '', queue = ''] = name.split(' in ')
    return [`jobs of task ${task} in queue ${queue}`, ['--task', task, '--queue', queue]]
  },
  limit(name) {
    const [, limit = '', key] = /^([^:]*)(?::([^]*))?$/.exec(name) ?? []
    if (key === undefined) return [`limit ${limit}`, ['--limit', limit]]
    return [`limit ${limit} for ${key}`, ['--limit', limit, '--key', key]]
  },
}

/** Returns one line for people: what is parked, by which error, and the command that releases it. */
export function parkedText({ kind, name, error, code, since }: Parked): string {
  const why = `${code === undefined ? '' : `${code}: `}${redactText(error).replaceAll(/\s+/g, ' ').slice(0, 200)}`
  const [what, flags] = inWords[kind](name)
  return `${what} since ${since.toISOString()} (${why}), \`sluice release ${flags.map(quoted).join(' ')}\``
}
