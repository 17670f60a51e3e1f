/** Runs a handler: deadline, validation, timeout, outcome. */
import { caughtUpMs } from '../core/clock.ts'
import { AttemptError, isMeantToThrow } from '../core/errors.ts'
import { isPromise } from '../core/maybe-promise.ts'
import { encodePayload, isResponse } from '../core/payload.ts'
import { validate } from '../tasks/admit.ts'
import { type ClaimedJob, messageLimitMs } from '../claim/claimed-job.ts'
import type { AttemptReport } from '../claim/finish/attempt-report.ts'
import type { Outcome } from '../claim/finish/outcome.ts'
import type { OpeningReader } from '../gates/gates.ts'
import type { Rulebook } from '../tasks/rule.ts'
import type { Context } from '../tasks/context.ts'
import type { AnyTask } from '../tasks/task.ts'
import type { GuardedAgent } from '../http/agent.ts'
import { type Refusal, type Refused, refusalOf } from '../http/feedback.ts'
import { Allowance, StaleGrantError, uncalledCode } from '../http/allowance.ts'
import { createFetch } from '../http/fetch.ts'
import { check } from '../http/status.ts'
import { attemptOverError, staleBeforeCallError } from './attempt-errors.ts'
import { badAnswerIn, isSure, isUnseen, type Late, lateAt, shownBy } from './bad-answer.ts'
import { newPlace, type NewPlace } from './admission.ts'
import { settledUnits } from './named-units.ts'
import { poolMembersOf, withBase } from './pool-choice.ts'
import type { AttemptGrants, GrantSource, Surroundings } from './grant-source.ts'
import type { GiveBackCounter } from './give-backs.ts'
import type { NoteBook, Notes } from './notes.ts'
import type { StuckHandlers } from './stuck.ts'
import type { Threads } from './threads.ts'
import { describe, knownError, type Throttling, timeoutError, verdict } from './verdict.ts'

/** The parts that all attempts of a worker share. */
export interface AttemptOptions {
  store: Surroundings
  source: GrantSource
  agent: GuardedAgent
  patience: GiveBackCounter
  rulebook: Rulebook
  opens: OpeningReader
  stuck: StuckHandlers
  notes: NoteBook
  /** Returns the worker's id, for log lines; default none. */
  worker?: () => string | undefined
  /** Labels of this worker; default none. */
  labels?: Readonly<Record<string, string>>
  /** Opened threads, if one of the tasks runs in threads. */
  threads?: Threads | undefined
}

const defaultGrantMs = 100
/**
 * How long after its claim, in ms, a job may start. Later it is given back, because after 10 s without a heartbeat
 * another worker may have it.
 */
const claimMs = 5_000

/** Result of a call: the handler's result, or the place where the job has to wait instead. */
interface Called {
  place?: NewPlace
  result?: unknown
}

/** Key of a context under which its attempt is stored. */
const owner = Symbol('attempt')
type Owned = { readonly [owner]: Attempt; readonly pool: Context['pool'] }

/** Returns a property of contexts that is computed when it is read. */
function getter(get: (this: Owned) => unknown): PropertyDescriptor {
  return { enumerable: true, configurable: true, get }
}

/** One attempt of a job. */
export class Attempt {
  readonly job: ClaimedJob
  readonly #task: AnyTask
  readonly #options: AttemptOptions
  readonly #grantMs: number | undefined
  /** Created only when the handler reads its signal or calls fetch: it would be most of the cost of a short job. */
  #controller: AbortController | undefined
  #given: { reason: Error } | undefined
  #reject: ((reason: Error) => void) | undefined
  #isCalled = false
  /** The handler has reported that the vendor refused a request. */
  #isRefused = false
  #hasEnded = false
  /** Cancels the timeout. */
  #disarm: (() => void) | undefined
  /** When its time is over, in monotonic ms. */
  #untilMs = Infinity
  /** Set once its time is over. */
  #late: Late | undefined
  /** True if all threads were busy, so that an expired grant is no failure. */
  #wasQueued = false
  /** The handler's promise; it may outlive the attempt. */
  #work: Promise<Called> | undefined
  /** Created when the handler calls fetch, or settles. */
  #grants: AttemptGrants | undefined
  /** Created when the handler logs, or reports progress. */
  #notes: Notes | undefined
  /** Created when the handler reads it. */
  #made: Context['fetch'] | undefined
  /** Created when the handler calls fetch. */
  #allowance: Allowance | undefined

