/** Forwards messages that this process makes no attempt at: to the store, to the archive, or back to a queue for later. */
import type { Incoming } from '../amqp/broker.ts'
import type { ClaimedJob } from '../claim/claimed-job.ts'
import type { Outcome } from '../claim/finish/outcome.ts'
import { SluiceError, UsageError } from '../core/errors.ts'
import { hash64, isId } from '../core/hash.ts'
import { delayMs } from '../core/retry.ts'
import type { Store } from '../db/store.ts'
import type { CloudEvent } from '../events/envelope.ts'
import type { Sender } from '../tasks/task.ts'
import { describe } from '../worker/verdict.ts'
import { jobOf } from './job.ts'
import type { Republisher } from './republisher.ts'
import { type Progress, progressOf } from './message.ts'
import type { Source } from './source.ts'

/** Parameters of `Forwarder`; see the fields. */
export interface ForwarderOptions {
  store: Store
  republisher: Republisher
  service: string
  /** How an attempt ends whose worker was lost. */
  lost(job: ClaimedJob): Outcome
  /** Sends the deliveries of groups with limits to the store. */
  sender: Pick<Sender, 'send'>
}

/** A message that was read. */
interface Read {
  readonly source: Source
  readonly progress: Progress
  readonly event: CloudEvent
  readonly incoming: Incoming
}

/** For how long a message is put off if this process has no handler for it, in ms; doubled each time. */
const strayMs = { least: 1_000, most: 60_000 }
/** How often a message without a handler is put off before it goes to the archive: for some three days. */
const straysMax = 4_000

/** Forwards messages, and acknowledges each when that is durable. */
export class Forwarder {
  readonly #options: ForwarderOptions

  constructor(options: ForwarderOptions) {
    this.#options = options
  }

  /** Counts an attempt, because a worker was lost that had begun this message. */
  async handleCrash(source: Source, incoming: Incoming, progress: Progress): Promise<void> {
    const { republisher, lost, store } = this.#options
    const unread = { incoming, event: undefined }
    const job = jobOf(source, progress, undefined, store.clock.monotonicMs())
    const failed = progress.failed + 1
    const known = {
      ...progress,
      attempt: progress.attempt + 1,
      failed,
      crashes: progress.crashes + 1,
      isDoubtful: true,
    }
    const outcome = lost(job)
    const error = 'error' in outcome ? outcome.error : '{}'
    const { attempts } = source.task.retry
    if (failed >= attempts) await republisher.archive(unread, source.queue, known, { reason: 'crashed', error })
    else await republisher.returnLater(unread, source, known, delayMs(failed, source.task.retry, store.clock.random()))
    incoming.ack()
  }

  /** Puts off a message whose group this process does not have; in a deploy another process may have it. */
  async putOffUnknownGroup(incoming: Incoming, queue: string): Promise<void> {
    const { republisher } = this.#options
    const received = { incoming, event: undefined }
    const progress = progressOf(incoming)
    const to = { queue, stepFor: (ms: number) => republisher.names.stepFor(ms, new Set()) }
    const error = JSON.stringify({ code: 'SLUICE_EVENT_REFUSED', message: 'it names no queue' })
    if (queue === '') await republisher.archive(received, queue, progress, { reason: 'refused', error })
    else await republisher.returnLater(received, to, progress, strayMs.least)
    incoming.ack()
  }

  /** Archives a message that is no event. */
  async archiveRefused(source: Source, incoming: Incoming, progress: Progress, cause: unknown): Promise<void> {
    const outcome = { reason: 'refused', error: describe(cause) }
    this.#options.store.log.warn(SluiceError.is(cause) ? cause.message : String(cause), { queue: source.queue })
    await this.#options.republisher.archive({ incoming, event: undefined }, source.queue, progress, outcome)
    incoming.ack()
  }

  /** Puts off a message without a handler here; in a deploy another process of the service may have it. */
  async putOffUnhandled(read: Read): Promise<void> {
    const { source, progress, event } = read
    const { republisher, store } = this.#options
    const strays = progress.strays + 1
    const text = `this process has no handler of events ${event.type} in the queue ${source.queue}; another one may have it`
    if (strays > straysMax) {
      const error = JSON.stringify({ code: 'SLUICE_EVENT_REFUSED', message: text })
      await republisher.archive(read, source.queue, progress, { reason: 'refused', error })
    } else {
      if (strays === 1) store.log.warn(text)
      const delayMs = Math.min(strayMs.most, strayMs.least * 2 ** Math.min(strays - 1, 10))
      await republisher.returnLater(read, source, { ...progress, strays }, delayMs)
    }
    read.incoming.ack()
  }

  /**
   * Sends the deliveries of groups with limits to the store, where waiting costs nothing. The store recognises
   * deliveries that it has already.
   */
  async sendToStore(read: Read, handlers: readonly string[]): Promise<void> {
    const { source, progress, event, incoming } = read
    const { service, sender, republisher } = this.#options
    // A replayed event is to be handled again, once for each time that it was in the archive.
    const what = [nameOf(event), ...(progress.replayOf === undefined ? [] : [progress.replayOf])]
    const input = { service, event, ...(progress.isDoubtful || incoming.isRedelivered ? { again: true } : {}) }
    for (const handler of handlers) {
      const idempotencyKey = [service, handler, ...what].join('/').slice(0, 512)
      try {
        await sender.send(source.home, { ...input, handler }, { idempotencyKey })
      } catch (error) {
        // A repetition would fail again: a key is missing, for example.
        if (!(error instanceof UsageError)) throw error
        const outcome = { reason: 'refused', error: describe(error) }
        await republisher.archive(read, source.queue, { ...progress, handler }, outcome)
      }
    }
    incoming.ack()
  }
}

/** Returns what names an event. Other programs may give the same id to events of different sources, or to all of theirs. */
function nameOf({ id, source, data }: CloudEvent): string {
  return isId(id) ? id : hash64(JSON.stringify([source, id, data]))
}
