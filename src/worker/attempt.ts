/** What happens around a handler: deadline, validation, time-out, the verdict. */
import type { Clock, StoreClock } from '../core/clock.ts'
import { AttemptError, SluiceError, UsageError } from '../core/errors.ts'
import { encodePayload } from '../core/payload.ts'
import { redactText } from '../core/redact.ts'
import { delayMs, waitMaxMs } from '../core/retry.ts'
import type { Db } from '../db/db.ts'
import { type Place, placeNow, validate } from '../dispatch/admit.ts'
import type { Handout } from '../dispatch/claim.ts'
import type { Outcome } from '../dispatch/finish.ts'
import type { AnyTask, Context, Log } from '../dispatch/task.ts'
import type { GuardedAgent } from '../http/agent.ts'
import { Allowance, StaleGrantError, uncalledCode } from '../http/allowance.ts'
import { createFetch } from '../http/fetch.ts'
import { storeGrants } from './grants.ts'
import type { Patience } from './patience.ts'

/** What attempts share. */
export interface AttemptOptions {
  db: Db
  clock: Clock
  storeClock: StoreClock
  schema: string
  agent: GuardedAgent
  log: Log
  patience: Patience
}

const errorBytesMax = 8_192
const defaultGrantMs = 100
/** A claim whose job has not started within this is given back: after 10 s without a beat, others may have it. */
const claimMs = 5_000

/** One attempt of a job. */
export class Attempt {
  readonly job: Handout
  readonly #task: AnyTask
  readonly #options: AttemptOptions
  readonly #grantMs: number | undefined
  /** Made only when the handler asks for its signal or for fetch: most of the cost of a short job would be in it. */
  #controller: AbortController | undefined
  #given: { reason: Error } | undefined
  #reject: ((reason: Error) => void) | undefined
  #isCalled = false
  #hasEnded = false
  /** Made when the handler asks for fetch. */
  #allowance: Allowance | undefined

  constructor(job: Handout, task: AnyTask, options: AttemptOptions) {
    this.job = job
    this.#task = task
    this.#options = options
    const grantUs = Math.min(...task.limits.map((limit) => limit.grantUs))
    this.#grantMs = job.takes === null ? undefined : Number.isFinite(grantUs) ? grantUs / 1_000 : defaultGrantMs
  }

  /** Runs it. Never rejects: the outcome says how it ended. */
  async run(): Promise<Outcome> {
    // Of what a handler throws even a look at it may throw.
    const outcome = await this.#run().catch(() => this.#verdict(new Error('what the handler threw cannot be read'), 0))
    if ('tookMs' in outcome) this.#options.patience.forget(this.job.id)
    return outcome
  }

  async #run(): Promise<Outcome> {
    const { clock } = this.#options
    const startedMs = clock.monotonicMs()
    // A grant is a promise about arrival: one that has grown old in a slow process is given back, uncalled.
    // And whoever was stopped so long may have been given up, and the job handed to another.
    const isOver = this.job.isGone || this.#given !== undefined || this.#isOlderThan(this.#grantMs ?? claimMs)
    if (isOver) return { kind: 'unused' }
    const { timeoutMs, name } = this.#task
    let late = false
    const cancel = clock.after(timeoutMs, () => {
      late = true
      this.abort(
        new AttemptError('SLUICE_TIMEOUT', `the attempt took longer than ${timeoutMs} ms`, { retryable: true }),
      )
    })
    try {
      const place = this.#place()
      if (place !== undefined) return { kind: 'readmit', place }
      const result = await this.#call()
      const text = result === undefined ? null : encodePayload(result, `result of "${name}"`, false)
      return { kind: 'done', result: text, tookMs: clock.monotonicMs() - startedMs }
    } catch (error) {
      const tookMs = clock.monotonicMs() - startedMs
      // What was never called has used nothing.
      const kind = this.#isCalled ? 'return' : 'unused'
      const uncalled = late ? undefined : this.#uncalled(error)
      if (uncalled !== undefined) return this.#hasPatience(uncalled) ? { kind } : this.#verdict(uncalled, tookMs)
      if (this.#given !== undefined && !late && !this.#isCalled) return { kind }
      if (this.#given !== undefined && !late) return { kind: 'interrupt', error: describe(this.#given.reason), tookMs }
      return this.#verdict(error, tookMs)
    } finally {
      cancel()
      this.#hasEnded = true
      this.#controller?.abort(attemptOver())
    }
  }

  /** Why nothing was sent and the job goes back, if so: whatever the handler, or a client library, made of that. */
  #uncalled(error: unknown): AttemptError | undefined {
    const isStale = !this.#isCalled && error instanceof StaleGrantError
    return this.#allowance?.returned ?? (isStale ? error : undefined)
  }

