/** The context that handlers get besides their input, and what `onFailed` gets. */
import type { Log } from '../core/log.ts'
import type { FailureReason } from '../core/reasons.ts'
import type { Refused } from '../http/feedback.ts'
import type { Chosen } from '../limits/pool.ts'

/** The context of an attempt. */
export interface Context {
  /**
   * Like the global fetch, but each request uses a grant of the job's limits: the first one uses the attempt's own. A handler
   * makes either all its calls through it, or none (then its grant is checked just before `run`, and covers one request):
   * `fetch` does not see other calls, and may refund the grant that they have used. A further request takes what the job
   * costs, or `cost`, by limit: `fetch(url, { cost: { tpm: 300 } })`.
   */
  readonly fetch: (
    input: Parameters<typeof fetch>[0],
    init?: RequestInit & { cost?: Readonly<Record<string, number>> },
  ) => Promise<Response>
  /** The member that this attempt was granted of each pool, by the limit's name. */
  readonly pool: Readonly<Record<string, Chosen>>
  /** The labels of the worker. */
  readonly labels: Readonly<Record<string, string>>
  /**
   * Settles what the attempt has really used of its limits, by name; a number alone if one limit of the task has costs.
   * Less than its grants took is refunded (minus what has drained since, unless the limit has `refund: 'full'`); more is a
   * debt: nothing is granted until it has drained. Counts once for each limit: call it when all is known, before `run`
   * returns.
   * @param actual whole units, 0 to 2,147,483,647. A wrong name or amount is logged as an error, and its units stay charged:
   * the call has been made, so the job goes on
   * @throws AttemptError SLUICE_JOB_LOST
   * @example await settle({ tpm: usage.total_tokens })
   */
  settle(actual: number | Readonly<Record<string, number>>): Promise<void>
  /** The limits of the task. */
  readonly limits: {
    /**
     * Reports that the vendor refused a request that was not sent by `fetch`, as an SDK or a library sends it: the limits
     * that this concerns are held in the whole fleet. A 429 that the handler throws (an error with `status` and `headers`,
     * or `response`) is understood without it.
     * @throws StoreError SLUICE_STORE_UNREACHABLE
     * @example await ctx.limits.refused({ limit: 'tpm', retryAfterMs: 20_000 })
     */
    refused(refusal?: Refused): Promise<void>
  }
  /** Aborted on timeout, within some 2 s of a cancel, when the worker gives up the job, and at forced shutdown. */
  readonly signal: AbortSignal
  /** 1 for the first attempt. */
  readonly attempt: number
  /** True when an earlier attempt may have reached the vendor without its outcome being known (its worker was lost). */
  readonly ambiguous: boolean
  /** Its lines go to the program's log; the last ones of the last attempt are kept with the job, except for `debug`. */
  readonly log: Log
  /**
   * Reports how far the attempt is: `progress(42)` is 42 %, `progress(120, 400)` is 120 of 400. Only the newest value is
   * kept with the job; a running job shows it after some 2 s. It never throws: values out of range are cut.
   */
  progress(done: number, total?: number): void
  /** The job whose attempt this is. */
  readonly job: {
    readonly id: string
    readonly queue: string
    readonly createdAt: Date
    readonly tags: readonly string[]
  }
}

/** A job that failed for good, as passed to `onFailed`. */
export interface Failure<Input = unknown> {
  readonly id: string
  readonly task: string
  readonly queue: string
  readonly reason: FailureReason
  readonly error: { readonly message: string; readonly code?: string; readonly name?: string } | null
  /** Attempts begun. */
  readonly attempt: number
  readonly ambiguous: boolean
  /** As texts (ISO 8601). */
  readonly createdAt: string
  readonly failedAt: string
  readonly tags: readonly string[]
  /** The input as it was sent. */
  readonly input: Input
}

/** The context of `onFailed`: it has no `fetch`, because no limit granted it anything. */
export type FailureContext = Omit<Context, 'fetch'>

/** The context of an attempt in a thread: it has no signal, because the thread is ended instead. */
export interface ThreadContext extends Pick<
  Context,
  'fetch' | 'settle' | 'labels' | 'attempt' | 'ambiguous' | 'log' | 'progress' | 'job'
> {
  /** Keys and base URLs: secrets, and other fields of a member, do not leave the main thread. */
  readonly pool: Readonly<Record<string, Pick<Chosen, 'key' | 'baseUrl'>>>
}
