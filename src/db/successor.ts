/** Takes the place of a process that owned an embedded directory and has ended, so that those that used it continue. */
import type { Clock } from '../core/clock.ts'
import { SluiceError } from '../core/errors.ts'
import { openPglite, type PgliteDb } from './pglite.ts'

/**
 * The engine of a process that so far reached a directory through its owner. Once it runs here, the process reaches it
 * as all others do, over the directory's socket, which has the same name for every owner.
 */
export class Successor {
  readonly #dir: string
  readonly #clock: Clock
  readonly #log: (message: string) => void
  #db: PgliteDb | undefined
  #opening: Promise<boolean> | undefined
  #isClosed = false

  /** @param log called with a message when the engine runs here */
  constructor(dir: string, clock: Clock, log: (message: string) => void) {
    this.#dir = dir
    this.#clock = clock
    this.#log = log
  }

  /** True while the engine runs in this process. */
  get isOwner(): boolean {
    return this.#db !== undefined
  }

  /** Opens the engine here, unless a process has it already. Resolves to whether connecting again makes sense. */
  takeOver(): Promise<boolean> {
    this.#opening ??= this.#open().finally(() => (this.#opening = undefined))
    return this.#opening
  }

  /** Closes the engine if it runs here. */
  async close(): Promise<void> {
    this.#isClosed = true
    await this.#opening
    await this.#db?.close()
  }

  async #open(): Promise<boolean> {
    if (this.#isClosed || this.#db !== undefined) return false
    try {
      const db = await openPglite({ dir: this.#dir, clock: this.#clock })
      this.#db = db
      this.#log(`the process that owned ${this.#dir} has ended; this process owns it now`)
      // An engine that has failed gives the directory up, and the next connection opens it again.
      void db.ended.then(async () => {
        await db.close().catch(() => {})
        this.#db = undefined
      })
      return true
    } catch (error) {
      // The connection's own error is reported; if another process was faster, it answers there soon.
      return SluiceError.is(error) && error.code === 'SLUICE_STORE_OWNED'
    }
  }
}
