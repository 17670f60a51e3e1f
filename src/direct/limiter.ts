/** Takes grants in Redis for a worker without a store. */
import { type Clock, type Moment, readMoment, StoreClock } from '../core/clock.ts'
import type { Log } from '../core/log.ts'
import type { Limit } from '../limits/limit.ts'
import type { RedisConnection } from '../redis/connect.ts'
import { HeldPlaces } from '../redis/held-places.ts'
import { RedisLimiter } from '../redis/limiter.ts'
import { grantOf, SettlementQueue, type SettlementReport } from '../redis/settlements.ts'
import { DirectDefinitions } from './definitions.ts'
import { EpochWatch } from './epoch.ts'

/** Parameters of `DirectLimiter`; see the fields. */
export interface DirectLimiterOptions {
  limits: readonly Limit[]
  redis: RedisConnection
  /** Beginning of every key. */
  prefix: string
  clock: Clock
  log: Log
}

/** A number of grants that are alike. */
export interface Want {
  /** Names of buckets. */
  readonly buckets: readonly string[]
  /** Units of each bucket. */
  readonly units: readonly number[]
  readonly count: number
}

/** The result of a `Want`; see the fields. */
export interface Got {
  /** How many were granted; the first ones. */
  readonly granted: number
  /** Ms after which another request is worth while; Infinity: when somebody gives a place back. */
  readonly waitMs: number
  /** The bucket that is the last to have room; undefined: none lacks it. */
  readonly lacking: string | undefined
  /** For how long what was granted may be used, in ms from `requestedAt`. */
  readonly lifeMs: number
}

/** The answer to one call. */
export interface Answer {
  /** The id of its grants. */
  readonly id: string
  /** A moment before it was sent. */
  readonly requestedAt: Moment
  readonly got: readonly Got[]
}

const answerMs = 400
/** How often a request is made, because the definitions may be out of date, or the state lost. */
const triesMax = 3
/** Places of a worker that has died are free after this time, in us; those of others are renewed. */
const leaseUs = 30_000_000
const renewMs = 10_000
const waitUsMax = 2 ** 52

/** The limits of one worker. */
export class DirectLimiter {
  readonly #options: DirectLimiterOptions
  readonly #limiter: RedisLimiter
  readonly #definitions: DirectDefinitions
  readonly #watch: EpochWatch
  readonly #settlements: SettlementQueue
  readonly #redisClock = new StoreClock()
  readonly #places = new HeldPlaces()
  readonly #end = new AbortController()
  #isStarted = false

