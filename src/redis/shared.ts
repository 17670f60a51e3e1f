/** Limits shared in Redis: what the store granted is asked for there, too, before it is used. */
import { caughtUpMs, type Reading, StoreClock } from '../core/clock.ts'
import { StoreError } from '../core/errors.ts'
import { hash64 } from '../core/hash.ts'
import type { Store } from '../db/store.ts'
import type { Leave, SharedAsk, SharedLimits } from '../limits/peer.ts'
import type { RedisConnection } from './connect.ts'
import { type Granted, type Item, RedisLimiter, type Superseded } from './limiter.ts'
import { SharedDefinitions } from './definitions.ts'
import { askMs, SharedEpochs } from './epochs.ts'
import { grantOf, Told, type Unsaid } from './settlements.ts'
import { Watch } from './health.ts'

/** What it needs. */
export interface RedisSharedOptions {
  store: Store
  connection: RedisConnection
  /** Begins every key. */
  prefix: string
}

/** An answer that takes longer is asked for again, under the same id. */
const answerMs = 400
/**
 * What has room so soon is granted now, for then: between the store's decision and Redis's lies a way whose length varies, so
 * that of two grants the second mostly comes a few ms too early.
 */
const aheadUs = 50_000
/**
 * Of what other programs take of, nothing is granted ahead, for they would never have their turn. What is denied by so little is
 * asked for again, at a random moment after it.
 */
const againUs = 20_000
const againMsMax = 10
/** The store is told to wait for no longer than this, for others may give back what they took; and where it is closed, which lasts. */
const holdUsMax = 5_000_000
const closedUsMax = 60_000_000
/** An answer by a clock that is this far behind the latest that it may show was given after that clock was set back. */
const setBackUs = 3_000_000

/** What is asked of Redis for a list of wishes. */
interface Question {
  takes: string[]
  items: Item[]
  /** The item of each wish; undefined: it is only the store's. */
  itemOf: (number | undefined)[]
}

/** One process's share. */
export class RedisShared implements SharedLimits {
  readonly #options: RedisSharedOptions
  readonly #limiter: RedisLimiter
  readonly #definitions: SharedDefinitions
  readonly #epochs: SharedEpochs
  readonly #watch: Watch
  readonly #told: Told
  readonly #redisClock = new StoreClock()
  #isStarted = false
  #ready: Promise<void> = Promise.resolve()

