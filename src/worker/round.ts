/**
 * The work of each beat: the worker sends its heartbeat, checks the jobs in hand, and does the fleet's common work
 * if it leads the fleet.
 */
import type { Clock } from '../core/clock.ts'
import { AttemptError, StoreError } from '../core/errors.ts'
import type { Store } from '../db/store.ts'
import type { Claims } from '../claim/claim.ts'
import type { Finisher } from '../claim/finish/finish.ts'
import type { InHand } from '../claim/in-hand.ts'
import { beatMs, type Membership } from '../fleet/membership.ts'
import { isDataError, parkBuckets } from '../claim/parking/parked.ts'
import type { Estates } from '../fleet/estates.ts'
import type { Alarms } from '../fleet/alarms.ts'
import type { Heartbeat } from '../fleet/heartbeat.ts'
import type { Maintenance } from '../fleet/maintenance.ts'

/** The parts of a worker that a round uses. */
interface Rounds {
  store: Store
  member: Membership
  hand: InHand
  claims: Claims
  finisher: Finisher
  estates: Estates
  maintenance: Maintenance
  alarms: Alarms | undefined
  heartbeat: Heartbeat | undefined
  /** Aborted when the worker shall stop. */
  stop: AbortSignal
  /** Called when this worker was given up as lost. */
  lost(worker: string): void
  /** Called when other workers were given up: their jobs wait again. */
  freed(): void
  /** Other work of each beat: publishes settings. */
  publish(): Promise<void>
}

/**
 * Returns the function to call at each beat. One worker at a time leads the fleet, that is, does its common work, so that
 * the cost of this work does not grow with the fleet. If that worker dies, another one finds out in its own next round. In a
 * large fleet the others leave out every other round while they have no jobs in hand: nobody is considered lost after two
 * beats, and because their event loop runs, the heartbeat's thread need not beat for them.
 */
export function createRound(rounds: Rounds): () => Promise<void> {
  let rests = false
  return async () => {
    rests &&= rounds.hand.size === 0 && !rounds.stop.aborted
    if (rests) {
      rests = false
      rounds.heartbeat?.recordBeat()
      return
    }
    // This runs even while the store is away, so that a stopping worker does not wait for a silent outlet.
    rounds.hand.endTimedOut()
    rounds.alarms?.look()
    try {
      rests = await round(rounds)
    } catch (error) {
      // One bad bucket must not keep the fleet from the work of a round; the next round goes on without that bucket.
      if (isDataError(error)) await parkBuckets(rounds.store, undefined)
      throw error
    }
  }
}

/** A beat that comes so much too late is reported. */
const lateMs = 5_000

/**
 * Calls `round` at each beat, until `signal` is aborted.
 * @param late called when a beat came much too late, with how late in ms: this process did nothing else meanwhile
 */
export async function repeatEveryBeat(
  clock: Clock,
  round: () => Promise<void>,
  signal: AbortSignal,
  { failed, late }: { failed(error: unknown): void; late(ms: number): void },
): Promise<void> {
  while (!signal.aborted) {
    const dueMs = clock.monotonicMs() + beatMs
    await clock.sleep(beatMs, signal, false)
    if (signal.aborted) return
    const byMs = clock.monotonicMs() - dueMs
    if (byMs > lateMs) late(byMs)
    await round().catch(failed)
  }
}

/**
 * Takes all of these steps, in order, and then throws the first error, so that a step that fails each time stops no other. After an
 * error of the store it takes no more, because they would only wait for the store, too. If any of the errors is of data, the first such
 * is thrown, so that what causes it is parked.
 */
export async function takeSteps(steps: readonly (() => Promise<unknown>)[]): Promise<void> {
  let failure: { error: unknown } | undefined
  for (const step of steps) {
    try {
      await step()
    } catch (error) {
      if (failure === undefined || (isDataError(error) && !isDataError(failure.error))) failure = { error }
      if (error instanceof StoreError) break
    }
  }
  if (failure !== undefined) throw failure.error
}

/** Does one round; resolves to whether the next one may be left out. */
async function round(rounds: Rounds): Promise<boolean> {
  const { hand, member, maintenance, alarms, heartbeat, stop, lost, freed, publish } = rounds
  const { lost: lostId, leads, claims, mayRest } = await member.runRound(stop.aborted)
  if (lostId === undefined) heartbeat?.recordBeat()
  else lost(lostId)
  const watch = async () => (await member.watch()).length > 0 && freed()
  const fleet = [
    () => member.wakeForMissedWork(),
    () => member.endOverdue(),
    () => maintenance.run(),
    async () => alarms?.check(),
  ]
  await takeSteps([
    // Before all that may take long: the jobs of a worker that seems lost would run again.
    ...hand.lostClaimers().map((id) => () => member.beatFor(id)),
    ...(leads ? [watch] : []),
    () => dropCancelled(rounds),
    () => adoptOrphans(rounds, claims),
    () => inherit(rounds),
    publish,
    ...(leads ? fleet : []),
  ])
  return !leads && mayRest
}

/**
 * Drops jobs that were cancelled: the signals of their handlers abort (`Attempt.abort`), their further work has no effect, and
 * their slots become free.
 */
async function dropCancelled({ member, hand }: Rounds): Promise<void> {
  const taken = await member.lostJobs(hand.jobs())
  hand.drop(taken, new AttemptError('SLUICE_CANCELLED', 'the job was cancelled', { retryable: false }))
}

/**
 * Takes over the worker's own claims that it does not know: their request reached the store after the worker had stopped
 * waiting for it. It does so neither while the worker stops, because signing off gives them back uncalled, nor after ends of
 * attempts were given up, because the claims of those look the same, and their jobs were called.
 */
async function adoptOrphans({ hand, claims, finisher, stop }: Rounds, ids: readonly string[]): Promise<void> {
  if (stop.aborted || finisher.hasGivenUp) return
  for (const id of ids.filter((claim) => !finisher.has(claim) && !claims.isOpen(claim))) {
    const jobs = await claims.adopt(id)
    if (stop.aborted || finisher.hasGivenUp) return
    if (jobs.length === 0) await finisher.endEmpty(id)
    hand.take(jobs)
  }
}

/** Takes over the jobs that silent dispatchers have in hand, if the outlet can. */
async function inherit({ hand, member, estates, stop }: Rounds): Promise<void> {
  const { kin } = hand
  const { id } = member
  if (kin === undefined || id === undefined || stop.aborted) return
  for (const estate of await estates.find(id, kin)) hand.inherit(estate)
}
