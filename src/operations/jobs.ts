/** The users' view of jobs: find, list, cancel, retry. */
import { UsageError } from '../core/errors.ts'
import { systemClock } from '../core/clock.ts'
import { checkMax } from '../core/fields.ts'
import { isId } from '../core/hash.ts'
import { encodePayload } from '../core/payload.ts'
import { type ParkedRow, parkedOf, parkedText } from '../core/parked.ts'
import type { ResultOf, Stored } from '../core/result.ts'
import { dateOf, type Row } from '../db/db.ts'
import type { Sql } from '../db/store.ts'
import { admit } from '../tasks/admit.ts'
import type { AnyTask } from '../tasks/task.ts'
import {
  attemptsOf,
  type JobAttempt,
  type JobError,
  type JobLog,
  type JobProgress,
  type JobWorker,
  notesOf,
} from './attempts.ts'
import { type Backlog, readBacklog } from './backlog.ts'
import { Bulk, type BulkOptions, checkReason, type Counted } from './bulk.ts'
import type { JobReason } from '../core/reasons.ts'
import type { JobFilter, State } from './filter.ts'

export type { State } from './filter.ts'

/** A job's record: the fields of every job, and, when it is done, what its task returned. */
export type Job<Result = unknown> = JobFields &
  ({ state: 'done'; result: Stored<Result> } | { state: Exclude<State, 'done'>; result: null })

/** The fields of every job. Times are by the store's clock. */
export interface JobFields {
  id: string
  /** Why it failed, was cancelled, or is scheduled; null while it waits or runs, and when it is done. */
  reason: JobReason | null
  task: string
  queue: string
  priority: number
  /** Attempts begun. */
  attempt: number
  /** Attempts that failed. */
  failed: number
  /** Attempts that the vendor refused because of its own limits; they are not failures. */
  throttled: number
  /** Attempts whose worker was lost. */
  crashes: number
  /** An attempt may have reached the vendor without its outcome being known. */
  ambiguous: boolean
  createdAt: Date
  /** The job does not start before this time; null unless scheduled. */
  dueAt: Date | null
  /** When it was claimed last, or, if it was granted ahead of time, when it may begin; null: never. */
  dispatchedAt: Date | null
  /** When the last attempt began; of a running job, when it was claimed for it. Null while it waits for the instant of its grant. */
  startedAt: Date | null
  finishedAt: Date | null
  /** `limit:key` for each limit of the job. */
  limits: string[]
  tags: string[]
  input: unknown
  /** The error of the last attempt that had one. */
  error: JobError | null
  /** Its fair key's share of turns. */
  weight: number
  /** No attempt begins after this time; null: no bound. Only while unfinished. */
  expiresAt: Date | null
  /** The changes that each rule made to the job, in order; `time limit`: that of the message that it comes from. */
  ruled: readonly ({ rule: string } & Record<string, unknown>)[]
  /** Where it runs, or which dispatcher has it; null unless dispatched or running. */
  worker: JobWorker | null
  /** The first 20 and the last 20 attempts, the earliest first. */
  attempts: readonly JobAttempt[]
  /** The last attempt's report by `ctx.progress`; null: none. */
  progress: JobProgress | null
  /** The last attempt's lines of `ctx.log`. */
  log: JobLog
  /** Only if the job, its lane or a bucket that it needs is parked, so that it cannot start: each with the command that releases it. */
  parked?: readonly string[]
}

/** A line of a list. */
export type JobLine = Pick<
  Job,
  'id' | 'state' | 'reason' | 'task' | 'queue' | 'priority' | 'attempt' | 'createdAt' | 'finishedAt' | 'tags' | 'error'
>

/** The filter of `list`, and which page. */
export interface ListOptions extends JobFilter {
  /** Only jobs created before the job with this id. Give the last id of a page to get the next page. */
  before?: string
  /** Jobs in a page, 1 to 1000, default 50. */
  max?: number
}

