/** Receives the messages of queues in Redis, as a worker of Celery does. */
import { randomUUID } from 'node:crypto'
import { systemClock } from '../core/clock.ts'
import { noTraffic, type Traffic } from '../amqp/traffic.ts'
import type { RedisConnection } from '../redis/connect.ts'
import { UnackedMessages, type Taken } from './unacked.ts'
import { heldIndexKey, heldKey, readEnvelope, writeEnvelope } from './kombu.ts'
import { openPlace, type RedisPlace } from './redis-transport.ts'
import { RedisWatch } from './redis-watch.ts'
import type { WireMessage } from './wire.ts'

/** A message in hand. Each of its methods ends that; false: another worker has the message by now. A call that fails may be repeated. */
export interface RedisIncoming {
  readonly queue: string
  readonly message: WireMessage
  /** A worker had it before, and may have begun it. */
  readonly isRedelivered: boolean
  /** False if it is known that another worker has it by now. */
  readonly isHeld: boolean
  /** Takes it off the queue. */
  ack(): Promise<boolean>
  /** Puts it back to the front of its queue. */
  requeue(): Promise<boolean>
  /**
   * Has it come back to its queue in this form after so many ms; 0 or less: at once. Also if `ack` was called; if it fails then, and is
   * called again, the message may come twice.
   */
  putOff(message: WireMessage, afterMs: number): Promise<boolean>
}

/** Parameters of `consumeRedis`; see the fields. */
export interface RedisConsumerOptions extends RedisPlace {
  /** Within a priority they take turns. */
  queues: readonly string[]
  /** Most messages in hand. */
  prefetch: number
  /** The workers' `visibility_timeout`, in ms: the same for all workers of a Redis. */
  visibleAfterMs: number
  /** How long, in ms, a message in hand is kept without a renewal by this process. Default, and longest: `visibleAfterMs`. */
  heldForMs?: number
  /** Counts the messages. */
  traffic?: Traffic | undefined
  onMessage: (incoming: RedisIncoming) => unknown
}

/** Redis cannot wait for several lists and note what it takes in one step, so this looks again, no sooner than after this time. */
const pollEveryMs = 10
/** While nothing comes, it looks again when Redis reports a change, and at the latest after this time. */
const idleMs = 1_000
/** Most messages taken in one step, in which Redis does nothing else. */
const stepMax = 500
const againAfterMs = 200

/** Begins to receive. @throws UsageError SLUICE_BAD_URL, SLUICE_MISSING_PEER; StoreError SLUICE_REDIS_UNREACHABLE */
export async function consumeRedis(options: RedisConsumerOptions): Promise<RedisConsumer> {
  return new RedisConsumer(await openPlace(options.url), options)
}

/** A subscription. */
export class RedisConsumer {
  readonly #redis: RedisConnection
  readonly #options: RedisConsumerOptions
  readonly #held: UnackedMessages
  readonly #renewEveryMs: number
  readonly #taken = new Map<string, TakenHere>()
  readonly #ended = new AbortController()
  readonly #watch: RedisWatch
  readonly #traffic: Traffic
  /** Something may have come since the last look began. */
  #isChanged = false
  /** Nothing is to be done until something comes. */
  #isIdle = false
  #pause = new AbortController()
  #prefetch: number
  /** The taking that is under way. */
  #taking: Promise<unknown> | undefined
  #isStopped = false
  /** As many messages were in hand at the last look as may be, so that there may be more in Redis. */
  #isFull = false
  #queues: readonly string[]
  #renewedMs = systemClock.monotonicMs()
  readonly #done: Promise<void>

