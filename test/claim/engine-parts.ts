/** Parts of claims, and what workers do between claims, one by one. Only this file names their SQL functions. */
import type { Queryable } from '../../src/db/db.ts'
import { newId } from '../../src/core/hash.ts'
import { columnsOf, type Numbers, numbersOnly } from '../../src/claim/definitions/columns.ts'
import { sqlOn } from '../../src/db/store.ts'
import type { FunctionName } from '../../src/generated/sql.ts'
import { fn } from '../servers/fn.ts'
import { limiterNow } from '../limits/engine.ts'
import type { Sluice } from '../../src/sluice.ts'
import { later, until } from '../until.ts'

/** The call that returns due jobs to their lanes. */
export const promotion = 'promote_due_jobs'

/** The statements of definitions, as `Sql.call` names them: what a test counts, delays or loses. */
export const definitionCalls = {
  define: 'define_limit',
  adapt: 'adapt_limit',
  renew: 'renew_definitions',
} satisfies Record<string, FunctionName>

/** Has the store plan all statements of a claim on this connection. */
export async function planClaim(db: Queryable, worker: string): Promise<void> {
  await sqlOn(db).call('plan_claim_statements', [worker, null])
}

/** The least id. */
const leastId = '-9223372036854775808'

/** Claims as `claim` does; resolves to what it cost the server: the pages that it read, and its time. */
export async function costOfClaim(
  db: Queryable,
  worker: string,
  tasks: readonly string[],
  want: number,
  { id = newId(), ahead = 0, since = null as string | null } = {},
): Promise<{ pages: number; ms: number }> {
  return costOf(
    db,
    `claim_jobs('${id}', ${worker}, '{${tasks.join(',')}}', ${want}, null, false, ${since}, false, ${ahead})`,
  )
}

/** Calls a function of the engine; resolves to what it cost the server. */
export async function costOf(db: Queryable, call: string): Promise<{ pages: number; ms: number }> {
  const [row] = await db.query<{ 'QUERY PLAN': { Plan: Record<string, number>; 'Execution Time': number }[] }>(
    `explain (analyze, buffers, format json) select * from ${fn}.${call}`,
  )
  const [of] = row?.['QUERY PLAN'] ?? []
  const pages = (of?.Plan['Shared Hit Blocks'] ?? 0) + (of?.Plan['Shared Read Blocks'] ?? 0)
  return { pages, ms: of?.['Execution Time'] ?? 0 }
}

/**
 * Lets claims, and ends of attempts, wait for locks until the server finds a deadlock. Claims would give up as early as it looks for
 * one, and on a busy machine ends would, too.
 */
export async function letClaimsWait(db: Queryable): Promise<void> {
  for (const name of ['claim_jobs', 'finish_attempts'])
    await db.query(`alter function ${fn}.${name} set lock_timeout = 0`)
}

/**
 * Locks a job, so that the end of its attempt cannot be recorded. `tried`: resolves when a process tries that; `free`: ends what it tries,
 * which has no effect then, and unlocks the job.
 */
export async function holdEnd(sluice: Sluice, id: string): Promise<{ tried(): Promise<void>; free(): Promise<void> }> {
  const { db } = sluice
  await letClaimsWait(db)
  let unlock = () => {}
  const unlocked = new Promise<void>((resolve) => (unlock = resolve))
  let locking: Promise<unknown> = unlocked
  await new Promise<void>((locked) => {
    locking = later(
      sluice.transaction(async (tx) => {
        await tx.query('select 1 from sluice.job where id = $1 for update', [id])
        locked()
        await unlocked
      }),
    )
  })
  const waiting = `from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
    and query like '%finish_attempts%'`
  return {
    tried: () => until(async () => (await db.query(`select 1 ${waiting}`)).length > 0, 'its end is to be recorded'),
    async free() {
      await db.query(`select pg_terminate_backend(pid, 30000) ${waiting}`)
      unlock()
      await locking
    },
  }
}

/** Corrects the recorded numbers of waiting jobs. */
export async function recountWaiting(db: Queryable): Promise<void> {
  await sqlOn(db).call('recount_waiting')
}

/** Locks the classes of a task until the end of the transaction, as a claim does. */
export async function lockClasses(db: Queryable, task: string): Promise<void> {
  await sqlOn(db).query('select engine.lock_classes(array(select id from sluice.class where task = $1))', [task])
}

/** Makes the classes of what was sent, as a claim's worker does. */
export async function createClasses(db: Queryable): Promise<void> {
  await sqlOn(db).call('create_announced_classes')
}

/** Absorbs all arrivals, as a claim does, and claims nothing. */
export async function absorbArrivals(db: Queryable): Promise<void> {
  await sqlOn(db).query(
    `select engine.absorb_arrivals(${limiterNow()}, array(select engine.read_arrivals(c.id) from sluice.class c))`,
  )
}

