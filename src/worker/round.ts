/** What a worker looks at every beat: attempts whose jobs it has no more, and jobs that it has without knowing. */
import { AttemptError } from '../core/errors.ts'
import type { Claims } from '../dispatch/claim.ts'
import type { Finisher } from '../dispatch/finish.ts'
import type { Membership } from '../dispatch/membership.ts'
import type { Slots } from './slots.ts'

/** The parts of a worker that know what it has in hand. */
interface Hands {
  member: Membership
  slots: Slots
  claims: Claims
  finisher: Finisher
}

/** Gives up attempts whose job was cancelled: what they still do has no effect, and their slots are others' turn. */
export async function dropCancelled({ member, slots }: Hands): Promise<void> {
  const attempts = slots.attempts()
  const taken = await member.taken(attempts.map(({ job }) => job))
  const reason = new AttemptError('SLUICE_CANCELLED', 'the job was cancelled', { retryable: false })
  for (const attempt of attempts) if (taken.has(attempt.job.id)) attempt.abort(reason)
}

/**
 * Takes up claims of the worker that it does not know of: their request reached the store after it had stopped waiting. Not
 * once it is told to stop: signing off gives them back, uncalled.
 */
export async function adoptOrphans({ member, slots, claims, finisher }: Hands, stop: AbortSignal): Promise<void> {
  if (stop.aborted) return
  const orphans = await member.orphans((claim) => finisher.has(claim) || claims.asking(claim))
  for (const id of orphans) {
    const jobs = await claims.adopt(id)
    if (stop.aborted) return
    if (jobs.length === 0) await finisher.endEmpty(id)
    slots.start(jobs)
  }
}
