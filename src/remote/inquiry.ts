/** Looks among the workers for calls on which they should have reported: not every end is. */
import type { Broker } from '../amqp/broker.ts'
import { isRecord } from '../celery/json.ts'
import type { Control } from '../celery/remote.ts'
import type { Clock } from '../core/clock.ts'
import type { Log } from '../core/log.ts'
import type { Call } from './call.ts'
import type { StockWorkers } from './stock-workers.ts'

/** A call that was published. */
export interface Asked extends Pick<Call, 'by'> {
  readonly id: string
  readonly queue: string
  /** It may begin until then, in monotonic ms. */
  readonly untilMs: number
  begunMs: number | undefined
  /** So often in a row no worker had it. */
  misses: number
}

/** What it needs; see the fields. */
export interface InquiryOptions<Sent extends Asked> {
  broker: Broker
  control: Pick<Control, 'request'>
  workers: Pick<StockWorkers, 'of'>
  clock: Clock
  log: Log
  /** Returns what has been published, and not ended. */
  sent(): readonly Sent[]
  /** No worker has it, and nothing was reported: it was dropped from its queue, or ended without a result. */
  missed(sent: Sent): void
}

/** A message stays in its queue so long after its time, in ms: a worker that refuses it reports that. */
export const overdueMs = 1_000
const everyMs = 1_500
/** Reports, and messages that others have read from a queue, are under way for so long. */
const wayMs = 1_000
/** A call that lasts longer is looked for. */
const shortMs = 2_000
const answerMs = 1_000

/** Looks until it is closed. */
export class Inquiry<Sent extends Asked> {
  readonly #options: InquiryOptions<Sent>
  #isClosed = false

  constructor(options: InquiryOptions<Sent>) {
    this.#options = options
  }

  open(): void {
    const { clock, log } = this.#options
    if (this.#isClosed) return
    clock.after(everyMs, () => {
      const looked = this.#look().catch((error: unknown) =>
        log.debug('Celery workers cannot be queried', { err: error }),
      )
      void looked.then(() => this.open())
    })
  }

  close(): void {
    this.#isClosed = true
  }

  async #look(): Promise<void> {
    const { broker, control, workers, clock, sent: all, missed } = this.#options
    const nowMs = clock.monotonicMs()
    const doubted = all().filter(({ begunMs, untilMs }) =>
      begunMs === undefined ? nowMs > untilMs + overdueMs + wayMs : nowMs > begunMs + shortMs,
    )
    if (doubted.length === 0) return
    const names = [...new Set(doubted.flatMap(({ queue }) => workers.of(queue)))]
    const ids = doubted.map(({ id }) => id)
    const answers =
      names.length === 0 ? {} : await control.request('query_task', { ids }, { workers: names, within: answerMs })
    if (!broker.status().isUp) return
    const open = new Set(all())
    for (const sent of doubted) {
      const has = Object.values(answers).some((answer) => isRecord(answer) && sent.id in answer)
      const whose = sent.by === undefined ? workers.of(sent.queue) : [sent.by.worker]
      if (has) sent.misses = 0
      else if (whose.every((worker) => worker in answers)) sent.misses++
      // What was reported before the first answer without it is here by the second one.
      if (sent.misses >= 2 && open.has(sent)) missed(sent)
    }
  }
}
