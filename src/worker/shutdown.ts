/** How a worker ends: it stops, with a time for the attempts under way, or hands them back at once. */
import { AttemptError } from '../core/errors.ts'
import type { Store } from '../db/store.ts'

/** Parameters of `Shutdown`; see the fields. */
export interface ShutdownOptions {
  readonly store: Pick<Store, 'clock' | 'log'>
  /** How long attempts may go on, in ms. */
  readonly graceMs: number
  /** The plural name of what it executes, for its handlers. */
  readonly what: string
  /** Returns how many attempts are under way. */
  running(): number
  /** Gives them back, to be tried elsewhere. */
  handBack(reason: AttemptError): void
  /** Takes no more, waits for what is in hand, and closes the rest. Called once. */
  signOff(): Promise<void>
}

/** The shutdown of one worker. */
export class Shutdown {
  readonly #options: ShutdownOptions
  readonly #begun = new AbortController()
  #cancel: (() => void) | undefined
  #stopping: Promise<void> | undefined

  constructor(options: ShutdownOptions) {
    this.#options = options
  }

  /** Aborted when the worker is to stop. */
  get signal(): AbortSignal {
    return this.#begun.signal
  }

  /** Begins the shutdown: attempts that still run after the grace are given back. The grace begins with the first call. */
  begin(): void {
    const { store, graceMs, running } = this.#options
    this.#begun.abort()
    this.#cancel ??= store.clock.after(graceMs, () => {
      const attempts = running()
      if (attempts === 0) return
      store.log.warn('the time to end is over; attempts that still run are given back', { attempts, graceMs })
      this.#handBack()
    })
  }

  /** Resolves when it has stopped. */
  stop(): Promise<void> {
    this.#stopping ??= this.#stop()
    return this.#stopping
  }

  /** Stops at once: the signals of attempts under way abort. */
  async abort(): Promise<void> {
    const stopping = this.stop()
    this.#handBack()
    await stopping
  }

  async #stop(): Promise<void> {
    this.begin()
    try {
      await this.#options.signOff()
    } finally {
      this.#cancel?.()
    }
  }

  #handBack(): void {
    const { what, handBack } = this.#options
    const text = `the worker stops at once, and hands its running ${what} back`
    handBack(new AttemptError('SLUICE_SHUTDOWN', text, { retryable: true }))
  }
}
