/**
 * Time and randomness of this process, behind one seam so that tests and the simulator can own them.
 * Limits never use this clock: they are decided by the store's own (`sluice.now()`).
 */
export interface Clock {
  /** Monotonic time in ms, with fractions; only differences mean anything. Never steps. */
  monotonicMs(): number
  /** Wall time in ms since 1970, for ids, log lines and HTTP dates. May step. */
  wallMs(): number
  /** Uniform in [0, 1). */
  random(): number
  /** Calls `then` once after `ms`, unless the returned function is called before. Does not keep the process alive. */
  after(ms: number, then: () => void): () => void
  /** Resolves after `ms`, or at once when `signal` is aborted; never rejects. Does not keep the process alive by itself if `ref` is false. */
  sleep(ms: number, signal?: AbortSignal, ref?: boolean): Promise<void>
}

/**
 * The store's clock as this process last saw it. It bounds what that clock may show next, so that a forward step of it
 * does not open the limits.
 */
export class StoreClock {
  #seen: { storeUs: number; atMs: number } | undefined

  /** The store's clock showed `storeUs` (microseconds since 1970), heard at `atMs` of the monotonic clock. */
  saw(storeUs: number, atMs: number): void {
    this.#seen = { storeUs, atMs }
  }

  /** The latest time that it may show to a request sent at `atMs`; null: not seen yet. Beyond it the clock has stepped. */
  cap(atMs: number): number | null {
    if (this.#seen === undefined) return null
    const { storeUs, atMs: seenMs } = this.#seen
    // A second of grace, and a thousandth for clocks that do not go equally fast.
    return Math.floor(storeUs + (atMs - seenMs) * 1_001 + 1_000_000)
  }
}

/** A timer of the runtime that is set further away than this fires at once. */
const timerMsMax = 2 ** 31 - 1

/** Calls `then` once after `ms`, however long that is, unless the returned function is called before. */
function alarm(ms: number, then: () => void, ref: boolean): () => void {
  let timer: NodeJS.Timeout
  const set = (leftMs: number) => {
    const next = () => (leftMs > timerMsMax ? set(leftMs - timerMsMax) : then())
    timer = setTimeout(next, Math.min(leftMs, timerMsMax))
    if (!ref) timer.unref()
  }
  set(ms)
  return () => clearTimeout(timer)
}

/** The machine's clock. */
export const systemClock: Clock = {
  monotonicMs: () => performance.now(),
  wallMs: () => Date.now(),
  random: () => Math.random(),
  after: (ms, then) => alarm(ms, then, false),
  sleep: (ms, signal, ref = true) =>
    new Promise((resolve) => {
      if (signal?.aborted) return resolve()
      const end = () => {
        cancel()
        signal?.removeEventListener('abort', end)
        resolve()
      }
      const cancel = alarm(ms, end, ref)
      signal?.addEventListener('abort', end, { once: true })
    }),
}
