import { type Clock, systemClock } from '../../src/core/clock.ts'

/** A clock on which a wait of more than a second lasts until it is woken: a dispatcher that oversleeps does so for ever. */
export function patient(told: () => void = () => {}): Clock {
  return {
    ...systemClock,
    sleep: (ms, signal) =>
      new Promise((resolve) => {
        if (signal?.aborted) return resolve()
        signal?.addEventListener('abort', () => resolve(), { once: true })
        if (ms < 1_000) systemClock.after(ms, resolve)
        else told()
      }),
  }
}

/** A clock that shows a thousandth of the time that passes: on a busy machine no grant is too old to be used, and nothing drains. */
export function unhurried(of: Clock = systemClock): Clock {
  const slowed = (show: () => number) => {
    const start = show()
    return () => start + (show() - start) / 1_000
  }
  return { ...of, monotonicMs: slowed(of.monotonicMs), bootMs: slowed(of.bootMs), wallMs: slowed(of.wallMs) }
}

/** A clock on which a wait of a second or more passes in 10 ms. */
export function hasty(): Clock {
  return {
    ...systemClock,
    sleep: (ms, signal) =>
      new Promise((resolve) => {
        if (signal?.aborted) return resolve()
        const end = () => {
          signal?.removeEventListener('abort', end)
          resolve()
        }
        signal?.addEventListener('abort', end)
        systemClock.after(ms < 1_000 ? ms : 10, end)
      }),
  }
}
