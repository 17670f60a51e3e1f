/** What workers do for one another. Only this file names the SQL functions of the fleet. */
import { costOf } from '../claim/engine-parts.ts'
import type { Queryable } from '../../src/db/db.ts'
import { sqlOn } from '../../src/db/store.ts'

/** Takes its jobs from a worker that was lost, or that signs off itself; resolves to how many wait again. */
export async function rescue(
  db: Queryable,
  worker: string | undefined,
  why: 'lost' | 'shutdown' = 'lost',
): Promise<number | undefined> {
  const params = [worker, null, why]
  return (await sqlOn(db).call<{ rescue_worker: number }>('rescue_worker', params))[0]?.rescue_worker
}

/** Gives up all workers as lost. */
export async function rescueAll(db: Queryable): Promise<void> {
  for (const { id } of await db.query<{ id: string }>('select id from sluice.worker')) await rescue(db, id)
}

/** Looks at all heartbeats once; resolves to the workers that were given up. */
export async function watchWorkers(db: Queryable): Promise<string[]> {
  return (await sqlOn(db).call<{ watch_workers: string[] }>('watch_workers'))[0]?.watch_workers ?? []
}

/** Notifies idle workers of work for which none of them was notified. */
export async function wakeForMissedWork(db: Queryable): Promise<void> {
  await sqlOn(db).call('wake_for_missed_work')
}

/** A worker's round; resolves to whether it has the turn, and whether it may leave out the next one. */
export async function workerRound(
  db: Queryable,
  worker: string,
): Promise<{ turn: boolean; rest: boolean } | undefined> {
  const params = [worker, false, null, null, null, null]
  return (await sqlOn(db).call<{ turn: boolean; rest: boolean }>('run_worker_round', params))[0]
}

/** Does a worker's round; resolves to how many pages the server read for it. */
export async function pagesOfRound(db: Queryable, worker: string): Promise<number> {
  return (await costOf(db, `run_worker_round(${worker}, false, sluice.now_us(), 0, 0, null)`)).pages
}
