/** Queries the workers about calls that they should have reported, because not every end is reported. */
import { isRecord } from '../celery/json.ts'
import type { Control } from '../celery/remote.ts'
import type { Clock } from '../core/clock.ts'
import type { Log } from '../core/log.ts'
import { type Call, unknownWorker } from './call.ts'
import type { StockWorkers } from './stock-workers.ts'

/** A call that was published. */
export interface SentCall extends Pick<Call, 'by'> {
  readonly id: string
  readonly queue: string
  /** It may begin until then, in monotonic ms. */
  readonly untilMs: number
  begunMs: number | undefined
  /** Its message was delivered again, too late. A worker that has refused the second message no longer names the call, though it goes on. */
  isBack: boolean
  /** How often in a row no worker had it. */
  misses: number
  /** The dispatcher that published it, if that was another one. */
  readonly estate: string | undefined
}

/** Parameters of `Inquiry`; see the fields. */
export interface InquiryOptions<Sent extends SentCall> {
  control: Pick<Control, 'request'>
  workers: Pick<StockWorkers, 'namesOf' | 'isWhole' | 'isGone' | 'isUp'>
  clock: Clock
  log: Log
  /** Returns what has been published, and not ended. */
  sent(): readonly Sent[]
  /** This worker has begun it. */
  onFound(sent: Sent, by: NonNullable<Call['by']>): void
  /** No worker has it, and nothing was reported: it was dropped from its queue, or ended without a result. */
  onMissing(sent: Sent): void
}

/** For how long after its expiry a message stays in its queue, in ms, so that a worker can refuse it and report that. */
export const overdueMs = 1_000
const everyMs = 1_500
/** How long reports, and messages that others have read from a queue, may be under way. */
const wayMs = 1_000
/** Workers are queried about calls that last longer than this. */
const shortMs = 2_000
const answerMs = 1_000

/** Looks until it is closed. */
export class Inquiry<Sent extends SentCall> {
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
    const { workers, clock, sent: all, onFound, onMissing } = this.#options
    const nowMs = clock.monotonicMs()
    const doubted = all().filter(({ begunMs, untilMs }) =>
      begunMs === undefined ? nowMs > untilMs + overdueMs + wayMs : nowMs > begunMs + shortMs,
    )
    if (doubted.length === 0) return
    const answers = await this.#queryWorkers(doubted)
    // Meanwhile reports are not read.
    if (!workers.isUp) return
    const open = new Set(all())
    for (const sent of doubted) {
      const holder = Object.keys(answers).find((worker) => has(answers[worker], sent.id))
      if (holder !== undefined) sent.misses = 0
      else if (this.#hasNoWorker(sent, answers, nowMs)) sent.misses++
      if (!open.has(sent)) continue
      const by = holder === undefined ? undefined : callerOf(holder, answers[holder], sent.id)
      if (by !== undefined) onFound(sent, by)
      // A report that was sent before the first answer without the call has arrived by the second one.
      if (sent.misses >= 2) onMissing(sent)
    }
  }

  /** Resolves to what each worker answers about these calls. */
  async #queryWorkers(doubted: readonly Sent[]): Promise<Readonly<Record<string, unknown>>> {
    const { control, workers } = this.#options
    // Workers that this dispatcher does not know may have messages of another dispatcher.
    const isOwn = doubted.every(({ estate }) => estate === undefined)
    const names = isOwn ? [...new Set(doubted.flatMap(({ queue }) => workers.namesOf(queue)))] : undefined
    if (names?.length === 0) return {}
    const how = { within: answerMs, ...(names === undefined ? {} : { workers: names }) }
    return control.request('query_task', { ids: doubted.map(({ id }) => id) }, how)
  }

  /** Returns whether each worker that may have a call is gone, or has answered without naming the call. */
  #hasNoWorker(sent: Sent, answers: Readonly<Record<string, unknown>>, nowMs: number): boolean {
    const { workers } = this.#options
    if (sent.estate !== undefined && !workers.isWhole()) return false
    const own = sent.by === undefined || sent.by.worker === unknownWorker ? undefined : sent.by.worker
    const candidates = own === undefined ? workers.namesOf(sent.queue) : [own]
    // A worker that is not known cannot be seen to be lost, so that only its silence about the call can end it.
    const isNamed = !sent.isBack || own === undefined
    return candidates.every((one) => (isNamed && one in answers) || workers.isGone(one, sent.begunMs ?? nowMs))
  }
}

function has(answer: unknown, id: string): boolean {
  return isRecord(answer) && id in answer
}

/** The process that runs a task, by a worker's answer; undefined: it has not begun. */
function callerOf(worker: string, answer: unknown, id: string): Call['by'] {
  const found = isRecord(answer) ? answer[id] : undefined
  const [state, info] = Array.isArray(found) ? (found as unknown[]) : []
  const pid = isRecord(info) ? info['worker_pid'] : undefined
  return state === 'active' && typeof pid === 'number' ? { worker, pid } : undefined
}
