/** Several outlets as one: each executes tasks of its own. */
import type { ClaimedJob } from '../claim/claimed-job.ts'
import type { Estate, Kind, Outlet, OutletFor } from '../claim/outlet.ts'

/** An outlet, and its tasks. Each of these is of one of its kinds. */
export interface Part {
  tasks: ReadonlySet<string>
  outlet: OutletFor
}

/** Returns the outlet that gives each job to the one of its task. */
export function byTask(parts: readonly Part[]): OutletFor {
  return (reports, claimer) =>
    new ByTask(parts.map(({ tasks, outlet }) => ({ tasks, outlet: outlet(reports, claimer) })))
}

class ByTask implements Outlet {
  readonly enlist?: () => readonly string[]
  readonly kin: string | undefined
  readonly #parts: readonly { tasks: ReadonlySet<string>; outlet: Outlet }[]

  constructor(parts: readonly { tasks: ReadonlySet<string>; outlet: Outlet }[]) {
    this.#parts = parts
    this.kin = parts.find(({ outlet }) => outlet.kin !== undefined)?.outlet.kin
    const enlisting = parts.flatMap(({ outlet }) =>
      outlet.enlist === undefined ? [] : [() => outlet.enlist?.() ?? []],
    )
    // Otherwise nobody could know that what one of them has was not begun.
    if (enlisting.length === parts.length) this.enlist = () => enlisting.flatMap((enlist) => enlist())
  }

  inherit(estate: Estate): void {
    for (const { outlet } of this.#parts)
      if (outlet.kin !== undefined && estate.name.startsWith(outlet.kin)) outlet.inherit?.(estate)
  }

  get slots(): number {
    return this.#sum(({ slots }) => slots)
  }

  get kinds(): readonly Kind[] {
    return this.#parts.flatMap(({ outlet }) => outlet.kinds)
  }

  free(): number {
    return this.#sum((outlet) => outlet.free())
  }

  start(jobs: readonly ClaimedJob[]): void {
    for (const { tasks, outlet } of this.#parts) {
      const own = jobs.filter(({ task }) => tasks.has(task))
      if (own.length > 0) outlet.start(own)
    }
  }

  abort(job: ClaimedJob, reason: Error): void {
    for (const { tasks, outlet } of this.#parts) if (tasks.has(job.task)) outlet.abort(job, reason)
  }

  #sum(of: (outlet: Outlet) => number): number {
    return this.#parts.reduce((sum, { outlet }) => sum + of(outlet), 0)
  }
}