  constructor(options: DirectLimiterOptions) {
    const { redis, prefix, clock, log } = options
    this.#options = options
    this.#limiter = new RedisLimiter(redis, { prefix, timeoutMs: answerMs, clock })
    this.#definitions = new DirectDefinitions(options)
    this.#watch = new EpochWatch({
      limiter: this.#limiter,
      redis,
      definitions: this.#definitions,
      clock,
      log,
      back: () => {
        this.#lease()
        this.#settlements.go()
      },
      saw: ({ us, sentMs, receivedMs }) => {
        this.#redisClock.forget()
        this.#redisClock.saw(us, receivedMs, sentMs)
      },
    })
    this.#settlements = new SettlementQueue({
      limiter: this.#limiter,
      definitions: this.#definitions,
      clock,
      current: () => this.#watch.current,
      cap: () => this.#cap(),
      failed: (error) => this.#watch.failed(error),
    })
  }

  /** Begins the epoch of the limits if none stands; may be repeated. The errors are those of `EpochWatch.start`. */
  async start(): Promise<void> {
    if (this.#isStarted) return
    await this.#watch.start()
    this.#isStarted = true
    void this.#renew()
  }

  /** Sends what is left to send. */
  async close(): Promise<void> {
    this.#end.abort()
    await this.#settlements.settled()
    this.#watch.close()
  }

  /**
   * Takes as many of these grants as fit, in one call. Never rejects; undefined: Redis is away, so nothing may be used.
   * @param isFurther for one more request of a running job, which takes no place
   */
  async take(wants: readonly Want[], isFurther = false): Promise<Answer | undefined> {
    for (let tries = 0; tries < triesMax; tries++) {
      if (this.#watch.current === undefined) await this.#watch.look()
      const epoch = this.#watch.current
      if (epoch === undefined) return undefined
      const answer = await this.#request(wants, isFurther, epoch)
      if (answer !== undefined) return answer
    }
    return undefined
  }

  async #request(wants: readonly Want[], isFurther: boolean, epoch: string): Promise<Answer | undefined> {
    const { clock } = this.#options
    const id = grantOf(epoch)
    const names = [...new Set(wants.flatMap((want) => want.buckets))]
    const call = { id, epoch, isFurther, leaseUs, withinMs: answerMs, ...this.#cap() }
    try {
      await this.#definitions.refresh()
      const buckets = names.flatMap((name) => this.#definitions.bucket(name) ?? [])
      const items = wants.map(({ buckets: of, units, count }) => {
        return { want: count, takes: of.map((name, i) => ({ bucket: names.indexOf(name), units: units[i] ?? 1 })) }
      })
      const lives = wants.map((want) => this.#definitions.lifeMs(want.buckets))
      const requestedAt = readMoment(clock)
      const answer = await this.#limiter.reserve({ ...call, buckets, items })
      if (!answer.isDecided) {
        if (answer.why === 'superseded') await this.#definitions.read()
        else this.#lost()
        return undefined
      }
      this.#redisClock.saw(answer.nowUs, clock.monotonicMs(), requestedAt.monotonicMs)
      const got = answer.results.map(({ granted, waitUs, lacking }, i) => ({
        granted,
        waitMs: waitUs > waitUsMax ? Infinity : waitUs / 1_000,
        lacking: lacking === undefined ? undefined : names[lacking],
        lifeMs: lives[i] ?? 0,
      }))
      this.#hold(id, wants, got, isFurther)
      return { id, requestedAt, got }
    } catch (error) {
      this.#watch.failed(error)
      // The answer may have been lost, so what Redis may have granted is given back.
      for (const bucket of names) this.#add({ bucket, epoch, grant: id, isUnused: true })
      return undefined
    }
  }

  /** Handles that the state is lost, or another epoch stands. */
  #lost(): void {
    this.#watch.failed('the state of limits in Redis is lost')
  }

  #cap(): { capUs?: number } {
    const capUs = this.#redisClock.cap(this.#options.clock.monotonicMs())
    return capUs === null ? {} : { capUs }
  }

  #hold(id: string, wants: readonly Want[], got: readonly Got[], isFurther: boolean): void {
    const wishes = wants.map((want, i) => ({ ...want, lifeMs: got[i]?.lifeMs ?? 0 }))
    const decisions = got.map((one) => ({ ...one, fromMs: undefined, notBeforeMs: undefined }))
    this.#places.add(id, { wishes, epoch: undefined, sentMs: 0, isFurther }, decisions, (bucket) =>
      this.#definitions.hasPlaces(bucket),
    )
  }

  /** Records that a grant used `more` units than granted (negative: fewer), in one bucket. */
  settle(grant: string, bucket: string, more: number): void {
    if (more !== 0) this.#add({ bucket, epoch: this.#watch.current ?? '', grant, more })
  }

  /** Gives back the units of one of a call's grants, under which nothing was sent. */
  unused(grant: string, buckets: readonly string[], units: readonly number[]): void {
    for (const [i, bucket] of buckets.entries()) this.settle(grant, bucket, -(units[i] ?? 1))
  }

  /** Frees the places of one of a call's grants. */
  ended(grant: string, buckets: readonly string[]): void {
    for (const bucket of this.#places.end(grant, buckets)) this.#add({ bucket, grant, ended: 1 })
  }

  /** Holds buckets, because the vendor demanded a pause. */
  hold(buckets: readonly string[], ms: number): void {
    const untilMs = this.#options.clock.monotonicMs() + ms
    for (const bucket of buckets) this.#add({ bucket, untilMs })
  }

  /** Returns the rules of a bucket. */
  rules(bucket: string) {
    return this.#definitions.bucket(bucket)?.rules ?? []
  }

  #add(word: SettlementReport): void {
    this.#settlements.add({ ...word, sinceMs: this.#options.clock.monotonicMs() })
  }

  async #renew(): Promise<void> {
    const { clock } = this.#options
    const { signal } = this.#end
    while (!signal.aborted) {
      await clock.sleep(renewMs, signal, false)
      // While Redis is away, renewals would fill the queue of reports.
      if (this.#watch.current !== undefined) this.#lease()
    }
  }

  /** Leases anew what is held. */
  #lease(): void {
    for (const { grant, bucket, places } of this.#places.all()) this.#add({ bucket, grant, renewUs: leaseUs, places })
  }
}