  /** @param redis a connection of its own, which it closes */
  constructor(redis: RedisConnection, options: RedisConsumerOptions) {
    const { prefix, log, queues, visibleAfterMs } = options
    const heldForMs = Math.min(visibleAfterMs, options.heldForMs ?? visibleAfterMs)
    this.#redis = redis
    this.#options = options
    this.#traffic = options.traffic ?? noTraffic()
    this.#held = new UnackedMessages(redis, { prefix, log, visibleAfterMs, heldForMs })
    this.#queues = queues
    this.#prefetch = options.prefetch
    this.#renewEveryMs = heldForMs / 4
    // What workers hold changes with each message.
    const others = [heldKey, heldIndexKey].map((key) => prefix + key)
    this.#watch = new RedisWatch((key) => {
      if (others.includes(key)) return
      this.#isChanged = true
      if (this.#isIdle) this.#pause.abort()
    })
    void this.#watch.open(options.url)
    this.#done = this.#run()
  }

  /** Messages that were received and are not settled. */
  get inHand(): number {
    return this.#taken.size
  }

  /** Changes the most messages in hand. */
  setPrefetch(prefetch: number): void {
    this.#prefetch = prefetch
    this.#pause.abort()
  }

  /** Receives no more; what is in hand stays so, and can still be settled. */
  async stop(): Promise<void> {
    this.#isStopped = true
    await this.#taking
  }

  /** Receives no more, and puts what is in hand back. */
  async close(): Promise<void> {
    this.#isStopped = true
    this.#ended.abort()
    this.#pause.abort()
    await this.#done
    const logLeft = (error: unknown) => this.#options.log.warn('a task in hand comes again later', { err: error })
    await Promise.all([...this.#taken.values()].toReversed().map((one) => this.#release(one).catch(logLeft)))
    this.#watch.close()
    await this.#redis.close()
  }

  async #run(): Promise<void> {
    let isLost = false
    let isQuiet = false
    while (!this.#ended.signal.aborted)
      try {
        const pauseMs = await this.#readOnce(isQuiet)
        isLost = false
        isQuiet = pauseMs > 0 && (await this.#rest(pauseMs))
      } catch (error) {
        if (!isLost) this.#options.log.warn('tasks cannot be received from Redis now', { err: error })
        isLost = true
        isQuiet = false
        await this.#sleep(againAfterMs)
      }
  }

  /** Waits until there may be something to do, so many ms at most. Resolves to whether nothing has ended that. */
  async #rest(mostMs: number): Promise<boolean> {
    const isOver = await this.#sleep(pollEveryMs)
    if (!isOver || this.#isChanged || mostMs <= pollEveryMs) return isOver
    this.#isIdle = true
    const isLongOver = await this.#sleep(mostMs - pollEveryMs)
    this.#isIdle = false
    return isLongOver
  }

  /**
   * Resolves to when to look again, in ms.
   * @param isQuiet nothing has come for a moment, so changes are watched from this look on: a busy worker has no use for that
   */
  async #readOnce(isQuiet: boolean): Promise<number> {
    const nowMs = systemClock.monotonicMs()
    if (nowMs - this.#renewedMs >= this.#renewEveryMs) {
      for (const tag of await this.#held.renew([...this.#taken.keys()])) this.#lose(tag)
      this.#renewedMs = nowMs
    }
    if (this.#isStopped) return pollEveryMs
    const taking = this.#take(isQuiet)
    this.#taking = taking.catch(() => {})
    const pauseMs = await taking
    return Math.min(
      pauseMs,
      idleMs,
      Math.max(pollEveryMs, this.#renewedMs + this.#renewEveryMs - systemClock.monotonicMs()),
    )
  }

  #lose(tag: string): void {
    const taken = this.#taken.get(tag)
    if (taken !== undefined) taken.isHeld = false
    this.#taken.delete(tag)
  }

  /** Resolves to when to look again, in ms. */
  async #take(isQuiet: boolean): Promise<number> {
    const most = Math.min(stepMax, Math.max(0, this.#prefetch - this.inHand))
    let watched: Promise<boolean> | undefined
    const { taken, nextMs } = await this.#held.take(this.#queues, most, () => {
      this.#isChanged = false
      if (isQuiet) watched = this.#watch.watchNext(this.#redis)
    })
    const last = taken.at(-1)?.queue
    if (last !== undefined) this.#queues = [...this.#queues.filter((queue) => queue !== last), last]
    this.#isFull = taken.length === most
    for (const [i, one] of taken.entries())
      try {
        await this.#deliver(one)
      } catch (error) {
        this.#held.forsake(taken.slice(i))
        throw error
      }
    if (taken.length > 0) return 0
    return (await watched) === true ? Math.max(pollEveryMs, nextMs) : pollEveryMs
  }

  async #deliver(one: Taken): Promise<void> {
    const { tag, queue, text } = one
    let found: ReturnType<typeof readEnvelope>
    try {
      found = readEnvelope(text)
    } catch (error) {
      return this.#held.park(tag, text, error)
    }
    // It came while the subscription ended, so nobody has begun it.
    if (this.#isStopped) return void (await this.#held.release(one, false))
    const taken: TakenHere = { ...one, isHeld: true, isEnded: false }
    this.#taken.set(tag, taken)
    this.#traffic.delivered++
    this.#options.onMessage({
      queue,
      ...found,
      get isHeld() {
        return taken.isHeld
      },
      ack: () => {
        taken.isEnded = true
        return this.#settle(taken, () => this.#held.end(tag))
      },
      requeue: () => this.#release(taken),
      putOff: (message, afterMs) => {
        const copy = writeEnvelope(message, { exchange: '', routingKey: queue }, randomUUID(), true)
        const { priority } = message
        const act = async () => {
          const { isEnded } = taken
          const isDone = await this.#held.putOff(tag, { afterMs, queue, priority, text: copy, isEnded })
          this.#traffic.published++
          return isDone
        }
        return taken.isEnded ? act() : this.#settle(taken, act).catch((error: unknown) => this.#keep(taken, error))
      },
    })
  }

  #release(taken: TakenHere): Promise<boolean> {
    return this.#settle(taken, () => this.#held.release(taken))
  }

  /** What could not be put off, because the memory of Redis is full for example, stays in hand until that is repeated. */
  #keep(taken: TakenHere, error: unknown): never {
    this.#taken.set(taken.tag, taken)
    throw error
  }

  async #settle(taken: TakenHere, act: () => Promise<boolean>): Promise<boolean> {
    if (!taken.isHeld) return false
    this.#taken.delete(taken.tag)
    const isDone = await act()
    this.#traffic.settled++
    taken.isHeld = false
    if (this.#isFull) this.#pause.abort()
    return isDone
  }

  /** Resolves to whether all of the time has passed. */
  async #sleep(ms: number): Promise<boolean> {
    const { signal } = this.#pause
    await systemClock.sleep(ms, signal)
    if (!this.#ended.signal.aborted) this.#pause = new AbortController()
    return !signal.aborted
  }
}

/** A message that this process has taken. */
interface TakenHere extends Taken {
  isHeld: boolean
  /** It was acknowledged, or is being so. */
  isEnded: boolean
}
