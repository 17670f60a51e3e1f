/** Reports to Redis what happened to grants: as soon as possible, in batches, for a limited time. */
import { caughtUpMs, type Clock, type Moment, readMoment } from '../core/clock.ts'
import { newId } from '../core/hash.ts'
import type { RedisBucket } from './definition.ts'
import type { SettleAct } from './call.ts'
import type { RedisLimiter } from './limiter.ts'
import type { SharedDefinitions } from './definitions.ts'

/**
 * A report about one bucket. `again`: so many units of a request are charged once more. `untilMs`: the bucket is held until then, in
 * monotonic ms; 0: its holds by such reports are over. A report about a grant belongs to the epoch that counted before the report
 * reached the store, because the state of a later epoch may be built from a ledger that has it.
 */
export type SettlementReport = { bucket: string } & (
  | { epoch: string; grant: string; more: number }
  | { epoch: string; grant: string; isUnused: true }
  | { again: number }
  | { grant: string; ended: number }
  | { grant: string; renewUs: number; places: number }
  | { untilMs: number }
)
/** The definitions, as far as settlements need them. */
type Known = Pick<SharedDefinitions, 'know' | 'read' | 'bucket'>

type WaitingReport = SettlementReport & { sinceMs: number }

/** Sent in one call, and again under the same id while the outcome is not known: each report counts once. */
interface Batch {
  readonly id: string
  readonly reports: readonly WaitingReport[]
  /** A moment before the batch was first sent. */
  readonly begun: Moment
}

const batchMax = 500
/** Ms after which a batch with an unknown outcome is dropped: Redis remembers a call for a minute, then it might count twice. */
const repeatMs = 50_000
/** Longest wait of a report in ms, and most reports that wait; others are dropped. The store has them all the same. */
const keptMs = 50_000
const keptMax = 20_000
const triesMax = 3

/** Parameters of `SettlementQueue`; see the fields. */
export interface SettlementOptions {
  limiter: RedisLimiter
  definitions: Known
  clock: Clock
  /** Returns the epoch that counts. */
  current: () => string | undefined
  /** Returns the latest time that Redis's clock can show, if it is known: a step of the clock must make no room. */
  cap: () => { capUs?: number }
  /** Called when Redis does not answer, or has lost its state; call `sendWaiting` when all is well again. */
  onFailure: (error: unknown) => void
}

/** Queue of reports to Redis. */
export class SettlementQueue {
  readonly #options: SettlementOptions
  #waiting: WaitingReport[] = []
  /** The batch whose outcome is not known. */
  #open: Batch | undefined
  #sending: Promise<void> | undefined

  constructor(options: SettlementOptions) {
    this.#options = options
  }

