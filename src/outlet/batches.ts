/** Divides the jobs for one worker among messages. Pure, but for the clock that it reads. */
import type { ClaimedJob } from '../claim/claimed-job.ts'
import { type Clock, caughtUpMs } from '../core/clock.ts'
import { latestArrivalMs, messageMax, type SentJob } from './messages.ts'

/** The jobs of one message, which have the same time to arrive. */
export interface GrantBatch {
  /** When it was made, in monotonic ms. */
  at: number
  leftMs: number
  jobs: ClaimedJob[]
  texts: string[]
  /** In characters. */
  size: number
}

/** Returns the messages for these jobs. */
export function batchesOf(jobs: readonly ClaimedJob[], clock: Clock): GrantBatch[] {
  const at = clock.monotonicMs()
  const batches: GrantBatch[] = []
  const open = new Map<number, GrantBatch>()
  for (const job of jobs) {
    // Time that this clock has missed since the claim makes the grant older.
    const {
      requestedAt: _requestedAt,
      claimedMs: _claimedMs,
      notBeforeMs: _notBeforeMs,
      decidedMs: _decidedMs,
      ...sent
    } = {
      ...job,
      grantedMs: job.grantedMs - (caughtUpMs(clock, job.requestedAt) - at),
    }
    const text = JSON.stringify(sent satisfies SentJob)
    const leftMs = Math.floor(latestArrivalMs(sent) - at)
    let batch = open.get(leftMs)
    if (batch === undefined || batch.size + text.length > messageMax) {
      open.set(leftMs, (batch = { at, leftMs, jobs: [], texts: [], size: 0 }))
      batches.push(batch)
    }
    batch.jobs.push(job)
    batch.texts.push(text)
    batch.size += text.length
  }
  return batches
}
