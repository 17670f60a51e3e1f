/** Receives the messages of queues in Redis, as a worker of Celery does. */
import { systemClock } from '../core/clock.ts'
import { HeldMessages, type Taken } from './held.ts'
import { readEnvelope } from './kombu.ts'
import { openPlace, type RedisPlace } from './redis-transport.ts'
import type { WireMessage } from './wire.ts'

/** A message in hand. Each of its methods ends that; false: another worker has the message by now. */
export interface RedisDelivery {
  readonly queue: string
  readonly message: WireMessage
  /** A worker had it before, and may have begun it. */
  readonly isRedelivered: boolean
  /** Takes it off the queue. */
  ack(): Promise<boolean>
  /** Lets it wait in Redis, so that it takes no place here, and comes again, to any worker, as one that nobody has begun. */
  delay(ms: number): Promise<boolean>
  /** Puts it back to the front of its queue. */
  requeue(): Promise<boolean>
}

/** Parameters of `consumeRedis`; see the fields. */
export interface RedisConsumerOptions extends RedisPlace {
  /** Within a priority they take turns. */
  queues: readonly string[]
  /** Most messages in hand. */
  prefetch: number
  /** The workers' `visibility_timeout`, in ms: the same for all workers of a Redis. Default 1 h, as Celery's. */
  visibleAfterMs?: number
  /** How long, in ms, a message in hand is kept without a renewal by this process. Default, and longest: `visibleAfterMs`. */
  heldForMs?: number
  onMessage: (delivery: RedisDelivery) => unknown
}

/** A subscription. */
export interface RedisConsumer {
  readonly inHand: number
  /** Receives no more; what is in hand can still be settled. */
  stop(): Promise<void>
  /** Receives no more, and puts what is in hand back. */
  close(): Promise<void>
}

/** Redis cannot wait for several lists and note what it takes in one step, so this looks again and again. */
const pollEveryMs = 10
const againAfterMs = 200
const visibleAfterUsualMs = 3_600_000

/** Begins to receive. @throws UsageError SLUICE_BAD_URL, SLUICE_MISSING_PEER; StoreError SLUICE_REDIS_UNREACHABLE */
export async function consumeRedis(options: RedisConsumerOptions): Promise<RedisConsumer> {
  const redis = await openPlace(options.url)
  const visibleAfterMs = options.visibleAfterMs ?? visibleAfterUsualMs
  const heldForMs = Math.min(visibleAfterMs, options.heldForMs ?? visibleAfterMs)
  const held = new HeldMessages(redis, { prefix: options.prefix, log: options.log, visibleAfterMs, heldForMs })
  const consumption = new Consumption(options, held, heldForMs)
  const done = consumption.run()
  return {
    get inHand() {
      return consumption.inHand
    },
    async stop() {
      consumption.end()
      await done
    },
    async close() {
      consumption.end()
      await done
      await consumption.release()
      await redis.close()
    },
  }
}

class Consumption {
  readonly #options: RedisConsumerOptions
  readonly #held: HeldMessages
  readonly #renewEveryMs: number
  readonly #tags = new Set<string>()
  readonly #ended = new AbortController()
  #pause = new AbortController()
  #queues: readonly string[]
  #renewedMs = systemClock.monotonicMs()

  constructor(options: RedisConsumerOptions, held: HeldMessages, heldForMs: number) {
    this.#options = options
    this.#held = held
    this.#queues = options.queues
    this.#renewEveryMs = heldForMs / 4
  }

  get inHand(): number {
    return this.#tags.size
  }

  async run(): Promise<void> {
    let isLost = false
    while (!this.#ended.signal.aborted)
      try {
        const count = await this.#round()
        isLost = false
        if (count === 0) await this.#rest(pollEveryMs)
      } catch (error) {
        if (!isLost) this.#options.log.warn('tasks cannot be received from Redis now', { err: error })
        isLost = true
        await this.#rest(againAfterMs)
      }
  }

  /** Takes no more. */
  end(): void {
    this.#ended.abort()
    this.#pause.abort()
  }

  /** Puts what is in hand back. */
  async release(): Promise<void> {
    const left = (error: unknown) => this.#options.log.warn('a task in hand comes again later', { err: error })
    await Promise.all([...this.#tags].map((tag) => this.#settle(tag, () => this.#held.release(tag)).catch(left)))
  }

  async #round(): Promise<number> {
    const nowMs = systemClock.monotonicMs()
    if (nowMs - this.#renewedMs >= this.#renewEveryMs) {
      this.#renewedMs = nowMs
      await Promise.all([...this.#tags].map((tag) => this.#held.renew(tag)))
    }
    const taken = await this.#held.take(this.#queues, Math.max(0, this.#options.prefetch - this.inHand))
    const last = taken.at(-1)?.queue
    if (last !== undefined) this.#queues = [...this.#queues.filter((queue) => queue !== last), last]
    for (const one of taken) await this.#deliver(one)
    return taken.length
  }

  async #deliver({ tag, queue, text }: Taken): Promise<void> {
    let found: ReturnType<typeof readEnvelope>
    try {
      found = readEnvelope(text)
    } catch (error) {
      return this.#held.park(tag, text, error)
    }
    this.#tags.add(tag)
    // It came while the subscription ended.
    if (this.#ended.signal.aborted) return void (await this.#settle(tag, () => this.#held.release(tag)))
    this.#options.onMessage({
      queue,
      ...found,
      ack: () => this.#settle(tag, () => this.#held.end(tag)),
      delay: (ms) => this.#settle(tag, () => this.#held.delay(tag, ms)),
      requeue: () => this.#settle(tag, () => this.#held.release(tag)),
    })
  }

  async #settle(tag: string, act: () => Promise<boolean>): Promise<boolean> {
    if (!this.#tags.delete(tag)) return false
    const isDone = await act()
    this.#pause.abort()
    return isDone
  }

  async #rest(ms: number): Promise<void> {
    await systemClock.sleep(ms, this.#pause.signal)
    if (!this.#ended.signal.aborted) this.#pause = new AbortController()
  }
}
