/** Repeats a request after a lost connection to the store. */
import type { Clock } from '../core/clock.ts'
import { StoreError } from '../core/errors.ts'
import { retryPauseMs } from '../core/retry.ts'

const forMs = 10_000

/**
 * Calls `send`, and again for 10 s while its connection is lost. The first call may have been carried out, so a repetition must be
 * safe; it gets the number of the calls before it.
 * @param waits returns true for an error after which it is repeated, however often it comes
 */
export async function repeatUntilAnswered<T>(
  clock: Clock,
  send: (tries: number) => Promise<T>,
  waits: (error: unknown) => boolean = () => false,
): Promise<T> {
  const until = clock.monotonicMs() + forMs
  for (let tries = 0; ; tries++) {
    try {
      return await send(tries)
    } catch (error) {
      // At least one repetition, because noticing a half-open connection takes as long as `forMs`.
      const isLost =
        error instanceof StoreError && error.code !== 'SLUICE_CLOSED' && (tries === 0 || clock.monotonicMs() < until)
      if (!isLost && !waits(error)) throw error
      await clock.sleep(retryPauseMs(tries, clock.random(), 50))
    }
  }
}
