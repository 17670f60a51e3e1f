/**
 * The algorithms by which vendors limit, as pure arithmetic. The caller gives the time, in ns from any origin, never going
 * backwards. `waitOf` decides, `charge` counts. A denied request does not count.
 */
export const algorithms = ['fixed window', 'sliding log', 'sliding counter', 'bucket', 'concurrency'] as const

/** The name of an algorithm. */
export type Algorithm = (typeof algorithms)[number]

/** The rule of one limiter. */
export interface WindowRule {
  readonly algorithm: Algorithm
  /** Requests per window; for `concurrency`, requests at one time. At least 1. */
  readonly limit: number
  /** Length of the window in ns; unused by `concurrency`. */
  readonly windowNs: number
  /** Capacity of a `bucket`; default `limit`. */
  readonly burst: number
}

/** The state of one limiter for one key. Each algorithm uses some of the fields. */
export interface WindowState {
  /** Fixed window and sliding counter: index of the current window, its count and the count of the one before. */
  index: number
  current: number
  previous: number
  /** Sliding log: times of the last `limit` allowed requests, as a ring buffer. */
  readonly log: Float64Array
  next: number
  /** Bucket: the tokens at the time `atNs`. */
  tokens: number
  atNs: number
  /** Concurrency: requests in progress. */
  inFlight: number
}

/** Returns the state before the first request: a full bucket, empty windows. */
export function emptyWindow(rule: WindowRule): WindowState {
  const log = new Float64Array(rule.algorithm === 'sliding log' ? rule.limit : 0).fill(Number.NEGATIVE_INFINITY)
  return {
    index: Number.NEGATIVE_INFINITY,
    current: 0,
    previous: 0,
    log,
    next: 0,
    tokens: rule.burst,
    atNs: 0,
    inFlight: 0,
  }
}

/** Returns the counts at `nowNs`: of the current window and of the previous one. */
function countsAt(
  rule: WindowRule,
  state: WindowState,
  nowNs: number,
): { index: number; current: number; previous: number } {
  const index = Math.floor(nowNs / rule.windowNs)
  if (index === state.index) return { index, current: state.current, previous: state.previous }
  return { index, current: 0, previous: index === state.index + 1 ? state.current : 0 }
}

function tokensAt(rule: WindowRule, state: WindowState, nowNs: number): number {
  return Math.min(rule.burst, state.tokens + ((nowNs - state.atNs) * rule.limit) / rule.windowNs)
}

/** Tolerance for rounding errors, in requests: a sum of thirds or tenths must not deny a request that is due. */
const tolerance = 1e-6

/** Computes the wait of a sliding counter, which weights the previous window by the part that the sliding window still covers. */
function counterWaitNs(rule: WindowRule, state: WindowState, nowNs: number): number {
  const { index, current, previous } = countsAt(rule, state, nowNs)
  const startNs = index * rule.windowNs
  const weight = 1 - (nowNs - startNs) / rule.windowNs
  if (previous * weight + current + 1 <= rule.limit + tolerance) return 0
  const endNs = startNs + rule.windowNs
  // Within this window only the weight falls. If its own count fills the limit, the wait goes on in the next window.
  const room = rule.limit - current - 1
  if (room >= 0 && previous > 0) return Math.max(endNs - (room / previous) * rule.windowNs - nowNs, 1)
  return endNs - nowNs + (Math.max(current + 1 - rule.limit, 0) / current) * rule.windowNs
}

/** Returns 0 if a request is allowed at `nowNs`, else the ns until one is (Infinity: when another request ends). */
export function waitOf(rule: WindowRule, state: WindowState, nowNs: number): number {
  switch (rule.algorithm) {
    case 'fixed window': {
      const { index, current } = countsAt(rule, state, nowNs)
      return current < rule.limit ? 0 : (index + 1) * rule.windowNs - nowNs
    }
    case 'sliding log':
      // The next entry to be overwritten is the request `limit` requests ago.
      return Math.max((state.log[state.next] ?? 0) + rule.windowNs - nowNs, 0)
    case 'sliding counter':
      return counterWaitNs(rule, state, nowNs)
    case 'bucket': {
      const missing = 1 - tokensAt(rule, state, nowNs)
      return missing <= tolerance ? 0 : (missing * rule.windowNs) / rule.limit
    }
    case 'concurrency':
      return state.inFlight < rule.limit ? 0 : Number.POSITIVE_INFINITY
  }
}

/** Counts a request that was allowed at `nowNs`. */
export function charge(rule: WindowRule, state: WindowState, nowNs: number): void {
  switch (rule.algorithm) {
    case 'fixed window':
    case 'sliding counter':
      Object.assign(state, countsAt(rule, state, nowNs))
      state.current += 1
      return
    case 'sliding log':
      state.log[state.next] = nowNs
      state.next = (state.next + 1) % rule.limit
      return
    case 'bucket':
      state.tokens = Math.max(tokensAt(rule, state, nowNs) - 1, 0)
      state.atNs = nowNs
      return
    case 'concurrency':
      state.inFlight += 1
      return
  }
}

/** Counts the end of a request; only `concurrency` needs it. */
export function release(rule: WindowRule, state: WindowState): void {
  if (rule.algorithm === 'concurrency') state.inFlight -= 1
}
