/** Ends attempts in batches: one statement for all that ended while the last one was under way (finish.sql). */
import { StoreError } from '../../core/errors.ts'
import { reach } from '../../core/probe.ts'
import { againMs } from '../../core/retry.ts'
import type { Store } from '../../db/store.ts'
import type { Readmission } from '../../tasks/place.ts'
import type { Denial, Handout } from '../claimed-job.ts'
import { isDataError, parkBuckets } from '../parking/parked.ts'

/** How an attempt ended. */
export type Outcome =
  | { kind: 'done'; result: string | null; tookMs: number }
  | { kind: 'failed'; reason: 'exhausted' | 'refused' | 'doubtful'; error: string; tookMs: number }
  | { kind: 'retry'; error: string; delayMs: number; tookMs: number }
  /** No call was made: the attempt does not count. Unused: its grant is given back; returned: that was done before. */
  | { kind: 'unused' | 'return' }
  /** Unused, too. */
  | Denial
  /** The handler put it off: the attempt does not count. */
  | { kind: 'return'; delayMs: number; held: string }
  /** Unused, too: it waits elsewhere, or later, because its task's limits are others now, or by a rule. */
  | { kind: 'readmit'; place: Readmission }
  /** Unused, too: a rule does not want it to run. */
  | { kind: 'discard'; reason: string; tookMs: number }
  /** The worker was told to stop at once: the call may have been made; another worker tries again. */
  | { kind: 'interrupt'; error: string; tookMs: number }

interface Ending {
  job: Handout
  outcome: Outcome
  resolve: (accepted: boolean) => void
}

const batchMax = 1000
/** Tries after which it is said that an ending cannot be written: some 2 s. */
const quietTries = 8

/** Collects endings and writes them; retries for as long as the store is away, since the work is done. */
export class Finisher {
  readonly #store: Store
  readonly #open = new Map<string, number>()
  #patience = { ms: Infinity, fromMs: 0 }
  #hasGivenUp = false
  #waiting: Ending[] = []
  #flushing: Promise<void> | undefined

  constructor(store: Store) {
    this.#store = store
  }

  /** Endings that are not written yet. */
  get backlog(): number {
    return this.#waiting.length
  }

  /** Endings were given up. Their jobs are still in this worker's hands, though their calls were made. */
  get hasGivenUp(): boolean {
    return this.#hasGivenUp
  }

  /** From now on the store may be away for `ms` at a time; endings that it did not take by then are given up. */
  waitAtMost(ms: number): void {
    this.#patience = { ms, fromMs: this.#store.clock.monotonicMs() }
  }

  /** Tells of handed-out jobs, so that a claim's row goes when its last job has ended. */
  opened(jobs: readonly Handout[]): void {
    for (const job of jobs) this.#open.set(job.claim, (this.#open.get(job.claim) ?? 0) + 1)
  }

  /** Claims with jobs in hand, by id. */
  has(claim: string): boolean {
    return this.#open.has(claim)
  }

  /** Ends an attempt; resolves to false when the store refused it, because the job was rescued meanwhile. */
  end(job: Handout, outcome: Outcome): Promise<boolean> {
    return new Promise((resolve) => {
      this.#waiting.push({ job, outcome, resolve })
      this.#flushing ??= this.#flush().finally(() => (this.#flushing = undefined))
    })
  }

  /** Ends a claim of which no job is left: all were cancelled before anybody had them in hand. */
  async endEmpty(claim: string): Promise<void> {
    await this.#write([], [claim])
  }

