/**
 * Watches handlers that continue after their attempt has ended because they ignore their signal. They hold no slot, but
 * they hold memory, and they may still call. A function cannot be stopped from outside, so they are counted and reported,
 * and too many of them stop the claiming.
 */
import type { Clock } from '../core/clock.ts'
import type { Log } from '../core/log.ts'

/** The job of a watched handler. */
export interface StuckJob {
  id: string
  task: string
}

/** Parameters of `Stuck`; see the fields. */
export interface StuckOptions {
  clock: Clock
  log: Log
  /** This many stuck handlers are too many; the worker's number of slots. */
  most: number
  /** Called when there become too many, and when there no longer are. */
  changed(isTooMany: boolean): void
}

/** Time that a handler has to clean up after its signal, in ms. */
const graceMs = 5_000

/** Counts the stuck handlers of one worker. */
export class StuckHandlers {
  readonly #options: StuckOptions
  #count = 0

  constructor(options: StuckOptions) {
    this.#options = options
  }

  /** Handlers that continued for more than 5 s after their attempt ended, and still do. */
  get count(): number {
    return this.#count
  }

  /** True when there are too many: then the worker claims nothing. */
  get isTooMany(): boolean {
    return this.#count >= this.#options.most
  }

  /**
   * Watches the handler of an ended attempt.
   * @param reason why the attempt ended
   * @param work what the handler still does, if anything
   */
  watch(job: StuckJob, reason: Error, work: Promise<unknown>): void {
    const { clock, log } = this.#options
    const sinceMs = clock.monotonicMs()
    const about = () => ({ task: job.task, job: job.id, forMs: Math.round(clock.monotonicMs() - sinceMs) })
    let isStuck = false
    const cancel = clock.after(graceMs, () => {
      isStuck = true
      log.warn('a handler is stuck: it continues after its attempt has ended; make it listen to `signal`', {
        ...about(),
        ended: reason.message,
      })
      this.#add(1)
    })
    const end = () => {
      cancel()
      if (!isStuck) return
      log.info('a stuck handler has ended', about())
      this.#add(-1)
    }
    work.then(end, end)
  }

  #add(n: number): void {
    const before = this.isTooMany
    this.#count += n
    if (this.isTooMany === before) return
    const { log, most, changed } = this.#options
    if (before) log.info('fewer handlers are stuck; this worker takes jobs again')
    else
      log.error('as many handlers are stuck as this worker has slots: it takes no jobs until one ends; restart it', {
        stuck: most,
      })
    changed(!before)
  }
}
