/** Carries out the end of an attempt: sends the result, a later attempt, or the message to the queue of parked ones. */
import { refusedResult, resultOf, revokedResult } from '../absorb/call.ts'
import { logParked, park } from '../absorb/parking.ts'
import type { CeleryBroker } from '../absorb/broker.ts'
import type { Presence } from '../absorb/presence.ts'
import type { Results } from '../absorb/results.ts'
import { delayMaxMs } from '../amqp/delays.ts'
import type { TaskResult } from '../celery/result.ts'
import { blank, writeTask } from '../celery/task-message.ts'
import { readIncoming } from '../celery/transport.ts'
import type { ClaimedJob } from '../claim/claimed-job.ts'
import type { Outcome } from '../claim/finish/outcome.ts'
import { idFrom } from '../core/hash.ts'
import type { Clock } from '../core/clock.ts'
import { StoreError, textOfError } from '../core/errors.ts'
import type { Log } from '../core/log.ts'
import { delayMs } from '../core/retry.ts'
import type { Incoming, DirectBroker } from './broker.ts'
import type { Entry } from './intake.ts'
import { copyOf, parkedHeaders, type Progress } from './message.ts'

/** Parameters of `Ends`; see the fields. */
export interface EndsOptions {
  broker: Pick<DirectBroker, 'sendLater'>
  /** The same broker, for tasks that follow and messages that are parked. */
  celery: CeleryBroker
  results: Results
  clock: Clock
  log: Log
  /** The state of this worker that programs of Celery see. */
  presence: Pick<Presence, 'name' | 'events'>
  /** Producers get the state STARTED. */
  tracksStarted: boolean
  /** Messages that fail for good are also put into the queue of parked ones. */
  parks: boolean
}

/** A failed message as it is reported; see the fields. */
interface Failure {
  readonly reason: string
  /** JSON. */
  readonly error: string
}

/** So many lost workers end a message. A message that was read ahead also counts a loss, though its handler was not called. */
const crashesMax = 10
/**
 * After how many ms an attempt is repeated whose handler was not called, mostly because its grant expired on a slow
 * machine.
 */
const uncalledMs = 150

/** The ends of one worker's messages. */
export class Ends {
  readonly #options: EndsOptions

  constructor(options: EndsOptions) {
    this.#options = options
  }

  /**
   * Sends a message to its queue again, after a delay in ms. Resolves when that is confirmed. What waits for longer than `delayMaxMs`
   * comes back earlier, with the time at which it is due in a header.
   */
  async sendLater(
    { incoming, queue, mayHaveBeenSent = false }: Pick<Entry, 'incoming' | 'queue' | 'mayHaveBeenSent'>,
    progress: Progress,
    ms: number,
  ): Promise<void> {
    const isDoubtful = progress.isDoubtful || mayHaveBeenSent
    const { broker, clock } = this.#options
    const due = ms > delayMaxMs ? { dueMs: Math.ceil(clock.wallMs() + ms) } : {}
    const copy = copyOf(incoming, { ...progress, isDoubtful, ...due })
    await broker.sendLater(incoming, copy, queue, Math.min(ms, delayMaxMs))
  }

  /** Reports that a message was revoked, or has expired. */
  reportRevoked({ message, call }: Entry, why: string): Promise<void> {
    return this.#send(revokedResult(message.id, why), { message, call })
  }

