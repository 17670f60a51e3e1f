/** The loop of `dispatchOnce`: it claims until no more jobs may begin now. */
import type { Dispatcher } from '../claim/dispatcher.ts'
import type { Finisher } from '../claim/finish/finish.ts'
import type { Clock } from '../core/clock.ts'
import { StoreError } from '../core/errors.ts'
import type { Membership } from '../fleet/membership.ts'

/** How long it repeats the loop while all jobs come back uncalled, in ms from its start or its last success. */
const uselessMsMax = 10_000

/** The parts of a worker that `once` uses. */
interface Once {
  dispatcher: Dispatcher
  finisher: Finisher
  member: Membership
  clock: Clock
  /** When it was called, in monotonic ms. */
  sinceMs: number
  /** See `WorkerOptions`. */
  catchUp: () => Promise<boolean>
  /** Resolves when no job is in hand and every ending is written. */
  idle: () => Promise<void>
  end: AbortSignal
}

/** Claims what is allowed now; resolves to how many jobs ran, up to `max`. @throws StoreError SLUICE_STORE_UNREACHABLE */
export async function claimAllOnce(max: number, once: Once): Promise<number> {
  const { dispatcher, finisher, member, clock, catchUp, idle, end } = once
  const { hand } = dispatcher
  let { sinceMs } = once
  let claimed = 0
  const countRan = () => claimed - hand.returned - hand.readmitted
  for (let vain = 0; ;) {
    // Jobs that were put off count as handled, but are no reason to go on.
    const ended = () => countRan() - hand.putOff
    const [returned, readmitted, endedBefore] = [hand.returned, hand.readmitted, ended()]
    while (countRan() < max && !end.aborted) {
      const count = await dispatcher.claimOnce(max - countRan(), end)
      if (count === 0) break
      claimed += count
    }
    await idle()
    if (finisher.hasGivenUp)
      throw new StoreError(
        'SLUICE_STORE_UNREACHABLE',
        'the store stayed away, and how attempts ended is not recorded; their jobs will run again, marked `ambiguous`',
      )
    // Jobs whose grants expired have room again at once, but a machine that was too busy to use the grants gets time
    // first.
    const hasCaughtUp = countRan() < max && !end.aborted && (await catchUp())
    const isUseful = hasCaughtUp || ended() > endedBefore || hand.readmitted > readmitted
    const hasDecided = (await member.endOverdue()) > 0
    if (end.aborted || !(isUseful || hasDecided || hand.returned > returned)) return countRan()
    if (isUseful) [vain, sinceMs] = [0, clock.monotonicMs()]
    else if (clock.monotonicMs() - sinceMs > uselessMsMax) return countRan()
    else await clock.sleep(clock.random() * Math.min(2_000, 100 * 2 ** vain++), end)
  }
}
