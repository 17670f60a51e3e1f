/** How long attempts may go on once their worker is to stop. */
import type { Store } from '../db/store.ts'

/** The parts of a grace. */
export interface GraceOptions {
  readonly store: Pick<Store, 'clock' | 'log'>
  /** Its length in ms. */
  readonly graceMs: number
  /** Returns how many attempts are under way. */
  running(): number
  /** Gives them back, to be tried elsewhere. */
  handBack(): void
}

/** The grace of one worker. */
export class Grace {
  readonly #options: GraceOptions
  #cancel: (() => void) | undefined

  constructor(options: GraceOptions) {
    this.#options = options
  }

  /** Gives back what still runs after the grace, which begins with the first call. */
  begin(): void {
    const { store, graceMs, running, handBack } = this.#options
    this.#cancel ??= store.clock.after(graceMs, () => {
      const attempts = running()
      if (attempts === 0) return
      store.log.warn('the time to end is over; attempts that still run are given back', { attempts, graceMs })
      handBack()
    })
  }

  /** Nothing runs any more. */
  end(): void {
    this.#cancel?.()
  }
}
