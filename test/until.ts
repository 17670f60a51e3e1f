import { setTimeout as sleep } from 'node:timers/promises'

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
  const fromMs = performance.now()
  while (!(await isTrue())) {
    const forMs = performance.now() - fromMs
    if (forMs > limitMs) throw late
    // Each look costs the servers something, so what takes long is looked at less often.
    await sleep(Math.min(100, Math.max(10, forMs / 20)))
  }
}

/**
 * The same promise, to be awaited later. If it, or the test before that, fails in between, its rejection is not an
 * unhandled one, which would fail the whole run even if a second try succeeds.
 */
export function later<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => {})
  return promise
}
