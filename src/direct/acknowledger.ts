/** Acknowledges messages: each one when what becomes of it has been sent, which is repeated while a server is away. */
import type { Clock } from '../core/clock.ts'
import { codeOf, StoreError } from '../core/errors.ts'
import type { Log } from '../core/log.ts'
import { reach } from '../core/test-points.ts'
import type { Ends } from './ends.ts'
import type { PartialEntry } from './intake.ts'

/** Parameters of `Acknowledger`; see the fields. */
export interface AcknowledgerOptions {
  clock: Clock
  log: Log
  ends: Pick<Ends, 'parkRefused'>
  /** Messages are acknowledged when their attempts begin. */
  acksEarly: boolean
  /** Aborted when nothing more is repeated: messages whose ends are not sent go back then. */
  signal: AbortSignal
  /** Called before a message is acknowledged that this worker has carried out. */
  onDone(entry: PartialEntry): void
  /** Called when a message was acknowledged, or went back. */
  onOver(entry: PartialEntry): void
}

/** Time between two tries to send the end of a message, in ms. */
const retryMs = 1_000

/** Acknowledges the messages of one worker. */
export class Acknowledger {
  readonly #options: AcknowledgerOptions
  /** Messages whose ends could not be sent, and are tried again. */
  #unsent = 0

  constructor(options: AcknowledgerOptions) {
    this.#options = options
  }

  /** Sends the end of a message by `send`, and then acknowledges the message. Resolves when it was acknowledged, or went back. */
  async acknowledgeAfter(entry: PartialEntry, send: () => Promise<void>): Promise<void> {
    const { clock, log, acksEarly, signal, onDone, onOver } = this.#options
    let isUnsent = false
    for (;;) {
      try {
        await this.#sendOrPark(entry, send)
        await reach('direct.settled', entry)
        if (entry.incoming.isElsewhere !== true) onDone(entry)
        entry.incoming.ack()
        break
      } catch (error) {
        // However many messages wait, an outage has one warning, and a line at its end.
        if (!isUnsent && this.#unsent++ === 0)
          log.warn('what became of messages of Celery cannot be sent now; it is tried again', { err: error })
        isUnsent = true
        entry.mayHaveBeenSent ||= codeOf(error) === 'SLUICE_BROKER_SILENT'
        await clock.sleep(retryMs, signal)
        if (error instanceof StoreError && !signal.aborted) continue
        if (!entry.incoming.reject({ requeue: true }) && acksEarly && entry.begunMs !== undefined)
          log.error('a message of Celery that was acknowledged when it began is lost', { id: entry.message?.id })
        break
      }
    }
    if (isUnsent && --this.#unsent === 0) log.info('no end of a message of Celery waits to be sent any more')
    onOver(entry)
  }

  /** Sends the end of a message, or parks it if no server will ever take it, because its headers are too long for example. */
  #sendOrPark(entry: PartialEntry, send: () => Promise<void>): Promise<void> {
    return send().catch((error: unknown) => {
      if (error instanceof StoreError) throw error
      return this.#options.ends.parkRefused(entry, error, entry)
    })
  }
}