  /** Resolves when every ending so far is written. */
  async settled(): Promise<void> {
    while (this.#flushing !== undefined) await this.#flushing
  }

  async #flush(): Promise<void> {
    await Promise.resolve()
    while (this.#waiting.length > 0) {
      // Jobs are locked in this order (docs/architecture.md, "Locks").
      const batch = this.#waiting.splice(0, batchMax).toSorted((a, b) => a.job.seq - b.job.seq)
      for (const { job } of batch) this.#open.set(job.claim, (this.#open.get(job.claim) ?? 1) - 1)
      const ended = [...new Set(batch.map(({ job }) => job.claim))].filter((claim) => (this.#open.get(claim) ?? 0) <= 0)
      const refused = new Set(await this.#write(batch, ended))
      // Only now: a claim that is being ended must not look like one that nobody knows.
      for (const { job } of batch) if (this.#open.get(job.claim) === 0) this.#open.delete(job.claim)
      for (const ending of batch) ending.resolve(!refused.has(ending.job.seq))
    }
  }

  /** @param ended claims with nothing left in hand after this: only then may their rows go, by which a rescuer finds jobs */
  async #write(batch: Ending[], ended: readonly string[]): Promise<number[]> {
    const params = this.#params(batch, ended)
    let isUnknown = false
    let refusals = 0
    let sinceMs: number | undefined
    for (let tries = 0; ; tries++) {
      try {
        await reach('finish.sent', batch.length)
        const [row] = await this.#store.call<{ finish: string[] }>('finish', params)
        await reach('finish.received', batch.length)
        // After a lost reply the first try may have been carried out: then nothing is left to accept, and that is well.
        return isUnknown ? [] : (row?.finish ?? []).map(Number)
      } catch (error) {
        // What one bucket fails by is no fault of those who used it.
        if (isDataError(error) && (await parkBuckets(this.#store, batch.flatMap(takesOf)))) continue
        if (isRefused(error) && batch.length > 1) {
          const refused = (await Promise.all(batch.map((ending) => this.#write([ending], [])))).flat()
          // By the row of its claim a rescuer finds a job whose ending was given up.
          if (ended.length > 0 && !this.#hasGivenUp) await this.#write([], ended)
          return refused
        }
        // A result that the store refuses must not keep the job running for ever. Nothing can be wrong with the second
        // failure in its place: a store that refuses even that has reasons of its own, as for all other errors.
        if (isRefused(error) && refusals < 2) replace(batch, params, refusals++ === 0 ? error : undefined)
        else {
          sinceMs ??= this.#store.clock.monotonicMs()
          if (this.#isOver(sinceMs, batch.length, error)) return batch.map((ending) => ending.job.seq)
          if (tries === quietTries)
            this.#store.log.error('ended attempts cannot be recorded; it is tried again until they are', {
              attempts: batch.length,
              error: String(error),
            })
        }
        isUnknown ||= error instanceof StoreError
        await this.#store.clock.sleep(againMs(tries, this.#store.clock.random()))
      }
    }
  }

  /** True when nobody waits any longer for a store that has failed since `sinceMs`. */
  #isOver(sinceMs: number, attempts: number, error: unknown): boolean {
    const { ms, fromMs } = this.#patience
    if (!this.#hasGivenUp && this.#store.clock.monotonicMs() - Math.max(sinceMs, fromMs) < ms) return false
    this.#hasGivenUp = true
    this.#store.log.error(
      'ended attempts could not be recorded, for the store is away; their jobs will be rescued, and run again in doubt',
      { attempts, error: String(error) },
    )
    return true
  }

  #params(batch: Ending[], ended: readonly string[]): unknown[] {
    const claims = [...new Set(batch.map(({ job }) => job.claim))]
    const position = new Map(claims.map((claim, i) => [claim, i + 1]))
    const column = <T>(pick: (outcome: Outcome) => T | undefined): (T | null)[] | null => {
      const values = batch.map(({ outcome }) => pick(outcome) ?? null)
      return values.every((value) => value === null) ? null : values
    }
    return [
      claims,
      ended,
      listed(batch, ({ job }) => job.seq),
      listed(batch, ({ job }) => job.id),
      listed(batch, ({ job }) => position.get(job.claim)),
      listed(batch, ({ outcome }) => outcome.kind),
      listed(batch, ({ outcome }) => ('tookMs' in outcome ? Math.round(outcome.tookMs * 1_000) : undefined)),
      column((outcome) => ('reason' in outcome ? outcome.reason : 'held' in outcome ? outcome.held : undefined)),
      column((outcome) => (outcome.kind === 'done' ? (outcome.result ?? undefined) : undefined)),
      column((outcome) => ('error' in outcome ? outcome.error : undefined)),
      column((outcome) => ('delayMs' in outcome ? Math.round(outcome.delayMs * 1_000) : undefined)),
      column((outcome) => (outcome.kind === 'readmit' ? JSON.stringify(outcome.place) : undefined)),
    ]
  }
}

function takesOf({ job }: Ending): string[] {
  return job.holds ?? job.takes ?? []
}

/** A list of what needs no quotes, as PostgreSQL reads it: made at once, for the client would look into each element. */
function listed(batch: Ending[], pick: (ending: Ending) => string | number | undefined): string {
  return `{${batch.map((ending) => pick(ending) ?? 'null').join(',')}}`
}

/**
 * True when the store refused what an ending says (a value it cannot take, too much of it), not when it takes none at all:
 * read-only after a failover, a pooler that lost a statement, a function or a right that is missing for a while.
 */
function isRefused(error: unknown): boolean {
  const { code, table } = error as { code?: unknown; table?: unknown }
  if (error instanceof StoreError || typeof code !== 'string') return false
  return /^(22|54)...$/.test(code) || (/^23...$/.test(code) && /^(done|failed)/.test(String(table)))
}

/** Puts a failure in the place of an ending that the store refused; without a cause one that holds nothing of the attempt. */
function replace(batch: Ending[], params: unknown[], cause: unknown): void {
  const message = cause instanceof Error ? `: ${cause.message}`.slice(0, 500).toWellFormed() : ''
  params[5] = listed(batch, () => 'failed')
  params[6] = cause === undefined ? null : params[6]
  params[7] = batch.map(() => 'refused')
  params[8] = null
  params[9] = batch.map(() => JSON.stringify({ message: `the store refused the result${message}` }))
  params[10] = null
  params[11] = null
}