  /**
   * Puts a message that cannot be carried out into the queue of parked ones.
   * @param seen the message as far as it was read
   */
  async parkRefused(
    { incoming, queue }: Pick<Entry, 'incoming' | 'queue'>,
    cause: unknown,
    { message, call }: Partial<Pick<Entry, 'message' | 'call'>> = {},
  ): Promise<void> {
    const reason = textOfError(cause)
    if (message !== undefined && call !== undefined) await this.#send(refusedResult(message, cause), { message, call })
    const parked = await this.#park(incoming, queue, reason)
    logParked(this.#options.log, queue, parked, message, reason)
  }

  /** Handles the loss of a worker that had this message, and perhaps executed it. */
  async handleCrash(entry: Entry): Promise<void> {
    const { progress, task } = entry
    const { clock } = this.#options
    const known = { ...progress, crashes: progress.crashes + 1, isDoubtful: true }
    if (task.isOnce) await this.failDoubtful(entry, known)
    else if (known.crashes > crashesMax)
      await this.endFailed(entry, known, { reason: 'crashed', error: lostWorkerError })
    else await this.sendLater(entry, known, delayMs(known.crashes, task.retry, clock.random()))
  }

  /** Ends a message that may have been executed before, because its task is executed at most once. */
  failDoubtful(entry: Entry, progress: Progress): Promise<void> {
    return this.endFailed(entry, progress, { reason: 'doubtful', error: lostWorkerError })
  }

  /** Reports that an attempt began, at this wall time in ms. */
  reportBegun(entry: Entry, atMs: number): void {
    const { presence, results, tracksStarted, log } = this.#options
    const { id } = entry.message
    entry.begunMs = atMs
    presence.events.sendStarted(id, atMs)
    if (!tracksStarted) return
    const started = resultOf(id, { state: 'started', reason: null, result: null, error: null }, presence.name)
    // If a server is away, this state is not reported later, because it is over soon.
    const failed = (error: unknown) => log.debug('that a task began could not be reported', { id, err: error })
    entry.startReported = results.send(started, entry.call).catch(failed)
  }

  /** Carries out the end of an attempt. */
  async endAttempt(entry: Entry, job: ClaimedJob, outcome: Outcome): Promise<void> {
    const { progress, message } = entry
    const counted = { ...progress, attempt: job.attempt }
    if (entry.startReported !== undefined) await entry.startReported
    if (outcome.kind === 'retry' || outcome.kind === 'throttled') await this.#reportRetry(entry, outcome.error)
    switch (outcome.kind) {
      case 'done': {
        const ended = { state: 'done', reason: null, result: outcome.result, error: null }
        return this.#send(resultOf(message.id, ended), entry)
      }
      case 'failed':
        return this.endFailed(entry, counted, { reason: outcome.reason, error: outcome.error })
      case 'retry':
        return this.sendLater(entry, { ...counted, failed: progress.failed + 1 }, outcome.delayMs)
      case 'throttled':
        return this.sendLater(entry, { ...counted, throttled: progress.throttled + 1 }, outcome.delayMs)
      case 'interrupt':
        return this.sendLater(entry, { ...counted, isDoubtful: true }, 0)
      case 'discard':
        return this.reportRevoked(entry, outcome.reason)
      default:
        return this.sendLater(
          entry,
          progress,
          'delayMs' in outcome ? outcome.delayMs : uncalledMs * (1 + this.#options.clock.random()),
        )
    }
  }

  /** Reports that another attempt follows, which Celery shows with the error of this one. */
  async #reportRetry(entry: Entry, error: string): Promise<void> {
    const { results } = this.#options
    const result = resultOf(entry.message.id, { state: 'retry', reason: null, result: null, error })
    await this.#sendOnce(entry, 'retry', async () => {
      await this.#sendOrLog(entry, () => results.send(result, entry.call))
      this.#sendEvent(entry, result)
    })
  }

  #sendEvent({ call, begunMs }: Pick<Entry, 'call' | 'begunMs'>, result: TaskResult): void {
    const { presence, clock } = this.#options
    const endedMs = begunMs === undefined ? null : clock.wallMs()
    presence.events.sendEnd(result, { task: call.task, startedMs: begunMs ?? null, endedMs })
  }

  /**
   * Ends a message for good: reports that, sends the tasks that follow it, parks it if that is wanted, and sends the
   * job of `onFailed`.
   */
  async endFailed(entry: Entry, progress: Progress, failure: Failure): Promise<void> {
    const { parks } = this.#options
    const { incoming, queue, message, task } = entry
    const { reason, error } = failure
    await this.#sendOnce(entry, 'result', () =>
      this.#send(resultOf(message.id, { state: 'failed', reason, result: null, error }), entry),
    )
    const parkFailed = () => this.#park(incoming, queue, `${reason}: ${error}`, parkedHeaders(incoming))
    if (parks) await this.#sendOnce(entry, 'aside', parkFailed)
    if (task.onFailed !== undefined) await this.#sendFailureJob(entry, task.onFailed.name, progress, failure)
  }

  /** Sends a part of an end once: when a part cannot be sent, the whole end is repeated, but not the parts that were sent. */
  async #sendOnce({ sent }: Entry, part: string, send: () => Promise<unknown>): Promise<void> {
    if (sent.has(part)) return
    await send()
    sent.add(part)
  }

  async #sendFailureJob(
    { message, task, queue, input, seenMs }: Entry,
    name: string,
    progress: Progress,
    { reason, error }: Failure,
  ): Promise<void> {
    const { celery, clock } = this.#options
    const { id, rootId } = message
    const failure = {
      id,
      task: task.name,
      queue,
      reason,
      error: JSON.parse(error) as unknown,
      attempt: progress.attempt,
      ambiguous: progress.isDoubtful,
      createdAt: new Date(seenMs).toISOString(),
      failedAt: new Date(clock.wallMs()).toISOString(),
      tags: [],
      input,
    }
    // The same whenever it is sent, because the attempt's end may be repeated; another if the message was put back by hand.
    const call = {
      ...blank,
      id: idFrom(`${id}/failed/${progress.parked}`),
      task: name,
      rootId,
      parentId: id,
      kwargs: failure,
      ignoreResult: true,
    }
    const wire = await writeTask(call, { nowMs: clock.wallMs() })
    await celery.send(wire, { exchange: '', routingKey: queue })
  }

  #park(incoming: Incoming, queue: string, reason: string, more: Record<string, unknown> = {}): Promise<string> {
    const { celery: broker, log } = this.#options
    const message = readIncoming(incoming)
    return park({ broker, log }, { ...message, headers: { ...message.headers, ...more } }, queue, reason)
  }

  /** Sends the last result of a task, and the tasks that follow it. */
  async #send(result: TaskResult, entry: Pick<Entry, 'message' | 'call' | 'begunMs'>): Promise<void> {
    const { results } = this.#options
    if (results.isAwaited(entry.call)) await this.#sendOrLog(entry, () => results.finish(entry.call, result))
    this.#sendEvent(entry, result)
  }

  /** Data that cannot be encoded now cannot be encoded later either. A refusal by a server is thrown, because it may pass. */
  async #sendOrLog({ message }: Pick<Entry, 'message'>, send: () => Promise<void>): Promise<void> {
    try {
      await send()
    } catch (error) {
      if (error instanceof StoreError) throw error
      const about = { id: message.id, err: error }
      this.#options.log.error('a result for a Celery producer cannot be written, and is left out', about)
    }
  }
}

const lostWorkerError = JSON.stringify({
  code: 'SLUICE_WORKER_LOST',
  message: 'its worker was lost; whether the call was made is not known',
})
