/** Jobs whose limits are in Redis, too, start only when Redis grants them. */
import type { Clock } from '../core/clock.ts'
import type { PeerDecision, PeerLimiter, Wish } from '../limits/peer.ts'
import type { Denial, ClaimedJob } from './claimed-job.ts'

/** Returns the units that a job has of each of its buckets. */
export function unitsOf(job: Pick<ClaimedJob, 'buckets' | 'chargedBuckets' | 'costs'>): {
  buckets: string[]
  units: number[]
} {
  const buckets = job.chargedBuckets ?? job.buckets ?? []
  return { buckets, units: job.costs?.slice(0, buckets.length) ?? buckets.map(() => 1) }
}

/** Receives Redis's verdict; see the fields. */
export interface Verdict {
  /** These jobs may start now, or from their `notBeforeMs` on. */
  granted(jobs: readonly ClaimedJob[]): void
  /** These jobs go back to the store now. */
  denied(jobs: readonly ClaimedJob[], denial: Denial): void
}

/**
 * Requests grants for jobs that were just claimed, in one call, and reports the verdict on each job as soon as it may
 * be acted on.
 */
export function requestGrants(jobs: readonly ClaimedJob[], peer: PeerLimiter, clock: Clock, verdict: Verdict): void {
  const groups = new Map<string, { wish: Omit<Wish, 'count' | 'lifeMs'>; jobs: ClaimedJob[] }>()
  const unlimited = jobs.filter(({ buckets }) => buckets === null)
  for (const job of jobs) {
    if (job.buckets === null) continue
    const wish = { ...unitsOf(job), notBeforeMs: job.notBeforeMs }
    const key = JSON.stringify([wish.buckets, wish.units, wish.notBeforeMs])
    const group = groups.get(key)
    if (group === undefined) groups.set(key, { wish, jobs: [job] })
    else group.jobs.push(job)
  }
  if (unlimited.length > 0) verdict.granted(unlimited)
  const all = [...groups.values()]
  const [first] = all[0]?.jobs ?? []
  if (first === undefined) return
  const wishes = all.map(({ wish, jobs: those }) => ({ ...wish, count: those.length, lifeMs: lifeMsOf(those) }))
  const { epoch, grantedMs, decidedMs = grantedMs, requestedAt } = first
  void peer.confirm({ wishes, epoch, sentMs: decidedMs, requestedAt }).then(({ id, decisions }) => {
    for (const [i, { jobs: those }] of all.entries()) decide(those, id, decisions[i], clock, verdict)
  })
}

/** Returns how long the grants of jobs live, in ms; 0: the jobs only have places. */
function lifeMsOf(jobs: readonly ClaimedJob[]): number {
  return Math.max(0, ...jobs.map(({ grantUs }) => (grantUs ?? 0) / 1_000))
}

function decide(
  jobs: readonly ClaimedJob[],
  id: string | undefined,
  decision: PeerDecision | undefined,
  clock: Clock,
  verdict: Verdict,
): void {
  const granted = jobs.slice(0, decision?.granted ?? 0)
  const denied = jobs.slice(granted.length)
  const deny = () => verdict.denied(denied, { kind: 'denied', reason: decision?.lacking })
  // The store has to hold that bucket first, because otherwise the jobs would be claimed again at once.
  if (denied.length > 0) void Promise.resolve(decision?.held).then(deny)
  if (granted.length === 0 || decision === undefined) return
  const { fromMs, notBeforeMs = 0 } = decision
  if (id !== undefined && fromMs !== undefined)
    for (const job of granted) {
      job.grant = id
      job.claimedMs = job.grantedMs
      job.grantedMs = fromMs
      // Redis may grant for a moment that is yet to come.
      if (notBeforeMs > clock.monotonicMs()) job.notBeforeMs = Math.max(job.notBeforeMs ?? 0, notBeforeMs)
    }
  verdict.granted(granted)
}
