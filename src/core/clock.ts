import { uptime } from 'node:os'

/**
 * Time and randomness of this process, behind one interface so that tests and the simulator can replace them. Limits
 * never use this clock: the store's own clock (`sluice.now()`) decides them.
 */
export interface Clock {
  /** Monotonic time in ms, with fractions; only differences mean anything. Never steps. */
  monotonicMs(): number
  /** Time since the machine was started, in ms, including time asleep; coarse, and only differences mean anything. */
  bootMs(): number
  /**
   * True for the clock of a test, by which time passes only when the test moves it; `bootMs` shows how far. Timers go on, and so
   * does the monotonic time.
   */
  readonly isMoved?: boolean
  /** Wall time in ms since 1970, for ids, log lines and HTTP dates. May step. */
  wallMs(): number
  /** Uniform in [0, 1). */
  random(): number
  /** Calls `then` once after `ms`, unless the returned function is called before. Does not keep the process alive. */
  after(ms: number, then: () => void): () => void
  /**
   * Resolves after `ms`, or at once when `signal` is aborted; never rejects. With `ref` false it does not keep the
   * process alive.
   */
  sleep(ms: number, signal?: AbortSignal, ref?: boolean): Promise<void>
}

/** The clocks of this machine at one moment. */
export interface Moment {
  readonly monotonicMs: number
  readonly bootMs: number
  readonly wallMs: number
}

/**
 * Reads all clocks, the monotonic one last: a pause between the readings then makes the moment look older, never younger.
 */
export function readMoment(clock: Clock): Moment {
  const [bootMs, wallMs] = [clock.bootMs(), clock.wallMs()]
  return { bootMs, wallMs, monotonicMs: clock.monotonicMs() }
}

/** Some systems count the time since boot in whole seconds. */
const bootGrainMs = 1_000

/**
 * Returns the monotonic time plus what that clock has missed since a moment: it may stand still while the machine sleeps,
 * is paused or is restored from a snapshot. The clock that has advanced most decides; a clock that was set back subtracts
 * nothing. Without `since`: the monotonic clock alone. By a clock that a test moves, only what the test moved it.
 */
export function caughtUpMs(clock: Clock, since: Moment | undefined): number {
  const nowMs = clock.monotonicMs()
  if (since === undefined) return nowMs
  if (clock.isMoved === true) return since.monotonicMs + clock.bootMs() - since.bootMs
  const passedMs = Math.max(clock.wallMs() - since.wallMs, clock.bootMs() - since.bootMs - bootGrainMs)
  return nowMs + Math.max(0, passedMs - (nowMs - since.monotonicMs))
}

/**
 * One reading of the limiter's clock, which runs in the store. The clock was read at some time between `sentMs` and
 * `receivedMs`.
 */
export interface Reading {
  /** Microseconds since 1970. */
  us: number
  sentMs: number
  receivedMs: number
  bootMs: number
}

/** From one time to another, in monotonic ms. */
export type Span = readonly [earliestMs: number, latestMs: number]

/** Two clocks run at rates that differ by at most one thousandth. */
export const drift = 0.001
/** A smaller difference, in microseconds, is no step: clocks have limited resolution, and statements wait. */
const stepUs = 2_000_000
/** For how long, in microseconds, a reading narrows later ones. */
const keptUs = 2_000_000

/**
 * Returns the lowest time, in microseconds, that the limiter's clock can show to a request sent at `atMs` if it has not
 * stepped since `past`.
 */
export function leastUs(past: Reading, atMs: number): number {
  return Math.floor(past.us + Math.max(0, atMs - past.receivedMs) * 1_000 * (1 - drift))
}

/**
 * Returns by how many microseconds, at least, the limiter's clock has stepped forward between two readings; 0 if it has
 * not, or by less than 2 s. `isOwn`: this machine slept meanwhile, and its monotonic clock stood still.
 */
export function stepForward(past: Reading, now: Reading): { byUs: number; isOwn: boolean } {
  const since = (fromMs: number, toMs: number) => past.us + (toMs - fromMs) * 1_000 * (1 + drift)
  const byUs = Math.ceil(now.us - since(past.sentMs, now.receivedMs))
  const isOwn = now.us - since(past.bootMs - (past.receivedMs - past.sentMs), now.bootMs) <= stepUs + 1_000_000
  return { byUs: byUs > stepUs ? byUs : 0, isOwn }
}

/**
 * Remembers the limiter's clock as this process last saw it, and bounds what that clock may show next, so that a forward
 * step of the store's clock does not open the limits. A reading beyond the bound, or far below it, is not learned: the
 * bound only advances with this process's monotonic clock, however often the store's clock is read.
 */
export class StoreClock {
  #seen: { storeUs: number; atMs: number } | undefined
  /** A time of that clock, and the span in which this process knows it was shown. `sinceUs`: the oldest reading behind that. */
  #known: { storeUs: number; span: Span; sinceUs: number } | undefined

