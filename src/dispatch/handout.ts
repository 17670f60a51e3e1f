/** Jobs on their way from the store to a worker: the places of an array, as hand.sql writes them. */

/** A job in hand: claimed, not yet finished. */
export interface Handout {
  claim: string
  /** Monotonic ms, not after the store's decision: what the grants' life counts from. */
  grantedMs: number
  seq: number
  id: string
  task: string
  queue: string
  attempt: number
  failed: number
  crashes: number
  ambiguous: boolean
  priority: number
  createdMs: number
  takes: string[] | null
  /** Units for each of `takes`, and of its turn; null: all are 1. */
  costs: number[] | null
  /** The shortest life of a grant, in microseconds, by the definitions in force; null: no limits. */
  grantUs: number | null
  /** What it was charged in, where that is not the same: one for each of `takes`. */
  holds: string[] | null
  tags: string[] | null
  input: unknown
  /** 2: nobody has looked at its task's code; 1: it has met no rules; 0: it has; or what they did, if they gave it keys. */
  admitted: number | readonly { keys?: Record<string, string> }[]
  /** It left the hands of its claim before its input was read: nothing is to be done but to end its claim. */
  isGone?: boolean
}

/** A job whole, place by place. */
type Whole = [
  seq: number,
  id: string,
  task: string,
  queue: string,
  attempt: number,
  failed: number,
  crashes: number,
  ambiguous: boolean,
  priority: number,
  created: number,
  takes: string[] | null,
  tags: string[] | null,
  isBig: boolean,
  input: unknown,
  admitted: Handout['admitted'],
  costs: number[] | null,
  grantUs: number | null,
  holds: string[] | null,
]

/** What an ordinary job has of its own, told after one of the same lane. */
type Short = [seq: number, id: string, attempt: number, created: number, input: unknown]

/** A job as it is told. */
export type Place = Whole | Short

/** Its input was left out, being too long for the answer of a claim. */
export const isBig = (place: Place): boolean => place.length > 5 && place[12] === true

/** Jobs as a claim tells them. */
export function handouts(places: readonly Place[], claim: string, grantedMs: number): Handout[] {
  let last: Whole | undefined
  return places.map((place) => {
    last = place.length > 5 || last === undefined ? (place as Whole) : inFull(place as Short, last)
    return whole(last, claim, grantedMs)
  })
}

/** An ordinary job of the same lane as the one before, of which it has what all jobs of a lane have. */
function inFull(
  [seq, id, attempt, created, input]: Short,
  [, , task, queue, , , , , priority, , takes, , , , , , grantUs]: Whole,
): Whole {
  return [
    seq,
    id,
    task,
    queue,
    attempt,
    0,
    0,
    false,
    priority,
    created,
    takes,
    null,
    false,
    input,
    1,
    null,
    grantUs,
    null,
  ]
}

function whole(place: Whole, claim: string, grantedMs: number): Handout {
  const [
    seq,
    id,
    task,
    queue,
    attempt,
    failed,
    crashes,
    ambiguous,
    priority,
    created,
    takes,
    tags,
    ,
    input,
    admitted,
    costs,
    grantUs,
    holds,
  ] = place
  return {
    claim,
    grantedMs,
    seq,
    id,
    task,
    queue,
    attempt,
    failed,
    crashes,
    ambiguous,
    priority,
    createdMs: created * 1_000,
    takes,
    costs,
    grantUs,
    holds,
    tags,
    input,
    admitted,
  }
}