  /** False when the job has come back so often for want of a grant young enough that it counts as a failure. */
  #hasPatience(uncalled: AttemptError): boolean {
    return uncalled.code === uncalledCode || this.#given !== undefined || this.#options.patience.spend(this.job.id)
  }

  /** Gives the attempt up: its signal aborts, and nobody waits for the handler any more, so that a deaf one keeps no slot. */
  abort(reason: Error): void {
    this.#given ??= { reason }
    this.#controller?.abort(reason)
    this.#reject?.(reason)
  }

  /** Where the job has to wait instead, when the task has got limits since it was sent that it never waited for. */
  #place(): Place | undefined {
    const place = placeNow(this.#task, this.job)
    if (place === undefined || this.#options.patience.spend(this.job.id)) return place
    throw new UsageError(
      'SLUICE_UNSTABLE_KEY',
      `the limits of task "${this.#task.name}" gave this job other keys each time (${place.takes?.join(', ')}); a key function must give the same key whenever it is asked about the same input`,
    )
  }

  #verdict(error: unknown, tookMs: number): Outcome {
    const { retry } = this.#task
    const text = describe(error)
    // By what it says of itself, not by its class: it may come from another copy of the package.
    const known = SluiceError.is(error) ? (error as SluiceError & Partial<AttemptError>) : undefined
    if (known?.retryable === false) return { kind: 'failed', reason: 'refused', error: text, tookMs }
    const failed = this.job.failed + 1
    if (failed >= retry.attempts) return { kind: 'failed', reason: 'exhausted', error: text, tookMs }
    const policyMs = delayMs(failed, retry, this.#options.clock.random())
    // What a vendor's header says may be no number, or beyond what the store can add to a time.
    const waitMs = Math.min(waitMaxMs, Math.max(policyMs, Number(known?.retryAfterMs) || 0))
    return { kind: 'retry', error: text, delayMs: waitMs, tookMs }
  }

  async #call(): Promise<unknown> {
    return new Promise((resolve, reject) => {
      if (this.#given !== undefined) return reject(this.#given.reason)
      this.#reject = reject
      // In an async function, so that what throws at once cannot escape.
      const run = async () => {
        const input = await validate(this.#task, this.job.input)
        // A schema may take its time.
        if (this.#given !== undefined) throw this.#given.reason
        if (this.#grantMs !== undefined && this.#isOlderThan(this.#grantMs)) throw staleBeforeCall(this.#task.name)
        this.#isCalled = true
        return this.#task.run(input, this.#context())
      }
      run().then(resolve, reject)
    })
  }

  #isOlderThan(ms: number): boolean {
    return this.#options.clock.monotonicMs() > this.job.grantedMs + ms
  }

  #context(): Context {
    const { job } = this
    const { log } = this.#options
    const signal = () => this.#signal()
    const make = () => this.#fetch()
    let made: typeof fetch | undefined
    return {
      get fetch() {
        return (made ??= make())
      },
      get signal() {
        return signal()
      },
      attempt: job.attempt,
      ambiguous: job.ambiguous,
      log,
      job: { id: job.id, queue: job.queue, createdAt: new Date(job.createdMs), tags: job.tags ?? [] },
    }
  }

  #fetch(): typeof fetch {
    const { db, clock, storeClock, schema, agent } = this.#options
    const grants = storeGrants({ db, clock, storeClock, schema, job: this.job, grantMs: this.#grantMs })
    this.#allowance = new Allowance(grants, this.#signal())
    const call = createFetch({ agent, clock, allowance: this.#allowance })
    return async (...args) => {
      // Always, and not only when a further grant is needed: whether the own one is still fresh is a matter of moments.
      db.checkOutside('ctx.fetch')
      return call(...args)
    }
  }

  #signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController()
      if (this.#given !== undefined) this.#controller.abort(this.#given.reason)
      // First asked for by something that the handler left running.
      else if (this.#hasEnded) this.#controller.abort(attemptOver())
    }
    return this.#controller.signal
  }
}

function attemptOver(): AttemptError {
  return new AttemptError('SLUICE_ATTEMPT_OVER', 'the attempt is over; it makes no further calls', { retryable: false })
}

function staleBeforeCall(name: string): StaleGrantError {
  return new StaleGrantError(
    `the grant ran out while the input of "${name}" was checked; make its schema quicker, and look things up in the handler`,
  )
}

/** An error as JSON that the store can keep, without secrets. Its fields may be anything, and so may what is thrown instead of an error. */
function describe(error: unknown): string {
  const text = (value: unknown) =>
    redactText(String(value).slice(0, errorBytesMax))
      // First: a cut may leave half of a character.
      .slice(0, errorBytesMax / 4)
      .replaceAll('\u0000', '\ufffd')
      .toWellFormed()
  if (!(error instanceof Error)) {
    const message = typeof error === 'string' ? error : 'the handler threw something that is not an Error'
    return JSON.stringify({ name: 'Error', message: text(message) })
  }
  const { name, message, stack, code } = error as { [field in 'name' | 'message' | 'stack' | 'code']?: unknown }
  return JSON.stringify({
    name: text(name ?? 'Error'),
    message: text(message),
    ...(typeof code === 'string' ? { code: text(code) } : {}),
    ...(stack ? { stack: text(stack) } : {}),
  })
}
