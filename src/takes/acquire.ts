/**
 * Units that are acquired outside of claims (acquire.sql): by attempts for their further requests, and by takers outside of
 * jobs. Both ask until they have a grant that is young enough, and give back what they did not use.
 */
import { type Moment, readMoment, sleepUntil, type StoreClock } from '../core/clock.ts'
import { StoreError } from '../core/errors.ts'
import { hash64 } from '../core/hash.ts'
import { againMs } from '../core/retry.ts'
import type { Store } from '../db/store.ts'
import type { Leave, SharedLimits } from '../limits/peer.ts'
import { isTransient } from '../claim/claim.ts'
import { unlessParked, untilParked } from '../claim/parking/parked.ts'

/** One grant that is asked for, again under the same id when an answer is lost. */
export interface Wish {
  readonly id: string
  /** The holder that first asked for it: a place that the store granted then is this holder's. */
  readonly holder?: string
  /** When the store was first asked: it may have granted it then. */
  asked?: Moment
  /** An answer was lost. */
  isRepeat?: boolean
}

/** One question to the store. */
export interface Question {
  readonly wish: Wish
  /** Names of buckets, and units of each. */
  readonly takes: readonly string[]
  readonly units: readonly number[]
  /** A grant that was not used, and how much of it goes back. */
  readonly back: { readonly id: string; readonly units: readonly number[] } | undefined
  /** Who asks: a running job, in the hands of its claim; */
  readonly job?: { readonly id: string; readonly claim: string }
  /** or a taker: the fields of the record of this name (claim/records.sql). */
  readonly taker?: Readonly<Record<'line' | 'n' | 'wait' | 'holder' | 'life', string | number | null>>
}

interface Row {
  granted: boolean
  lost: boolean
  wait_us: string | null
  soonest_us: string | null
  capacity: string | null
  now_us: string
  waited_us: string
  life_us: string | null
  n: string | null
  fresh_us: string | null
  shared: string | null
}

/** What the store says, with the times of the question; the rest as acquire.sql has it. */
export interface Answer extends Row {
  /** Before this question was sent. */
  readonly asked: Moment
  /** Monotonic ms: the life of the grant counts from here. */
  readonly fromMs: number
}

/** What those said who share the limits. */
export interface Agreed {
  /** The life of the grant counts from here; undefined: it is to go back, */
  readonly fromMs: number | undefined
  /** and another is worth asking for after so long. */
  readonly waitMs: number
  /** As they know it; undefined: nobody had to be asked. */
  readonly id: string | undefined
}

/** What became of a question; times in ms, default 0. */
export interface Said<G> {
  readonly grant?: G
  /** Where there is none: there is none before, */
  readonly soonestMs?: number
  /** it is worth asking again after so long, */
  readonly waitMs?: number
  /** and this is to go back: the store granted it, and those who share the limits did not. */
  readonly unused?: G
}

/** What a job and a taker do differently in the loop of `untilGranted`. */
export interface Asking<G> {
  /** In vain from then on, in monotonic ms. */
  readonly untilMs: number
  /** A store that gives no answer is asked for so long, in ms. */
  readonly awayMs: number
  /** A grant may go back a second time when the answer to the first was lost. */
  readonly givesBackAgain: boolean
  wish(): Wish
  /** Asks once. */
  ask(wish: Wish, back: G | undefined): Promise<Said<G>>
  isFresh(grant: G): boolean
  /** Waits before it asks again. What it throws ends the asking. */
  wait(ms: number): Promise<void>
  /** A grant was too old when it arrived, as were all since `sinceMs`, `n` in a row; it goes back. What it throws ends the asking. */
  late(grant: G, n: number, sinceMs: number): void
  /** What it ends with when `untilMs` is over. */
  timeout(soonestMs: number): Error
  /** It has ended without a grant. `back` did not go back yet. */
  ended(back: G | undefined): Promise<void>
}

/** The way to the store, and to those who share limits. */
export class Acquirer {
  readonly #store: Store
  readonly #storeClock: StoreClock
  readonly #shared: SharedLimits | undefined

  constructor(store: Store, storeClock: StoreClock, shared: SharedLimits | undefined) {
    this.#store = store
    this.#storeClock = storeClock
    this.#shared = shared
  }

