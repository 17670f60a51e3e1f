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
  /** Jobs that wait. */
  n: number
  /** What one unit adds to the virtual start of the lane's fair key: 1,000,000 over its weight. */
  step: number
  /** Position of its fair key in `vstart`. */
  fair: number
  /** Positions of its buckets in `avail`. */
  buckets: readonly number[]
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

function weightOf(lane: ShareLane | undefined): number {
  return Math.max(1, Math.floor(1_000_000 / Math.max(1, lane?.step ?? 1)))
}
