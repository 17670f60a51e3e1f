/** A first claim is slow, and a machine on which many processes start is busy: grants would grow old there. */
import type { Clock } from '../core/clock.ts'
import { type Claimer, type Claims, WorkerLostError } from '../claim/claim.ts'

/** What a worker does about it. */
export interface WarmOptions {
  claims: Claims
  clock: Clock
  enter(): Promise<Claimer>
  lost(worker: string): void
  signal: AbortSignal
}

/** Half of a grant's life, and how long a busy machine is given before the worker claims all the same. */
const warmMs = 50
const warmMsMax = 5_000

/**
 * Claims for nothing, and lets a machine that is too busy to use grants in time (many processes starting at once) calm down
 * first: that should take half a grant's life at most.
 */
export async function warmClaims({ claims, clock, enter, lost, signal }: WarmOptions): Promise<void> {
  const begunMs = clock.monotonicMs()
  for (let tries = 0; !signal.aborted; tries++) {
    const sinceMs = clock.monotonicMs()
    const who = await enter()
    try {
      await claims.warm(who, signal)
    } catch (error) {
      // Stopped for so long while starting that it was given up already: it registers anew.
      if (!(error instanceof WorkerLostError)) throw error
      lost(who.worker)
    }
    const nowMs = clock.monotonicMs()
    if (nowMs - sinceMs <= warmMs || nowMs - begunMs > warmMsMax) return
    // The first is slow in any case: it plans. Each further wait is longer, and of a random length.
    if (tries > 0) await clock.sleep(clock.random() * 200 * tries, signal)
  }
}
