/** Takes grants in Redis for a worker without a store. */
import { type Clock, type Moment, readMoment } from '../core/clock.ts'
import type { Log } from '../core/log.ts'
import { RecentMap } from '../core/recent-map.ts'
import type { Limit } from '../limits/limit.ts'
import type { RedisConnection } from '../redis/connect.ts'
import { GrantReports, leaseUs } from '../redis/grant-reports.ts'
import { RedisLimiter } from '../redis/limiter.ts'
import { createGrantId } from '../redis/settlements.ts'
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
const renewMs = 10_000
const waitUsMax = 2 ** 52
/** The oldest are forgotten, and logged again. */
const unreadableMax = 1_000

/** The limits of one worker. */
export class DirectLimiter extends GrantReports {
  readonly #clock: Clock
  readonly #limiter: RedisLimiter
  readonly #definitions: DirectDefinitions
  readonly #watch: EpochWatch
  readonly #end = new AbortController()
  readonly #log: Log
  /** Buckets whose keys have a value of another program. */
  readonly #unreadable = new RecentMap<string, true>(unreadableMax)
  #isStarted = false

  constructor(options: DirectLimiterOptions) {
    const { redis, prefix, clock, log } = options
    const limiter = new RedisLimiter(redis, { prefix, timeoutMs: answerMs, clock })
    const definitions = new DirectDefinitions(options)
    super({ limiter, definitions, clock })
    this.#clock = clock
    this.#log = log
    this.#limiter = limiter
    this.#definitions = definitions
    this.#watch = new EpochWatch({
      limiter,
      redis,
      definitions,
      clock,
      log,
      onBack: () => this.renew(),
      onReading: (reading) => this.replaceClock(reading),
    })
  }

  /** Begins the epoch of the limits if none is in force; may be repeated. The errors are those of `EpochWatch.start`. */
  async start(): Promise<void> {
    if (this.#isStarted) return
    await this.#watch.start()
    this.#isStarted = true
    void this.#keepRenewing()
  }

  /** Sends what is left to send. */
  async close(): Promise<void> {
    this.#end.abort()
    await this.settlements.waitUntilSent()
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
    const id = createGrantId(epoch)
    const names = [...new Set(wants.flatMap((want) => want.buckets))]
    const call = { id, epoch, isFurther, leaseUs, withinMs: answerMs, ...this.cap() }
    try {
      await this.#definitions.refresh()
      const buckets = names.flatMap((name) => this.#definitions.bucket(name) ?? [])
      const items = wants.map(({ buckets: of, units, count }) => {
        return { want: count, takes: of.map((name, i) => ({ bucket: names.indexOf(name), units: units[i] ?? 1 })) }
      })
      const lives = wants.map((want) => this.#definitions.lifeMs(want.buckets))
      const requestedAt = readMoment(this.#clock)
      const answer = await this.#limiter.reserve({ ...call, buckets, items })
      if (!answer.isDecided) {
        if (answer.why === 'superseded') await this.#definitions.read()
        else this.#recordLoss()
        return undefined
      }
      this.redisClock.recordReading(answer.nowUs, [requestedAt.monotonicMs, this.#clock.monotonicMs()])
      for (const { cause, lacking = 0 } of answer.results)
        if (cause === 'unreadable') this.#logUnreadable(names[lacking] ?? '')
      const got = answer.results.map(({ granted, waitUs, lacking }, i) => ({
        granted,
        waitMs: waitUs > waitUsMax ? Infinity : waitUs / 1_000,
        lacking: lacking === undefined ? undefined : names[lacking],
        lifeMs: lives[i] ?? 0,
      }))
      if (!isFurther) {
        const items = wants.map(({ buckets: of }, i) => ({ buckets: of, count: got[i]?.granted ?? 0 }))
        this.lease(id, items, (bucket) => this.#definitions.hasPlaces(bucket))
      }
      return { id, requestedAt, got }
    } catch (error) {
      this.#watch.recordFailure(error)
      // The answer may have been lost, so what Redis may have granted is given back.
      this.giveUp(id, epoch, names)
      return undefined
    }
  }

  /** Logs, once for each bucket, that its key has a value of another program. */
  #logUnreadable(bucket: string): void {
    if (this.#unreadable.has(bucket)) return
    this.#unreadable.set(bucket, true)
    const text =
      'a limit grants nothing, because another program has written under its key in Redis: delete that key, and the key of the epoch'
    this.#log.error(text, { key: this.#limiter.keyOf(bucket) })
  }

  /** Handles that the state is lost, or another epoch is in force. */
  #recordLoss(): void {
    this.#watch.recordFailure('the state of limits in Redis is lost')
  }

  get current(): string | undefined {
    return this.#watch.current
  }

  protected onFailure(error: unknown): void {
    this.#watch.recordFailure(error)
  }

  /** Returns the definition of a bucket, as far as it is known. */
  definition(bucket: string) {
    return this.#definitions.bucket(bucket)
  }

  async #keepRenewing(): Promise<void> {
    const { signal } = this.#end
    while (!signal.aborted) {
      await this.#clock.sleep(renewMs, signal, false)
      // While Redis is away, renewals would fill the queue of reports.
      if (this.current !== undefined) this.renew()
    }
  }
}
