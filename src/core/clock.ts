import { uptime } from 'node:os'

/**
 * Time and randomness of this process, behind one seam so that tests and the simulator can own them.
 * Limits never use this clock: they are decided by the store's own (`sluice.now()`).
 */
export interface Clock {
  /** Monotonic time in ms, with fractions; only differences mean anything. Never steps. */
  monotonicMs(): number
  /** Time since the machine was started, in ms, also what it slept of that; coarse, and only differences mean anything. */
  bootMs(): number
  /** Wall time in ms since 1970, for ids, log lines and HTTP dates. May step. */
  wallMs(): number
  /** Uniform in [0, 1). */
  random(): number
  /** Calls `then` once after `ms`, unless the returned function is called before. Does not keep the process alive. */
  after(ms: number, then: () => void): () => void
  /** Resolves after `ms`, or at once when `signal` is aborted; never rejects. Does not keep the process alive by itself if `ref` is false. */
  sleep(ms: number, signal?: AbortSignal, ref?: boolean): Promise<void>
}

/** What the clocks of this machine showed at one moment. */
export interface Moment {
  readonly monotonicMs: number
  readonly bootMs: number
  readonly wallMs: number
}

/** Reads all clocks; the monotonic one last, so that a pause between the readings makes what began now older, never younger. */
export function readMoment(clock: Clock): Moment {
  const [bootMs, wallMs] = [clock.bootMs(), clock.wallMs()]
  return { bootMs, wallMs, monotonicMs: clock.monotonicMs() }
}

/** Some systems count the time since the boot in whole seconds. */
const bootGrainMs = 1_000

/**
 * Monotonic time, and what that clock has missed since a moment: it may stand still while the machine sleeps, is paused or is
 * restored from a snapshot. The clock that has moved on most decides; one that was set back takes nothing away. Undefined: the
 * monotonic clock alone.
 */
export function caughtUpMs(clock: Clock, since: Moment | undefined): number {
  const nowMs = clock.monotonicMs()
  if (since === undefined) return nowMs
  const passedMs = Math.max(clock.wallMs() - since.wallMs, clock.bootMs() - since.bootMs - bootGrainMs)
  return nowMs + Math.max(0, passedMs - (nowMs - since.monotonicMs))
}

/** A reading of the limiter's clock, which runs in the store, by this process: taken between sending and hearing. */
export interface Reading {
  /** Microseconds since 1970. */
  us: number
  sentMs: number
  heardMs: number
  bootMs: number
}

/** Clocks that do not go equally fast: a thousandth at most. */
const drift = 0.001
/** A difference that is no step: resolution, and what a statement waits. */
const stepUs = 2_000_000

/** The least that the limiter's clock shows to a request sent at `atMs`, if it did not step since `past`. */
export function leastUs(past: Reading, atMs: number): number {
  return Math.floor(past.us + Math.max(0, atMs - past.heardMs) * 1_000 * (1 - drift))
}

/**
 * By how many microseconds the limiter's clock has stepped forward between two readings, at least; 0: it did not, or by less
 * than 2 s. `isOwn`: it is this machine that slept meanwhile, and its monotonic clock stood still.
 */
export function stepForward(past: Reading, now: Reading): { byUs: number; isOwn: boolean } {
  const since = (fromMs: number, toMs: number) => past.us + (toMs - fromMs) * 1_000 * (1 + drift)
  const byUs = Math.ceil(now.us - since(past.sentMs, now.heardMs))
  const isOwn = now.us - since(past.bootMs - (past.heardMs - past.sentMs), now.bootMs) <= stepUs + 1_000_000
  return { byUs: byUs > stepUs ? byUs : 0, isOwn }
}

/**
 * The limiter's clock as this process last saw it. It bounds what that clock may show next, so that a forward step of the
 * store's clock does not open the limits; what it shows beyond the bound, or long before, is not learned from: the bound
 * grows as this process's monotonic clock, however often it is asked.
 */
export class StoreClock {
  #seen: { storeUs: number; atMs: number } | undefined

  /** The limiter's clock showed `storeUs` (microseconds since 1970) to a request sent at `sentMs`, heard at `atMs`. */
  saw(storeUs: number, atMs: number, sentMs = atMs): void {
    const capUs = this.cap(sentMs)
    if (capUs !== null && (storeUs >= capUs || storeUs < capUs - 2 * stepUs)) return
    this.#seen = { storeUs, atMs }
  }

  /** The latest time that it may show to a request sent at `atMs`; null: not seen yet. Beyond it the clock has stepped. */
  cap(atMs: number): number | null {
    if (this.#seen === undefined) return null
    const { storeUs, atMs: seenMs } = this.#seen
    // A second of grace.
    return Math.floor(storeUs + (atMs - seenMs) * 1_000 * (1 + drift) + 1_000_000)
  }

  /** What it shows next is right, whatever that is. */
  forget(): void {
    this.#seen = undefined
  }
}

/** Resolves when the monotonic clock shows `atMs`, never before; at once when it has, or that is undefined. */
export async function sleepUntil(clock: Clock, atMs: number | undefined): Promise<void> {
  for (let ms; (ms = (atMs ?? 0) - clock.monotonicMs()) > 0;) await clock.sleep(Math.ceil(ms))
}

/** A timer of the runtime that is set further away than this fires at once. */
const timerMsMax = 2 ** 31 - 1

/** Calls `then` once after `ms`, however long that is, unless the returned function is called before. */
function alarm(ms: number, then: () => void, ref: boolean): () => void {
  if (ms > timerMsMax) {
    let cancel = alarm(timerMsMax, () => (cancel = alarm(ms - timerMsMax, then, ref)), ref)
    return () => cancel()
  }
  const timer = setTimeout(then, ms)
  if (!ref) timer.unref()
  return () => clearTimeout(timer)
}

/** To read it costs 100 times as much as to read the others, so it is read again only when another one has moved on, or back. */
function bootClock(): () => number {
  let [bootMs, readMs, readWallMs] = [0, -Infinity, -Infinity]
  return () => {
    const [nowMs, wallMs] = [performance.now(), Date.now()]
    if (nowMs - readMs < 10 && Math.abs(wallMs - readWallMs) < 10) return bootMs
    ;[readMs, readWallMs, bootMs] = [nowMs, wallMs, uptime() * 1_000]
    return bootMs
  }
}

/** The machine's clock. */
export const systemClock: Clock = {
  monotonicMs: () => performance.now(),
  bootMs: bootClock(),
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