  /**
   * Records that the limiter's clock showed `storeUs` (microseconds since 1970) at some time of `span`: between the sending
   * of a request and its reply, or closer. Returns `span`, narrowed by the readings of the last 2 s: one of many replies was
   * quick, and what it showed stays true, because the clocks' rates hardly differ. A reading that contradicts them is not
   * narrowed. A clock that steps, or stands still, by less than `span` is wide may not be noticed, for as long.
   */
  recordReading(storeUs: number, span: Span): Span {
    const [earliestMs, latestMs] = span
    const capUs = this.cap(earliestMs)
    if (capUs !== null && (storeUs >= capUs || storeUs < capUs - 2 * stepUs)) return span
    this.#seen = { storeUs, atMs: latestMs }
    const narrowed = this.#narrow(storeUs, span)
    const { sinceUs = storeUs } = narrowed === span ? {} : (this.#known ?? {})
    this.#known = { storeUs, span: narrowed, sinceUs }
    return narrowed
  }

  #narrow(storeUs: number, span: Span): Span {
    if (this.#known === undefined || Math.abs(storeUs - this.#known.sinceUs) > keptUs) return span
    const passedMs = (storeUs - this.#known.storeUs) / 1_000
    const slackMs = Math.abs(passedMs) * drift
    const [earliestMs, latestMs] = this.#known.span
    const narrowed: Span = [
      Math.max(span[0], earliestMs + passedMs - slackMs),
      Math.min(span[1], latestMs + passedMs + slackMs),
    ]
    return narrowed[0] <= narrowed[1] ? narrowed : span
  }

  /**
   * Returns the latest time, in microseconds, that the clock may show to a request sent at `atMs`; null: no reading yet.
   * Beyond it the clock has stepped.
   */
  cap(atMs: number): number | null {
    if (this.#seen === undefined) return null
    const { storeUs, atMs: seenMs } = this.#seen
    // One second of tolerance.
    return Math.floor(storeUs + (atMs - seenMs) * 1_000 * (1 + drift) + 1_000_000)
  }

  /** Forgets the last reading: the next one is accepted, whatever it is. */
  forget(): void {
    this.#seen = undefined
    this.#known = undefined
  }
}

/** Resolves when the monotonic clock shows `atMs`, never earlier; at once when it already does or `atMs` is undefined. */
export async function sleepUntil(clock: Clock, atMs: number | undefined): Promise<void> {
  for (let ms; (ms = (atMs ?? 0) - clock.monotonicMs()) > 0;) await clock.sleep(Math.ceil(ms))
}

/** The longest delay of a runtime timer, in ms; a longer one would fire at once. */
const timerMsMax = 2 ** 31 - 1

/** Whether a test replaced the runtime's timers: those of Vitest, Jest and Sinon carry their clock. */
export const areTimersFaked = (): boolean => 'clock' in setTimeout

/**
 * Calls `then` once after `ms`, which may exceed the runtime's maximum, unless the returned function is called before.
 */
function callAfter(ms: number, then: () => void, ref: boolean): () => void {
  if (ms > timerMsMax) {
    let cancel = callAfter(timerMsMax, () => (cancel = callAfter(ms - timerMsMax, then, ref)), ref)
    return () => cancel()
  }
  const timer = setTimeout(then, ms)
  if (!ref) timer.unref()
  return () => clearTimeout(timer)
}

/** For how long, in ms, the boot clock is computed from the others, and by how much these may differ meanwhile. */
const bootReadMs = 1_000
const bootStepMs = 10

/**
 * Returns the boot clock. It is read once a second, because that takes 100 times as long as to read the others. In between it runs with
 * the monotonic clock, while the wall clock does, too: what stops the monotonic clock does not stop the wall clock.
 */
export function bootClock(
  readBootMs = () => uptime() * 1_000,
  readMs = () => performance.now(),
  readWallMs = () => Date.now(),
): () => number {
  let past = { bootMs: 0, ms: -Infinity, wallMs: -Infinity }
  return () => {
    const [ms, wallMs] = [readMs(), readWallMs()]
    const sinceMs = ms - past.ms
    const isEven = sinceMs < bootReadMs && Math.abs(wallMs - past.wallMs - sinceMs) < bootStepMs
    if (!isEven) past = { bootMs: readBootMs(), ms, wallMs }
    return past.bootMs + ms - past.ms
  }
}

/** The machine's clock. */
export const systemClock: Clock = {
  monotonicMs: () => performance.now(),
  bootMs: bootClock(),
  wallMs: () => Date.now(),
  random: () => Math.random(),
  after: (ms, then) => callAfter(ms, then, false),
  sleep: (ms, signal, ref = true) =>
    new Promise((resolve) => {
      if (signal?.aborted) return resolve()
      const end = () => {
        cancel()
        signal?.removeEventListener('abort', end)
        resolve()
      }
      const cancel = callAfter(ms, end, ref)
      signal?.addEventListener('abort', end, { once: true })
    }),
}
