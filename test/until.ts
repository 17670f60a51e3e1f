import { vi } from 'vitest'

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
  await vi.waitUntil(isTrue, { timeout: limitMs, interval: 10 }).catch((error: Error) => {
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
