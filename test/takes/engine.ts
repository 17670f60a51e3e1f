/** What takers and running jobs do with grants. Only this file names the SQL functions of takes. */
import { randomUUID } from 'node:crypto'
import { hash64, newId } from '../../src/core/hash.ts'
import type { Queryable } from '../../src/db/db.ts'
import { sqlOn } from '../../src/db/store.ts'
import type { FunctionName } from '../../src/generated/sql.ts'
import { limiterNow } from '../limits/engine.ts'
import { fn } from '../servers/fn.ts'

/** The statements of takes, as `Db.call` names them: what a test counts, delays or loses. */
export const takeCalls = {
  acquire: 'acquire_grants',
  end: 'end_takes',
  renew: 'renew_holder',
  renewTakers: 'renew_takers',
  settle: 'settle_take',
} satisfies Record<string, FunctionName>

/**
 * SQL that grants one unit of each of these buckets to a running job, and nothing else, as an item of FROM. The
 * arguments are SQL: the id of the grant, ids of buckets, and the cap of the clock.
 */
export const takeIn = (grant: string, buckets: string, cap = 'null') =>
  `${fn}.decide_grant(${grant}, ${buckets}, array_fill(1::bigint, array[cardinality(${buckets})]), null, 0, ${limiterNow(cap)}) t`

/** One take in SQL; see the fields. */
export interface Asked {
  grant?: string
  /** How long ago it was first requested. */
  requestedAgoMs?: number | undefined
  line?: string
  cost?: number
  waitUs?: number
  /** A grant of as many units that is refunded first. */
  back?: string
  holder?: string
  lifeMs?: number
}

/** The reply. */
export interface Answer {
  granted: boolean
  soonestMs: number
  waitMs: number
  lifeMs: number | undefined
  lost: boolean
  /** After how many ms it may be used; 0: at once, or it was not granted. */
  aheadMs: number
}

const ms = (us: string | null) => Number(us ?? 0) / 1_000

/** Takes (of several buckets all or nothing) as a process does, on any connection that speaks SQL. */
export async function acquire(db: Queryable, take: string | string[], asked: Asked = {}): Promise<Answer> {
  const { cost, ...one } = asked
  const [answer] = await acquireTogether(db, [take].flat(), cost, [one])
  return answer as Answer
}

/** Several takes of the same, in one statement; resolves to their replies, in the same order. */
export async function acquireTogether(
  db: Queryable,
  takes: readonly string[],
  cost = 1,
  asked: readonly Omit<Asked, 'cost'>[] = [],
): Promise<Answer[]> {
  const units = takes.map(() => cost)
  const wants = asked.map(
    ({ grant = randomUUID(), requestedAgoMs, line = null, waitUs = null, back, holder = newId(), lifeMs = 15_000 }) => {
      const given = back === undefined ? {} : { back, back_units: units }
      const requested_ago = requestedAgoMs === undefined ? undefined : requestedAgoMs * 1_000
      return { id: grant, requested_ago, line, wait: waitUs, holder, life: lifeMs * 1_000, ...given }
    },
  )
  const rows = await sqlOn(db).call<
    Record<'wait_us' | 'soonest_us' | 'life_us' | 'ahead_us', string | null> & {
      ord: number
      granted: boolean
      lost: boolean
    }
  >(takeCalls.acquire, [JSON.stringify(wants), takes, units, null])
  return wants.map((_, i) => {
    const row = rows.find(({ ord }) => ord === i + 1)
    if (row === undefined) throw new Error('no answer')
    const { granted, lost } = row
    const lifeLeftMs = row.life_us === null ? undefined : ms(row.life_us)
    const times = { soonestMs: ms(row.soonest_us), waitMs: ms(row.wait_us), aheadMs: ms(row.ahead_us) }
    return { granted, lost, lifeMs: lifeLeftMs, ...times }
  })
}

/** A taker that waits; each call of the function repeats its take. */
export const taker = (db: Queryable, take: string | string[], cost = 1) => {
  const line = newId()
  return () => acquire(db, take, { line, cost })
}

/** One take of a running job, for one further request; see the SQL function. */
export async function further(
  db: Queryable,
  job: { id: string; claim: string } | undefined,
  takes: string[],
  asked: { grant?: string; units?: number[]; back?: string | undefined } = {},
): Promise<{ granted: boolean; lost: boolean } | undefined> {
  const { grant = newId(), units = takes.map(() => 1), back } = asked
  const given = back === undefined ? {} : { back, back_units: units }
  const params = [JSON.stringify([{ id: grant, ...given }]), takes, units, null, job?.id, job?.claim]
  const [row] = await sqlOn(db).call<{ granted: boolean; lost: boolean }>(takeCalls.acquire, params)
  return row && { granted: row.granted, lost: row.lost }
}

