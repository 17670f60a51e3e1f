/** Jobs as users see them: find, list, cancel, retry. */
import { UsageError } from '../core/errors.ts'
import { isId } from '../core/hash.ts'
import { type ParkedRow, parkedOf, parkedText } from '../core/parked.ts'
import { dateOf, type Row } from '../db/db.ts'
import type { Sql } from '../db/store.ts'
import { Bulk, type BulkOptions, type Counted } from './bulk.ts'
import type { JobFilter, State } from './filter.ts'

export type { State } from './filter.ts'

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
  /** Only where it cannot start because it, its lane or a bucket that it needs is parked: each with the command that releases it. */
  parked?: readonly string[]
}

/** A line of a list. */
export type JobLine = Pick<
  Job,
  'id' | 'state' | 'reason' | 'task' | 'queue' | 'priority' | 'attempt' | 'createdAt' | 'finishedAt' | 'tags' | 'error'
>

/** What `list` filters by, and which page. */
export interface ListOptions extends JobFilter {
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
const byUser = 'cancelled by a user'

/** Queries about jobs on one database. */
export class Jobs {
  readonly #sql: Sql
  readonly #bulk: Bulk

  constructor(sql: Sql) {
    this.#sql = sql
    this.#bulk = new Bulk(sql)
  }

  /** The job's record; undefined when there is none (any more). */
  async get(id: string): Promise<Job | undefined> {
    const [row] = await this.#sql.run('operations/view', [checkId(id)])
    return row === undefined ? undefined : toJob(row)
  }

  /**
   * Jobs, newest first.
   * @throws UsageError SLUICE_BAD_FILTER, SLUICE_BAD_ID, SLUICE_BAD_DURATION
   */
  async list({ before, limit = 50, ...filter }: ListOptions = {}): Promise<JobLine[]> {
    const from = before === undefined ? undefined : checkId(before)
    return (await this.#bulk.list(filter, Math.max(1, Math.min(1000, limit)), from)).map(toLine)
  }

  /**
   * Whole records, oldest first, up to the newest of when it began: read in pages, between which nothing is held open.
   * @throws UsageError SLUICE_BAD_FILTER, SLUICE_BAD_DURATION
   */
  async *stream(filter: JobFilter = {}): AsyncGenerator<Job> {
    for await (const row of this.#bulk.stream(filter)) yield toJob(row)
  }

  /**
   * How many jobs a filter fits: exact up to 10,000, unless it would look at more than 200,000 for that.
   * @throws UsageError SLUICE_BAD_FILTER, SLUICE_BAD_DURATION
   */
  count(filter: JobFilter = {}): Promise<Counted> {
    return this.#bulk.count(filter)
  }

  /**
   * The same filter, fixed to this moment, so that what was counted and shown can be acted on when somebody has said yes:
   * spans become times, and jobs that are made (finished ones: that end) later do not fit.
   * @throws UsageError SLUICE_BAD_FILTER, SLUICE_BAD_DURATION
   */
  asOfNow(filter: JobFilter = {}): Promise<JobFilter> {
    return this.#bulk.asOfNow(filter)
  }

  /**
   * Cancels an unfinished job. What a running attempt still does has no effect here; its `signal` aborts when its worker
   * next looks, within some 2 s. False: no such unfinished job.
   */
  async cancel(id: string, reason = byUser): Promise<boolean> {
    const [row] = await this.#sql.call<{ cancel: boolean }>('cancel', [checkId(id), reason])
    return row?.cancel ?? false
  }

  /**
   * Cancels all unfinished jobs that a filter fits, in portions, oldest first; jobs sent meanwhile are left alone.
   * Resolves to how many.
   * @param options `reason`: stored with each; default `cancelled by a user`
   * @throws UsageError SLUICE_BAD_FILTER, SLUICE_EMPTY_FILTER (it narrows nothing, and `all` is not said)
   */
  cancelMany(
    filter: JobFilter,
    { reason = byUser, ...options }: BulkOptions & { reason?: string } = {},
  ): Promise<number> {
    return this.#bulk.cancel(filter, reason, options)
  }

  /** Gives a failed job another round of attempts, behind the jobs that wait in its lane. False: no such failed job. */
  async retry(id: string): Promise<boolean> {
    return (await this.#sql.call('revive', [[checkId(id)]])).length > 0
  }

  /**
   * Retries all failed jobs that a filter fits, in portions, oldest first. Resolves to how many.
   * @throws UsageError SLUICE_BAD_FILTER, SLUICE_EMPTY_FILTER (it narrows nothing, and `all` is not said)
   */
  retryMany(filter: JobFilter, options: BulkOptions = {}): Promise<number> {
    return this.#bulk.retry(filter, options)
  }

  /**
   * Gives one job (by its id), or all that a filter fits, another priority: higher first, whole, -1000 to 1000. Only jobs
   * that wait or are scheduled have one to change; they keep their place in time. Resolves to how many have it now.
   * @throws UsageError SLUICE_BAD_ID, SLUICE_BAD_OPTION, SLUICE_BAD_FILTER, SLUICE_EMPTY_FILTER
   */
  async reprioritise(which: string | JobFilter, priority: number, options: BulkOptions = {}): Promise<number> {
    if (!Number.isInteger(priority) || Math.abs(priority) > 1000) {
      throw new UsageError('SLUICE_BAD_OPTION', `priority is ${priority}; it must be a whole number from -1000 to 1000`)
    }
    if (typeof which === 'string') return this.#bulk.reprioritiseIds([checkId(which)], priority)
    return this.#bulk.reprioritise(which, priority, options)
  }

  /** The state of the whole in numbers. */
  async status(): Promise<Status> {
    const [row = {}] = await this.#sql.query(
      'select s.*, (select coalesce(sum(w.stuck), 0) from sluice.worker w) as stuck from engine.status() s',
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
      oldestWaitingAt: dateOf(row['oldest_ms'] as number | null),
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
    createdAt: new Date(row['created_ms'] as number),
    finishedAt: dateOf(row['finished_ms'] as number | null),
    tags: (row['tags'] ?? []) as string[],
    error: row['error'] as Job['error'],
  }
}

function toJob(row: Row): Job {
  const { id, state, reason, task, queue, priority, attempt, createdAt, finishedAt, tags, error } = toLine(row)
  const parked = parkedOf(row['parked'] as ParkedRow[] | null).map(parkedText)
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
    dueAt: dateOf(row['due_ms'] as number | null),
    dispatchedAt: dateOf(row['dispatched_ms'] as number | null),
    startedAt: dateOf(row['started_ms'] as number | null),
    finishedAt,
    limits: (row['takes'] ?? []) as string[],
    tags,
    input: row['input'],
    result: row['result'],
    error,
    weight: Number(row['weight']),
    expiresAt: dateOf(row['expires_ms'] as number | null),
    ruled: (row['ruled'] ?? []) as Job['ruled'],
    ...(parked.length > 0 && { parked }),
  }
}
