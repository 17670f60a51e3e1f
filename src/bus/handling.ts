/** Runs handlers on the messages in hand, in slots, and carries out the end of each attempt. */
import type { ClaimedJob } from '../claim/claimed-job.ts'
import type { Outcome } from '../claim/finish/outcome.ts'
import type { Outlet } from '../claim/outlet.ts'
import type { AttemptListener } from '../claim/attempt-listener.ts'
import type { Store } from '../db/store.ts'
import type { MessageInHand, MessagesInHand } from './messages-in-hand.ts'
import { jobOf } from './job.ts'
import type { Republisher } from './republisher.ts'
import { keyFor, type Progress } from './message.ts'

/** Parameters of `Handling`; see the fields. */
export interface HandlingOptions {
  store: Store
  republisher: Republisher
  service: string
  /** Executes attempts, and reports each end to `ended`. */
  outlet(ended: (job: ClaimedJob, outcome: Outcome) => void): Outlet
  listener: AttemptListener
  inHand: MessagesInHand
  /** There may be more slots than before. */
  freed(): void
  /** There may be less in hand than before. */
  settled(): void
}

/** A message for one handler. */
interface Run {
  readonly message: MessageInHand
  readonly handler: string
}

/** How long another process has time to take an event, in ms. */
const elsewhereMs = 1_000

/** The attempts of one consumer. */
export class Handling {
  readonly #options: HandlingOptions
  readonly #outlet: Outlet
  readonly #runs: Run[] = []
  readonly #running = new Map<ClaimedJob, Run>()
  #settling = 0
  readonly #aborted = new AbortController()

  constructor(options: HandlingOptions) {
    this.#options = options
    this.#outlet = options.outlet((job, outcome) => this.#endAttempt(job, outcome))
  }

  /** How many attempts run, wait for a slot, or are being ended. */
  get running(): number {
    return this.#runs.length + this.#running.size + this.#settling
  }

  /** How many slots are free. */
  get free(): number {
    return this.#outlet.free()
  }

  /** Runs these handlers on a message as soon as there are slots. @param hasSlot a slot is kept for it: at once */
  handle(message: MessageInHand, handlers: readonly string[], hasSlot: boolean): void {
    message.open = handlers.length
    this.#options.inHand.add(message)
    const runs = handlers.map((handler) => ({ message, handler }))
    if (hasSlot) this.#start(runs)
    else {
      this.#runs.push(...runs)
      this.begin()
    }
  }

  /** Gives back messages whose attempts have not begun, and stops attempts that run. */
  abort(reason: Error): void {
    this.#aborted.abort()
    for (const run of this.#runs.splice(0)) void this.#settle(run, (now) => this.#returnLater(run, now, 0))
    for (const job of this.#running.keys()) this.#outlet.abort(job, reason)
  }

  /** Runs handlers on messages that wait, as many as there are slots for. */
  begin(): void {
    const runs: Run[] = []
    for (let free = this.#outlet.free(); free > 0;) {
      const run = this.#runs.shift()
      if (run === undefined) break
      // A message whose connection was lost before it began is delivered again, here or elsewhere.
      if (!this.#options.inHand.keeps(run.message)) this.#options.inHand.giveBack(run.message)
      else {
        runs.push(run)
        free--
      }
    }
    if (runs.length > 0) this.#start(runs)
    this.#options.freed()
    this.#options.settled()
  }

  #start(runs: readonly Run[]): void {
    const { clock } = this.#options.store
    const jobs = runs.map((run) => {
      const job = this.#job(run, clock.monotonicMs())
      run.message.isBegun = true
      this.#running.set(job, run)
      return job
    })
    this.#options.listener.begun(jobs)
    this.#outlet.start(jobs)
  }

  #job({ message: { source, progress, event }, handler }: Run, nowMs: number): ClaimedJob {
    return jobOf(source, progress, { service: this.#options.service, handler, event }, nowMs)
  }

  #endAttempt(job: ClaimedJob, outcome: Outcome): void {
    const run = this.#running.get(job)
    if (run === undefined) return
    this.#running.delete(job)
    const { listener } = this.#options
    if (listener.wants(outcome)) listener.ended(job, outcome)
    void this.#settle(run, (progress) => this.#end(run, progress, outcome))
    this.begin()
  }

  /** Carries out the end of a run, and then acknowledges its message if this was the message's last run. */
  async #settle(run: Run, carry: (progress: Progress) => Promise<void> | undefined): Promise<void> {
    const { message, handler } = run
    this.#settling++
    let carried: Promise<void> | undefined
    try {
      carried = carry({ ...message.progress, handler })
      if (carried !== undefined) {
        message.isSentOn = true
        await carried
      }
    } catch (error) {
      // It may have arrived before.
      const repeat = () => carry({ ...message.progress, handler, isDoubtful: true })
      if (!(await this.#options.inHand.insist(() => message.incoming.isInHand, repeat, error, this.#aborted.signal))) {
        this.#options.inHand.giveBack(message)
        return
      }
    } finally {
      this.#settling--
      this.#options.settled()
    }
    if (carried === undefined) (message.doneBy ??= []).push(handler)
    else if (message.key !== undefined && message.progress.handler === undefined)
      this.#options.inHand.recordHandled(keyFor(message.key, handler), false)
    message.open--
    if (message.open === 0) this.#options.inHand.acknowledge(message)
  }

  #end(run: Run, progress: Progress, outcome: Outcome): Promise<void> | undefined {
    const { message } = run
    const counted = { ...progress, attempt: progress.attempt + 1 }
    switch (outcome.kind) {
      case 'done':
      case 'discard':
        return undefined
      case 'retry':
        return this.#returnLater(run, { ...counted, failed: progress.failed + 1 }, outcome.delayMs)
      case 'throttled':
        return this.#returnLater(run, { ...counted, throttled: progress.throttled + 1 }, outcome.delayMs)
      case 'interrupt':
        return this.#returnLater(run, { ...counted, isDoubtful: true }, 0)
      case 'failed':
        return this.#options.republisher.archive(message, message.source.queue, counted, outcome)
      default:
        // The handler put the event off, or another process has the handler.
        return this.#returnLater(run, progress, 'delayMs' in outcome ? outcome.delayMs : elsewhereMs)
    }
  }

  #returnLater({ message }: Run, progress: Progress, delayMs: number): Promise<void> {
    const { copy = 0 } = progress
    return this.#options.republisher.returnLater(message, message.source, { ...progress, copy: copy + 1 }, delayMs)
  }
}
