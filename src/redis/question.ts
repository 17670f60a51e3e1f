/** Converts wishes for grants into a request to Redis, and its answer into a decision on each wish. Pure. */
import type { PeerDecision, PeerRequest } from '../limits/peer.ts'
import type { Granted, Item } from './call.ts'

/** A request to Redis for a list of wishes. */
export interface PeerQuestion {
  takes: string[]
  items: Item[]
  /** Index of each wish's item; undefined: only the store has its buckets. */
  itemOf: (number | undefined)[]
}

/**
 * Returns the request for these wishes.
 * @param isShared returns whether Redis has a bucket
 */
export function questionOf({ wishes }: PeerRequest, isShared: (take: string) => boolean): PeerQuestion {
  const places = new Map<string, number>()
  const items: Item[] = []
  const itemOf = wishes.map(({ takes, units, count }) => {
    const shared = takes.flatMap((take, i) => {
      if (!isShared(take)) return []
      const bucket = places.get(take) ?? places.size
      places.set(take, bucket)
      return [{ bucket, units: units[i] ?? 1 }]
    })
    return shared.length === 0 ? undefined : items.push({ want: count, takes: shared }) - 1
  })
  return { takes: [...places.keys()], items, itemOf }
}

/** Why Redis denies: others have used the bucket up, or it is closed there. */
export type HoldCause = 'used' | 'closed'

/** For how long the store is to hold a bucket that Redis denies, and why. */
export interface Hold {
  us: number
  cause: HoldCause
}

/** The store holds a bucket no longer than this, because others may give units back; a closed bucket longer. */
const holdUsMax = 5_000_000
const closedUsMax = 60_000_000

/** When a request was sent, and when its answer came, in monotonic ms. */
interface Times {
  askedMs: number
  heardMs: number
  /** Each wish's grants count as older than they are by so many ms. */
  late: readonly number[]
}

/**
 * Returns the decision on each wish, and the buckets that the store is to hold, because others have used them up.
 * @param isQuick returns whether a bucket has only rates of which a unit drains within a second
 */
export function decisionsOf(
  { wishes, sentMs }: PeerRequest,
  { takes, itemOf }: PeerQuestion,
  results: readonly Granted[],
  { askedMs, heardMs, late }: Times,
  isQuick: (take: string) => boolean,
): { leaves: PeerDecision[]; holds: ReadonlyMap<string, Hold> } {
  const holds = new Map<string, Hold>()
  const leaves = wishes.map(({ count }, i): PeerDecision => {
    const result = results[itemOf[i] ?? -1]
    if (result === undefined) return unshared(count, sentMs)
    const take = result.lacking === undefined ? undefined : takes[result.lacking]
    const waitUs = Math.min(result.waitUs, result.isHeld ? closedUsMax : holdUsMax)
    if (take !== undefined && waitUs >= (holds.get(take)?.us ?? 0))
      holds.set(take, { us: waitUs, cause: result.isHeld ? 'closed' : 'used' })
    return {
      granted: result.granted,
      fromMs: askedMs + result.startUs / 1_000 - (late[i] ?? 0),
      // Redis decided at some moment before this answer.
      notBeforeMs: result.startUs === 0 ? askedMs : heardMs + result.startUs / 1_000,
      waitMs: result.waitUs / 1_000,
      // A closed bucket is not used up; a bucket that drains slowly would be charged long for what others may give back.
      lacking: take === undefined || result.isHeld || !isQuick(take) ? undefined : take,
    }
  })
  return { leaves, holds }
}

/** Returns the result of a wish that needs no confirmation. */
export function unshared(granted: number, fromMs: number): PeerDecision {
  return { granted, fromMs, notBeforeMs: fromMs, waitMs: 0, lacking: undefined }
}

/** Returns the result of a wish that Redis did not answer. */
export function unanswered(fromMs: number): PeerDecision {
  return { granted: 0, fromMs, notBeforeMs: fromMs, waitMs: 100, lacking: undefined }
}
