import { vi } from 'vitest'

/** How often a wait looks, in ms. */
const intervalMs = 10
/**
 * The longest pause between two looks that take time, such as queries, in ms. They cost the machine what the awaited work needs,
 * so each pause is a tenth of the wait so far, or three times the last look.
 */
const pauseMsMax = 50

/**
 * Resolves when `isTrue` resolves to something true, and rejects as soon as it rejects. After `limitMs` it rejects as
 * well, but only to end a wait that is lost: on a busy machine anything may take many times as long as it should.
 */
export async function until(
  isTrue: () => Promise<boolean> | boolean,
  what = String(isTrue),
  limitMs = 60_000,
): Promise<void> {
  const late = new Error(`not within ${limitMs} ms: ${what}`)
  const startMs = performance.now()
  let nextMs = startMs
  const look = () => {
    const sinceMs = performance.now()
    const is = sinceMs >= nextMs && isTrue()
    if (typeof is === 'boolean') return is
    return is.finally(() => {
      const nowMs = performance.now()
      const pauseMs = Math.max((nowMs - startMs) / 10, (nowMs - sinceMs) * 3)
      nextMs = nowMs + Math.min(pauseMs, pauseMsMax) - intervalMs / 2
    })
  }
  await vi.waitUntil(look, { timeout: limitMs, interval: intervalMs }).catch((error: Error) => {
    throw error.message.startsWith('Timed out in waitUntil') ? late : error
  })
}

/**
 * The same promise, to be awaited later. If it, or the test before that, fails in between, its rejection is not an
 * unhandled one, which would fail the whole run even if a second try succeeds.
 */
export function later<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => {})
  return promise
}
