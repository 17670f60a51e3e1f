/** Jobs as users see them: find, list, cancel, retry. */
import { UsageError } from '../core/errors.ts'
import { isId } from '../core/hash.ts'
import type { Db, Row } from '../db/db.ts'
import { statements } from '../generated/sql.ts'

/** The states of a job. The last three are final. */
export type State = 'scheduled' | 'waiting' | 'dispatched' | 'running' | 'done' | 'failed' | 'cancelled'

/** A job's record. Times are the store's. */
export interface Job {
  id: string
  state: State
  /** Why it ended so: exhausted, refused, crashed, cancelled, …; null while unfinished and when done. */
  reason: string | null
  task: string
  queue: string
  priority: number
  /** Attempts begun. */
  attempt: number
  /** Attempts that failed. */
  failed: number
  /** Attempts whose worker was lost. */
  crashes: number
  /** An attempt may have reached the vendor without its outcome being known. */
  ambiguous: boolean
  createdAt: Date
  /** Not before; null unless scheduled. */
  dueAt: Date | null
  dispatchedAt: Date | null
  startedAt: Date | null
  finishedAt: Date | null
  /** `limit:key` for each limit. */
  limits: string[]
  tags: string[]
  input: unknown
  result: unknown
  error: { message: string; code?: string; name?: string } | null
}

/** A line of a list. */
export type JobLine = Pick<
  Job,
  'id' | 'state' | 'reason' | 'task' | 'queue' | 'priority' | 'attempt' | 'createdAt' | 'finishedAt' | 'tags' | 'error'
>

/** What `list` filters by. */
export interface ListOptions {
  /** Default: any unfinished state. */
  state?: State
  task?: string
  tag?: string
  /** Only jobs made before the one with this id: the next page. */
  before?: string
  /** 1 to 1000, default 50. */
  limit?: number
}

/** Queries about jobs on one database. */
export class Jobs {
  readonly #db: Db
  readonly #schema: string
  readonly #sql: (name: string) => string

  constructor(db: Db, schema: string, inSchema: (sql: string) => string) {
    this.#db = db
    this.#schema = schema
    this.#sql = (name) => inSchema(statements[`store/${name}`] as string)
  }

  /** The job's record; undefined when there is none (any more). */
  async get(id: string): Promise<Job | undefined> {
    const [row] = await this.#db.query(this.#sql('view'), [checkId(id)])
    return row === undefined ? undefined : toJob(row)
  }

  /** Jobs, newest first. */
  async list(options: ListOptions = {}): Promise<JobLine[]> {
    const limit = Math.max(1, Math.min(1000, options.limit ?? 50))
    const before = options.before === undefined ? null : checkId(options.before)
    const rows = await this.#db.query(this.#sql('list'), [
      options.state ?? null,
      options.task ?? null,
      options.tag ?? null,
      before,
      limit,
    ])
    return rows.map(toJob)
  }

  /** Cancels an unfinished job; a running attempt is told nothing, but what it still does has no effect. False: no such job. */
  async cancel(id: string, reason = 'cancelled by a user'): Promise<boolean> {
    const [row] = await this.#db.query<{ is: boolean }>(`select ${this.#schema}.cancel_v1($1, $2) as is`, [
      checkId(id),
      reason,
    ])
    return row?.is ?? false
  }

  /** Gives a failed job another round of attempts. False: no such failed job. */
  async retry(id: string): Promise<boolean> {
    const [row] = await this.#db.query<{ is: boolean }>(`select ${this.#schema}.revive_v1($1) as is`, [checkId(id)])
    return row?.is ?? false
  }

  /** The state of the whole in numbers. */
  async status(): Promise<Record<string, number> & { oldest: number }> {
    const [row] = await this.#db.query(this.#sql('status'))
    const numbers = Object.fromEntries(Object.entries(row ?? {}).map(([name, value]) => [name, Number(value ?? 0)]))
    return { ...numbers, oldest: row?.['oldest'] instanceof Date ? row['oldest'].getTime() : 0 }
  }
}

/** True for states that a job never leaves by itself. */
export function isFinal(state: State): boolean {
  return state === 'done' || state === 'failed' || state === 'cancelled'
}

function checkId(id: string): string {
  if (!isId(id)) throw new UsageError('SLUICE_BAD_ID', `"${id}" is not a job id (a UUIDv7)`)
  return id
}

function toJob(row: Row): Job {
  return {
    id: row['id'] as string,
    state: row['state'] as State,
    reason: row['reason'] as string | null,
    task: row['task'] as string,
    queue: row['queue'] as string,
    priority: Number(row['priority']),
    attempt: Number(row['attempt']),
    failed: Number(row['failed'] ?? 0),
    crashes: Number(row['crashes'] ?? 0),
    ambiguous: Boolean(row['ambiguous']),
    createdAt: row['created_at'] as Date,
    dueAt: (row['due_at'] ?? null) as Date | null,
    dispatchedAt: (row['dispatched_at'] ?? null) as Date | null,
    startedAt: (row['started_at'] ?? null) as Date | null,
    finishedAt: (row['finished_at'] ?? null) as Date | null,
    limits: (row['takes'] ?? []) as string[],
    tags: (row['tags'] ?? []) as string[],
    input: row['input'] ?? null,
    result: row['result'] ?? null,
    error: (row['error'] ?? null) as Job['error'],
  }
}
