/** A job's attempts, its progress and its log lines, as users see them: made from what the store keeps. */
import { dateOf, type Row } from '../db/db.ts'

/** An error as it is stored with a job, without secrets: at most 4 KiB. */
export interface JobError {
  message: string
  name?: string
  /** The error's own code, or the first one among its causes: `SLUICE_HTTP_STATUS`, `ECONNREFUSED`. */
  code?: string
  /** The status of an HTTP response. */
  status?: number
  stack?: string
  cause?: JobError
}

/** One execution of a job's handler. Times are by the store's clock. */
export interface JobAttempt {
  /**
   * Its number, from 1. Snoozes do not count, so the attempt after a snooze has the same number; when the delivery of an event is
   * replayed, its attempts are counted anew.
   */
  attempt: number
  startedAt: Date
  /** Null while it runs. */
  endedAt: Date | null
  /**
   * `retried`, `snoozed`, `throttled` (the vendor refused it): the job was due again after `retryInMs`. `interrupted`: its worker had to stop; `lost`: its
   * worker was lost; both are in doubt, and the job was due again at once. `failed`, `done`, `cancelled`: the last one.
   */
  outcome: 'running' | 'done' | 'failed' | 'retried' | 'throttled' | 'snoozed' | 'interrupted' | 'lost' | 'cancelled'
  error: JobError | null
  /** How long the job waited before it, since it was sent or became due; null: not known. */
  waitedMs: number | null
  /** The limit, with its key, that had no room meanwhile; null: it waited for its turn or a free worker, or not known. */
  waitedFor: string | null
  /** After how long the next attempt is due; null: there is none, or it is due at once. */
  retryInMs: number | null
  /**
   * The units of each limit of the job: charged for all requests, and as the handler settled them (null: it did not). For a limit
   * in money: millionths of its currency.
   */
  units: readonly { limit: string; charged: number; settled: number | null }[]
  /** The worker's id, its machine and its version of Sluice. Null for a first attempt that succeeded. */
  worker: string | null
  host: string | null
  version: string | null
}

/** Where a job runs. */
export interface JobWorker {
  id: string
  host: string
  pid: number
  version: string
}

/** How far an attempt is. */
export interface JobProgress {
  done: number
  /** The value of `done` when all is done; 100: `done` is a percentage. */
  total: number
}

/** The log of the last attempt's handler. */
export interface JobLog {
  lines: readonly { at: Date; level: 'debug' | 'info' | 'warn' | 'error'; message: string; details?: unknown }[]
  /** Earlier lines that were not kept. */
  omitted: number
}

/** An attempt as it is stored: `engine.append_attempt` explains the fields. */
interface StoredAttempt {
  n: number
  at: number
  end: JobAttempt['outcome']
  ms: number
  wait?: number
  by?: number
  in?: number
  error?: JobError
  w?: number | string
  host: string
  v: string
  of?: string[]
  units?: number[]
  settled?: (number | null)[]
}

/** Progress and log lines as they are stored: worker/notes.ts explains the fields. */
interface StoredNotes {
  progress?: [done: number, total: number]
  log?: [atMs: number, level: JobLog['lines'][number]['level'], message: string, details?: unknown][]
  omitted?: number
}

/** Returns a job's attempts, the one that runs and a first one that succeeded included. */
export function attemptsOf(row: Row): JobAttempt[] {
  const named = (row['buckets'] ?? []) as string[]
  const costs = row['costs'] as number[] | null
  const charge = (buckets: string[], units: number[] | undefined, settled: (number | null)[] | undefined) =>
    buckets.map((limit, i) => ({ limit, charged: units?.[i] ?? costs?.[i] ?? 1, settled: settled?.[i] ?? null }))
  const kept = ((row['attempts'] ?? []) as StoredAttempt[]).map((stored): JobAttempt => {
    const buckets = stored.of ?? named
    return {
      attempt: stored.n,
      startedAt: new Date(stored.at),
      endedAt: new Date(stored.at + stored.ms),
      outcome: stored.end,
      error: stored.error ?? null,
      waitedMs: stored.wait ?? null,
      waitedFor: stored.by === undefined ? null : (buckets[stored.by] ?? null),
      retryInMs: stored.in ?? null,
      units: charge(buckets, stored.units, stored.settled),
      worker: stored.w === undefined ? null : String(stored.w),
      host: stored.host === '' ? null : stored.host,
      version: stored.v === '' ? null : stored.v,
    }
  })
  const [state, worker] = [row['state'], row['worker'] as JobWorker | null]
  const before = kept.at(-1)
  // The success of attempt 1 has no entry of its own; snoozes before it do.
  const isPlain = state === 'done' && before?.outcome !== 'done'
  if (state !== 'running' && !isPlain) return kept
  const startedAt = dateOf(row['started_ms'] as number | null)
  if (startedAt === null) return kept
  const dueMs = before === undefined ? Number(row['created_ms']) : Number(before.endedAt) + (before.retryInMs ?? 0)
  const last: JobAttempt = {
    attempt: Number(row['attempt']),
    startedAt,
    endedAt: dateOf(row['finished_ms'] as number | null),
    outcome: isPlain ? 'done' : 'running',
    error: null,
    waitedMs: isPlain ? Math.max(0, Math.round(Number(row['dispatched_ms']) - dueMs)) : null,
    waitedFor: null,
    retryInMs: null,
    units: charge((row['charged_buckets'] as string[] | null) ?? named, undefined, undefined),
    worker: worker?.id ?? null,
    host: worker?.host ?? null,
    version: worker?.version ?? null,
  }
  return [...kept, last]
}

/** Returns what the last attempt's handler reported. */
export function notesOf(row: Row): { progress: JobProgress | null; log: JobLog } {
  const { progress, log = [], omitted = 0 } = (row['notes'] ?? {}) as StoredNotes
  return {
    progress: progress === undefined ? null : { done: progress[0], total: progress[1] },
    log: {
      lines: log.map(([at, level, message, details]) => ({
        at: new Date(at),
        level,
        message,
        ...(details === undefined ? {} : { details }),
      })),
      omitted,
    },
  }
}