  /** Asks the store once. @throws AttemptError SLUICE_PARKED */
  async ask({ wish, takes, units, back, job, taker }: Question): Promise<Answer> {
    const { clock } = this.#store
    const asked = readMoment(clock)
    const isFirst = wish.asked === undefined
    wish.asked ??= asked
    const sentMs = asked.monotonicMs
    const who = [job?.id ?? null, job?.claim ?? null, taker === undefined ? null : JSON.stringify(taker)]
    const params = [wish.id, takes, units, back?.id ?? null, back?.units ?? null, this.#storeClock.cap(sentMs), ...who]
    const [row] = await unlessParked(this.#store, takes, () => this.#store.call<Row>('acquire', params))
    if (row === undefined) throw new StoreError('SLUICE_STORE_UNREACHABLE', 'a grant was answered without a row')
    const heardMs = clock.monotonicMs()
    this.#storeClock.saw(Number(row.now_us), heardMs, sentMs)
    // The wait for the buckets' locks came before the decision. Longer than the whole call it was a step of the clock. Asked for
    // again, it may have been granted the first time.
    const waitedMs = Number(row.waited_us) / 1_000
    const isKnown = isFirst && waitedMs <= heardMs - sentMs
    return { ...row, asked, fromMs: isKnown ? sentMs + waitedMs : wish.asked.monotonicMs }
  }

  /** Asks those who share the limits for what the store has granted. */
  async agree({ wish, takes, units, job }: Question, { shared: epoch, fromMs }: Answer): Promise<Agreed> {
    if (this.#shared === undefined) return { fromMs, waitMs: 0, id: undefined }
    const wishes = [{ takes, units, count: 1 }]
    const isFurther = job !== undefined
    const asking = { wishes, epoch: epoch ?? undefined, sentMs: fromMs, asked: wish.asked, isFurther }
    const { id, leaves } = await this.#shared.ask(asking)
    const leave = leaves[0] as Leave
    if (leave.granted === 0) {
      await leave.held
      return { fromMs: undefined, waitMs: leave.waitMs, id }
    }
    if (id === undefined) return { fromMs, waitMs: 0, id }
    await sleepUntil(this.#store.clock, leave.notBeforeMs)
    return { fromMs: leave.fromMs, waitMs: 0, id }
  }

  /** The vendor asked for silence. */
  async hold(takes: readonly string[], ms: number): Promise<void> {
    this.#shared?.hold(takes, ms)
    const buckets = [...new Set(takes.map(hash64))]
    const params = [buckets, Math.ceil(ms * 1_000), this.#storeClock.cap(this.#store.clock.monotonicMs())]
    await untilParked(this.#store, takes, () => this.#store.call('hold', params))
  }

  /** Asks until there is a grant that is young enough to be used. `unused` goes back with the first question. */
  async untilGranted<G>(asking: Asking<G>, unused: G | undefined, signal: AbortSignal | undefined): Promise<G> {
    const { clock } = this.#store
    const leftMs = () => asking.untilMs - clock.monotonicMs()
    let back = unused
    let wish: Wish | undefined
    let awaySinceMs: number | undefined
    let lateSinceMs: number | undefined
    try {
      for (let tries = 0, late = 0; ;) {
        signal?.throwIfAborted()
        wish ??= asking.wish()
        let said: Said<G>
        try {
          said = await asking.ask(wish, back)
        } catch (error) {
          if (isTransient(error)) {
            // The store is there, and busy; nothing was done.
            if (leftMs() <= 0) throw asking.timeout(0)
            awaySinceMs = undefined
            if (wish.isRepeat !== true) wish = undefined
          } else if (error instanceof StoreError) {
            awaySinceMs ??= clock.monotonicMs()
            if (clock.monotonicMs() - awaySinceMs > asking.awayMs) throw error
            wish.isRepeat = true
            // Nobody knows whether it went back.
            if (!asking.givesBackAgain) back = undefined
          } else throw error
          await clock.sleep(Math.min(againMs(tries++, clock.random()), Math.max(1, leftMs())), signal)
          continue
        }
        tries = 0
        awaySinceMs = undefined
        wish = undefined
        const { grant, soonestMs = 0, waitMs = 0, unused: denied } = said
        back = grant ?? denied
        if (grant === undefined) {
          if (soonestMs > leftMs()) throw asking.timeout(soonestMs)
          await asking.wait(Math.min(waitMs, Math.max(1, leftMs())))
          if (leftMs() <= 0) throw asking.timeout(soonestMs)
          continue
        }
        if (asking.isFresh(grant)) return grant
        lateSinceMs ??= clock.monotonicMs()
        asking.late(grant, ++late, lateSinceMs)
        // Too busy to hear of a grant in time: asking again at once would keep it so.
        await clock.sleep(clock.random() * Math.min(1_000, 50 * 2 ** late), signal)
      }
    } catch (error) {
      await asking.ended(back)
      throw error
    }
  }
}
