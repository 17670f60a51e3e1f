/** A job's record as it is shown. */
import { redact } from '../core/redact.ts'
import type { Job } from '../index.ts'

/** Redacts secrets in the fields that users and vendors fill; with `reveal` returns the record as it is. */
export function shown(job: Job, reveal = false): Job {
  const { input, result, error, limits, tags, ruled, reason } = job
  return reveal ? job : { ...job, ...redact({ input, result, error, limits, tags, ruled, reason }) }
}