  constructor(job: ClaimedJob, task: AnyTask, options: AttemptOptions) {
    this.job = job
    this.#task = task
    this.#options = options
    const grantUs = job.grantUs ?? Math.min(...task.limits.map((limit) => limit.grantUs))
    this.#grantMs = job.buckets === null ? undefined : Number.isFinite(grantUs) ? grantUs / 1_000 : defaultGrantMs
  }

  /** Runs the attempt. Never rejects: the outcome describes how the attempt ended. */
  run(): Promise<Outcome> {
    const ended = (outcome: Outcome) => {
      if ('tookMs' in outcome) this.#options.patience.forget(this.job.id)
      const shown = this.#isRefused || this.job.buckets === null ? undefined : shownBy(outcome, this.#allowance)
      const { source } = this.#options
      if (shown && (this.job.isTrial === true || source.isWatching)) this.#openGrants().recordEnd(shown)
      if (outcome.kind === 'unused' || outcome.kind === 'readmit' || outcome.kind === 'discard') source.refund(this.job)
      if (this.#isCalled && isUnseen(this.#allowance)) source.applyStatedMargin(this.#task.limits)
      return this.#isCalled ? this.#reported(outcome) : outcome
    }
    // Even reading what a handler throws may throw.
    return this.#run().then(ended, () => ended(this.#verdict(new Error('what the handler threw cannot be read'), 0)))
  }

  /** Adds the attempt's report for its job's record to the outcome. */
  #reported(outcome: Outcome): Outcome {
    const notes = this.#notes?.json()
    const report: AttemptReport = { ...this.#grants?.usage(), ...(notes !== undefined && { notes }) }
    return 'tookMs' in outcome && Object.keys(report).length > 0 ? ({ ...outcome, report } as Outcome) : outcome
  }

  async #run(): Promise<Outcome> {
    const { clock } = this.#options.store
    const startedMs = clock.monotonicMs()
    // A grant allows an arrival until an instant, so a slow process gives a job with an expired grant back, uncalled. A
    // process that was stopped for that long may also have been given up, and its job given to another worker.
    const isOver = this.#given !== undefined || this.#isOlderThan(this.#grantMs ?? claimMs)
    if (isOver) return { kind: 'unused' }
    const { name } = this.#task
    this.#arm()
    try {
      const { place, result } = await this.#call()
      if (place !== undefined) return place
      const text = result === undefined ? null : encodePayload(result, `result of "${name}"`, this.#logWrong)
      return { kind: 'done', result: text, tookMs: clock.monotonicMs() - startedMs }
    } catch (error) {
      const tookMs = clock.monotonicMs() - startedMs
      // An attempt whose handler was not called has used nothing.
      const kind = this.#isCalled ? 'return' : 'unused'
      const late = this.#late !== undefined
      const uncalled = late ? undefined : this.#findUncalledReason(error)
      if (uncalled !== undefined) return this.#hasPatience(uncalled) ? { kind } : this.#verdict(uncalled, tookMs)
      if (this.#given !== undefined && !late && !this.#isCalled) return { kind }
      if (this.#given !== undefined && !late && this.#task.isOnce)
        return { kind: 'failed', reason: 'doubtful', error: describe(this.#given.reason), tookMs }
      if (this.#given !== undefined && !late) return { kind: 'interrupt', error: describe(this.#given.reason), tookMs }
      return await this.#judge(error, tookMs)
    } finally {
      this.#disarm?.()
      this.#hasEnded = true
      this.#options.notes.close(this.job)
      this.#controller?.abort(attemptOverError(this.#task.name))
      if (this.#given !== undefined && this.#work !== undefined)
        this.#options.stuck.watch(this.job, this.#given.reason, this.#work)
    }
  }

  /** Starts or restarts the timeout. */
  #arm(): void {
    const limitMs = messageLimitMs(this.job)
    const isOwn = limitMs >= this.#task.timeoutMs
    const mostMs = isOwn ? this.#task.timeoutMs : limitMs
    const { clock } = this.#options.store
    this.#disarm?.()
    this.#untilMs = clock.monotonicMs() + mostMs
    this.#disarm = clock.after(mostMs, () => {
      // The limit of a producer shows nothing about the vendor.
      this.#late = isOwn ? lateAt(clock.monotonicMs(), this.#allowance) : { host: undefined }
      this.abort(timeoutError(this.#task, limitMs))
    })
  }

  /**
   * Returns the reason if nothing was sent, so that the job goes back, whatever error the handler or a client library
   * threw.
   */
  #findUncalledReason(error: unknown): AttemptError | undefined {
    const isStale = !this.#isCalled && error instanceof StaleGrantError
    return this.#allowance?.returned ?? (isStale ? error : undefined)
  }

  /** Returns false if the job was given back so often, because its grants had expired, that this counts as a failure. */
  #hasPatience(uncalled: AttemptError): boolean {
    return (
      uncalled.code === uncalledCode ||
      this.#wasQueued ||
      this.#given !== undefined ||
      this.#options.patience.spend(this.job.id)
    )
  }

  /**
   * Gives the attempt up: aborts its signal and stops waiting for the handler, so that one that ignores the signal keeps
   * no slot.
   */
  abort(reason: Error): void {
    this.#given ??= { reason }
    this.#controller?.abort(reason)
    this.#reject?.(reason)
  }

  /**
   * Returns the outcome of an error that the handler threw. If the vendor refused a request, it holds the limits that
   * this concerns.
   */
  async #judge(error: unknown, tookMs: number): Promise<Outcome> {
    const found = this.#isCalled ? badAnswerIn(error, this.#task.limits, this.#allowance, this.#late) : undefined
    if (found === undefined) return this.#verdict(error, tookMs)
    const { refusal, isReported } = found
    let { heldMs } = found
    // While the store is unavailable nothing is claimed either.
    if (!this.#isRefused && !isReported) heldMs = await this.#recordRefusal(refusal).catch(() => undefined)
    // A single failure is an ordinary one.
    const isThrottled = refusal.cause === undefined || heldMs !== undefined
    return this.#verdict(error, tookMs, isThrottled ? { ...refusal, heldMs } : undefined)
  }

  #recordRefusal(refusal: Refusal): Promise<number | undefined> {
    this.#isRefused = true
    return this.#openGrants().recordRefusal(refusal, undefined)
  }

  #verdict(error: unknown, tookMs: number, refusal?: Throttling): Outcome {
    const isInDoubt = this.#isCalled && !isSure(knownError(error), this.#allowance)
    const { job } = this
    return verdict({ job, task: this.#task, error, refusal, isInDoubt, tookMs }, this.#options.store.clock)
  }

  #call(): Promise<Called> {
    return new Promise((resolve, reject) => {
      if (this.#given !== undefined) return reject(this.#given.reason)
      this.#reject = reject
      this.#work = this.#perform()
      this.#work.then(resolve, reject)
    })
  }

  async #perform(): Promise<Called> {
    const placed = newPlace(this.job, this.#task, this.#options)
    const place = isPromise(placed) ? await placed : placed
    if (place !== undefined) return { place }
    const validated = validate(this.#task, this.job.input)
    const { value } = isPromise(validated) ? await validated : validated
    if (this.#task.thread !== undefined) return { result: await this.#runInThread(this.#task.thread, value) }
    this.#begin()
    const result: unknown = await this.#task.run(value, this.#createContext())
    // `return fail(…)` would count as done.
    if (isMeantToThrow(result)) throw result
    // `return fetch(url)` would count as done, too, whatever the vendor answered.
    return isResponse(result) ? { result: void (await check(result)) } : { result }
  }

  /** The last check before the call: a schema, or a thread, may have taken long. */
  #begin(): void {
    if (this.#given !== undefined) throw this.#given.reason
    if (this.#grantMs !== undefined && this.#isOlderThan(this.#grantMs)) throw staleBeforeCallError(this.#task.name)
    this.#isCalled = true
  }

  async #runInThread(file: URL, input: unknown): Promise<unknown> {
    const threads = this.#options.threads as Threads
    this.#wasQueued = threads.isBusy
    // The timeout does not run while the attempt waits for a thread.
    this.#disarm?.()
    const begun = () => this.#arm()
    const ready = () => this.#begin()
    return threads.run({ file, task: this.#task.name, input, context: this.#createContext(), begun, ready })
  }

  #isOlderThan(ms: number): boolean {
    const ageMs = caughtUpMs(this.#options.store.clock, this.job.requestedAt) - this.job.grantedMs
    this.#options.source.recordAge(this.#task.limits, ageMs, ageMs > ms)
    return ageMs > ms
  }

  /** Getters shared by all contexts: defining them for each would be most of the cost of a short attempt. */
  static readonly #properties = Object.entries({
    fetch: getter(function () {
      const self = this[owner]
      return (self.#made ??= withBase(self.#fetch(), this.pool))
    }),
    limits: getter(function () {
      const self = this[owner]
      const refused = async (given: Refused = {}) =>
        void (await self.#recordRefusal(refusalOf(given, self.#task.limits)))
      return { refused }
    }),
    log: getter(function () {
      return this[owner].#openNotes().log
    }),
    signal: getter(function () {
      return this[owner].#signal()
    }),
  }).map(([name, property]) => ({ ...property, name }))

  /** Apart from the making of a context, because V8 compiles the whole of a function whose loop is hot. */
  static #defineProperties(context: object): void {
    for (const property of Attempt.#properties) Object.defineProperty(context, property.name, property)
  }

  /** Logs, and keeps with the job, what is wrong in its code but no reason to fail it: the call has been made. */
  readonly #logWrong = (text: string): void => this.#openNotes().log.error(text)

  #openNotes(): Notes {
    const { store, notes, worker } = this.#options
    const { id, task, attempt } = this.job
    const log = store.report.logOf({ task, job: id, attempt, worker: worker?.() })
    return (this.#notes ??= notes.open(this.job, log, store.clock))
  }

  #createContext(): Context {
    const { job } = this
    const { labels = {} } = this.#options
    const { pool } = poolMembersOf(job, this.#task)
    const settle: Context['settle'] = async (actual) => {
      const used = settledUnits(actual, this.#task.limits, this.#logWrong)
      await this.#openGrants().settle(used, this.#signal())
    }
    const context = {
      pool,
      labels,
      attempt: job.attempt,
      ambiguous: job.ambiguous,
      settle,
      progress: (done: number, total?: number) => this.#openNotes().progress(done, total),
      job: { id: job.id, queue: job.queue, createdAt: new Date(job.createdMs), tags: job.tags ?? [] },
    }
    Object.defineProperty(context, owner, { value: this })
    Attempt.#defineProperties(context)
    return context as typeof context & Pick<Context, 'fetch' | 'limits' | 'log' | 'signal'>
  }

  #openGrants(): AttemptGrants {
    const of = { job: this.job, limits: this.#task.limits, grantMs: this.#grantMs }
    return (this.#grants ??= this.#options.source.grantsOf(of))
  }

  #fetch(): Context['fetch'] {
    const { store, agent } = this.#options
    const { limits } = this.#task
    let call: Context['fetch'] | undefined
    return async (...args) => {
      // Checked for every request, not only for those that need a further grant, because the attempt's own grant may expire
      // at any moment.
      store.db.checkOutside('ctx.fetch')
      // Most of what it costs to begin and end a short attempt that only passes its fetch on.
      const leftMs = () => this.#untilMs - store.clock.monotonicMs()
      this.#allowance ??= new Allowance(this.#openGrants(), this.#signal(), leftMs)
      call ??= createFetch({ agent, clock: store.clock, allowance: this.#allowance, limits })
      return call(...args)
    }
  }

  #signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController()
      if (this.#given !== undefined) this.#controller.abort(this.#given.reason)
      // The signal is first read by something that the handler left running.
      else if (this.#hasEnded) this.#controller.abort(attemptOverError(this.#task.name))
    }
    return this.#controller.signal
  }
}
