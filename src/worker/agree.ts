/** Requests the consent of Redis (or any `SharedLimits`) for claimed jobs whose limits it shares. */
import type { Denial, Handout } from '../claim/claimed-job.ts'
import type { Leave, SharedLimits, Wish } from '../limits/peer.ts'

/** Returns a job's buckets and the units that it takes of each. */
export function unitsOf(job: Pick<Handout, 'takes' | 'holds' | 'costs'>): { takes: string[]; units: number[] } {
  const takes = job.holds ?? job.takes ?? []
  return { takes, units: job.costs?.slice(0, takes.length) ?? takes.map(() => 1) }
}

/** Requests consent for jobs that were just claimed, all in one call; each job gets its result in `agreed`. */
export function askFor(jobs: readonly Handout[], shared: SharedLimits): void {
  const groups = new Map<string, { wish: Omit<Wish, 'count'>; jobs: Handout[] }>()
  for (const job of jobs) {
    if (job.takes === null) continue
    const wish = unitsOf(job)
    const key = `${wish.takes.join('\n')}\n${wish.units.join()}`
    const group = groups.get(key)
    if (group === undefined) groups.set(key, { wish, jobs: [job] })
    else group.jobs.push(job)
  }
  const all = [...groups.values()]
  const [first] = all[0]?.jobs ?? []
  if (first === undefined) return
  const asked = shared.ask({
    wishes: all.map(({ wish, jobs: those }) => ({ ...wish, count: those.length })),
    epoch: first.epoch,
    sentMs: first.grantedMs,
    asked: first.asked,
  })
  for (const [i, { jobs: those }] of all.entries())
    for (const [at, job] of those.entries())
      job.agreed = asked.then(async ({ id, leaves }) => {
        const denied = outcomeOf(job, at, id, leaves[i])
        // Wait for the hold before the job goes back; otherwise it would be claimed again at once.
        if (denied !== undefined) await leaves[i]?.held
        return denied
      })
}

function outcomeOf(job: Handout, at: number, id: string | undefined, leave: Leave | undefined): Denial | undefined {
  if (leave === undefined || at >= leave.granted) return { kind: 'denied', reason: leave?.lacking }
  if (id === undefined) return undefined
  job.grant = id
  job.grantedMs = leave.fromMs
  job.notBeforeMs = leave.notBeforeMs
  return undefined
}
