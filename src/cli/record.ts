/** A job's record as it is shown, or that there is none. */
import { SluiceError } from '../core/errors.ts'
import { redact } from '../core/redact.ts'
import type { Job } from '../index.ts'

/** Redacts secrets in the fields that users and vendors fill; with `reveal` returns the record as it is. */
export function shown(job: Job, reveal = false): Job {
  if (reveal) return job
  const { input, result, error, limits, tags, ruled, reason, attempts, log } = job
  return {
    ...job,
    ...redact({ input, result, error, limits, tags, ruled, reason }),
    attempts: attempts.map((each) => {
      const { error: failure, units, waitedFor } = each
      return { ...each, ...redact({ error: failure, units, waitedFor }) }
    }),
    log: { ...log, lines: log.lines.map(({ at, ...line }) => ({ at, ...redact(line) })) },
  }
}

/** Makes the error for a missing job: not a UsageError, so the exit code is 1. */
export function noSuchJob(id: string): SluiceError {
  return new SluiceError('SLUICE_NO_SUCH_JOB', `there is no job ${id}, or its record is past its retention`)
}
