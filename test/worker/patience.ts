import { type Clock, systemClock } from '../../src/core/clock.ts'

/** A clock on which whoever waits for more than a second waits until told: a dispatcher that oversleeps does so for ever. */
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

/** A clock on which a second and more pass in 10 ms for whoever waits. */
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
