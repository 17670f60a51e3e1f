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
  const [look] = await sqlOn(db).call<{ lost: string; rescued: boolean }>('watch_workers')
  return look?.rescued === true ? [look.lost] : []
}

/** Notifies idle workers of work for which none of them was notified. */
export async function wakeForMissedWork(db: Queryable): Promise<void> {
  await sqlOn(db).call('wake_for_missed_work')
}

/** A worker's round; resolves to whether it leads the fleet, and whether it may leave out the next one. */
export async function workerRound(
  db: Queryable,
  worker: string,
): Promise<{ leads: boolean; rest: boolean } | undefined> {
  const params = [worker, false, null, null, null, null]
  return (await sqlOn(db).call<{ leads: boolean; rest: boolean }>('run_worker_round', params))[0]
}

/** Does a worker's round; resolves to how many pages the server read for it. */
export async function pagesOfRound(db: Queryable, worker: string): Promise<number> {
  return (await costOf(db, `run_worker_round(${worker}, false, sluice.now_us(), 0, 0, null)`)).pages
}

/** Lets these workers (by default all) seem lost: others have seen their heartbeats stand still for ten seconds, or longer. */
export async function suspect(db: Queryable, workers?: readonly string[], seconds = 10): Promise<void> {
  await db.query(
    `insert into sluice.doubt (worker, beat, at, unchanged_us)
     select id, beat, sluice.now_us(), $2::bigint * 1000000 from sluice.worker where $1::bigint[] is null or id = any ($1)
     on conflict (worker) do update set unchanged_us = excluded.unchanged_us, beat = excluded.beat`,
    [workers ?? null, seconds],
  )
}

/** Lets somebody have looked at all workers just now, this one included. */
export async function noteLook(db: Queryable, worker: string): Promise<void> {
  await db.query(
    `insert into sluice.doubt (worker, beat, at, unchanged_us) values ($1, 0, sluice.now_us(), 0)
     on conflict (worker) do update set at = excluded.at`,
    [worker],
  )
}

/** How many workers have been looked at; `withinUs`: those whose heartbeat was seen to move within this time. */
export async function workersSeen(db: Queryable, withinUs = Number.MAX_SAFE_INTEGER): Promise<number> {
  return (await db.query('select from sluice.doubt where unchanged_us < $1', [withinUs])).length
}

/** The heartbeats of the newest worker so far; NaN: there is none. */
export async function beats(db: Queryable): Promise<number> {
  return Number((await db.query<{ beat: string }>('select beat from sluice.worker order by id desc limit 1'))[0]?.beat)
}
