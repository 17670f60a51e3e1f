/** What Redis is to be told of grants: as soon as it can be, together, and not for ever. */
import type { Clock } from '../core/clock.ts'
import { newId } from '../core/hash.ts'
import type { RedisLimiter, SettleAct } from '../redis/limiter.ts'
import type { SharedDefinitions } from './definitions.ts'

/** Of one bucket; with `untilMs` it holds until then, in monotonic ms. */
export type Word = { take: string; sinceMs: number } & (
  | { grant: string; more: number }
  | { grant: string; isUnused: true }
  | { untilMs: number }
)

/** In one call. */
const batchMax = 500
/** What waits for longer, or more than so many, is not told any more: then less is free than could be. */
const keptMs = 50_000
const keptMax = 20_000

/** Words that wait to be told. */
export class Told {
  readonly #limiter: RedisLimiter
  readonly #definitions: SharedDefinitions
  readonly #clock: Clock
  readonly #failed: (error: unknown) => void
  #waiting: Word[] = []
  #telling: Promise<void> | undefined

  /** @param failed told when Redis does not answer; `go` is then to be called when it does */
  constructor(limiter: RedisLimiter, definitions: SharedDefinitions, clock: Clock, failed: (error: unknown) => void) {
    this.#limiter = limiter
    this.#definitions = definitions
    this.#clock = clock
    this.#failed = failed
  }

  /** Adds one, and tells it with what else there is by the time that the call before has been answered. */
  add(word: Word): void {
    if (this.#waiting.length < keptMax) this.#waiting.push(word)
    this.go()
  }

  /** Tells what waits. */
  go(): void {
    this.#telling ??= this.#tell().finally(() => (this.#telling = undefined))
  }

  /** Resolves when what waits has been told, or cannot be now. */
  async settled(): Promise<void> {
    await this.#telling
  }

  /** What was told of grants before a loss means nothing after it. */
  forget(): void {
    this.#waiting = []
  }

  async #tell(): Promise<void> {
    await Promise.resolve()
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, batchMax)
      try {
        await this.#settle(batch)
      } catch (error) {
        const nowMs = this.#clock.monotonicMs()
        this.#waiting.unshift(...batch.filter(({ sinceMs }) => nowMs - sinceMs < keptMs))
        return this.#failed(error)
      }
    }
  }

  async #settle(batch: readonly Word[]): Promise<void> {
    await this.#definitions.know(batch.map(({ take }) => take))
    const id = newId()
    for (let tries = 0; tries < 3; tries++) {
      const places = new Map<string, number>()
      const nowMs = this.#clock.monotonicMs()
      const acts = batch.flatMap((word): SettleAct[] => {
        const { take } = word
        if (this.#definitions.bucket(take) === undefined) return []
        const bucket = places.get(take) ?? places.size
        places.set(take, bucket)
        if (!('untilMs' in word))
          return [
            { bucket, grant: word.grant, ...('more' in word ? { more: word.more } : { isUnused: true as const }) },
          ]
        return word.untilMs > nowMs ? [{ bucket, holdUs: Math.ceil((word.untilMs - nowMs) * 1_000) }] : []
      })
      const buckets = [...places.keys()].flatMap((take) => this.#definitions.bucket(take) ?? [])
      if (acts.length === 0) return
      const answer = await this.#limiter.settle({ id, buckets, acts })
      if (answer.isDecided || answer.why === 'lost') return
      await this.#definitions.read()
    }
  }
}
