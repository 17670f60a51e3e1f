/**
 * Books when messages that were denied come back: the first when its limit will have room, each next one a unit's time later. All
 * workers book in one place, so that no more messages come back at a time than the limit can grant.
 */
import { limitOf } from '../core/bucket.ts'
import type { Clock } from '../core/clock.ts'
import { RecentMap } from '../core/recent-map.ts'
import { scripts } from '../generated/lua.ts'
import { paceOf, type Rule } from '../limits/rule.ts'
import { checkReply, type RedisClient, Script } from '../redis/client.ts'
import type { RedisBucket } from '../redis/definition.ts'

/** Parameters of `Bookings`; see the fields. */
export interface BookingsOptions {
  redis: RedisClient
  /** Beginning of every key. */
  prefix: string
  clock: Clock
  /** Returns the epoch of the limits. Each has bookings of its own: a new one may have begun because Redis's clock was set back. */
  epoch(): string | undefined
  /**
   * Returns the definition of a bucket, if it is known. Each version has bookings of its own: those by a slow rate would
   * delay new messages for hours, though a faster rate has room.
   */
  definition(bucket: string): Pick<RedisBucket, 'rules' | 'version'> | undefined
  /** The longest delay, in ms. */
  mostMs: number
}

const answerMs = 400
/** How far apart two messages come back at least. */
const apartUsLeast = 500
/** How long attempts are assumed to hold a place, in ms, until that is known. */
const placeMs = 250
/** How far ahead bookings are, in ms, from which on a message requests no grant before its turn. */
const aheadMs = 200
/** The weight of the newest time in a mean of times. */
const newestWeight = 0.1
/** For how many buckets it remembers how far they are booked; the oldest are forgotten. */
const knownMax = 10_000

/** The bookings of one worker's messages. */
export class Bookings {
  readonly #options: BookingsOptions
  readonly #script = new Script(scripts['direct/book'] ?? '')
  /** Until when buckets are booked, in monotonic ms, as far as this worker knows, and under which keys. */
  readonly #until = new RecentMap<string, { ms: number; key: string }>(knownMax)
  /** How long attempts hold the places of a limit, in ms. */
  readonly #heldMs = new Map<string, number>()

  constructor(options: BookingsOptions) {
    this.#options = options
  }

  /** Returns one of these buckets that is booked for longer than a moment; undefined: none is. */
  findBooked(buckets: readonly string[]): string | undefined {
    return buckets.find((bucket) => {
      // All waiting messages call this again and again, and a key takes long to write.
      const { ms, key } = this.#until.get(bucket) ?? { ms: -Infinity, key: '' }
      return ms - this.#options.clock.monotonicMs() > aheadMs && key === this.#keyOf(bucket)
    })
  }

  /** Records for how long an attempt held places of these limits. */
  recordHeldTime(buckets: readonly string[], ms: number): void {
    for (const name of buckets.map(limitOf)) {
      const before = this.#heldMs.get(name) ?? ms
      this.#heldMs.set(name, before + (ms - before) * newestWeight)
    }
  }

  /**
   * Books times for messages that lack room in a bucket. Resolves to the delay of each in ms; never rejects.
   * @param waitMs when the first may come back; Infinity: when somebody gives a place back
   */
  async book(bucket: string, count: number, units: number, waitMs: number): Promise<number[]> {
    const { redis, clock, mostMs } = this.#options
    const apartUs = Math.max(apartUsLeast, Math.ceil(this.#apartUs(bucket) * Math.max(1, units)))
    const fromMs = Math.min(waitMs === Infinity ? apartUs / 1_000 : waitMs, mostMs)
    const args = [count, apartUs, Math.ceil(fromMs * 1_000), mostMs * 1_000].map(String)
    const key = this.#keyOf(bucket)
    const reserve = async () => {
      const [named, ...booked] = [await this.#script.run(redis, [key], args, answerMs, clock)].flat() as unknown[]
      checkReply(named, key)
      return booked.map(Number)
    }
    // If there is no answer, they come back soon, and are tried again.
    const [firstUs = 0, some = 0] = await reserve().catch(() => [fromMs * 1_000, count])
    if (some > 0) this.#until.set(bucket, { key, ms: clock.monotonicMs() + (firstUs + some * apartUs) / 1_000 })
    // Messages beyond the most come back before it, and book again then.
    const laterMs = () => mostMs * (1 - clock.random() / 3)
    return Array.from({ length: count }, (_, i) => (i < some ? (firstUs + i * apartUs) / 1_000 : laterMs()))
  }

  #keyOf(bucket: string): string {
    const { prefix, epoch, definition } = this.#options
    return `${prefix}{limits}:r:${epoch() ?? ''}:${definition(bucket)?.version ?? 0}:${bucket}`
  }

  /** Returns how long a bucket takes, in the long run, to have a unit free again. */
  #apartUs(bucket: string): number {
    const rules: readonly Rule[] = this.#options.definition(bucket)?.rules ?? []
    const all = rules.map((rule, i) => {
      const { kind, drain, weight, capacity, spanUs } = rule
      switch (kind) {
        case 'rate':
        case 'pace':
          return paceOf(rules, i) === undefined ? weight / drain : 0
        case 'window':
          return spanUs / capacity
        case 'quota':
          return 0 // All units of a period are free when it begins.
        case 'concurrency':
          return ((this.#heldMs.get(limitOf(bucket)) ?? placeMs) * 1_000) / capacity
      }
    })
    return Math.max(0, ...all)
  }
}