/** The jobs of a task whose attempts fail. */
export interface FailingJobs {
  task: string
  /** How many wait for another attempt after a failure; of the 10,000 scheduled jobs that are due first. */
  retrying: number
  /** How many have failed for good within the last hour; of the 10,000 that were sent last. */
  failed: number
  /** When the newest of these attempts began, or job ended. */
  lastAt: Date
  /** The message of its error. */
  error: string
}

interface FailingRow extends Omit<FailingJobs, 'lastAt'> {
  last_ms: number
}

/** The state of the store in numbers. Jobs are counted up to `countedTo`, so that the answer never takes long. */
export interface Status {
  /** Beyond `countedTo` an estimate. */
  waiting: number
  /** Greater than `countedTo`: a lower bound. */
  scheduled: number
  /** Claimed by a dispatcher, and not begun by one of its workers. */
  dispatched: number
  running: number
  /** Jobs in the history that is kept; beyond `countedTo` an estimate, which includes cancelled ones. */
  done: number
  /** Greater than `countedTo`: a lower bound. */
  failed: number
  workers: number
  /** How many attempts all workers can run at once. */
  slots: number
  /** Handlers that still run though their attempts have ended, on all workers. */
  stuck: number
  /** When the job that has waited longest was sent; null: no job waits. */
  oldestWaitingAt: Date | null
  countedTo: number
}

/** As in operations/read_store_status.sql. */
const countedTo = 10_000
const byUser = 'cancelled by a user'
const discardedByUser = 'discarded by a user'

/** Queries about jobs on one database. */
export class Jobs {
  readonly #sql: Sql
  readonly #bulk: Bulk

  constructor(sql: Sql) {
    this.#sql = sql
    this.#bulk = new Bulk(sql)
  }

  /** Reads a job's record; undefined: there is none, or it was deleted after its retention. @throws UsageError SLUICE_BAD_ID */
  async get<Id extends string>(id: Id): Promise<Job<ResultOf<Id>> | undefined> {
    const [row] = await this.#sql.run('operations/read_job', [checkId(id)])
    return row === undefined ? undefined : toJob<ResultOf<Id>>(row)
  }

