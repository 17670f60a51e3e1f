/** Sends the results of calls whose jobs have ended, wherever they were executed, and the tasks that follow them. */
import { codeOf, StoreError } from '../core/errors.ts'
import type { Store } from '../db/store.ts'
import { isTransient } from '../claim/claim.ts'
import { type Call, type Change, resultOf } from './call.ts'
import type { Results } from './results.ts'
import type { WorkerEvents } from './worker-events.ts'

/** Parameters of `Reporter`; see the fields. */
export interface ReporterOptions {
  store: Store
  results: Results
  events: WorkerEvents
  /** Celery's name of this worker. */
  name: string
  /** Producers get the state STARTED. */
  tracksStarted: boolean
}

/** A call with news for its producer. */
interface Changed extends Change {
  last: string | null
  id: string | null
  call: string
  reported: number
  attempt: number
  started_ms: number | null
  ended_ms: number | null
}

/** A broker's message is delivered again within this many days, or never. */
const keptDays = 30
const lookMs = 50
/** Looks at all calls leave out changes younger than this, in ms, because the process that executes the job reports them itself. */
const recentMs = 100
const idleMs = 500
const awayMs = 1_000
const portion = 1_000
/** The shortest and the longest pause between two looks at all calls, as multiples of the time that the last look took. */
const [restMin, restMax] = [9, 99]
/** The longest such pause in ms, unless the shortest one is longer: a revoked call waits for the next look. */
const restMsMax = 5_000
const pruneMs = 3_600_000
/** About how many bytes are read at a time, and sent in one transaction: more than that waits for its confirmation. */
const bytesMax = 4 * 2 ** 20

/** Looks until it is closed. */
export class Reporter {
  readonly #options: ReporterOptions
  readonly #end = new AbortController()
  #nudge = new AbortController()
  /** Jobs of which this process has a report since the last look: they need no look at all calls. */
  #noticed = new Set<string>()
  /** Calls were recorded since the last nudge. */
  #isRecorded = false
  #unlisten: (() => void)[] = []
  #looking: Promise<void> | undefined
  /** The broker, or Redis, was away for all that was sent last. */
  #isAway = false
  #prunedMs = -Infinity

  constructor(options: ReporterOptions) {
    this.#options = options
  }

  start(): void {
    const { report } = this.#options.store
    const notice = ({ job }: { job: string }) => {
      this.#noticed.add(job)
      this.#nudge.abort()
    }
    this.#unlisten = [
      report.on('started', (event) => this.#wantsStarts && notice(event)),
      ...(['done', 'failed', 'throttled', 'exhausted'] as const).map((name) => report.on(name, notice)),
    ]
    this.#looking ??= this.#run()
  }

  /** Calls were recorded, which may end soon. */
  wake(): void {
    this.#isRecorded = true
    this.#nudge.abort()
  }

  /** Sends what has ended by now, if it can. */
  async close(): Promise<void> {
    for (const unlisten of this.#unlisten) unlisten()
    this.#end.abort()
    this.#nudge.abort()
    await this.#looking
    await this.#look(0).catch(() => {})
  }

  get #wantsStarts(): boolean {
    return this.#options.tracksStarted || this.#options.events.isOn
  }