  /** Adds a report, and sends it with all others that wait when the call before has been answered. */
  add(report: SettlementReport): void {
    const sinceMs = this.#options.clock.monotonicMs()
    if (this.#waiting.length < keptMax) this.#waiting.push({ ...report, sinceMs })
    this.sendWaiting()
  }

  /** Sends the reports that wait. */
  sendWaiting(): void {
    this.#sending ??= this.#send()
  }

  /**
   * Sends reports at once, apart from those that wait.
   * @param of the epoch under which they have to count; default: the one that counts
   * @throws if Redis has not confirmed them; they may have counted all the same
   */
  async confirm(reports: readonly SettlementReport[], of = this.#options.current()): Promise<void> {
    const begun = readMoment(this.#options.clock)
    const waiting = reports.map((report) => ({ ...report, sinceMs: begun.monotonicMs }))
    if (!(await this.#settle({ id: newId(), reports: waiting, begun }, of)))
      throw new Error('Redis has other definitions')
  }

  /** Resolves when the waiting reports have been sent, or cannot be sent now. */
  async waitUntilSent(): Promise<void> {
    await this.#sending
  }

  async #send(): Promise<void> {
    await Promise.resolve()
    try {
      while (this.#open !== undefined || this.#waiting.length > 0) {
        if (this.#open !== undefined && this.#isOld(this.#open)) this.#open = undefined
        const { clock } = this.#options
        const nowMs = clock.monotonicMs()
        const takeBatch = () => this.#waiting.splice(0, batchMax).filter(({ sinceMs }) => nowMs - sinceMs < keptMs)
        this.#open ??= { id: newId(), reports: takeBatch(), begun: readMoment(clock) }
        await this.#settle(this.#open)
        this.#open = undefined
      }
    } catch (error) {
      this.#options.onFailure(error)
    } finally {
      // At once, so that a report which is added from now on begins another sending.
      this.#sending = undefined
    }
  }

  #isOld({ begun }: Batch): boolean {
    return caughtUpMs(this.#options.clock, begun) - begun.monotonicMs > repeatMs
  }

  /** Resolves to false if this process could not learn the definitions in force. */
  async #settle({ id, reports: batch }: Batch, of?: string): Promise<boolean> {
    const { limiter, definitions, cap, current } = this.#options
    await definitions.know(batch.map(({ bucket }) => bucket))
    const epoch = current()
    if (epoch === undefined) throw new Error('no epoch is known')
    if (of !== undefined && of !== epoch) throw new Error('another epoch has begun')
    for (let tries = 0; tries < triesMax; tries++) {
      const { buckets, acts } = this.#collectActs(batch, epoch)
      if (acts.length === 0) return true
      const answer = await limiter.settle({ id, epoch, buckets, acts, ...cap() })
      if (answer.isDecided) return true
      if (answer.why === 'lost') throw new Error('the state in Redis is lost')
      await definitions.read()
    }
    return false
  }

  #collectActs(batch: readonly WaitingReport[], epoch: string): { buckets: RedisBucket[]; acts: SettleAct[] } {
    const places = new Map<string, number>()
    // What is given back of one grant is one act, because Redis reads all of the grant for each.
    const backs = new Map<string, { bucket: number; grant: string; more: number }>()
    const { definitions, clock } = this.#options
    const nowMs = clock.monotonicMs()
    const acts = batch.flatMap((report): SettleAct[] => {
      const { bucket: name } = report
      if (isOver(report, epoch, nowMs) || definitions.bucket(name) === undefined) return []
      const bucket = places.get(name) ?? places.size
      places.set(name, bucket)
      if ('again' in report) return [{ bucket, more: report.again }]
      if ('untilMs' in report)
        return [{ bucket, holdUs: report.untilMs === 0 ? 0 : Math.max(1, Math.ceil((report.untilMs - nowMs) * 1_000)) }]
      if ('ended' in report) return [{ bucket, grant: report.grant, ended: report.ended }]
      if ('renewUs' in report) return [{ bucket, grant: report.grant, renewUs: report.renewUs, places: report.places }]
      if ('isUnused' in report) return [{ bucket, grant: report.grant, isUnused: true }]
      // A grant of an earlier epoch is part of the seed of this one, which has the epoch's id.
      const act = { bucket, grant: epochOf(report.grant) === epoch ? report.grant : epoch, more: report.more }
      if (report.more >= 0) return [act]
      const key = `${bucket} ${act.grant}`
      const known = backs.get(key)
      if (known === undefined) backs.set(key, act)
      else known.more += act.more
      return known === undefined ? [act] : []
    })
    return { buckets: [...places.keys()].flatMap((name) => definitions.bucket(name) ?? []), acts }
  }
}

/** True for a report that is dropped. Use beyond a grant is always reported: if it counts twice, that is safe. */
function isOver(word: WaitingReport, epoch: string, nowMs: number): boolean {
  if ('untilMs' in word) return word.untilMs !== 0 && word.untilMs <= nowMs
  // A place is free, or held, under any epoch.
  if ('ended' in word || 'renewUs' in word || 'again' in word || ('more' in word && word.more > 0)) return false
  // A grant of this epoch has an id there, whatever epoch this process knew at that moment.
  return word.epoch !== epoch && epochOf(word.grant) !== epoch
}

/** Returns the id of a new grant under an epoch. */
export function createGrantId(epoch: string): string {
  return `${epoch}/${newId()}`
}

function epochOf(grant: string): string {
  return grant.split('/', 1)[0] ?? ''
}
