/**
 * How a claim divides room among lanes: pure arithmetic, the specification of `share.sql`, which a test holds to it.
 *
 * Deficit round robin over fair keys: each turn goes to the fair key with the smallest virtual start and hands its
 * lanes, in their order (priority), up to a quantum of units, as far as all their buckets allow; the key then moves on
 * by what it got over its weight. A round's quantum is what is left over the keys that still take part, so the rounds
 * end in single units, and a claim that may take much does not give a small room to whoever comes first.
 */

/** A lane as a claim sees it. */
export interface ShareLane {
  /** Jobs that wait; with `jobs`: as many as were read. */
  n: number
  /** What its next jobs take, where that is not one of everything; only for `shareCosts`. */
  jobs?: readonly ShareJob[]
  /** What one unit adds to the virtual start of the lane's fair key: 1,000,000 over its weight. */
  step: number
  /** Position of its fair key in `vstart`. */
  fair: number
  /** Positions of its buckets in `avail`. */
  buckets: readonly number[]
}

/** What a job takes. */
export interface ShareJob {
  /** Of each of its lane's buckets; -1: it takes nothing and waits for nothing, for it is not to run. 0: it waits for one. */
  costs: readonly number[]
  /** How many units it adds to the turn of its fair key. */
  turn: number
}

/** What each lane gets. */
export interface Shares {
  /** Units for each lane. */
  take: number[]
  /** New virtual start of each fair key. */
  vstart: number[]
  /** For each lane the bucket that denied it more; undefined: none did. */
  blocked: (number | undefined)[]
}

/**
 * Divides up to `want` units.
 * @param lanes in fair order: by virtual start, then priority
 * @param vstart virtual start of each fair key; each has a lane
 * @param avail units free in each bucket
 * @param horizon virtual start of lanes that were not read; no fair key is served past it. undefined: all were read
 */
export function share(
  want: number,
  lanes: readonly ShareLane[],
  vstart: readonly number[],
  avail: readonly number[],
  horizon?: number,
): Shares {
  const state = {
    take: lanes.map(() => 0),
    vstart: [...vstart],
    blocked: lanes.map((): number | undefined => undefined),
  }
  const free = [...avail]
  const fresh = [...new Set(lanes.map((lane) => lane.fair))]
  const rest = new Map(fresh.map((fair) => [fair, lanes.flatMap((lane, i) => (lane.fair === fair ? [i] : []))]))
  // Alone, a fair key has nobody to leave anything to.
  const isAlone = fresh.length === 1
  const shared = free.filter((_, b) => !isAlone && lanes.every((lane) => lane.buckets.includes(b)))
  const most = Math.min(want, ...shared)
  const weight = new Map([...rest].map(([fair, own]) => [fair, weightOf(lanes[own[0] ?? 0])]))
  let weights = isAlone ? 1 : [...weight.values()].reduce((sum, one) => sum + one, 0)
  let left = want
  const quantum = () => Math.floor((Math.max(0, most - want + left) * 1_000_000) / Math.max(1, weights))
  const start = (fair: number | undefined) => state.vstart[fair ?? 0] ?? 0
  const queue: number[] = []
  let served = 0
  let round = 0
  let budget = quantum()
  while (left > 0 && (fresh.length > 0 || served < queue.length)) {
    const isFresh = served === queue.length || (fresh.length > 0 && start(fresh[0]) <= start(queue[served]))
    if (!isFresh && served === round) {
      round = queue.length
      budget = quantum()
    }
    const fair = (isFresh ? fresh.shift() : queue[served++]) ?? 0
    const own = rest.get(fair) ?? []
    if (horizon === undefined || start(fair) <= horizon) {
      const got = turn(lanes, state, free, own, budget, left)
      left -= got
      if (own.length > 0 && got > 0) {
        queue.push(fair)
        continue
      }
    }
    weights -= weight.get(fair) ?? 0
  }
  return state
}

