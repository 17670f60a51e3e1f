/** A job's record as people see it. */
import { redact } from '../core/redact.ts'
import type { Job } from '../index.ts'

/** The record without the secrets in what users and vendors put into it; with `reveal` as it is. */
export function shown(job: Job, reveal = false): Job {
  const { input, result, error, limits, tags, ruled, reason } = job
  return reveal ? job : { ...job, ...redact({ input, result, error, limits, tags, ruled, reason }) }
}
