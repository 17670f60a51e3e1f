/** What Redis is to be told of grants: as soon as it can be, together, and not for ever. */
import { caughtUpMs, type Clock, type Moment, readMoment } from '../core/clock.ts'
import { newId } from '../core/hash.ts'
import type { RedisBucket } from './definition.ts'
import type { RedisLimiter, SettleAct } from './limiter.ts'
import type { SharedDefinitions } from './definitions.ts'

/**
 * Of one bucket; with `untilMs` it holds until then, in monotonic ms. What became of a grant is of an epoch, the one that counted
 * before the store heard of it: the state of a later one may be made by a ledger that has it.
 */
export type Unsaid = { take: string } & (
  | { epoch: string; grant: string; more: number }
  | { epoch: string; grant: string; isUnused: true }
  | { untilMs: number }
)
type Word = Unsaid & { sinceMs: number }

/** Told in one call, and asked again under its id while the outcome is not known: each word counts once. */
interface Batch {
  readonly id: string
  readonly words: readonly Word[]
  /** Before it was first told. */
  readonly begun: Moment
}

const batchMax = 500
/** Redis remembers a call for a minute. One whose outcome was not known for so long is given up, since again it might count twice. */
const repeatMs = 50_000
/** What waits for longer, or more than so many, is not told any more; the store knows it all the same. */
const keptMs = 50_000
const keptMax = 20_000
const triesMax = 3

/** Words that wait to be told. */
export class Told {
  readonly #limiter: RedisLimiter
  readonly #definitions: SharedDefinitions
  readonly #clock: Clock
  readonly #current: () => string | undefined
  readonly #failed: (error: unknown) => void
  #waiting: Word[] = []
  /** Of which nobody knows whether it was heard. */
  #open: Batch | undefined
  #telling: Promise<void> | undefined

  /**
   * @param current the epoch that counts
   * @param failed told when Redis does not answer, or has lost its state; `go` is then to be called when all is well
   */
  constructor(
    limiter: RedisLimiter,
    definitions: SharedDefinitions,
    clock: Clock,
    current: () => string | undefined,
    failed: (error: unknown) => void,
  ) {
    this.#limiter = limiter
    this.#definitions = definitions
    this.#clock = clock
    this.#current = current
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

  async #tell(): Promise<void> {
    await Promise.resolve()
    while (this.#open !== undefined || this.#waiting.length > 0) {
      if (this.#open !== undefined && this.#isOld(this.#open)) this.#open = undefined
      const nowMs = this.#clock.monotonicMs()
      const kept = () => this.#waiting.splice(0, batchMax).filter(({ sinceMs }) => nowMs - sinceMs < keptMs)
      this.#open ??= { id: newId(), words: kept(), begun: readMoment(this.#clock) }
      try {
        await this.#settle(this.#open)
        this.#open = undefined
      } catch (error) {
        return this.#failed(error)
      }
    }
  }

  #isOld({ begun }: Batch): boolean {
    return caughtUpMs(this.#clock, begun) - begun.monotonicMs > repeatMs
  }

  async #settle({ id, words: batch }: Batch): Promise<void> {
    await this.#definitions.know(batch.map(({ take }) => take))
    const epoch = this.#current()
    if (epoch === undefined) throw new Error('no epoch is known')
    for (let tries = 0; tries < triesMax; tries++) {
      const { buckets, acts } = this.#acts(batch, epoch)
      if (acts.length === 0) return
      const answer = await this.#limiter.settle({ id, epoch, buckets, acts })
      if (answer.isDecided) return
      if (answer.why === 'lost') throw new Error('the state in Redis is lost')
      await this.#definitions.read()
    }
  }

  #acts(batch: readonly Word[], epoch: string): { buckets: RedisBucket[]; acts: SettleAct[] } {
    const places = new Map<string, number>()
    const nowMs = this.#clock.monotonicMs()
    const acts = batch.flatMap((word): SettleAct[] => {
      const { take } = word
      if (isOver(word, epoch, nowMs) || this.#definitions.bucket(take) === undefined) return []
      const bucket = places.get(take) ?? places.size
      places.set(take, bucket)
      if ('untilMs' in word) return [{ bucket, holdUs: Math.ceil((word.untilMs - nowMs) * 1_000) }]
      if ('isUnused' in word) return [{ bucket, grant: word.grant, isUnused: true }]
      // One of an earlier epoch is part of what this one began with, which is known by its id.
      return [{ bucket, grant: epochOf(word.grant) === epoch ? word.grant : epoch, more: word.more }]
    })
    return { buckets: [...places.keys()].flatMap((take) => this.#definitions.bucket(take) ?? []), acts }
  }
}

/** What is told no more. More than was granted is told in any case: counted twice it errs to the safe side. */
function isOver(word: Word, epoch: string, nowMs: number): boolean {
  if ('untilMs' in word) return word.untilMs <= nowMs
  if ('more' in word && word.more > 0) return false
  // One of this epoch has an id there, whatever this process knew when it was said.
  return word.epoch !== epoch && epochOf(word.grant) !== epoch
}

/** The id of a new grant under an epoch. */
export function grantOf(epoch: string): string {
  return `${epoch}/${newId()}`
}

function epochOf(grant: string): string {
  return grant.split('/', 1)[0] ?? ''
}
