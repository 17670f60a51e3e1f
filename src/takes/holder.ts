/** The places that this process holds outside of jobs: kept alive by one statement for all, given back, or lost. */
import { caughtUpMs, type Moment, readMoment, type StoreClock } from '../core/clock.ts'
import { AttemptError } from '../core/errors.ts'
import { newId } from '../core/hash.ts'
import type { Store } from '../db/store.ts'

/** What the store trusts a process for that holds places, in microseconds. */
export const lifeUs = 15_000_000
const renewMs = 5_000
/** So much earlier than in the store its leases end here: what is done under them needs time to stop, and clocks differ. */
const skewMs = 1_000
/** What is given back is told to a store that is away for so long; places end by themselves before. */
const endMs = 60_000

interface Ending {
  readonly take: string
  readonly unused: number
  readonly untilMs: number
}

interface Kept {
  now_us: string
  life_us: string | null
  held: string[] | null
}

/** All places of one process. */
export class Holder {
  /** As the store knows it; another one after it was given up. */
  id = newId()
  readonly #store: Store
  readonly #storeClock: StoreClock
  /** What is told when a place is lost. */
  readonly #held = new Map<string, (reason: Error) => void>()
  readonly #asking = new Set<string>()
  readonly #ending = new Map<string, Ending>()
  #deadlineMs = -Infinity
  /** Before the store was last told that this process lives. */
  #asked: Moment | undefined
  #disarm: (() => void) | undefined
  #rounds: Promise<void> | undefined
  #isRenewing = false
  #flushing: Promise<void> | undefined
  readonly #closed = new AbortController()

  constructor(store: Store, storeClock: StoreClock) {
    this.#store = store
    this.#storeClock = storeClock
  }

  /** A place may be granted under this id from now on; call what is returned when the answer is known. */
  asking(grant: string): () => void {
    this.#asking.add(grant)
    return () => void this.#asking.delete(grant)
  }

  /** The store may have given its places to others: also where the timer for that stood still while the machine slept. */
  get isOver(): boolean {
    return caughtUpMs(this.#store.clock, this.#asked) >= this.#deadlineMs - skewMs
  }

  /** A place was granted to who asked; it lasts for `lifeMs` unless that is put off. `lost` is told when it ends by itself. */
  hold(grant: string, asked: Moment, lifeMs: number, lost: (reason: Error) => void): void {
    this.#held.set(grant, lost)
    this.#extend(asked, lifeMs)
    this.#go()
  }

  /** A place goes back to the store by another way. */
  forget(grant: string): void {
    this.#held.delete(grant)
  }

  /** Ends a grant: its place, and units that were not used. Resolves when the store knows, or could not be told now. */
  async end(grant: string, take: string, unused: number): Promise<void> {
    this.#held.delete(grant)
    this.#ending.set(grant, { take, unused, untilMs: this.#store.clock.monotonicMs() + endMs })
    // One that is under way may have begun without it.
    await this.#flushing
    await this.#flush()
  }

  /** This process was given up: what it held is others', and it begins anew. */
  lost(): void {
    this.id = newId()
    this.#deadlineMs = -Infinity
    this.#disarm?.()
    const all = [...this.#held.values()]
    this.#held.clear()
    if (all.length > 0)
      this.#store.log.warn('places held outside of jobs are lost: the store had no sign of life for too long', {
        places: all.length,
      })
    for (const tell of all) tell(placeLost('the store had no sign of life of this process for too long'))
  }

