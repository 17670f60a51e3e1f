/** An outlet that executes elsewhere. It passes on every report when it arrives: late, twice, in any order, or never. */
import { Worker } from 'node:worker_threads'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import type { Kind, Outlet, Reports } from '../../src/claim/outlet.ts'

interface Message {
  key: number
  what: 'began' | 'ended'
  attempt: number
  result?: string
  error?: string
}

/** Executes up to `places` jobs in a thread; `few`: the tasks of which at most two run at once. */
export class Remote implements Outlet {
  readonly kinds: readonly Kind[]
  readonly slots: number
  readonly #far = new Worker(new URL('remote.mjs', import.meta.url))
  readonly #began: (job: ClaimedJob) => void
  readonly #jobs: ClaimedJob[] = []
  /** Keys of the jobs that take a place. */
  readonly #busy = new Set<number>()

  constructor(places: number, few: readonly string[], began: (job: ClaimedJob) => void, reports: Reports) {
    const tasks = new Set(few)
    const fewFree = () => 2 - [...this.#busy].filter((key) => tasks.has(this.#jobs[key]?.task ?? '')).length
    this.kinds = [{ tasks, free: () => Math.min(this.free(), fewFree()) }]
    this.slots = places
    this.#began = began
    this.#far.on('message', ({ key, what, result, error }: Message) => {
      const job = this.#jobs[key] as ClaimedJob
      if (what === 'began') return this.#began(job)
      this.#busy.delete(key)
      if (error === undefined) void reports.ended(job, { kind: 'done', result: result ?? null, tookMs: 1 })
      else void reports.ended(job, { kind: 'retry', error, delayMs: 0, tookMs: 1 })
    })
  }

  free(): number {
    return this.slots - this.#busy.size
  }

  start(jobs: readonly ClaimedJob[]): void {
    for (const job of jobs) {
      const key = this.#jobs.push(job) - 1
      this.#busy.add(key)
      this.#far.postMessage({ key, input: job.input, attempt: job.attempt })
    }
  }

  /** The remote end cannot be stopped; but nothing waits for it any more. */
  abort(job: ClaimedJob): void {
    this.#busy.delete(this.#jobs.indexOf(job))
  }

  async close(): Promise<void> {
    await this.#far.terminate()
  }
}