  constructor(options: RedisSharedOptions) {
    this.#options = options
    const { store, connection, prefix } = options
    const { clock } = store
    const limiter = (this.#limiter = new RedisLimiter(connection, { prefix, timeoutMs: answerMs, clock }))
    const definitions = (this.#definitions = new SharedDefinitions(store))
    const epochs = (this.#epochs = new SharedEpochs({ store, limiter, definitions }))
    const current = () => epochs.current
    this.#told = new Told(limiter, definitions, clock, current, (error) => this.#watch.failed(error))
    const restored = () => this.#told.go()
    const heard = ({ us, sentMs, heardMs }: Reading) => {
      // What is heard in passing may come from a time before a step; what is looked at is right as it is.
      this.#redisClock.forget()
      this.#redisClock.saw(us, heardMs, sentMs)
    }
    this.#watch = new Watch({ store, connection, limiter, definitions, epochs, restored, heard })
  }

  start(): void {
    if (this.#isStarted) return
    this.#isStarted = true
    void this.#options.connection.open().catch(() => {})
    this.#watch.start()
    this.#ready = this.#watch.present(askMs)
  }

  ready(): Promise<void> {
    return this.#ready
  }

  /** Tells what is left to tell, and ends the connection. */
  async close(): Promise<void> {
    await this.#told.settled()
    await this.#watch.close()
    await this.#options.connection.close()
  }

  get isAway(): boolean {
    return this.#watch.isAway
  }

  isOpenFor(limits: Parameters<SharedLimits['isOpenFor']>[0]): boolean {
    return limits.every(
      ({ rules, isOpenWithoutStore }) => isOpenWithoutStore || rules.every(({ kind }) => kind === 'concurrency'),
    )
  }

  onChange(changed: () => void): () => void {
    return this.#watch.onChange(changed)
  }

  async ask(asked: SharedAsk): Promise<{ id: string | undefined; leaves: Leave[] }> {
    try {
      return await this.#ask(asked)
    } catch (error) {
      // Of the store, whose definitions could not be read; nothing was asked.
      this.#options.store.log.debug('those who share limits could not be asked', { error: String(error) })
      return { id: undefined, leaves: asked.wishes.map(() => denied(asked.sentMs)) }
    }
  }

  async #ask(asked: SharedAsk): Promise<{ id: string | undefined; leaves: Leave[] }> {
    const { clock } = this.#options.store
    const { wishes, sentMs, isFurther = false } = asked
    const all = () => wishes.map(({ count }) => free(count, sentMs))
    await this.#definitions.know(wishes.flatMap(({ takes }) => takes))
    const question = this.#question(asked)
    if (question.items.length === 0) return { id: undefined, leaves: all() }
    const isOpen = question.takes.every((take) => this.#definitions.isOpen(take))
    // Never one that this process knew before: it may be older than the one that the store granted under.
    let epoch = asked.epoch
    let id: string | undefined
    let isLost = false
    let isSecond = false
    let firstMs: number | undefined
    let leftMs: number
    while ((leftMs = sentMs + askMs - caughtUpMs(clock, asked.asked)) > 0 && !this.#watch.isClosed) {
      if (this.#watch.isAway) {
        if (isOpen) return { id: undefined, leaves: all() }
        await this.#watch.present(leftMs)
        continue
      }
      // What was asked of a state that is lost was not granted by the one that took its place.
      if (isLost) [epoch, isLost, id] = [undefined, false, undefined]
      epoch ??= this.#epochs.current ?? ''
      // But that one was made by a ledger in which it was: it goes back there, too, for the ledger has it at another time.
      if (asked.epoch !== undefined && asked.epoch !== epoch && this.#areOwn(question)) break
      id ??= grantOf(epoch)
      firstMs ??= clock.monotonicMs()
      try {
        const answer = await this.#reserve({ id, epoch, isFurther, leftMs }, question)
        if (answer.isDecided && !this.#isOfAnotherTime(answer, epoch, firstMs)) {
          this.#redisClock.saw(answer.nowUs, clock.monotonicMs(), firstMs)
          // The store told of an epoch that this process had not heard of.
          if (epoch !== this.#epochs.current) this.#watch.failed(undefined)
          const isAgain = !isSecond && (await this.#isWorthAgain(question, answer.results, leftMs))
          if (!isAgain) return { id, leaves: this.#leaves(asked, question, answer.results, firstMs) }
          ;[id, firstMs, isSecond] = [undefined, undefined, true]
        } else if (!answer.isDecided && answer.why === 'superseded') await this.#supersede(question, answer)
        else {
          // What is found out from here on is not older.
          await this.#watch.present(leftMs)
          this.#watch.failed(undefined)
          isLost = true
        }
      } catch (error) {
        this.#watch.failed(error)
      }
    }
    this.#giveUp(asked, question, id, epoch)
    return { id: undefined, leaves: wishes.map(() => denied(sentMs)) }
  }

  /** Nobody uses what the store has granted: what may be charged for it in Redis goes back. */
  #giveUp(asked: SharedAsk, question: Question, id: string | undefined, epoch: string | undefined): void {
    const { takes } = question
    // Whether it was granted is not known: an answer may have been lost.
    if (id !== undefined && epoch !== undefined)
      for (const take of takes) this.#add({ take, epoch, grant: id, isUnused: true })
    const { current } = this.#epochs
    if (asked.epoch === undefined || current === undefined || current === asked.epoch || !this.#areOwn(question)) return
    for (const wish of asked.wishes)
      this.unused(
        current,
        wish.takes,
        wish.units.map((units) => units * wish.count),
      )
  }

  /** Redis has a newer definition: it is read. Where the store has none, for it was restored, Redis's state is made anew. */
  async #supersede({ takes }: Question, { bucket, version }: Superseded): Promise<void> {
    const of = this.#epochs.current
    await this.#definitions.readNow()
    const known = this.#definitions.bucket(takes[bucket] ?? '')?.version
    if (known !== undefined && known < version) this.#watch.force(of)
  }

  #reserve(
    { leftMs, ...call }: { id: string; epoch: string; isFurther: boolean; leftMs: number },
    { takes, items }: Question,
  ) {
    const buckets = takes.flatMap((take) => this.#definitions.bucket(take) ?? [])
    return this.#limiter.reserve({
      ...call,
      buckets,
      items,
      aheadUs: this.#areOwn({ takes }) ? aheadUs : 0,
      withinMs: Math.min(leftMs, answerMs),
      ...this.#cap(),
    })
  }

  /** Whether what was denied as a whole may be granted now; waits for what is only a moment away. */
  async #isWorthAgain({ takes }: Question, results: readonly Granted[], leftMs: number): Promise<boolean> {
    const { clock } = this.#options.store
    if (!results.every(({ granted }) => granted === 0)) return false
    const versions = () => takes.map((take) => this.#definitions.bucket(take)?.version).join()
    const before = versions()
    // The store has granted it: by a newer definition?
    await this.#definitions.refresh()
    if (versions() !== before) return true
    const soonUs = Math.max(...results.map(({ waitUs }) => waitUs))
    if (results.some(({ isHeld }) => isHeld) || soonUs > againUs || soonUs / 1_000 + againMsMax >= leftMs) return false
    await clock.sleep(soonUs / 1_000 + clock.random() * againMsMax)
    return true
  }

  /** Nobody but Sluice's own processes takes of these. */
  #areOwn({ takes }: Pick<Question, 'takes'>): boolean {
    return takes.every((take) => this.#definitions.bucket(take)?.isOwn === true)
  }

  #cap(): { capUs?: number } {
    const capUs = this.#redisClock.cap(this.#options.store.clock.monotonicMs())
    return capUs === null ? {} : { capUs }
  }

  /**
   * Nothing was granted by a clock that was set back, or in an epoch that this process knows no clock of (the cap that it sent may be
   * far behind): that may be denied for an hour, and the store would wait with it.
   */
  #isOfAnotherTime({ nowUs, results }: { nowUs: number; results: readonly Granted[] }, epoch: string, askedMs: number) {
    if (results.some(({ granted }) => granted > 0)) return false
    const capUs = this.#redisClock.cap(askedMs)
    return epoch !== this.#epochs.current || (capUs !== null && nowUs < capUs - setBackUs)
  }

  #question({ wishes }: SharedAsk): Question {
    const places = new Map<string, number>()
    const items: Item[] = []
    const itemOf = wishes.map(({ takes, units, count }) => {
      const shared = takes.flatMap((take, i) => {
        if (this.#definitions.bucket(take) === undefined) return []
        const bucket = places.get(take) ?? places.size
        places.set(take, bucket)
        return [{ bucket, units: units[i] ?? 1 }]
      })
      return shared.length === 0 ? undefined : items.push({ want: count, takes: shared }) - 1
    })
    return { takes: [...places.keys()], items, itemOf }
  }

  /** What the answer says of each wish. Where others have used up a bucket the store waits with us. */
  #leaves(
    { wishes, sentMs }: SharedAsk,
    { takes, itemOf }: Question,
    results: readonly Granted[],
    askedMs: number,
  ): Leave[] {
    const heardMs = this.#options.store.clock.monotonicMs()
    const waits = new Map<string, number>()
    const leaves = wishes.map(({ count }, i): Leave => {
      const result = results[itemOf[i] ?? -1]
      if (result === undefined) return free(count, sentMs)
      const take = result.lacking === undefined ? undefined : takes[result.lacking]
      const waitUs = Math.min(result.waitUs, result.isHeld ? closedUsMax : holdUsMax)
      if (take !== undefined) waits.set(take, Math.max(waitUs, waits.get(take) ?? 0))
      return {
        granted: result.granted,
        fromMs: askedMs + result.startUs / 1_000,
        // It was decided at some moment until now.
        notBeforeMs: result.startUs === 0 ? askedMs : heardMs + result.startUs / 1_000,
        waitMs: result.waitUs / 1_000,
        // What is closed was not used up; and what drains slowly would long be charged for what others may give back.
        lacking: take === undefined || result.isHeld || !this.#definitions.isQuick(take) ? undefined : take,
      }
    })
    if (waits.size === 0) return leaves
    // Not awaited here: what was granted beside it grows old.
    const held = Promise.all([...waits].map(([take, us]) => this.#holdStore(take, us))).then(() => {})
    return leaves.map((leave) => ({ ...leave, held }))
  }

  /** Has the store grant nothing of a bucket for as long as Redis would not. */
  async #holdStore(take: string, us: number): Promise<void> {
    const { store } = this.#options
    try {
      await store.call('hold', [[hash64(take)], us, null])
    } catch (error) {
      // Then it grants what is denied again.
      if (!(error instanceof StoreError)) store.log.debug('a bucket could not be held', { take, error: String(error) })
    }
  }

  settle(grant: string, take: string, more: number): void {
    const epoch = this.#epochs.current
    if (more !== 0 && epoch !== undefined) this.#add({ take, epoch, grant, more })
  }

  unused(grant: string, takes: readonly string[], units: readonly number[]): void {
    for (const [i, take] of takes.entries()) this.settle(grant, take, -(units[i] ?? 1))
  }

  hold(takes: readonly string[], ms: number): void {
    const untilMs = this.#options.store.clock.monotonicMs() + ms
    for (const take of new Set(takes)) this.#add({ take, untilMs })
  }

  #add(word: Unsaid): void {
    this.#told.add({ ...word, sinceMs: this.#options.store.clock.monotonicMs() })
  }
}

/** Nobody else was asked. */
function free(granted: number, fromMs: number): Leave {
  return { granted, fromMs, notBeforeMs: fromMs, waitMs: 0, lacking: undefined }
}

/** Nobody answered. */
function denied(fromMs: number): Leave {
  return { granted: 0, fromMs, notBeforeMs: fromMs, waitMs: 100, lacking: undefined }
}
