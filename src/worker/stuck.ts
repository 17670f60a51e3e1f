/**
 * Handlers that go on after their attempt has ended: deaf to their signal, they hold no slot, but memory, and they may
 * still call. Nobody can stop a function from outside, so they are counted and reported, and too many end the claiming.
 */
import type { Clock } from '../core/clock.ts'
import type { Log } from '../core/log.ts'

/** What is watched of a handler's job. */
export interface Left {
  id: string
  task: string
}

/** What watching needs. */
export interface StuckOptions {
  clock: Clock
  log: Log
  /** So many stuck handlers are too many; as many as the worker has slots. */
  most: number
  /** Told when there are too many, and when there are not any more. */
  changed(isTooMany: boolean): void
}

/** A handler that hears its signal may take so long to tidy up. */
const graceMs = 5_000

/** Counts the stuck handlers of one worker. */
export class Stuck {
  readonly #options: StuckOptions
  #count = 0

  constructor(options: StuckOptions) {
    this.#options = options
  }

  /** Handlers that have gone on for more than 5 s after their attempt ended, and still do. */
  get count(): number {
    return this.#count
  }

  /** There are as many as the worker may bear: it claims nothing. */
  get isTooMany(): boolean {
    return this.#count >= this.#options.most
  }

  /** This handler's attempt has ended, for this reason, and `work` is what it still does, if anything. */
  watch(job: Left, reason: Error, work: Promise<unknown>): void {
    const { clock, log } = this.#options
    const sinceMs = clock.monotonicMs()
    const about = () => ({ task: job.task, job: job.id, forMs: Math.round(clock.monotonicMs() - sinceMs) })
    let isStuck = false
    const cancel = clock.after(graceMs, () => {
      isStuck = true
      log.warn('a handler is stuck: it goes on though its attempt has ended; have it listen to `signal`', {
        ...about(),
        ended: reason.message,
      })
      this.#add(1)
    })
    const end = () => {
      cancel()
      if (!isStuck) return
      log.info('a stuck handler has ended at last', about())
      this.#add(-1)
    }
    work.then(end, end)
  }

  #add(n: number): void {
    const before = this.isTooMany
    this.#count += n
    if (this.isTooMany === before) return
    const { log, most, changed } = this.#options
    if (before) log.info('fewer handlers are stuck; this worker claims again')
    else
      log.error('as many handlers are stuck as this worker has slots: it claims nothing until one ends; restart it', {
        stuck: most,
      })
    changed(!before)
  }
}
