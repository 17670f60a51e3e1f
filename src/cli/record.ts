/** Redacts a job's record. */
import { redact } from '../core/redact.ts'
import type { Job } from '../index.ts'

/** Redacts secrets in the fields that users and vendors fill; with `reveal` returns the record as it is. */
export function redactJob(job: Job, reveal = false): Job {
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
  } as Job
}
