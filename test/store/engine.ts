/** How the store keeps jobs. Only this file names its SQL functions. */
import type { Queryable } from '../../src/db/db.ts'
import { sqlOn } from '../../src/db/store.ts'
import type { FunctionName } from '../../src/generated/sql.ts'
import { fn } from '../servers/fn.ts'

/** The statements that record jobs, as `Db.call` names them: what a test counts, delays or loses. */
export const sendCalls = {
  /** Jobs of any kind. */
  general: 'send_jobs',
  /** Ordinary jobs of one lane. */
  lane: 'send_lane_jobs',
} satisfies Record<string, FunctionName>

/** The least id of a job that is created at this time, in SQL; `ms`: SQL for milliseconds since 1970. */
export const leastIdAt = (ms: number | string) => `${fn}.id_floor(${ms})`

/** Records for all partitions when their jobs finished at the latest, as far as they can go when jobs are kept for so long. */
export async function summarizePartitions(db: Queryable, keepMs: number): Promise<void> {
  let last: string | null = null
  do {
    const [row]: { more: string | null }[] = await sqlOn(db).call('summarize_partitions', [keepMs, keepMs, last, null])
    last = row?.more ?? null
  } while (last !== null)
}

/** Lets a job of this id replace the one that has the key, which need not wait any more; resolves to the id that has the key now. */
export async function replaceJob(db: Queryable, task: string, key: string, id: string): Promise<string | undefined> {
  return (await sqlOn(db).call<{ replace_job: string }>('replace_job', [task, key, id, 60]))[0]?.replace_job
}

/** The workers that are registered to be notified, by id. */
export async function idleWorkers(db: Queryable): Promise<string[]> {
  return (await db.query<{ worker: string }>('select worker from sluice.idle order by 1')).map(({ worker }) => worker)
}

/** Wakes an idle worker for these classes, as the worker does whose claim returned them. */
export async function wakeWorker(db: Queryable, classes: readonly string[]): Promise<void> {
  await sqlOn(db).call('wake_workers', [classes, 1])
}

/** Registers a worker as idle, to be notified of whatever comes. */
export async function registerIdle(db: Queryable, worker: string): Promise<void> {
  await db.query('insert into sluice.idle (worker, wake_at) values ($1, 0)', [worker])
}

/** Takes a worker, or all of them, from those that are notified. */
export async function forgetIdle(db: Queryable, worker?: string): Promise<void> {
  await db.query('delete from sluice.idle where $1::bigint is null or worker = $1', [worker ?? null])
}

/** How many jobs have not ended: they wait, are scheduled, or run. */
export async function jobsLeft(db: Queryable): Promise<number> {
  return Number((await db.query<{ n: string }>('select count(*) as n from sluice.job'))[0]?.n)
}