/** One turn of a fair key: its open lanes in order, up to the budget and at least one unit. Returns what it got. */
function turn(
  lanes: readonly ShareLane[],
  state: Shares,
  free: number[],
  own: number[],
  budget: number,
  left: number,
): number {
  let got = 0
  let spent = 0
  for (let i = own[0]; i !== undefined; i = own[0]) {
    const lane = lanes[i] as ShareLane
    const quantum = Math.max(Math.floor((budget - spent) / Math.max(1, lane.step)), spent === 0 ? 1 : 0)
    let k = Math.min(quantum, left - got, lane.n - (state.take[i] ?? 0))
    if (k <= 0) break
    let denied: number | undefined
    for (const b of lane.buckets) {
      if ((free[b] ?? 0) < k) {
        k = Math.max(0, free[b] ?? 0)
        denied = b
      }
    }
    for (const b of lane.buckets) free[b] = (free[b] ?? 0) - k
    state.take[i] = (state.take[i] ?? 0) + k
    state.vstart[lane.fair] = (state.vstart[lane.fair] ?? 0) + k * lane.step
    got += k
    spent += k * lane.step
    state.blocked[i] = denied
    if (denied !== undefined || state.take[i] === lane.n) own.shift()
  }
  return got
}

/**
 * The same where some lanes have jobs that take more than one of everything; the specification of `sharecosts.sql`. Each
 * turn goes to the fair key with the smallest virtual start, and lasts until another one's is smaller. A lane whose next
 * job does not fit keeps what its bucket still has from those who come after it, if that bucket alone is in its way: else
 * the cheap ones would take for ever what an expensive one waits for.
 * @param first lanes whose next job goes before all turns: a bucket was kept for them
 */
export function shareCosts(
  want: number,
  lanes: readonly ShareLane[],
  vstart: readonly number[],
  avail: readonly number[],
  horizon: number | undefined,
  first: readonly number[],
): Shares {
  const state = {
    take: lanes.map(() => 0),
    vstart: [...vstart],
    blocked: lanes.map((): number | undefined => undefined),
  }
  const free = [...avail]
  let left = want
  const give = (i: number): boolean => {
    if (!next(lanes[i] as ShareLane, i, state, free)) return false
    left--
    return true
  }
  const isOpen = (i: number) => state.blocked[i] === undefined && (state.take[i] ?? 0) < (lanes[i]?.n ?? 0)
  for (const i of first) if (left > 0) give(i)
  const fairs = [...new Set(lanes.map((lane) => lane.fair))]
  const start = (fair: number | undefined) => state.vstart[fair ?? 0] ?? 0
  const queue = fairs.toSorted((a, b) => start(a) - start(b))
  for (let fair = queue.shift(); fair !== undefined && left > 0; fair = queue.shift()) {
    const until = Math.min(queue.length === 0 ? Infinity : start(queue[0]), horizon ?? Infinity)
    const own = lanes.flatMap((lane, i) => (lane.fair === fair && isOpen(i) ? [i] : []))
    let isOver = horizon !== undefined && start(fair) > horizon
    for (let i = own[0]; i !== undefined && left > 0 && !isOver; i = own[0]) {
      if (give(i)) isOver = start(fair) > until
      if (!isOpen(i)) own.shift()
    }
    if (own.length === 0 || (horizon !== undefined && start(fair) > horizon)) continue
    const at = queue.findIndex((other) => start(other) > start(fair))
    queue.splice(at < 0 ? queue.length : at, 0, fair)
  }
  return state
}

/** Gives a lane its next job if that fits; else notes which bucket denied it, and keeps that for it if no other did. */
function next(lane: ShareLane, i: number, state: Shares, free: number[]): boolean {
  const job = lane.jobs?.[state.take[i] ?? 0]
  const cost = (u: number) => (job === undefined ? 1 : (job.costs[u] ?? 1))
  const denied = lane.buckets.filter((b, u) => cost(u) >= 0 && (free[b] ?? 0) < Math.max(cost(u), 1))
  const last = denied.at(-1)
  if (last !== undefined) {
    state.blocked[i] = last
    if (denied.length === 1) free[last] = 0
    return false
  }
  lane.buckets.forEach((b, u) => (free[b] = (free[b] ?? 0) - Math.max(cost(u), 0)))
  state.take[i] = (state.take[i] ?? 0) + 1
  state.vstart[lane.fair] = (state.vstart[lane.fair] ?? 0) + (job?.turn ?? 1) * lane.step
  return true
}

function weightOf(lane: ShareLane | undefined): number {
  return Math.max(1, Math.floor(1_000_000 / Math.max(1, lane?.step ?? 1)))
}
