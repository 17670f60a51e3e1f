/** What workers do with jobs, and the stores on which tests do it. Only this file names the SQL functions of attempts. */
import { afterAll, beforeAll, beforeEach } from 'vitest'
import { z } from 'zod'
import { type Clock, systemClock } from '../../src/core/clock.ts'
import { newId } from '../../src/core/hash.ts'
import type { Db, Queryable } from '../../src/db/db.ts'
import { sqlOn } from '../../src/db/store.ts'
import { admit } from '../../src/tasks/admit.ts'
import type { ClaimMode } from '../../src/claim/claim.ts'
import { type ClaimedJob, decodeJobs } from '../../src/claim/claimed-job.ts'
import type { Readmission } from '../../src/tasks/placement.ts'
import { type AnyTask, task } from '../../src/tasks/task.ts'
import type { Rate } from '../../src/core/rate.ts'
import { type Limit, limit } from '../../src/limits/limit.ts'
import { Sluice } from '../../src/sluice.ts'
import { isClaimedAtSend, laneParams } from '../../src/store/row.ts'
import type { FunctionName } from '../../src/generated/sql.ts'
import { isLong } from '../long.ts'
import { atEnd } from '../ends.ts'
import { freshDatabase } from '../servers/database.ts'
import { renewBuckets, watchClock } from '../limits/engine.ts'
import { wakeWorker } from '../store/engine.ts'

/** The engines that the same suite runs on. */
export const engines = [
  { name: 'PostgreSQL', store: async () => (await freshDatabase()).url },
  { name: 'PGlite', store: async () => 'memory:' },
] as const
/** The same engines; the embedded one, which runs the same SQL, only in the long form, because it takes seconds to open. */
export const mainEngines = isLong ? engines : engines.slice(0, 1)
export type Engine = (typeof engines)[number]

/** A job as a claim returns it. */
export interface Claimed {
  seq: number
  id: string
  claim: string
  attempt: number
  failed: number
  crashes: number
  ambiguous: boolean
  input: unknown
}

/** The result of one claim. */
export interface Answer {
  jobs: Claimed[]
  again: boolean
  wakeUs: number | undefined
  /** The `since` of the next claim. */
  since: string | null
  /** For each job, after how many microseconds it may begin. */
  laterUs: number[]
  nowUs: number
  /** They are the jobs of an earlier call with the same id. */
  isRepeated: boolean
  /** The jobs find out whether the vendor accepts requests again. */
  isOnTrial: boolean
}

/** How one job ended: the input of a finish. `result` and `error` are JSON. */
export interface Ending {
  job: Pick<Claimed, 'seq' | 'id' | 'claim'>
  outcome: string
  beganUs?: number
  reason?: string
  result?: string
  error?: string | null
  delayUs?: number
  place?: Readmission
}

/** The statements of attempts, as `Db.call` names them: what a test counts, delays or loses. */
export const attemptCalls = {
  claim: 'claim_jobs',
  sendAndClaim: 'send_and_claim_job',
  finish: 'finish_attempts',
} satisfies Record<string, FunctionName>

/** An object with a tenant: what the limits' keys are read from. */
export const tenantInput = z.object({
  tenant: z.string().optional(),
  n: z.number().optional(),
  text: z.string().optional(),
})
/** A limit of which every tenant has a bucket. */
export const perTenant = (name: string, rate: Rate, burst?: number): Limit<{ tenant?: string | undefined }> =>
  limit(name, {
    rate,
    by: (input: { tenant?: string | undefined }) => input.tenant ?? '',
    ...(burst === undefined ? {} : { burst }),
  })
/** A task that does nothing. */
export const quietTask = (name: string, limits: readonly Limit<{ tenant?: string | undefined }>[] = []) =>
  task(name, { input: tenantInput, limits, run: () => undefined })

/** Claims on any connection that speaks SQL. `since`: of the answer before; `isWide`: considers as many lanes as it may. */
export async function claim(
  db: Queryable,
  worker: string,
  tasks: readonly string[],
  want: number,
  id = newId(),
  mode: Partial<ClaimMode> & { since?: string | null; isWide?: boolean } = {},
): Promise<Answer> {
  const { idle = false, ahead = 0, since = null, isWide = false } = mode
  const [row] = await sqlOn(db).call<{
    outcome: string
    now_us: string
    wake_us: string | null
    again: boolean
    since: string | null
    jobs: string | null
    instants: string[] | null
    on_trial: boolean | null
    wake: string[] | null
    stale: string[] | null
    announced: boolean | null
    due: boolean | null
  }>(attemptCalls.claim, [id, worker, tasks, want, null, idle, since, isWide, ahead])
  if (row?.announced) await sqlOn(db).call('create_announced_classes')
  if (row?.stale) await renewBuckets(db, row.stale)
  if (row?.stale || (row?.announced && !row.jobs)) return claim(db, worker, tasks, want, id, mode)
  if (row?.wake) await wakeWorker(db, row.wake)
  if (row?.due) {
    const [{ promote_due_jobs: promoted = 0 } = {}] = await sqlOn(db).call<{ promote_due_jobs?: number }>(
      'promote_due_jobs',
      [row.now_us, since ?? -1],
    )
    if (promoted > 0) Object.assign(row, { again: true, wake_us: null })
  }
  if (row?.jobs === '') Object.assign(row, (await sqlOn(db).call('adopt_claim', [id]))[0])
  const jobs = decodeJobs(row?.jobs ?? null, id, 0)
  return {
    jobs,
    again: row?.again ?? false,
    wakeUs: row?.wake_us ? Number(row.wake_us) : undefined,
    since: row?.since ?? null,
    laterUs: jobs.map((_, i) => Number(row?.instants?.[i] ?? row?.now_us) - Number(row?.now_us)),
    nowUs: Number(row?.now_us),
    isOnTrial: row?.on_trial === true,
    isRepeated: row?.outcome === 'repeated',
  }
}

