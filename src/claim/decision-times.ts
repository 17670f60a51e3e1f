/** When the store decided a claim, by the clock of this process, and when its jobs may start. */
import type { Span } from '../core/clock.ts'
import type { ClaimedJob } from './claimed-job.ts'

/** The columns of a claim's reply for how long it waited before it decided, and how long it took afterwards, in microseconds. */
interface Waits {
  waited_us: string | null
  took_us: string | null
}

/**
 * Returns the earliest and the latest time, in monotonic ms, at which the store may have decided a claim: it waited for locks
 * before, and handed out jobs after that. If both together took longer than the whole call, the store's clock has stepped.
 */
export function decidedBetween(row: Waits, sentMs: number, receivedMs: number): Span {
  const [waitedMs, tookMs] = [row.waited_us, row.took_us].map((us) => Number(us ?? 0) / 1_000) as [number, number]
  const isPossible = waitedMs >= 0 && tookMs >= 0 && waitedMs + tookMs <= receivedMs - sentMs
  return isPossible ? [sentMs + waitedMs, receivedMs - tookMs] : [sentMs, receivedMs]
}

/**
 * Sets when the jobs of a claim ahead of time may start. The life of a grant counts from the earliest time that its instant may be
 * here, and its use begins at the latest.
 */
export function setInstants(
  jobs: readonly ClaimedJob[],
  instants: readonly string[],
  nowUs: number,
  claimedMs: number,
  [earliestMs, latestMs]: Span,
): void {
  // A job with the instant of another one could begin before its own.
  if (jobs.length !== instants.length) throw new Error('a claim has other instants than jobs')
  for (const [i, job] of jobs.entries()) {
    const laterMs = (Number(instants[i]) - nowUs) / 1_000
    job.decidedMs = claimedMs
    job.grantedMs = earliestMs + laterMs
    job.notBeforeMs = latestMs + laterMs
  }
}