/** Ends takes, with how many units were not used of each. A take that is null is not known, because its reply was lost. */
export async function endTakes(
  db: Queryable,
  grants: readonly string[],
  takes: readonly (string | null)[],
  unused: readonly number[],
): Promise<void> {
  await sqlOn(db).call(takeCalls.end, [grants, takes, unused])
}

/** Renews the places of a process for 30 s; resolves to how long it has them, in microseconds, null: it was given up. */
export async function renewHolder(db: Queryable, holder: string): Promise<string | null | undefined> {
  const params = [holder, 30_000_000, null]
  return (await sqlOn(db).call<{ life_us: string | null }>(takeCalls.renew, params))[0]?.life_us
}

/** Gives up processes whose leases are over. `capUs`: the latest time that the clock can show; null: it may have stepped. */
export async function expireHolders(db: Queryable, capUs: number | null = null): Promise<void> {
  await sqlOn(db).call('expire_holders', [capUs])
}

/** Gives back units of a grant of one bucket, as if they had not been granted. */
export async function giveBack(db: Queryable, bucket: string, grant: string, units = 1): Promise<void> {
  await sqlOn(db).call('give_back_grants', [[grant], [hash64(bucket)], [units]])
}

/** Reports that the vendor has accepted a request of these buckets; `ageUs`: how old it is, null: an operator reports it. */
export async function accept(db: Queryable, buckets: readonly string[], ageUs: number | null): Promise<void> {
  await sqlOn(db).call('accept_buckets', [buckets.map(hash64), ageUs, null])
}

/** How many rows a query finds. */
const found = async (db: Queryable, sql: string, params: unknown[] = []) => (await db.query(sql, params)).length

/** How many places takes have; `holder`: the process that has them, undefined: all processes. */
export function placesTaken(db: Queryable, holder?: string): Promise<number> {
  return found(db, 'select from sluice.lease where $1::uuid is null or holder = $1', [holder ?? null])
}

/** How many takers wait in line; `bucket`: of this one. */
export function takersInLine(db: Queryable, bucket?: number): Promise<number> {
  return found(db, 'select from sluice.taker where $1::bigint is null or bucket = $1', [bucket ?? null])
}

/** Puts as many takers into the line of a bucket, each of which keeps a unit for itself. */
export async function fillLine(db: Queryable, take: string, count: number): Promise<void> {
  await db.query(
    `insert into sluice.taker (id, bucket, cost, alive_until)
     select gen_random_uuid(), $1, 1, ${limiterNow()} + 3600000000 from generate_series(1, $2::integer)`,
    [hash64(take), count],
  )
}

/** How many rows of takers this session has read of late, its present transaction included. */
export async function takersRead(tx: Queryable): Promise<number> {
  const [row] = await tx.query<{ rows: string }>(
    `select seq_tup_read + idx_tup_fetch as rows from pg_stat_xact_user_tables where relname = 'taker'`,
  )
  return Number(row?.rows)
}

/** How many takers keep the next unit of a bucket for themselves. */
export function takersWithTurn(db: Queryable): Promise<number> {
  return found(db, `select from sluice.taker where reserves and cost = 1 and alive_until > ${limiterNow('null')}`)
}

/** Lets the time of all takers in line be over, as if none had repeated its request. */
export async function lapseTakers(db: Queryable): Promise<void> {
  await db.query('update sluice.taker set alive_until = 0')
}

/** Keeps takers in their lines, as their process does. */
export async function renewTakers(db: Queryable, lines: readonly string[]): Promise<void> {
  await sqlOn(db).call(takeCalls.renewTakers, [lines, null])
}

/** Takes a taker out of its line. */
export async function leaveLine(db: Queryable, line: string): Promise<void> {
  await db.query('delete from sluice.taker where id = $1', [line])
}

/** How many processes have places, or had some of late. */
export function holders(db: Queryable): Promise<number> {
  return found(db, 'select from sluice.holder')
}

/** The process that has the place of this take; undefined: none. */
export async function holderOf(db: Queryable, take: string): Promise<string | undefined> {
  return (await db.query<{ holder: string }>('select holder from sluice.lease where id = $1', [take]))[0]?.holder
}

/** Until when processes have their places, in microseconds; of several the last. */
export async function heldUntilUs(db: Queryable): Promise<number> {
  return Number((await db.query<{ us: string }>('select max(alive_until) as us from sluice.holder'))[0]?.us)
}

/** Lets the time of all processes be over, as if none had renewed its places. */
export async function giveUpHolders(db: Queryable): Promise<void> {
  await db.query('update sluice.holder set alive_until = 0')
}

/** Loses the place of this take, as a failover or the restore of a backup from before it does. */
export async function losePlace(db: Queryable, take: string): Promise<void> {
  await db.query('delete from sluice.lease where id = $1', [take])
}

/** Gives the process of this take another place, of which it does not know. */
export async function addPlace(db: Queryable, take: string): Promise<void> {
  await db.query('insert into sluice.lease select gen_random_uuid(), bucket, holder from sluice.lease where id = $1', [
    take,
  ])
}
