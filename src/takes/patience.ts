/** Takes that end while the store is silent: by their caller's signal, or because their longest wait is over. */
import type { Clock } from '../core/clock.ts'
import type { TakenGrant } from './lease.ts'

/** How long after its longest wait, in ms, a take goes on waiting for an answer that is under way. */
const answerMs = 5_000

/**
 * Returns a signal that aborts when `given` does, or `answerMs` after the longest wait with the error that `late` returns;
 * undefined: neither can happen. Call `end` when the take is over.
 */
export function createPatience(
  clock: Clock,
  given: AbortSignal | undefined,
  maxWaitMs: number,
  late: () => Error,
): { signal: AbortSignal | undefined; end: () => void } {
  if (maxWaitMs === Infinity) return { signal: given, end() {} }
  const over = new AbortController()
  const cancel = clock.after(maxWaitMs + answerMs, () => over.abort(late()))
  const pass = () => over.abort(given?.reason)
  if (given?.aborted === true) pass()
  given?.addEventListener('abort', pass)
  const end = () => {
    cancel()
    given?.removeEventListener('abort', pass)
  }
  return { signal: over.signal, end }
}

/**
 * As `taking`, but rejects as soon as `signal` aborts, also while the store is silent. A grant that comes later goes back; one
 * whose reply is lost stays charged.
 */
export function rejectOnAbort(taking: Promise<TakenGrant>, signal: AbortSignal): Promise<TakenGrant> {
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(signal.reason as Error)
    signal.addEventListener('abort', onAbort)
    const use = (lease: TakenGrant) => {
      if (signal.aborted) void lease.giveBack().catch(() => {})
      resolve(lease)
    }
    taking.then(use, reject).finally(() => signal.removeEventListener('abort', onAbort))
  })
}
