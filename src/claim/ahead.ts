/** Jobs that are granted for an instant that is yet to come: they wait beside the slots, and start at that instant. */
import { limitOf } from '../core/bucket.ts'
import type { Clock } from '../core/clock.ts'
import { hash64 } from '../core/hash.ts'
import type { ClaimedJob } from './claimed-job.ts'

/** What becomes of them; see the fields. */
export interface AheadOptions {
  clock: Clock
  /** Returns how many can start now. */
  room(): number
  start(jobs: readonly ClaimedJob[]): void
  /** Their grants expired before there was room. */
  expired(jobs: readonly ClaimedJob[]): void
}

/** Returns which jobs a notification recalls (limits/room/recall_grants.sql): those of these buckets, of a limit, or all. */
export function recalled(notice: string): (job: ClaimedJob) => boolean {
  if (notice === '*') return () => true
  const ids = new Set(notice.split(','))
  const isMeant = (take: string) => (notice.startsWith('@') ? limitOf(take) === notice.slice(1) : ids.has(hash64(take)))
  return (job) => (job.holds ?? job.takes ?? []).some(isMeant)
}

/** Jobs that wait for their instant, the earliest first. */
export class Ahead {
  readonly #options: AheadOptions
  #jobs: ClaimedJob[] = []
  #disarm: (() => void) | undefined

  constructor(options: AheadOptions) {
    this.#options = options
  }

  /** How many there are. */
  get size(): number {
    return this.#jobs.length
  }

  /** Returns how many may start within this time, in ms. */
  within(ms: number): number {
    const untilMs = this.#options.clock.monotonicMs() + ms
    let count = 0
    while (count < this.#jobs.length && fromMs(this.#jobs[count]) <= untilMs) count++
    return count
  }

  add(jobs: readonly ClaimedJob[]): void {
    this.#jobs = [...this.#jobs, ...jobs].toSorted((a, b) => fromMs(a) - fromMs(b))
    this.look()
  }

  /** Removes one; false: it does not wait here. */
  delete(job: ClaimedJob): boolean {
    const at = this.#jobs.indexOf(job)
    if (at >= 0) this.#jobs.splice(at, 1)
    return at >= 0
  }

  /** Removes and returns those for which this is true. */
  remove(isMeant: (job: ClaimedJob) => boolean): ClaimedJob[] {
    const removed = this.#jobs.filter(isMeant)
    this.#jobs = this.#jobs.filter((job) => !removed.includes(job))
    return removed
  }

  /** Starts those whose instant has come, as far as there is room, and gives up those whose grants have expired. */
  readonly look = (): void => {
    if (this.#jobs.length === 0) return
    this.#disarm?.()
    this.#disarm = undefined
    const { clock, room, start, expired } = this.#options
    const nowMs = clock.monotonicMs()
    const late = this.remove((job) => deadlineMs(job) <= nowMs)
    if (late.length > 0) expired(late)
    const due = this.within(0)
    // Removed before they start: what starts may look again.
    const starting = this.#jobs.splice(0, due === 0 ? 0 : Math.min(due, room()))
    if (starting.length > 0) start(starting)
    if (this.#disarm !== undefined) return
    const next = Math.min(...this.#jobs.map((job) => (fromMs(job) > nowMs ? fromMs(job) : deadlineMs(job))))
    if (next < Infinity) this.#disarm = clock.after(Math.max(1, Math.ceil(next - nowMs)), this.look)
  }
}

const fromMs = (job: ClaimedJob | undefined): number => job?.fromMs ?? -Infinity

function deadlineMs({ grantedMs, grantUs }: ClaimedJob): number {
  return grantUs === null ? Infinity : grantedMs + grantUs / 1_000
}
