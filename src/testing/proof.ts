/** One request as the vendor saw it, recorded before it was answered. */
export interface Arrival {
  /** The number of the arrival, from 0. */
  readonly seq: number
  /** The time of the arrival: monotonic ns since the vendor was created. */
  readonly atNs: number
  /** The request's key under each rule, in the order of the rules. */
  readonly keys: readonly string[]
  /** The `Idempotency-Key` header. */
  readonly jobId?: string
  /** The `X-Sluice-Attempt` header. */
  readonly attempt?: string
  readonly method: string
  readonly path: string
  /** The status of the answer; 0: the connection was reset instead. */
  readonly verdict: number
}

/** The claim to prove for one rule: at most `limit` arrivals of a key in every half-open window of `windowMs`. */
export interface Claim {
  /** A name that shows whose limit it is, best with our guarantee: "each account, safe rate". Without it "0 exceeded" means little. */
  readonly name: string
  /** The most arrivals in a window. */
  readonly limit: number
  /** The length of the window, in ms. */
  readonly windowMs: number
}

/** The proof for one rule, from the arrivals. */
export interface RuleProof extends Claim {
  /** How many of the windows that begin with an arrival have more than `limit`. */
  readonly exceeded: number
  /** The greatest number of arrivals in one window. */
  readonly worst: number
  /** How many different keys arrived. */
  readonly keys: number
}

/** The proof for all rules, from the arrivals. */
export interface Proof {
  /** How many requests arrived. */
  readonly arrivals: number
  /** How many of them were answered 429. */
  readonly vendor429: number
  readonly rules: readonly RuleProof[]
  /** Arrivals that repeat the job and attempt of an earlier one (without an attempt header: the job). */
  readonly duplicates: number
}

/** Counts the arrivals in every window [t, t + windowNs) that begins with an arrival t, with two pointers over sorted times. */
function countWindows(times: readonly number[], limit: number, windowNs: number): { exceeded: number; worst: number } {
  let exceeded = 0
  let worst = 0
  let end = 0
  for (let start = 0; start < times.length; start++) {
    const endNs = (times[start] ?? 0) + windowNs
    while (end < times.length && (times[end] ?? 0) < endNs) end++
    if (end - start > limit) exceeded++
    if (end - start > worst) worst = end - start
  }
  return { exceeded, worst }
}

function proveRule(arrivals: readonly Arrival[], index: number, claim: Claim): RuleProof {
  const timesByKey = new Map<string, number[]>()
  for (const { keys, atNs } of arrivals) {
    const key = keys[index] ?? ''
    const times = timesByKey.get(key)
    if (times === undefined) timesByKey.set(key, [atNs])
    else times.push(atNs)
  }
  let exceeded = 0
  let worst = 0
  for (const times of timesByKey.values()) {
    const counted = countWindows(times, claim.limit, claim.windowMs * 1e6)
    exceeded += counted.exceeded
    worst = Math.max(worst, counted.worst)
  }
  return { name: claim.name, limit: claim.limit, windowMs: claim.windowMs, exceeded, worst, keys: timesByKey.size }
}

/**
 * Checks, from arrivals alone, that no half-open window had more arrivals of one key than claimed. Every arrival counts, also
 * those that were answered 429 or reset. `claims[i]` is about `arrival.keys[i]`; undefined: nothing is checked.
 */
export function prove(arrivals: readonly Arrival[], claims: readonly (Claim | undefined)[]): Proof {
  const sorted = arrivals.toSorted((a, b) => a.atNs - b.atNs)
  const rules = claims.flatMap((claim, index) => (claim === undefined ? [] : [proveRule(sorted, index, claim)]))
  const seen = new Set<string>()
  let withJob = 0
  for (const { jobId, attempt } of sorted) {
    if (jobId === undefined) continue
    withJob += 1
    seen.add(JSON.stringify([jobId, attempt]))
  }
  const vendor429 = sorted.reduce((count, { verdict }) => count + (verdict === 429 ? 1 : 0), 0)
  return { arrivals: sorted.length, vendor429, rules, duplicates: withJob - seen.size }
}
