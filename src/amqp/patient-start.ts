/** Starts something that needs a RabbitMQ, or Celery's Redis, as soon as that server is there. */
import type { Clock } from '../core/clock.ts'
import { StoreError, codeOf } from '../core/errors.ts'
import { span } from '../core/figures.ts'
import type { Log } from '../core/log.ts'

/** Parameters of `PatientStart`; see the fields. */
export interface PatientStartOptions {
  /** For the log: who waits. */
  who: string
  clock: Clock
  log: Log
  /** Starts it. It is called again after a failure, so a failed start must not disturb the next one. */
  start(): Promise<void>
}

/** Between two tries, in ms: doubled each time. */
const firstDelayMs = 250
const lastDelayMs = 1_000
/** Between two lines of the log about the same. */
const logEveryMs = 60_000

/** The names of the servers that may be away, by the code of the error. */
const absences = new Map([
  ['SLUICE_BROKER_UNREACHABLE', 'RabbitMQ'],
  ['SLUICE_BROKER_SILENT', 'RabbitMQ'],
  ['SLUICE_REDIS_UNREACHABLE', 'Redis'],
  ['SLUICE_REDIS_SILENT', 'Redis'],
])

/** One start. */
export class PatientStart {
  readonly #options: PatientStartOptions
  readonly #end = new AbortController()
  /** The try that is under way. */
  #underway: Promise<void> = Promise.resolve()

  constructor(options: PatientStartOptions) {
    this.#options = options
  }

  /**
   * Resolves when it has started, or what it needs is away: then it starts later, and the log has a line for both.
   * @throws what `start` throws, unless that is an absence
   */
  async begin(): Promise<void> {
    const { signal } = this.#end
    if (signal.aborted) return
    try {
      await this.#try()
    } catch (error) {
      if (!isAbsence(error)) throw error
      if (!signal.aborted) void this.#goOn(error)
    }
  }

  /** Resolves when no try is under way; there are no more. */
  async end(): Promise<void> {
    this.#end.abort()
    await this.#underway
  }

  async #try(): Promise<void> {
    const started = this.#options.start()
    this.#underway = started.catch(() => {})
    await started
  }

  async #goOn(cause: StoreError): Promise<void> {
    const { who, clock, log } = this.#options
    const { signal } = this.#end
    const startMs = clock.monotonicMs()
    let what = absences.get(cause.code)
    log.warn(`${who} waits for ${what}, and goes on as soon as it is there: ${cause.message}`)
    let [delayMs, loggedMs, loggedCode] = [firstDelayMs, startMs, cause.code]
    for (; ; delayMs = Math.min(lastDelayMs, delayMs * 2)) {
      await clock.sleep(delayMs, signal, false)
      if (signal.aborted) return
      try {
        await this.#try()
        const forMs = clock.monotonicMs() - startMs
        if (!signal.aborted) log.info(`${who} goes on: ${what} is there, after ${span(forMs)}`)
        return
      } catch (error) {
        const nowMs = clock.monotonicMs()
        const code = String(codeOf(error))
        what = absences.get(code) ?? what
        if (signal.aborted || (code === loggedCode && nowMs - loggedMs < logEveryMs)) continue
        ;[loggedMs, loggedCode] = [nowMs, code]
        log.error(`${who} still waits for ${what}`, { err: error })
      }
    }
  }
}

/**
 * Returns whether an error shows that a server is away. A refusal is logged at once, because somebody has to correct
 * the server.
 */
function isAbsence(error: unknown): error is StoreError {
  return error instanceof StoreError && absences.has(error.code)
}
