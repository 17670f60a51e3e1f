/** Takes of limits outside of jobs: at once, in turn, and for requests; the same buckets as the jobs'. */
import { randomUUID } from 'node:crypto'
import { type Moment, readMoment, sleepUntil, StoreClock } from '../core/clock.ts'
import { SluiceError, StoreError } from '../core/errors.ts'
import type { Store } from '../db/store.ts'
import { Epoch } from '../dispatch/epoch.ts'
import { hash64, newId } from '../core/hash.ts'
import { againMs } from '../core/retry.ts'
import { isTransient } from '../dispatch/claim.ts'
import type { Definitions } from '../dispatch/define.ts'
import { unlessParked, untilParked } from '../dispatch/parked.ts'
import { Agents } from '../http/agent.ts'
import { createFetch } from '../http/fetch.ts'
import { warmClient } from '../http/warm.ts'
import type { Limit } from '../limits/limit.ts'
import type { Leave, SharedLimits } from '../limits/shared.ts'
import type { Lease, Taker, TakeOptions, Tried, WaitOptions } from '../limits/taker.ts'
import { Holder, lifeUs } from './holder.ts'
import { Taken } from './lease.ts'
import { Outage } from './outage.ts'
import { aboveCapacity, closed, lateMsMax, sharedAway, timeout, tooLate } from './refusals.ts'
import { Spend } from './spend.ts'
import { Waiters } from './waiters.ts'
import { type Want, wantOf, type Wish } from './want.ts'

/** What takes need. */
export interface TakesOptions {
  readonly store: Store
  readonly definitions: Definitions
  /** Addresses beyond the public ones that `fetch` may call. */
  readonly allowPrivate: readonly string[]
  /** Who else has a say in limits. */
  readonly shared: SharedLimits | undefined
}

interface Answer {
  granted: boolean
  wait_us: string | null
  soonest_us: string | null
  capacity: string | null
  now_us: string
  waited_us: string
  life_us: string | null
  lost: boolean
  n: string | null
  fresh_us: string | null
  shared: string | null
}

/**
 * What the store said: a lease, or for how long there is none; at the earliest, and when to look again. `unused`: what it
 * granted, and those who share the limit did not.
 */
type Said = { lease: Taken } | { lease?: never; soonestMs: number; waitMs: number; unused?: Taken }

/** So long a take that waits goes on asking a store that gives no answer; a try asks once more. */
const awayMs = 2_000
/** The store is looked at so often, while there are takes. */
const lookMs = 2_000
const neverUs = '9007199254740991'

/** Takes of one Sluice. */
export class Takes implements Taker {
  readonly #options: TakesOptions
  readonly #storeClock = new StoreClock()
  readonly #epoch: Epoch
  #lookedMs = -Infinity
  readonly #holder: Holder
  readonly #outage: Outage
  readonly #waiters: Waiters
  readonly #leases = new Set<Taken>()
  readonly #closed = new AbortController()
  #agents: Agents | undefined

  constructor(options: TakesOptions) {
    this.#options = options
    const { store } = options
    this.#holder = new Holder(store, this.#storeClock)
    this.#epoch = new Epoch(store, this.#storeClock)
    this.#outage = new Outage(store.clock, store.log)
    this.#waiters = new Waiters(store.db, `${store.schema}.take`)
  }

  /** How often a limit with `onStoreError: 'open'` has granted without the store so far. */
  get uncharged(): number {
    return this.#outage.uncharged
  }

  /** See {@link Limit.tryTake}. */
  async tryTake(limit: Limit, options: TakeOptions = {}): Promise<Tried> {
    const want = wantOf(limit, options)
    const said = await this.#orOpen(want, () => this.#try(want))
    if (said.lease === undefined) {
      await said.unused?.giveBack()
      return { granted: false, retryAfterMs: Math.ceil(said.waitMs) }
    }
    if (said.lease.freshForMs > 0) return { granted: true, retryAfterMs: 0, lease: said.lease }
    // The store answered too late for it to be of use.
    await said.lease.giveBack()
    return { granted: false, retryAfterMs: 0 }
  }

