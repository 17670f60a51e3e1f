/** Jobs on their way from the store to a worker: arrays with a place for each thing told. */

import type { Moment } from '../core/clock.ts'

/** A job in hand: claimed, not yet finished. */
export interface Handout {
  claim: string
  /** Monotonic ms, not after the store's decision: what the grants' life counts from. */
  grantedMs: number
  /** Before it was claimed: what the monotonic clock misses from then on makes the grants older, too. */
  asked?: Moment
  /** The epoch under which those who share its limits may be asked, too. */
  epoch?: string
  /** Their answer; undefined: nobody is asked. It may begin when that is undefined. */
  agreed?: Promise<Denial | undefined>
  /** Its grant there, and the monotonic ms before which it may not begin. */
  grant?: string
  notBeforeMs?: number
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
  /** Undefined: left out, to be fetched. */
  input: unknown
  /** 2: nobody has looked at its task's code; 1: it has met no rules; 0: it has; or what they did, if they gave it keys. */
  admitted: number | readonly { keys?: Record<string, string> }[]
  /** It left the hands of its claim before its input was read: nothing is to be done but to end its claim. */
  isGone?: boolean
}

/** A job that goes back: those who share its limits have used up the bucket `reason` (undefined: it is something else). */
export interface Denial {
  kind: 'denied'
  reason: string | undefined
}

/** What each job has of its own. */
type Own = [seq: number, id: string, attempt: number, created: number]
/** What the ordinary jobs of a lane have in common. */
type Common = [
  task: string,
  queue: string,
  failed: number,
  crashes: number,
  ambiguous: boolean,
  priority: number,
  takes: string[] | null,
  admitted: Handout['admitted'],
  costs: number[] | null,
  grantUs: number | null,
  holds: string[] | null,
]
/** Left out where it is too long for the answer of a claim; tags also where there are none. */
type Cargo = [] | [input: unknown, tags?: string[]]

/** A job as hand.sql and cargo.sql tell it: whole, or as an ordinary one that follows another of its lane. */
type Place = [...Own, ...Common, ...Cargo] | [...Own, ...Cargo]

const ownPlaces = 4
const wholePlaces = 15

/** Jobs as a claim tells them, in JSON; null: none. */
export function handouts(told: string | null, claim: string, grantedMs: number): Handout[] {
  if (told === null) return []
  const places = JSON.parse(told) as Place[]
  let ordinary: Common | undefined
  return places.map((place) => {
    if (place.length < wholePlaces && ordinary !== undefined)
      return handout(place, ordinary, ownPlaces, claim, grantedMs)
    const common = place.slice(ownPlaces, wholePlaces) as Common
    const [task, queue, , , , priority, takes, , , grantUs] = common
    ordinary = [task, queue, 0, 0, false, priority, takes, 1, null, grantUs, null]
    return handout(place, common, wholePlaces, claim, grantedMs)
  })
}

/** @param cargo where it begins */
function handout(place: Place, common: Common, cargo: number, claim: string, grantedMs: number): Handout {
  const [seq, id, attempt, created] = place
  const [task, queue, failed, crashes, ambiguous, priority, takes, admitted, costs, grantUs, holds] = common
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
    createdMs: created,
    takes,
    costs,
    grantUs,
    holds,
    tags: (place[cargo + 1] as string[] | undefined) ?? null,
    input: place[cargo],
    admitted,
  }
}
