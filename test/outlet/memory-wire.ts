/** Carries messages within a process: late, in another order, twice, or not at all. */
import type { Clock } from '../../src/core/clock.ts'
import { UnsentError, type Wire } from '../../src/outlet/wire.ts'

/** What becomes of a message: the delays of its copies, in ms; none: it is lost. */
type Fate = () => readonly number[]

/** A wire that all of its users share. */
export class MemoryWire implements Wire {
  readonly isUp = true
  fate: Fate
  readonly #clock: Pick<Clock, 'after'>
  readonly #takers = new Map<string, (message: string) => void>()
  readonly #fleets = new Map<string, Set<string>>()

  constructor(clock: Pick<Clock, 'after'>, fate: Fate) {
    this.#clock = clock
    this.fate = fate
  }

  /** Drops nothing for its age: the receiver has to notice that by itself. */
  async send(to: string, message: string): Promise<void> {
    if (!this.#takers.has(to)) throw new UnsentError('nobody is there')
    for (const delayMs of this.fate()) this.#clock.after(delayMs, () => this.#takers.get(to)?.(message))
  }

  async call(fleet: string, message: string): Promise<void> {
    for (const name of this.#fleets.get(fleet) ?? []) await this.send(name, message).catch(() => {})
  }

  async receive(name: string, take: (message: string) => void, fleet?: string): Promise<void> {
    this.#takers.set(name, take)
    if (fleet !== undefined) this.#fleets.set(fleet, (this.#fleets.get(fleet) ?? new Set()).add(name))
  }

  async leave(name: string): Promise<void> {
    this.#takers.delete(name)
    for (const names of this.#fleets.values()) names.delete(name)
  }
}