/** Claims until a claim finds nothing more, and returns all jobs. */
export async function claimAll(
  db: Queryable,
  worker: string,
  tasks: readonly string[],
  want: number,
): Promise<Claimed[]> {
  const all: Claimed[] = []
  for (let looks = 0; ; looks++) {
    if (looks > 10_000) throw new Error('claims say again for ever')
    const { jobs, again } = await claim(db, worker, tasks, want - all.length)
    all.push(...jobs)
    if (all.length === want || (jobs.length === 0 && !again)) return all
  }
}

/**
 * Sends one job as a process with an idle worker does, and resolves to the claimed job. Undefined: the job is no
 * ordinary one, and was not sent.
 */
export async function sendClaimed(
  db: Queryable,
  claimId: string,
  worker: string,
  to: AnyTask,
  input: unknown,
): Promise<ClaimedJob[] | undefined> {
  const job = await admit(to, input, {}, systemClock)
  if (!isClaimedAtSend(job)) return undefined
  const params = [claimId, worker, null, ...laneParams([job], true)]
  const [row] = await sqlOn(db).call<{ jobs: string | null; redis_epoch: string | null }>(
    attemptCalls.sendAndClaim,
    params,
  )
  const epoch = row?.redis_epoch
  return decodeJobs(row?.jobs ?? null, claimId, 0).map((one) => (typeof epoch === 'string' ? { ...one, epoch } : one))
}

/** Ends attempts; resolves to the seqs that were refused. `ended`: claims without jobs in hand. */
export async function finish(db: Queryable, all: readonly Ending[], ended?: readonly string[]): Promise<number[]> {
  const endings = all.toSorted((a, b) => a.job.seq - b.job.seq)
  const claims = [...new Set(endings.map(({ job }) => job.claim))]
  /** Null: no ending has it. */
  const given = <T>(of: (ending: Ending) => T | undefined) =>
    endings.some((ending) => of(ending) !== undefined) ? endings.map((ending) => of(ending) ?? null) : null
  const [row] = await sqlOn(db).call<{ finish_attempts: string[] }>(attemptCalls.finish, [
    claims,
    ended ?? claims,
    endings.map(({ job }) => job.seq),
    endings.map(({ job }) => job.id),
    endings.map(({ job }) => claims.indexOf(job.claim) + 1),
    endings.map(({ outcome }) => outcome),
    given(({ beganUs }) => beganUs),
    given(({ reason }) => reason),
    given(({ result }) => result),
    given(({ error }) => error),
    endings.map(({ delayUs }) => delayUs ?? null),
    given(({ place }) => place && JSON.stringify(place)),
  ])
  return (row?.finish_attempts ?? []).map(Number)
}

/** Ends attempts as done. */
export function done(db: Queryable, jobs: readonly Claimed[]): Promise<number[]> {
  return finish(
    db,
    jobs.map((job) => ({ job, outcome: 'done' })),
  )
}

/** Settles what an attempt used of a limit, of which it was granted `units`; resolves to whether its claim has lost the job. */
export async function settle(
  db: Queryable,
  { id, claim: claimId }: Pick<Claimed, 'id' | 'claim'>,
  name: string,
  actual: number,
  { units = 1, isFull = false } = {},
): Promise<boolean | undefined> {
  const params = [id, claimId, name, actual, [claimId], [units], isFull, null]
  return (await sqlOn(db).call<{ lost: boolean }>('settle_attempt', params))[0]?.lost
}

/** Ends the jobs that cannot begin any more, as workers do every 2 s; resolves to how many there were. */
export async function endOverdue(db: Queryable): Promise<number | undefined> {
  return (await sqlOn(db).call<{ expire_overdue_jobs: number }>('expire_overdue_jobs'))[0]?.expire_overdue_jobs
}

/** Registers a worker; resolves to its id. */
export async function enter(db: Queryable, tasks: readonly string[] = [], labels = {}, slots = 1): Promise<string> {
  const [row] = await db.query<{ id: string }>(
    `insert into sluice.worker (host, pid, version, tasks, slots, started_at, labels)
     values ('test', 1, '0', $1, $3, sluice.now(), $2) returning id`,
    [tasks, labels, slots],
  )
  return row?.id ?? ''
}