  /** The store knows nothing of these any more: it lost them, and may have given the places to others. */
  #forgotten(grants: readonly string[]): void {
    if (grants.length === 0) return
    this.#store.log.warn('places held outside of jobs are lost: the store does not know of them any more', {
      places: grants.length,
    })
    for (const grant of grants) {
      const tell = this.#held.get(grant)
      this.#held.delete(grant)
      tell?.(placeLost('the store lost it (restored from a backup, or failed over)'))
    }
  }

  /** Lets nothing be renewed any more. */
  async close(): Promise<void> {
    this.#closed.abort()
    this.#disarm?.()
    await this.#flush()
    await this.#rounds
  }

  #extend(asked: Moment, lifeMs: number): void {
    const { clock } = this.#store
    const deadlineMs = asked.monotonicMs + lifeMs
    if (deadlineMs >= this.#deadlineMs) [this.#deadlineMs, this.#asked] = [deadlineMs, asked]
    this.#disarm?.()
    this.#disarm = clock.after(Math.max(0, this.#deadlineMs - skewMs - clock.monotonicMs()), () => this.lost())
  }

  #go(): void {
    if (this.#isRenewing) return
    this.#isRenewing = true
    this.#rounds = this.#renew()
  }

  /** Says that it lives for as long as it holds something, and gives back what the store says it holds and nobody here knows. */
  async #renew(): Promise<void> {
    const { clock, log } = this.#store
    for (;;) {
      // In one step with the decision to stop: whoever takes a place from here on begins anew.
      this.#isRenewing = (this.#held.size > 0 || this.#ending.size > 0) && !this.#closed.signal.aborted
      if (!this.#isRenewing) return
      await clock.sleep(renewMs, this.#closed.signal, false)
      if (this.#closed.signal.aborted) continue
      await this.#flush()
      if (this.#held.size === 0) continue
      const { id } = this
      const asked = readMoment(clock)
      const sentMs = asked.monotonicMs
      try {
        const sure = [...this.#held.keys()]
        const known = new Set([...sure, ...this.#asking, ...this.#ending.keys()])
        const [row] = await this.#store.call<Kept>('keep', [id, lifeUs, this.#storeClock.cap(sentMs)])
        if (row === undefined || id !== this.id) continue
        this.#storeClock.saw(Number(row.now_us), clock.monotonicMs(), sentMs)
        if (row.life_us === null) this.lost()
        else {
          this.#extend(asked, Number(row.life_us) / 1_000)
          const held = new Set(row.held)
          this.#forgotten(sure.filter((grant) => !held.has(grant) && this.#held.has(grant)))
        }
        // What was granted while it was under way is known by now, or being asked for.
        const isStray = (grant: string) =>
          !known.has(grant) && !this.#held.has(grant) && !this.#asking.has(grant) && !this.#ending.has(grant)
        await this.#giveBackStrays((row.held ?? []).filter(isStray))
      } catch (error) {
        log.debug('places held outside of jobs could not be renewed', { error: String(error) })
      }
    }
  }

  /** Granted, but the answer never came: nobody else would give them back as long as this process lives. */
  async #giveBackStrays(grants: readonly string[]): Promise<void> {
    if (grants.length === 0) return
    await this.#store.call('yield', [grants, grants.map(() => null), grants.map(() => 0)])
  }

  /** Tells the store what has ended, all that there is in one statement. */
  #flush(): Promise<void> {
    this.#flushing ??= this.#tell().finally(() => (this.#flushing = undefined))
    return this.#flushing
  }

  async #tell(): Promise<void> {
    const { clock, log } = this.#store
    const batch = [...this.#ending]
    if (batch.length === 0) return
    try {
      await this.#store.call('yield', [
        batch.map(([grant]) => grant),
        batch.map(([, { take }]) => take),
        batch.map(([, { unused }]) => unused),
      ])
      for (const [grant, ending] of batch) if (this.#ending.get(grant) === ending) this.#ending.delete(grant)
    } catch (error) {
      log.debug('what was taken outside of jobs could not be given back yet', { error: String(error) })
      const nowMs = clock.monotonicMs()
      for (const [grant, { untilMs }] of batch) if (untilMs < nowMs) this.#ending.delete(grant)
      // Goes round until it is told, also when nothing else is held.
      this.#go()
    }
  }
}

function placeLost(why: string): AttemptError {
  const message = `the place was lost: ${why}, and may have given it to another`
  return new AttemptError('SLUICE_LEASE_LOST', message, { retryable: true })
}
