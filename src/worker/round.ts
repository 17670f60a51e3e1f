/** What a worker does at every beat: it says that it lives, looks at what it has in hand, and takes its turn for the fleet. */
import { AttemptError } from '../core/errors.ts'
import type { Store } from '../db/store.ts'
import type { Claims } from '../claim/claim.ts'
import type { Finisher } from '../claim/finish/finish.ts'
import type { Membership } from '../fleet/membership.ts'
import { isDataError, parkBuckets } from '../claim/parking/parked.ts'
import type { Heartbeat } from '../fleet/heartbeat.ts'
import type { Housekeeping } from '../fleet/maintenance.ts'
import type { Slots } from './slots.ts'

/** The parts of a worker that know what it has in hand, and what it does with what it hears. */
interface Rounds {
  store: Store
  member: Membership
  slots: Slots
  claims: Claims
  finisher: Finisher
  housekeeping: Housekeeping
  heartbeat: Heartbeat | undefined
  /** Aborted when the worker is told to stop. */
  stop: AbortSignal
  /** It was given up. */
  lost(worker: string): void
  /** Others were given up: their jobs are free. */
  freed(): void
  /** What else it says at every beat. */
  say(): Promise<void>
}

/**
 * What is to be done at every beat. One worker of the fleet at a time has the turn to do what is done for all: that costs no
 * more in a large one, where others, with nothing in hand, leave out every other round: the event loop goes on, so the
 * heartbeat's thread need not beat, and nobody has reason to doubt after two beats. When whoever has the turn is gone, another
 * finds out in its own next round.
 */
export function roundOf(rounds: Rounds): () => Promise<void> {
  let rests = false
  return async () => {
    rests &&= rounds.slots.running === 0 && !rounds.stop.aborted
    if (rests) {
      rests = false
      rounds.heartbeat?.beaten()
      return
    }
    try {
      rests = await round(rounds)
    } catch (error) {
      // One bucket must not keep the fleet from all that is done here; the next round goes on without it.
      if (isDataError(error)) await parkBuckets(rounds.store, undefined)
      throw error
    }
  }
}

/** One round; resolves to whether the next may be left out. */
async function round(rounds: Rounds): Promise<boolean> {
  const { member, housekeeping, heartbeat, stop, lost, freed, say } = rounds
  const heard = await member.round(stop.aborted)
  if (heard.lost === undefined) heartbeat?.beaten()
  else lost(heard.lost)
  if (heard.isTurn && (await member.watch()).length > 0) freed()
  await dropCancelled(rounds)
  await adoptOrphans(rounds, heard.claims)
  await say()
  if (!heard.isTurn) return heard.mayRest
  // After what must not fail with it: all that looks at the fleet, and at what this worker has in hand.
  await member.stir()
  await member.endOverdue()
  await housekeeping.run()
  return false
}

/** Gives up attempts whose job was cancelled: what they still do has no effect, and their slots are others' turn. */
async function dropCancelled({ member, slots }: Rounds): Promise<void> {
  const attempts = slots.attempts()
  const taken = await member.taken(attempts.map(({ job }) => job))
  const reason = new AttemptError('SLUICE_CANCELLED', 'the job was cancelled', { retryable: false })
  for (const attempt of attempts) if (taken.has(attempt.job.id)) attempt.abort(reason)
}

/**
 * Takes up those of the worker's claims that it does not know of: their request reached the store after it had stopped
 * waiting. Not once it is told to stop: signing off gives them back, uncalled.
 */
async function adoptOrphans({ slots, claims, finisher, stop }: Rounds, ids: readonly string[]): Promise<void> {
  if (stop.aborted) return
  for (const id of ids.filter((claim) => !finisher.has(claim) && !claims.asking(claim))) {
    const jobs = await claims.adopt(id)
    if (stop.aborted) return
    if (jobs.length === 0) await finisher.endEmpty(id)
    slots.start(jobs)
  }
}
