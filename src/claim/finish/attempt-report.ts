/** The report of an attempt for its job's record. A plain success at first try adds nothing, because the job's row has it all. */
import { hashed } from '../../core/hash.ts'
import type { ClaimedJob } from '../claimed-job.ts'

/** The worker that ran an attempt. */
export interface Executor {
  /** The worker's id, or its name if another program ran the attempt. */
  worker: string | undefined
  host: string
  version: string
}

/** Facts about an attempt that only the outlet knows; all of them are optional. */
export interface AttemptReport {
  /** Where it ran; default: in the process that claimed its job. */
  by?: Executor
  /** The units that were charged for each bucket of the job; default: its costs. */
  units?: readonly number[]
  /** The units settled for each bucket of the job; null: none. */
  settled?: readonly (number | null)[]
  /** Progress and log lines, as JSON (worker/notes.ts). */
  notes?: string
}

/** How an attempt ended (`Outcome` in outcome.ts), as far as it matters here. */
interface Ended {
  kind: string
  /** Undefined: no handler was called. */
  tookMs?: number
  report?: AttemptReport
}

/** The longest host name of the domain name system's labels. */
const nameMax = 63

/**
 * Returns the report of an attempt for `engine.finish_attempts`; undefined: there is none, because the handler was not
 * called, or there is nothing that the job's row does not have.
 * @param executor the process that claimed the job
 */
export function encodeReport(job: ClaimedJob, outcome: Ended, executor: Executor | undefined): string | undefined {
  const { report = {}, tookMs } = outcome
  // A rule discards a job before its handler.
  if (tookMs === undefined || outcome.kind === 'discard') return undefined
  const { units, settled, notes } = report
  if (outcome.kind === 'done' && job.attempt === 1 && !units && !settled && notes === undefined) return undefined
  const { worker, host, version } = report.by ?? executor ?? { worker: undefined, host: '', version: '' }
  const buckets = job.chargedBuckets ?? job.buckets ?? []
  const by = job.blocker === null ? -1 : buckets.findIndex((bucket) => hashed(bucket) === job.blocker)
  const record = {
    ms: Math.round(tookMs),
    ...(worker !== undefined && { w: /^\d{1,15}$/.test(worker) ? Number(worker) : brief(worker) }),
    host: brief(host),
    v: brief(version),
    ...(by >= 0 && { by }),
    ...(job.chargedBuckets !== null && { of: job.chargedBuckets }),
    ...(units !== undefined && { units }),
    ...(settled !== undefined && { settled }),
  }
  return `[${JSON.stringify(record)}${notes === undefined ? '' : `,${notes}`}]`
}

function brief(text: string): string {
  return text.slice(0, nameMax).replaceAll('\u0000', '').toWellFormed()
}
