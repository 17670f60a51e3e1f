/** Converts wishes for grants into a call of Redis, and its answer into a decision on each wish. Pure. */
import type { PeerDecision, PeerRequest } from '../limits/peer.ts'
import type { Granted, Item } from './call.ts'

/** An item, and the moment (monotonic ms) before which its grants may not be used; undefined: at once. */
export type WishedItem = Item & { notBeforeMs: number | undefined }

/** A call of Redis for a list of wishes. */
export interface PeerCall {
  /** Their names; items have their indexes. */
  buckets: string[]
  items: WishedItem[]
  /** Index of each wish's item; undefined: only the store has its buckets. */
  itemOf: (number | undefined)[]
}

/**
 * Returns the call for these wishes.
 * @param isShared returns whether Redis has a bucket
 */
export function callOf({ wishes }: PeerRequest, isShared: (bucket: string) => boolean): PeerCall {
  const places = new Map<string, number>()
  const items: WishedItem[] = []
  const itemOf = wishes.map(({ buckets, units, count, notBeforeMs }) => {
    const shared = buckets.flatMap((name, i) => {
      if (!isShared(name)) return []
      const bucket = places.get(name) ?? places.size
      places.set(name, bucket)
      return [{ bucket, units: units[i] ?? 1 }]
    })
    return shared.length === 0 ? undefined : items.push({ want: count, takes: shared, notBeforeMs }) - 1
  })
  return { buckets: [...places.keys()], items, itemOf }
}

/** Why the store is to hold a bucket: others have used it up in Redis, or it is closed there. */
export type HoldCause = 'used' | 'closed'

/** What the store is to do about a bucket that Redis denies. */
export interface Hold {
  us: number
  /**
   * Why it holds the bucket; `others`: it only stops to grant ahead of time, because other programs take from the bucket; `unreadable`:
   * it parks the bucket, because its key has a value of another program.
   */
  cause: HoldCause | 'others' | 'unreadable'
}

/** The store holds a closed bucket no longer than this. */
const closedUsMax = 60_000_000
/**
 * If time alone makes no room soon, others may give units back, which nobody reports: the store holds a bucket that is used up for as long
 * as nothing has changed in it so far, within these bounds. So where units come back often, jobs do not wait long for them.
 */
const usedUsMost = 5_000_000
const usedUsLeast = 250_000

/** When a request was sent, and when its answer came, in monotonic ms. */
interface Times {
  requestedMs: number
  receivedMs: number
  /** Each wish's grants count as older than they are by so many ms. */
  late: readonly number[]
}

/** What is known here about the buckets of a call. */
export interface Known {
  /** Returns whether a bucket has only rates of which a unit drains within a second. */
  isQuick: (bucket: string) => boolean
  /** Only this database takes from them. */
  isAlone: boolean
}

const holdCauses = { used: 'used', held: 'closed', others: 'others', behind: 'used', unreadable: 'unreadable' } as const

/**
 * Returns the decision on each wish, and the buckets that the store is to hold, because others have used them up. It holds none
 * because of grants ahead that arrived in Redis before this request did, since the store grants nothing more before those.
 */
export function decisionsOf(
  { wishes }: PeerRequest,
  { buckets, itemOf }: PeerCall,
  results: readonly Granted[],
  { requestedMs, receivedMs, late }: Times,
  { isQuick, isAlone }: Known,
): { decisions: PeerDecision[]; holds: ReadonlyMap<string, Hold> } {
  const holds = new Map<string, Hold>()
  const decisions = wishes.map(({ count, notBeforeMs }, i): PeerDecision => {
    const result = results[itemOf[i] ?? -1]
    if (result === undefined) return storeDecision(count)
    const lacking = result.lacking === undefined ? undefined : buckets[result.lacking]
    const cause = holdCauses[result.cause]
    const us = holdUs(cause, result)
    const isOvertaken = result.cause === 'behind' && isAlone && notBeforeMs !== undefined
    if (lacking !== undefined && !isOvertaken && us >= (holds.get(lacking)?.us ?? 0)) holds.set(lacking, { us, cause })
    return {
      granted: result.granted,
      fromMs: requestedMs + result.startUs / 1_000 - (late[i] ?? 0),
      // Redis decided at some moment before this answer.
      notBeforeMs: result.startUs === 0 ? requestedMs : receivedMs + result.startUs / 1_000,
      waitMs: result.waitUs / 1_000,
      // A closed bucket is not used up; a bucket that drains slowly would be charged long for what others may give back.
      lacking: lacking === undefined || result.cause !== 'used' || !isQuick(lacking) ? undefined : lacking,
    }
  })
  return { decisions, holds }
}

/** Returns for how many microseconds the store holds a bucket that Redis denies. */
function holdUs(cause: Hold['cause'], { waitUs, quietUs }: Granted): number {
  if (cause === 'others') return 0
  if (cause !== 'used') return Math.min(waitUs, closedUsMax)
  return waitUs <= usedUsMost ? waitUs : Math.min(usedUsMost, Math.max(usedUsLeast, quietUs))
}

/** Returns the result of a wish that needs no confirmation. */
export function storeDecision(granted: number): PeerDecision {
  return { granted, fromMs: undefined, notBeforeMs: undefined, waitMs: 0, lacking: undefined }
}

/** The result of a wish that Redis did not answer. */
export const unanswered: PeerDecision = { ...storeDecision(0), waitMs: 100 }