  /** See {@link Limit.take}. */
  async take(limit: Limit, options: WaitOptions = {}): Promise<Lease> {
    return this.#take(wantOf(limit, options), options)
  }

  /** See {@link Limit.fetch}. */
  async fetch(limit: Limit, input: string | URL | Request, init: RequestInit & WaitOptions = {}): Promise<Response> {
    const { key, cost, maxWaitMs, ...rest } = init
    const want = wantOf(limit, { key, cost, maxWaitMs })
    const { store, allowPrivate } = this.#options
    const { clock } = store
    store.db.checkOutside('`fetch` of a limit')
    this.#agents ??= new Agents(allowPrivate)
    const agent = this.#agents.of([])
    await warmClient(agent)
    const untilMs = clock.monotonicMs() + want.maxWaitMs
    const spend = new Spend({
      take: (signal, unused) =>
        this.#take({ ...want, maxWaitMs: Math.max(0, untilMs - clock.monotonicMs()) }, { signal }, unused),
      hold: async (ms) => {
        this.#options.shared?.hold([want.take], ms)
        const capUs = this.#storeClock.cap(clock.monotonicMs())
        const params = [[hash64(want.take)], Math.ceil(ms * 1_000), capUs]
        await untilParked(store, [want.take], () => store.call('hold', params))
      },
    })
    return spend.within(this.#closed.signal, () => createFetch({ agent, clock, allowance: spend })(input, rest))
  }

  /** A process that only takes has no worker that would look whether the store is still what it was. */
  async #look(): Promise<void> {
    const nowMs = this.#options.store.clock.monotonicMs()
    if (nowMs - this.#lookedMs < lookMs) return
    this.#lookedMs = nowMs
    await this.#epoch.look()
  }

  /** Ends what waits, and gives back all places. */
  async close(): Promise<void> {
    this.#closed.abort(closed())
    const held = [...this.#leases]
    for (const lease of held) lease.lose(closed())
    await Promise.all(held.map((lease) => lease.release()))
    await this.#holder.close()
    await this.#waiters.close()
    // Responses that are being read may be read to their end.
    void this.#agents?.close()
  }

  /** Asks once, and once more when the answer is lost. */
  async #try(want: Want): Promise<Said> {
    const wish = this.#wish()
    try {
      return await this.#ask(want, wish).catch((error: unknown) => {
        if (!(error instanceof StoreError)) throw error
        return this.#ask(want, { ...wish, isRepeat: true })
      })
    } catch (error) {
      if (isTransient(error)) return { soonestMs: 100, waitMs: 100 }
      throw error
    }
  }

  /** Waits for a grant that is young enough to be used. */
  async #take(want: Want, { signal }: Pick<WaitOptions, 'signal'>, unused?: Taken): Promise<Taken> {
    const said = await this.#orOpen(want, async () => ({ lease: await this.#untilGranted(want, signal, unused) }))
    const lease = said.lease as Taken
    // The store was not asked, so it did not hear of it.
    if (lease.isUncharged) void unused?.giveBack()
    return lease
  }

  #wish(): Wish {
    return {
      id: randomUUID(),
      holder: this.#holder.id,
      asked: readMoment(this.#options.store.clock),
      isRepeat: false,
    }
  }

  async #untilGranted(want: Want, signal: AbortSignal | undefined, unused: Taken | undefined): Promise<Taken> {
    const { clock } = this.#options.store
    const line = newId()
    const begunMs = clock.monotonicMs()
    const leftMs = () => begunMs + want.maxWaitMs - clock.monotonicMs()
    let back = unused
    let awaySinceMs: number | undefined
    let lateSinceMs: number | undefined
    let isInLine = false
    let wish: Wish | undefined
    try {
      for (let late = 0, tries = 0; ;) {
        signal?.throwIfAborted()
        wish ??= this.#wish()
        let said: Said
        try {
          said = await this.#ask(want, wish, { line, waitMs: leftMs(), back })
        } catch (error) {
          let againInMs = againMs(tries++, clock.random())
          if (isTransient(error)) {
            // The store is there, and busy; nothing was done.
            if (leftMs() <= 0) throw timeout(want, 0)
            awaySinceMs = undefined
            if (!wish.isRepeat) wish = undefined
            againInMs = Math.min(againInMs, Math.max(1, leftMs()))
          } else if (error instanceof StoreError) {
            awaySinceMs ??= clock.monotonicMs()
            if (clock.monotonicMs() - awaySinceMs > Math.min(awayMs, want.maxWaitMs)) throw error
            wish = { ...wish, isRepeat: true }
          } else throw error
          await clock.sleep(againInMs, signal)
          continue
        }
        awaySinceMs = undefined
        tries = 0
        back?.handOver()
        back = undefined
        wish = undefined
        isInLine = said.lease === undefined && said.unused === undefined
        if (said.lease === undefined) {
          back = said.unused
          if (said.soonestMs > leftMs()) throw timeout(want, said.soonestMs)
          await this.#waiters.wait(hash64(want.take), Math.min(said.waitMs, Math.max(1, leftMs())), clock, signal)
          if (leftMs() <= 0) throw timeout(want, said.soonestMs)
          continue
        }
        this.#waiters.next(hash64(want.take))
        if (said.lease.freshForMs > 0) return said.lease
        back = said.lease
        lateSinceMs ??= clock.monotonicMs()
        if (clock.monotonicMs() - lateSinceMs > lateMsMax) throw tooLate(want)
        // Too busy to hear of a grant in time: asking again at once would keep it so.
        await clock.sleep(clock.random() * Math.min(1_000, 50 * 2 ** ++late), signal)
      }
    } catch (error) {
      void back?.giveBack()
      if (isInLine) void this.#leave(line)
      throw error
    }
  }

  async #leave(line: string): Promise<void> {
    // Without it the others wait for it a little longer.
    await this.#options.store.run('outside/leave', [line]).catch(() => {})
  }

  /** One question to the store. */
  async #ask(
    want: Want,
    wish: Wish,
    how: { line?: string; waitMs?: number; back?: Taken | undefined } = {},
  ): Promise<Said> {
    const { store, definitions, shared } = this.#options
    const { clock } = store
    if (this.#closed.signal.aborted) throw closed()
    store.db.checkOutside('a take')
    await definitions.define([want.limit])
    // The first take of a process waits until Redis is known.
    shared?.start()
    await shared?.ready()
    if (shared?.isAway === true && !shared.isOpenFor([want.limit])) throw sharedAway()
    await this.#look()
    const known = this.#holder.asking(wish.id)
    try {
      const asked = readMoment(clock)
      how.back?.tellUnused()
      const params = [
        wish.id,
        how.line ?? null,
        how.back?.place ?? null,
        want.take,
        want.cost,
        how.waitMs === undefined || how.waitMs === Infinity ? null : Math.floor(how.waitMs * 1_000),
        how.back?.id ?? null,
        wish.holder,
        lifeUs,
        this.#storeClock.cap(asked.monotonicMs),
      ]
      const [row] = await unlessParked(store, [want.take], () => store.call<Answer>('acquire', params))
      if (row === undefined) throw new StoreError('SLUICE_STORE_UNREACHABLE', 'a take was answered without a row')
      const said = this.#said(want, wish, row, asked)
      return said.lease === undefined
        ? said
        : await this.#agreed(want, said.lease, row, wish.isRepeat ? wish.asked : asked)
    } finally {
      known()
    }
  }

  /** Asks those who share the limit. */
  async #agreed(want: Want, lease: Taken, row: Answer, asked: Moment): Promise<Said> {
    const { shared, store } = this.#options
    if (shared === undefined) return { lease }
    const wishes = [{ takes: [want.take], units: [want.cost], count: 1 }]
    const { id, leaves } = await shared.ask({
      wishes,
      epoch: row.shared ?? undefined,
      sentMs: asked.monotonicMs,
      asked,
    })
    const leave = leaves[0] as Leave
    if (leave.granted === 0) {
      await leave.held
      return { soonestMs: leave.waitMs, waitMs: leave.waitMs, unused: lease }
    }
    if (id === undefined) return { lease }
    await sleepUntil(store.clock, leave.notBeforeMs)
    lease.agreed(id, row.fresh_us === null ? Infinity : leave.fromMs + Number(row.fresh_us) / 1_000)
    return { lease }
  }

  #said(want: Want, wish: Wish, row: Answer, asked: Moment): Said {
    const { clock } = this.#options.store
    const sentMs = asked.monotonicMs
    const heardMs = clock.monotonicMs()
    this.#storeClock.saw(Number(row.now_us), heardMs, sentMs)
    // Of a holder that was given up meanwhile: it says nothing of the present one, and nobody keeps its places alive.
    const isOld = wish.holder !== this.#holder.id
    if (row.lost) {
      if (!isOld) this.#holder.lost()
      return { soonestMs: 0, waitMs: 0 }
    }
    if (!row.granted) {
      if (row.capacity !== null && want.cost > Number(row.capacity)) throw aboveCapacity(want, Number(row.capacity))
      const soonestMs = row.soonest_us === neverUs ? 0 : Number(row.soonest_us ?? 0) / 1_000
      return { soonestMs, waitMs: Math.max(1, Number(row.wait_us ?? 1_000_000) / 1_000) }
    }
    if (isOld && row.life_us !== null) {
      void this.#holder.end(wish.id, want.take, true)
      return { soonestMs: 0, waitMs: 0 }
    }
    // The wait for the bucket's lock came before the decision. Longer than the whole call it was a step of the clock.
    // Asked for again, it may have been granted the first time.
    const waitedMs = Number(row.waited_us) / 1_000
    const began = wish.isRepeat ? wish.asked : asked
    const decidedMs = !wish.isRepeat && waitedMs <= heardMs - sentMs ? sentMs + waitedMs : began.monotonicMs
    const freshMs = row.fresh_us === null ? Infinity : Number(row.fresh_us) / 1_000
    const lease = this.#lease(want, wish.id, decidedMs + freshMs, row, began)
    if (row.life_us !== null) this.#hold(lease, asked, Number(row.life_us) / 1_000)
    return { lease }
  }

  #lease(want: Want, id: string, deadlineMs: number, row?: Answer, asked?: Moment): Taken {
    const lease = new Taken({
      id,
      take: want.take,
      clock: this.#options.store.clock,
      holder: this.#holder,
      deadlineMs,
      asked,
      hasPlace: row !== undefined && row.life_us !== null,
      isUncharged: row === undefined,
      place: row?.n ?? null,
      over: () => this.#leases.delete(lease),
      unused: ({ shared }) => shared && this.#options.shared?.unused(shared, [want.take], [want.cost]),
    })
    return lease
  }

  #hold(lease: Taken, asked: Moment, lifeMs: number): void {
    this.#leases.add(lease)
    this.#holder.hold(lease.id, asked, lifeMs, (reason) => lease.lose(reason))
  }

  /** What `ask` gives, or a lease without a charge, where the limit is open while the store is away. */
  async #orOpen(want: Want, ask: () => Promise<Said>): Promise<Said> {
    if (!want.limit.isOpenWithoutStore) return ask()
    const open = () => {
      this.#outage.granted(want.limit.name)
      return { lease: this.#lease(want, randomUUID(), Infinity) }
    }
    if (this.#outage.isOn) return open()
    try {
      const said = await ask()
      this.#outage.over()
      return said
    } catch (error) {
      if (!SluiceError.is(error) || error.code !== 'SLUICE_STORE_UNREACHABLE') throw error
      this.#outage.begun(error)
      return open()
    }
  }
}