/** The ids of all registered workers, the oldest first. */
export async function workerIds(db: Queryable): Promise<string[]> {
  return (await db.query<{ id: string }>('select id from sluice.worker order by id')).map(({ id }) => id)
}

/** Changes the tasks, queues, labels or slots with which workers (by default all) are registered. */
export async function changeWorkers(
  db: Queryable,
  how: { tasks?: readonly string[]; queues?: readonly string[]; labels?: object; slots?: number },
  ids?: readonly string[],
): Promise<void> {
  const { tasks = null, queues = null, labels, slots = null } = how
  await db.query(
    `update sluice.worker set tasks = coalesce($1, tasks), queues = coalesce($2, queues), labels = coalesce($3, labels),
       slots = coalesce($4, slots)
     where $5::bigint[] is null or id = any ($5)`,
    [tasks, queues, labels === undefined ? null : JSON.stringify(labels), slots, ids ?? null],
  )
}

/** Replaces the store's clock by one that shows what `set` was given, in ms since 1970. */
export async function ownClock(db: Queryable, startMs: number): Promise<{ set(ms: number): Promise<void> }> {
  await db.query('create table if not exists sluice.test_clock (at timestamptz)')
  await db.query('insert into sluice.test_clock values (to_timestamp($1 / 1000.0))', [startMs])
  await db.query(
    `create or replace function sluice.now() returns timestamptz language sql volatile as 'select at from sluice.test_clock'`,
  )
  await watchClock(db, false)
  return {
    set: async (ms) => void (await db.query('update sluice.test_clock set at = to_timestamp($1 / 1000.0)', [ms])),
  }
}

/** Empties all tables except definitions, which a Sluice caches. A truncate would take 100 times as long. */
export async function empty(db: Queryable): Promise<void> {
  const tables = [
    'job',
    'done',
    'failed',
    'idempotency',
    'arrival',
    'class_state',
    'class',
    'lane',
    'list',
    'reservation',
    'renewal',
    'parked',
    'refusal',
    'failure',
    'bucket',
    'ledger',
    'usage',
    'summed',
    'budget',
    'claim',
    'worker',
    'doubt',
    'idle',
    'gate',
    'limit_pause',
    'taker',
    'holder',
    'lease',
    'step',
  ]
  const gone = tables.map((table) => `${table} as (delete from sluice.${table})`)
  await db.query(`with ${gone.join(', ')} select`)
}

/** How many rows a query finds. */
export async function count(db: Queryable, from: string): Promise<number> {
  const [row] = await db.query<{ n: string }>(`select count(*) as n from ${from}`)
  return Number(row?.n)
}

/** How many claims have jobs in hand. */
export const claimsInHand = (db: Queryable) => count(db, 'sluice.claim')

/** How many sessions wait for a lock in this database; other tests use other databases of the same server. */
export function blocked(db: Queryable): Promise<number> {
  return count(
    db,
    `pg_locks l join pg_stat_activity a using (pid) where not l.granted and a.datname = current_database()`,
  )
}

/** Opens a Sluice on a new store of this engine. */
export async function openOn(engine: Engine, clock: Clock = systemClock): Promise<Sluice> {
  return Sluice.open({ store: await engine.store(), clock })
}

/**
 * The store that the blocks of a file share, because the embedded engine takes a second to open. Another file that shares the
 * process may give its limits the same names and other rules, so it gets its own.
 */
let embedded: Promise<Sluice> | undefined

async function sharedOn(engine: Engine, clock?: Clock): Promise<Sluice> {
  if (engine.name !== 'PGlite') return openOn(engine, clock)
  if (embedded === undefined) {
    const opening = openOn(engine, clock)
    embedded = opening
    atEnd(async () => {
      embedded = undefined
      await (await opening).close()
    })
  }
  const { db } = await embedded
  // Undoes what a block before may have done to the clock.
  await db.query('drop table if exists sluice.test_clock')
  await db.query(
    `create or replace function sluice.now() returns timestamptz language sql volatile as 'select clock_timestamp()'`,
  )
  await db.query('update sluice.epoch set watched = true, clock_offset_us = 0, seen_us = 0, closed_us = null')
  return embedded
}

/** For the tests of a file or a block: one store, empty before each of them, with one worker registered. */
export function emptied(engine: Engine, clock?: Clock): { sluice: Sluice; db: Db; worker: string } {
  const at: ReturnType<typeof emptied> = {} as never
  beforeAll(async () => {
    at.sluice = await sharedOn(engine, clock)
    at.db = at.sluice.db
  })
  beforeEach(async () => {
    await empty(at.db)
    at.worker = await enter(at.db)
  })
  afterAll(async () => {
    if (engine.name !== 'PGlite') await at.sluice.close()
  })
  return at
}
