/** Warms up claims, because the first claim is slow, and grants would expire unused where many processes start at one time. */
import type { Clock } from '../core/clock.ts'
import { type Claimer, type Claims, WorkerLostError } from '../claim/claim.ts'
import type { Db } from '../db/db.ts'

/** Parameters of `Warm`; see the fields. */
export interface WarmOptions {
  db: Db
  claims: Claims
  clock: Clock
  enter(): Promise<Claimer>
  lost(worker: string): void
  signal: AbortSignal
}

/**
 * The longest warm-up claim on a quiet machine, half of a grant's life; then the longest wait before the worker claims
 * anyway.
 */
const warmMs = 50
const warmMsMax = 5_000
/** Embedded stores that have planned all statements of a claim: each has one session, and its plans stay. */
const planned = new WeakSet<Db>()

/**
 * Makes claims that take no job until one takes at most half of a grant's life: a machine that is too busy to use grants
 * in time (many processes starting at once) gets time to calm down. An embedded store needs that once.
 */
export async function warmClaims({ db, claims, clock, enter, lost, signal }: WarmOptions): Promise<void> {
  if (planned.has(db)) return
  const begunMs = clock.monotonicMs()
  for (let tries = 0; !signal.aborted; tries++) {
    const sinceMs = clock.monotonicMs()
    const who = await enter()
    try {
      await claims.planStatements(who, signal)
      if (db.kind !== 'pg') planned.add(db)
    } catch (error) {
      // The process was stopped for so long while starting that the worker was given up already: it registers again.
      if (!(error instanceof WorkerLostError)) throw error
      lost(who.worker)
    }
    const nowMs = clock.monotonicMs()
    if (nowMs - sinceMs <= warmMs || nowMs - begunMs > warmMsMax) return
    // The first claim is always slow, because it is planned. Each further wait is longer, and of random length.
    if (tries > 0) await clock.sleep(clock.random() * 200 * tries, signal)
  }
}