  /**
   * Lists jobs, newest first.
   * @throws UsageError SLUICE_BAD_OPTION, SLUICE_BAD_FILTER, SLUICE_BAD_ID, SLUICE_BAD_DURATION
   */
  async list({ before, max = 50, ...filter }: ListOptions = {}): Promise<JobLine[]> {
    const from = before === undefined ? undefined : checkId(before)
    return (await this.#bulk.list(filter, checkMax(max, 1_000), from)).map(toLine)
  }

  /**
   * Reads whole records, oldest first, up to the job that was the newest when it began. It reads in pages and holds
   * nothing open between them.
   * @throws UsageError SLUICE_BAD_FILTER, SLUICE_BAD_DURATION
   */
  async *stream(filter: JobFilter = {}): AsyncGenerator<Job> {
    for await (const row of this.#bulk.stream(filter)) yield toJob(row)
  }

  /**
   * Counts the jobs that a filter matches: exactly up to 10,000, unless it would have to read more than 200,000 jobs.
   * @throws UsageError SLUICE_BAD_FILTER, SLUICE_BAD_DURATION
   */
  count(filter: JobFilter = {}): Promise<Counted> {
    return this.#bulk.count(filter)
  }

  /**
   * Fixes a filter to this moment, so that the jobs that were counted and shown are those that are changed once the user
   * has confirmed: durations become times, and jobs that are created (finished ones: that end) later do not match.
   * @throws UsageError SLUICE_BAD_FILTER, SLUICE_BAD_DURATION
   */
  asOfNow(filter: JobFilter = {}): Promise<JobFilter> {
    return this.#bulk.asOfNow(filter)
  }

  /**
   * Cancels an unfinished job. The result of a running attempt is ignored from now on; its `signal` aborts when its worker
   * next checks, within some 2 s. Resolves to false if there is no such unfinished job.
   * @throws UsageError SLUICE_BAD_ID; StoreError SLUICE_STORE_UNREACHABLE: also if another transaction has locked it
   */
  async cancel(id: string, reason = byUser): Promise<boolean> {
    return this.#bulk.cancelId(checkId(id), reason)
  }

  /**
   * Cancels all unfinished jobs that a filter matches, in portions, oldest first; jobs sent meanwhile are not cancelled.
   * Resolves to how many.
   * @param options `reason`: stored with each; default `cancelled by a user`
   * @throws UsageError SLUICE_BAD_FILTER, SLUICE_EMPTY_FILTER (it matches every job, and `all` is not true)
   */
  cancelMany(
    filter: JobFilter,
    { reason = byUser, ...options }: BulkOptions & { reason?: string } = {},
  ): Promise<number> {
    return this.#bulk.cancel(filter, reason, options)
  }

  /**
   * Gives a failed job another round of attempts, behind the jobs that wait in its lane. A job that waits for another attempt may
   * begin that now, and keeps its count of attempts. Resolves to false if the job is neither.
   * @throws UsageError SLUICE_BAD_ID
   */
  async retry(id: string): Promise<boolean> {
    const ids = [checkId(id)]
    return (await this.#bulk.retryFailed(ids)) > 0 || (await this.#bulk.retryScheduled(ids)) > 0
  }

  /**
   * Retries a failed job with another input: its queue, priority, tags and number of attempts stay, its limit keys follow
   * from the new input. Resolves to false if there is no such failed job.
   * @param task the job's task, whose schema and limits check the input at once; without it a worker checks the input
   * before the handler, and the job fails (`refused`) if it does not fit
   * @throws UsageError SLUICE_BAD_ID, SLUICE_OTHER_TASK (the job is of another task), SLUICE_INVALID_INPUT and other
   * errors of a send
   */
  async retryWith(id: string, input: unknown, task?: AnyTask): Promise<boolean> {
    const job = await this.get(id)
    if (job?.state !== 'failed') return false
    if (task !== undefined && ![task.name, ...(task.formerly ?? [])].includes(job.task))
      throw new UsageError('SLUICE_OTHER_TASK', `job ${id} is of task "${job.task}", not of "${task.name}"`)
    const text = encodePayload(input, `input of "${job.task}"`)
    if (task !== undefined) await admit(task, JSON.parse(text), { queue: job.queue }, systemClock)
    return (await this.#sql.call('retry_failed', [[id], text])).length > 0
  }

  /**
   * Discards a failed job: nobody will retry it. It is cancelled from now on, with its whole record. Resolves to false if
   * there is no such failed job.
   * @throws UsageError SLUICE_BAD_ID
   */
  async discard(id: string, reason = discardedByUser): Promise<boolean> {
    return (await this.#sql.call('discard_failed', [[checkId(id)], checkReason(reason)])).length > 0
  }

  /**
   * Discards all failed jobs that a filter matches, in portions, oldest first. Resolves to how many.
   * @param options `reason`: stored with each; default `discarded by a user`
   * @throws UsageError SLUICE_BAD_FILTER, SLUICE_EMPTY_FILTER (it matches every job, and `all` is not true)
   */
  discardMany(
    filter: JobFilter,
    { reason = discardedByUser, ...options }: BulkOptions & { reason?: string } = {},
  ): Promise<number> {
    return this.#bulk.discard(filter, reason, options)
  }

  /**
   * Retries all failed jobs that a filter matches, in portions, oldest first; with `state: 'scheduled'` jobs that wait for another
   * attempt, as `retry` does. Resolves to how many.
   * @throws UsageError SLUICE_BAD_FILTER, SLUICE_EMPTY_FILTER (it matches every job, and `all` is not true)
   */
  retryMany(filter: JobFilter, options: BulkOptions = {}): Promise<number> {
    return this.#bulk.retry(filter, options)
  }

  /**
   * Changes the priority of one job (by its id), or of all that a filter matches. Only jobs that wait or are scheduled can
   * change; among jobs of the new priority they keep their order by time. Resolves to how many have it now.
   * @param priority a whole number from -1000 to 1000; higher first
   * @throws UsageError SLUICE_BAD_ID, SLUICE_BAD_OPTION, SLUICE_BAD_FILTER, SLUICE_EMPTY_FILTER
   */
  async reprioritise(which: string | JobFilter, priority: number, options: BulkOptions = {}): Promise<number> {
    if (!Number.isInteger(priority) || Math.abs(priority) > 1000) {
      throw new UsageError('SLUICE_BAD_OPTION', `priority is ${priority}; it must be a whole number from -1000 to 1000`)
    }
    if (typeof which === 'string') return this.#bulk.reprioritiseIds([checkId(which)], priority)
    return this.#bulk.reprioritise(which, priority, options)
  }

  /** Reads the state of the store in numbers. */
  async status(): Promise<Status> {
    const [row = {}] = await this.#sql.query(
      'select s.*, (select coalesce(sum(w.stuck), 0) from sluice.worker w) as stuck from engine.read_store_status() s',
    )
    const number = (name: string) => Number(row[name])
    return {
      waiting: number('waiting'),
      scheduled: number('scheduled'),
      dispatched: number('dispatched'),
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

  /** Reads what waits, by task and queue and by limit, and what stops it: the tables of `sluice status`, for metrics. */
  backlog(): Promise<Backlog> {
    return readBacklog(this.#sql)
  }

  /** Reads the tasks whose attempts fail, those with most such jobs first; 20 at most. */
  async failing(): Promise<FailingJobs[]> {
    const rows = await this.#sql.call<FailingRow>('read_failing')
    return rows.map(({ last_ms: lastMs, ...rest }) => ({ ...rest, lastAt: new Date(lastMs) }))
  }
}

/** Returns whether a job never leaves this state by itself. */
export function isFinal(state: State): boolean {
  return state === 'done' || state === 'failed' || state === 'cancelled'
}

/** Returns a job's id as it is. @throws UsageError SLUICE_BAD_ID if it is none */
export function checkId(id: string): string {
  // Plain JavaScript may forget to await.
  if ((id as unknown) instanceof Promise)
    throw new UsageError('SLUICE_BAD_ID', 'a promise is no job id: await the send that it comes from')
  if (!isId(id)) throw new UsageError('SLUICE_BAD_ID', `"${id}" is not a job id (a UUIDv7)`)
  return id
}

/** Converts a row of a list, with only the fields that a list reads. */
function toLine(row: Row): JobLine {
  return {
    id: row['id'] as string,
    state: row['state'] as State,
    reason: row['reason'] as JobReason | null,
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

function toJob<Result>(row: Row): Job<Result> {
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
    throttled: Number(row['throttled']),
    crashes: Number(row['crashes']),
    ambiguous: row['ambiguous'] as boolean,
    createdAt,
    dueAt: dateOf(row['due_ms'] as number | null),
    dispatchedAt: dateOf(row['dispatched_ms'] as number | null),
    startedAt: dateOf(row['started_ms'] as number | null),
    finishedAt,
    limits: (row['buckets'] ?? []) as string[],
    tags,
    input: row['input'],
    result: row['result'],
    error,
    weight: Number(row['weight']),
    expiresAt: dateOf(row['expires_ms'] as number | null),
    ruled: [(row['ruled'] ?? []) as Job['ruled']].flat(),
    worker: (row['worker'] ?? null) as JobWorker | null,
    attempts: attemptsOf(row),
    ...notesOf(row),
    ...(parked.length > 0 && { parked }),
  } as Job<Result>
}