/** Moves scheduled jobs that have become due since then to their lanes, as a claim does; resolves to how many. */
export async function promoteDue(db: Queryable, sinceUs: number): Promise<number | undefined> {
  const sql = `select engine.promote_due_jobs(${limiterNow()}, $1) as n`
  return (await sqlOn(db).query<{ n: number }>(sql, [sinceUs]))[0]?.n
}

/** Marks the job that waits, one unit of its lane's buckets, as a claim does that has read it; resolves to how many it got. */
export async function markJob(db: Queryable, worker: string): Promise<number | undefined> {
  const [row] = await sqlOn(db).query<{ granted: number }>(
    `select m.granted from sluice.lane l, sluice.job j, engine.mark_jobs(
       (gen_random_uuid(), $1, 1, null, 0, 0, null)::engine.claimer, array[l],
       (${limiterNow()}, sluice.now(), l.buckets, '{}', '{}', null, false, null)::engine.claim_room,
       ('{1}', '{0}', array[l.id], array[j.seq], '{0}', false)::engine.division, null, null) m
     where j.lane = l.id and j.claim is null`,
    [worker],
  )
  return row?.granted
}

/** Resolves to how many classes have jobs for which a worker with these labels has no room, and whether a time is known for one. */
export async function classesWithoutRoom(db: Queryable, labels: object, nowUs: number) {
  const [row] = await sqlOn(db).query<{ n: number; due: boolean }>(
    `select cardinality(classes) as n, due is not null as due
     from engine.find_classes_without_room($1, array(select id from sluice.class), $2)`,
    [labels, nowUs],
  )
  return row
}

/** Resolves to whether a claim that may use one of these buckets finds out whether the vendor accepts requests again. */
export async function isOnTrial(db: Queryable, buckets: readonly string[]): Promise<boolean | undefined> {
  const sql = `select on_trial from engine.read_claim_room($1, '{}', $1, '{}', null)`
  return (await sqlOn(db).query<{ on_trial: boolean }>(sql, [buckets]))[0]?.on_trial
}

/** Deletes lanes in which no job waits. */
export async function deleteLanes(db: Queryable): Promise<void> {
  await sqlOn(db).call('delete_lanes', [leastId])
}

/** Deletes buckets that were not used for so long; resolves to how many. `capUs`: the latest time that the clock can show. */
export async function retireBuckets(db: Queryable, keepUs: number, capUs: string | null = null): Promise<number> {
  return Number((await sqlOn(db).call<{ gone: string }>('retire_buckets', [keepUs, capUs, leastId]))[0]?.gone)
}

/** Gives the next bucket that waits for it the state of its new definition; resolves to whether there may be more. */
export async function rebuildBucket(db: Queryable): Promise<boolean | undefined> {
  return (await sqlOn(db).call<{ rebuild_next_bucket: boolean }>('rebuild_next_bucket'))[0]?.rebuild_next_bucket
}

/** What a fleet puts in force: numbers with a margin that it has measured, or a rate that it has found. */
interface Adapted {
  /** The version of the definition that it has read. */
  version: number
  numbers: Numbers
  /** For a rate: its bounds. */
  adaptive?: object
  /** For a margin: how many processes had measured; null: it does not matter. */
  known?: number | null
  /** For a margin: when it read them, by the store's clock, in microseconds; null: it does not matter. */
  readUs?: number | null
}

/** Puts in force what a fleet has measured or found; resolves to whether that is so now. */
export async function putAdapted(
  db: Queryable,
  name: string,
  { version, numbers, adaptive, known = null, readUs = null }: Adapted,
): Promise<boolean | undefined> {
  const spec = JSON.stringify({ ...numbersOnly(numbers), adaptive })
  const source = adaptive === undefined ? 'measured' : 'found'
  const params = [name, version, source, known, readUs, spec, JSON.stringify(columnsOf(numbers)), 'test', null]
  return (await sqlOn(db).call<{ adapt_limit: boolean }>(definitionCalls.adapt, params))[0]?.adapt_limit
}

/** Records that a process is alive that has these definitions in its code. */
export async function renewDefinitions(db: Queryable, digests: Record<string, string | undefined>): Promise<void> {
  await sqlOn(db).call(definitionCalls.renew, [Object.keys(digests), Object.values(digests)])
}

/** Records that jobs have begun, or are about to. */
export async function recordBegun(db: Queryable, jobs: readonly { claim: string; seq: number }[]): Promise<void> {
  await sqlOn(db).call('record_begun', [jobs.map(({ claim }) => claim), jobs.map(({ seq }) => seq)])
}

/** Makes the records of begun jobs fail, as in a store that is away; resolves to a function that lets them through again. */
export async function failRecordsOfBegun(db: Queryable): Promise<() => Promise<unknown>> {
  await db.query(`alter function ${fn}.record_begun rename to unreachable`)
  return () => db.query(`alter function ${fn}.unreachable rename to record_begun`)
}