  async #run(): Promise<void> {
    const { clock, log } = this.#options.store
    let isAway = false
    // Each process of a fleet looks through the backlog. So that takes a tenth of its time at most, and less, down to a hundredth,
    // while it finds nothing.
    let [endedMs, restMs, rest] = [0, 0, restMin]
    for (let ms = lookMs; !this.#end.signal.aborted;) {
      try {
        const failures = await this.#lookAtNoticed()
        const sinceMs = clock.monotonicMs()
        if (sinceMs >= endedMs + Math.max(ms, restMs) && !this.#isVain(failures)) {
          // Looks become rarer while no call changes.
          const hasChanged = await this.#look(recentMs)
          ms = hasChanged ? lookMs : Math.min(idleMs, ms * 1.2)
          rest = hasChanged ? restMin : Math.min(restMax, rest * 2)
          endedMs = clock.monotonicMs()
          const tookMs = endedMs - sinceMs
          restMs = Math.max(tookMs * restMin, Math.min(tookMs * rest, restMsMax))
          await this.#prune()
        }
        if (failures.length > 0) throw failures[0]
        isAway = false
      } catch (error) {
        if (!isAway) log.warn('results for Celery producers cannot be sent now; it is tried again', { err: error })
        isAway = true
        await clock.sleep(awayMs, this.#end.signal)
      }
      const dueMs = endedMs + Math.max(ms, restMs)
      await clock.sleep(Math.max(1, dueMs - clock.monotonicMs()), this.#nudge.signal)
      if (!this.#nudge.signal.aborted) continue
      if (!this.#end.signal.aborted) this.#nudge = new AbortController()
      if (this.#isRecorded) ms = lookMs
      this.#isRecorded = false
      // Jobs that end at the same time are reported together.
      await clock.sleep(5, this.#end.signal)
    }
  }

  /** Looks at the jobs of which this process has a report. Resolves to what could not be sent: other calls must not wait for that. */
  async #lookAtNoticed(): Promise<readonly unknown[]> {
    const jobs = [...this.#noticed]
    // If this fails, or their results are large, the next look at all calls finds them.
    this.#noticed = new Set()
    const failures: unknown[] = []
    for (let i = 0; i < jobs.length && !this.#isVain(failures); i += portion)
      await this.#find(['0', portion, jobs.slice(i, i + portion)], 0, failures)
    return failures
  }

  /** Looks at all calls without a result; returns whether some have changed, so many ms ago at least. */
  async #look(agoMs: number): Promise<boolean> {
    await this.#cancelRevoked()
    let hasChanged = false
    const failures: unknown[] = []
    for (let after: string | null = '0'; after !== null;) {
      const { last, count } = await this.#find([after, portion, null], agoMs, failures)
      after = this.#isVain(failures) ? null : last
      hasChanged ||= count > 0
    }
    if (failures.length > 0) throw failures[0]
    return hasChanged
  }

  /** Returns whether to end a look that had these failures, because each send to a broker that is away takes seconds to fail. */
  #isVain(failures: readonly unknown[]): boolean {
    return failures.length > 0 && (this.#isAway || this.#end.signal.aborted)
  }

  /** Cancels the jobs of revoked calls. A job that another transaction has locked is left to the next look: waiting would delay results. */
  async #cancelRevoked(): Promise<void> {
    const { store } = this.#options
    const revoked = await store.run<{ job: string }>('absorb/find_revoked_jobs')
    if (revoked.length === 0) return
    const jobs = revoked.map(({ job }) => job)
    const locked = await store.run<{ id: string }>('claim/finish/find_locked_jobs', [jobs])
    for (const job of jobs.filter((id) => !locked.some((one) => one.id === id)))
      await store.call('cancel_job', [job, 'revoked by a program of Celery']).catch((error: unknown) => {
        if (codeOf(error) !== '55P03') throw error
      })
  }

  /** Adds to `failures` what could not be sent: a queue that takes nothing must not hold up the calls behind. */
  async #find(
    where: readonly unknown[],
    agoMs: number,
    failures: unknown[],
  ): Promise<{ last: string | null; count: number }> {
    const { store } = this.#options
    const how = [this.#wantsStarts, agoMs, bytesMax]
    const rows = await store.run<Changed>('absorb/find_changed_calls', [...where, ...how])
    const changed = rows.filter(({ id }) => id !== null)
    for (let i = 0; i < changed.length && !this.#isVain(failures);) {
      const from = i
      for (let bytes = 0; i < changed.length && (i === from || bytes < bytesMax); i++) bytes += sizeOf(changed[i])
      await this.#report(changed.slice(from, i)).catch((error: unknown) => failures.push(error))
    }
    return { last: rows[0]?.last ?? null, count: changed.length }
  }

  /**
   * Reports calls in one transaction, so that of several processes one reports each. It commits when the brokers have all that they take.
   * If some cannot be sent, the others stay reported, because what follows those would be executed twice if they were reported again.
   */
  async #report(changed: readonly Changed[]): Promise<void> {
    const { store } = this.#options
    const byId = new Map(changed.map((one) => [one.id ?? '', one]))
    const all = [...byId.values()]
    const reported = all.map(({ state, attempt }) => (state === 'started' ? 2 * attempt - 1 : 2 * attempt))
    const isOver = all.map(({ state }) => state !== 'started' && state !== 'retry')
    const failures: unknown[] = []
    this.#isAway = false
    await store.db.transaction(async (tx) => {
      const unsent: Changed[] = []
      const rows = await store.on(tx).run<{ id: string }>('absorb/report_calls', [[...byId.keys()], reported, isOver])
      await Promise.all(
        rows.map(async ({ id }) => {
          const one = byId.get(id)
          if (one === undefined) return
          await this.#reportOne(id, one).catch((error: unknown) => {
            if (!(error instanceof StoreError || isTransient(error)))
              return store.log.error('a result for a Celery producer cannot be written, and is left out', {
                id,
                err: error,
              })
            failures.push(error)
            unsent.push(one)
          })
        }),
      )
      this.#isAway = rows.length > 0 && failures.filter(isAway).length === rows.length
      if (unsent.length === rows.length && unsent.length > 0) throw failures[0]
      const before = [unsent.map(({ id }) => id), unsent.map((one) => one.reported)]
      if (unsent.length > 0) await store.on(tx).run('absorb/take_back_reports', before)
    })
    if (failures.length > 0) throw failures[0]
  }

  async #reportOne(id: string, change: Changed): Promise<void> {
    const { events, name, results, tracksStarted } = this.#options
    const call = JSON.parse(change.call) as Call
    const result = resultOf(id, change, name)
    const { attempt, reported, started_ms: startedMs, ended_ms: endedMs } = change
    if (change.state !== 'retry' && startedMs !== null && reported < 2 * attempt - 1) events.sendStarted(id, startedMs)
    if (change.state === 'started') return tracksStarted ? results.send(result, call) : undefined
    if (change.state === 'retry') await results.send(result, call)
    else await results.finish(call, result)
    events.sendEnd(result, { task: call.task, startedMs, endedMs })
  }

  async #prune(): Promise<void> {
    const { store } = this.#options
    const nowMs = store.clock.monotonicMs()
    if (nowMs - this.#prunedMs < pruneMs) return
    this.#prunedMs = nowMs
    await store.run('absorb/delete_old_calls', [keptDays])
  }
}

function isAway(error: unknown): boolean {
  return ['SLUICE_BROKER_UNREACHABLE', 'SLUICE_REDIS_UNREACHABLE', 'SLUICE_REDIS_SILENT'].includes(
    String(codeOf(error)),
  )
}

/** About how many bytes are sent for a call. */
function sizeOf(changed: Changed | undefined): number {
  const { result, error, call = '' } = changed ?? {}
  return 200 + 2 * call.length + 2 * ((result?.length ?? 0) + (error?.length ?? 0))
}
