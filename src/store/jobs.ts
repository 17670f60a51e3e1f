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
  /** Its fair key's share of turns. */
  weight: number
  /** No attempt begins after this; null: whenever. Only while unfinished. */
  expiresAt: Date | null
  /** What each rule did to it, in order. */
  ruled: readonly ({ rule: string } & Record<string, unknown>)[]
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

/** The state of the whole. Jobs are counted up to `countedTo`, so that the answer never takes long. */
export interface Status {
  /** Beyond `countedTo` an estimate. */
  waiting: number
  /** Greater than `countedTo`: at least so many. */
  scheduled: number
  running: number
  /** In the history that is kept; beyond `countedTo` an estimate, which takes in cancelled ones. */
  done: number
  /** Greater than `countedTo`: at least so many. */
  failed: number
  workers: number
  /** Attempts at once of all workers. */
  slots: number
  /** Handlers of all workers that go on though their attempts have ended. */
  stuck: number
  /** When the one that has waited longest was sent; null: none waits. */
  oldestWaitingAt: Date | null
  countedTo: number
}

/** As in status.sql. */
const countedTo = 10_000

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
    return rows.map(toLine)
  }

  /**
   * Cancels an unfinished job. What a running attempt still does has no effect here; its `signal` aborts when its worker
   * next looks, within some 2 s. False: no such unfinished job.
   */
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
  async status(): Promise<Status> {
    const [row = {}] = await this.#db.query(
      `select s.*, (select coalesce(sum(w.stuck), 0) from ${this.#schema}.worker w) as stuck from ${this.#schema}.status_v1() s`,
    )
    const number = (name: string) => Number(row[name])
    return {
      waiting: number('waiting'),
      scheduled: number('scheduled'),
      running: number('running'),
      done: number('done'),
      failed: number('failed'),
      workers: number('workers'),
      slots: number('slots'),
      stuck: number('stuck'),
      oldestWaitingAt: row['oldest'] as Date | null,
      countedTo,
    }
  }
}

/** True for states that a job never leaves by itself. */
export function isFinal(state: State): boolean {
  return state === 'done' || state === 'failed' || state === 'cancelled'
}

/** Lets ids through. @throws UsageError SLUICE_BAD_ID */
export function checkId(id: string): string {
  if (!isId(id)) throw new UsageError('SLUICE_BAD_ID', `"${id}" is not a job id (a UUIDv7)`)
  return id
}

/** What a list knows of a job, and nothing made up for what it does not read. */
function toLine(row: Row): JobLine {
  return {
    id: row['id'] as string,
    state: row['state'] as State,
    reason: row['reason'] as string | null,
    task: row['task'] as string,
    queue: row['queue'] as string,
    priority: Number(row['priority']),
    attempt: Number(row['attempt']),
    createdAt: row['created_at'] as Date,
    finishedAt: row['finished_at'] as Date | null,
    tags: (row['tags'] ?? []) as string[],
    error: row['error'] as Job['error'],
  }
}

function toJob(row: Row): Job {
  const { id, state, reason, task, queue, priority, attempt, createdAt, finishedAt, tags, error } = toLine(row)
  return {
    id,
    state,
    reason,
    task,
    queue,
    priority,
    attempt,
    failed: Number(row['failed']),
    crashes: Number(row['crashes']),
    ambiguous: row['ambiguous'] as boolean,
    createdAt,
    dueAt: row['due_at'] as Date | null,
    dispatchedAt: row['dispatched_at'] as Date | null,
    startedAt: row['started_at'] as Date | null,
    finishedAt,
    limits: (row['takes'] ?? []) as string[],
    tags,
    input: row['input'],
    result: row['result'],
    error,
    weight: Number(row['weight']),
    expiresAt: row['expires_at'] as Date | null,
    ruled: (row['ruled'] ?? []) as Job['ruled'],
  }
}
