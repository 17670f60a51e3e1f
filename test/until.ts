import { vi } from 'vitest'

/** How often a wait looks, in ms. */
const intervalMs = 10
/**
 * The longest pause between two looks, in ms. Looks cost the machine what the awaited work needs: the pause after a query is a tenth
 * of the wait so far, or three times the query, and the pause after another look is nine times the look.
 */
const pauseMsMax = 250

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
  const pause = (ms: number) => (nextMs = performance.now() + Math.min(ms, pauseMsMax) - intervalMs / 2)
  const look = () => {
    const sinceMs = performance.now()
    if (sinceMs < nextMs) return false
    const is = isTrue()
    const tookMs = () => performance.now() - sinceMs
    if (typeof is !== 'boolean')
      return is.finally(() => pause(Math.max((performance.now() - startMs) / 10, 3 * tookMs())))
    pause(9 * tookMs())
    return is
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
