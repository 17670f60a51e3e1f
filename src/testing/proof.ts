/** One request as the vendor saw it, recorded before it was answered. */
export interface Arrival {
  /** Counts from 0. */
  readonly seq: number
  /** Monotonic ns since the vendor's origin. */
  readonly atNs: number
  /** The request's key under each rule, in the order of the rules. */
  readonly keys: readonly string[]
  /** The `Idempotency-Key` header. */
  readonly jobId?: string
  /** The `X-Sluice-Attempt` header. */
  readonly attempt?: string
  readonly method: string
  readonly path: string
  /** The status answered; 0: the connection was reset instead. */
  readonly verdict: number
}

/** What is to be proved of one rule. */
export interface Claim {
  /** Of whom, and best by which guarantee of ours: "each account, safe rate". "0 exceeded" says nothing without it. */
  readonly name: string
  /** At most this many arrivals... */
  readonly limit: number
  /** ...in every half-open window of this many ms. */
  readonly windowMs: number
}

/** What the arrivals say about one rule. */
export interface RuleProof extends Claim {
  /** How many windows that begin with an arrival hold more than `limit`. */
  readonly exceeded: number
  /** The greatest number of arrivals in one window. */
  readonly worst: number
  /** How many keys arrived. */
  readonly keys: number
}

/** What the arrivals say altogether. */
export interface Proof {
  readonly arrivals: number
  /** How many were answered 429. */
  readonly vendor429: number
  readonly rules: readonly RuleProof[]
  /** Arrivals that repeat the job and attempt of an earlier one; without an attempt header, the job. */
  readonly duplicates: number
}

/** Counts over sorted times, two pointers: every window [t, t + windowNs) that begins with an arrival t. */
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
 * Checks, independently of how anybody limits, that no half-open window held more arrivals of one key than claimed.
 * Every arrival counts, those answered 429 or reset as well. `claims[i]` speaks of `arrival.keys[i]`.
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
