/**
 * How a claim divides room among lanes, step by step: the specification of the function that `division.test.ts` compares
 * with it, and whose file explains the steps.
 */

/** A lane as a claim sees it. */
export interface ShareLane {
  /** Jobs that wait; with `jobs`: as many as were read. */
  n: number
  /** The units of its next jobs, where these are not one of each bucket. */
  jobs?: readonly ShareJob[]
  /** What one unit adds to the virtual start of the lane's fair key: 1,000,000 over its weight. */
  step: number
  /** Position of its fair key in `vstart`. */
  fair: number
  /** Positions of its buckets in `units` and `places`. */
  buckets: readonly number[]
}

/** The units of one job. */
export interface ShareJob {
  /** Units for each of its lane's buckets, beside a place. 0: the job waits for a unit, and takes none. */
  costs: readonly number[]
  /** How many units it adds to the turn of its fair key. */
  turn: number
}

/** A room to divide. */
export interface Room {
  /** How many jobs may be given. */
  want: number
  /** In fair order: by virtual start, then priority. */
  lanes: readonly ShareLane[]
  /** Virtual start of each fair key, ascending; each has a lane. */
  vstart: readonly number[]
  /** Units free in each bucket. */
  units: readonly number[]
  /** Places free in each bucket; left out: any number. */
  places?: readonly number[]
  /** Virtual start of lanes that were not read; no fair key is served past it. Left out: all were read. */
  horizon?: number | undefined
  /** Lanes whose next job goes before all turns, because units were reserved for them. */
  first?: readonly number[]
}

/** The result for each lane. */
export interface Shares {
  /** Jobs of each lane. */
  take: number[]
  /** New virtual start of each fair key. */
  vstart: number[]
  /** For each lane the bucket that denied it; undefined: none did. */
  blocked: (number | undefined)[]
}

interface State extends Shares {
  units: number[]
  places: number[]
  left: number
}

/** A turn: where it begins, until where jobs with costs go on, and how far those without costs go. */
interface Turn {
  was: number
  until: number
  budget: number
}

/** Divides a room. */
export function share(room: Room): Shares {
  const { want, lanes, horizon = Infinity, first = [] } = room
  const state: State = {
    take: lanes.map(() => 0),
    vstart: [...room.vstart],
    blocked: lanes.map(() => undefined),
    units: [...room.units],
    places: [...(room.places ?? room.units.map(() => Infinity))],
    left: want,
  }
  const { vstart } = state
  const most = mostOf(room, state)
  for (const i of first) {
    const was = vstart[lanes[i]?.fair ?? 0] ?? 0
    serve(room, state, [i], { was, until: was - 1, budget: 0 })
  }
  const weights = vstart.map((_, fair) =>
    Math.max(1, Math.floor(1_000_000 / (lanes.find((lane) => lane.fair === fair)?.step ?? 1))),
  )
  const queue = vstart.map((_, fair) => ({ fair, at: room.vstart[fair] ?? 0 }))
  let open = weights.reduce((sum, weight) => sum + weight, 0)
  let served = new Set<number>()
  let budget = 0
  for (let next = queue.shift(); next !== undefined && state.left > 0; next = queue.shift()) {
    const { fair, at } = next
    if (served.has(fair) || served.size === 0) {
      served = new Set()
      budget = Math.floor((Math.max(0, most - want + state.left) * 1_000_000) / open)
    }
    served.add(fair)
    const own = lanes.flatMap((lane, i) => (lane.fair === fair && isOpen(room, state, i) ? [i] : []))
    const isWithin = (vstart[fair] ?? 0) <= horizon
    if (isWithin) serve(room, state, own, { was: at, until: Math.min(queue[0]?.at ?? Infinity, horizon), budget })
    const start = vstart[fair] ?? 0
    if (isWithin && start > at && own.some((i) => isOpen(room, state, i))) {
      const place = queue.findIndex((other) => other.at > start)
      queue.splice(place < 0 ? queue.length : place, 0, { fair, at: start })
    } else open -= weights[fair] ?? 0
  }
  return { take: state.take, vstart, blocked: state.blocked }
}

/** The units that can still be given: those of the buckets that all lanes share. */
function mostOf({ want, lanes }: Room, { units, places }: State): number {
  const shared = units.flatMap((free, b) =>
    lanes.every((lane) => lane.buckets.includes(b)) ? [Math.min(free, places[b] ?? 0)] : [],
  )
  return Math.min(want, ...shared)
}

function isOpen({ lanes }: Room, { blocked, take }: State, i: number): boolean {
  return blocked[i] === undefined && (take[i] ?? 0) < (lanes[i]?.n ?? 0)
}

/** One turn of a fair key: its lanes in order. */
function serve(room: Room, state: State, own: readonly number[], { was, until, budget }: Turn): void {
  for (const i of own) {
    while (state.left > 0 && isOpen(room, state, i)) {
      const { jobs, step, fair, n } = room.lanes[i] as ShareLane
      const start = state.vstart[fair] ?? 0
      const least = start === was ? 1 : 0
      const quantum = Math.max(least, Math.trunc((budget - start + was) / step))
      const k = jobs ? Math.max(least, start <= until ? 1 : 0) : Math.min(quantum, state.left, n - (state.take[i] ?? 0))
      if (k <= 0) return
      give(room.lanes[i] as ShareLane, i, k, state)
    }
  }
}

/** Gives a lane up to k jobs, as many as fit; records which bucket denied it, and reserves that bucket for it if none did before. */
function give(lane: ShareLane, i: number, k: number, state: State): void {
  const { units, places } = state
  const job = lane.jobs?.[state.take[i] ?? 0]
  const turn = job?.turn ?? 1
  const uses = lane.buckets.map((b, u) => ({ b, cost: job?.costs[u] ?? 1 }))
  const fits = uses.map(({ b, cost }) =>
    Math.max(0, Math.min(Math.trunc((units[b] ?? 0) / Math.max(1, cost)), places[b] ?? 0)),
  )
  const given = Math.min(k, ...fits)
  if (given < k) state.blocked[i] = uses[fits.indexOf(given)]?.b
  for (const { b, cost } of uses) {
    units[b] = (units[b] ?? 0) - given * cost
    places[b] = (places[b] ?? 0) - given
  }
  const denied = uses.filter((_, u) => (fits[u] ?? 0) < 1)
  if (denied.length === 1) units[denied[0]?.b ?? 0] = 0
  state.take[i] = (state.take[i] ?? 0) + given
  state.vstart[lane.fair] = (state.vstart[lane.fair] ?? 0) + given * turn * lane.step
  state.left -= given
}
