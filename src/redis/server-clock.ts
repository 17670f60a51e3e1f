/** The clock of a Redis, which decides what limits in it allow. Those who watch it begin an epoch when it was set. */
import { type Clock, leastUs, type Reading, stepForward } from '../core/clock.ts'

/** If the clock was set back by less than this, in us, limits wait for it. */
const backUs = 2_000_000

/** Sends a request whose answer has what the clock shows; resolves to the answer, and to when that was. */
export async function readServerClock<T extends { nowUs: number }>(
  clock: Clock,
  send: () => Promise<T>,
): Promise<{ answer: T; reading: Reading }> {
  const sentMs = clock.monotonicMs()
  const answer = await send()
  return { answer, reading: { us: answer.nowUs, sentMs, receivedMs: clock.monotonicMs(), bootMs: clock.bootMs() } }
}

/** By how many us the clock was set between two readings, below 0 if back; undefined: it was not, or by little. */
export function clockStepUs(past: Reading, now: Reading): number | undefined {
  const { byUs, isOwn } = stepForward(past, now)
  if (byUs > 0 && !isOwn) return byUs
  const behindUs = leastUs(past, now.sentMs) - now.us
  return behindUs >= backUs ? -behindUs : undefined
}
