/** Several outlets as one: each executes tasks of its own. They may begin later than the dispatcher, and have no free slots until then. */
import type { ClaimedJob } from '../claim/claimed-job.ts'
import type { Estate, Kind, Outlet, OutletFor } from '../claim/outlet.ts'

/** An outlet, and its tasks, each of which is of one of its kinds. The outlet enlists its workers. */
export interface Part {
  tasks: ReadonlySet<string>
  outlet: OutletFor
  /** Called once, after `outlet`. */
  open(): Promise<void>
}

/** Gives each job to the outlet of its task. */
export class OutletsByTask implements Outlet {
  #parts: readonly { tasks: ReadonlySet<string>; outlet: Outlet }[] = []
  #owner: Parameters<OutletFor> | undefined

  /** Reports there from now on. */
  readonly for: OutletFor = (...owner) => {
    this.#owner = owner
    return this
  }

  /** Opens these outlets in order, and uses them from then on. Until then, and if one of them fails, there is no room. */
  async begin(parts: readonly Part[]): Promise<void> {
    const owner = this.#owner
    if (owner === undefined) throw new TypeError('nobody claims for these outlets')
    const begun = parts.map(({ tasks, outlet }) => ({ tasks, outlet: outlet(...owner) }))
    for (const part of parts) await part.open()
    this.#parts = begun
    const [reports] = owner
    reports.changed()
  }

  enlist(): readonly string[] {
    return this.#parts.flatMap(({ outlet }) => outlet.enlist?.() ?? [])
  }

  get kin(): string | undefined {
    return this.#parts.find(({ outlet }) => outlet.kin !== undefined)?.outlet.kin
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

  retire(): void {
    for (const { outlet } of this.#parts) outlet.retire?.()
  }

  #sum(of: (outlet: Outlet) => number): number {
    return this.#parts.reduce((sum, { outlet }) => sum + of(outlet), 0)
  }
}
