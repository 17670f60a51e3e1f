/** What claims and takes do with buckets, and what the limits do by themselves. Only this file names their SQL functions. */
import { hash64, newId } from '../../src/core/hash.ts'
import type { Queryable } from '../../src/db/db.ts'
import { sqlOn } from '../../src/db/store.ts'
import { fn } from '../servers/fn.ts'

/** The limiter's clock, in SQL. `cap`: SQL for the latest time that the store's clock can show. */
export const limiterNow = (cap = '') => `${fn}.limiter_now_us(${cap})`

/** The time of the store's clock at a time of the limiter's clock, in SQL. */
export const storeTimeOf = (us: string) => `${fn}.store_time(${us})`

/** The room of buckets, in SQL: an item of FROM with a row for each. `buckets`: SQL for their ids. */
export const roomOf = (buckets: string, nowUs = 'sluice.now_us()') => `unnest(${fn}.bucket_room(${buckets}, ${nowUs}))`

/** The grants of a bucket that the ledger keeps since a time, in SQL: an item of FROM. */
export const grantsOf = (bucket: string, fromUs: string) => `${fn}.kept_grants(${bucket}, ${fromUs})`

/** SQL that gives back a unit of each of these rows of the ledger; `rows` is an item of FROM. */
export const refundEach = (rows: string) => `select ${fn}.refund_units(bucket, claim, 1) from ${rows}`

/** SQL that creates `sluice.test_grant`: grants all that is free in a bucket, as a claim does, and returns how much. */
export const createTestGrant = `create function sluice.test_grant(p_bucket bigint, p_id uuid) returns bigint language plpgsql as $$
  declare r ${fn}.room;
  begin
    perform ${fn}.renew_bucket_states(array[p_bucket]);
    select * into r from ${roomOf('array[p_bucket]')};
    if r.avail > 0 then perform ${fn}.append_ledger(array[r], p_id, array[r.avail], array[r.avail]); end if;
    return r.avail;
  end $$`

/** Writes the state of buckets under their new definition, as the worker does whose claim finds them. */
export async function renewBuckets(db: Queryable, buckets: readonly string[]): Promise<void> {
  await sqlOn(db).call('renew_buckets', [buckets])
}

/** Makes the bucket of a key of a limit, as the first job of the key does; resolves to its id. */
export async function addBucket(db: Queryable, name: string, key = ''): Promise<string> {
  const id = hash64(key === '' ? name : `${name}:${key}`)
  await db.query('insert into sluice.bucket (id, name, key) values ($1, $2, $3) on conflict do nothing', [
    id,
    name,
    key,
  ])
  return id
}

/** The units of each bucket that were granted and not given back, by its name; buckets without any are left out. */
export async function unitsUsed(db: Queryable): Promise<Record<string, number>> {
  const rows = await db.query<{ bucket: string; units: number }>(
    `select b.name || coalesce(':' || nullif(b.key, ''), '') as bucket, sum(l.units)::int as units
     from sluice.ledger l join sluice.bucket b on b.id = l.bucket group by 1 having sum(l.units) <> 0 order by 1`,
  )
  return Object.fromEntries(rows.map(({ bucket, units }) => [bucket, units]))
}

/** Has the store's clock watched for steps, or not, as for a clock that a test moves. */
export async function watchClock(db: Queryable, isWatched = true): Promise<void> {
  await db.query('update sluice.epoch set watched = $1', [isWatched])
}

/** Forgets the steps of the store's clock that were found. */
export async function forgetSteps(db: Queryable): Promise<void> {
  await db.query('update sluice.epoch set clock_offset_us = 0, seen_us = 0, stepped_us = null, stepped_at = null')
}

/** The limiter's clock, in microseconds. */
export async function limiterNowUs(db: Queryable): Promise<number> {
  return Number((await sqlOn(db).call<{ limiter_now_us: string }>('limiter_now_us'))[0]?.limiter_now_us)
}

/** Checks the store's clock, as a worker does that has seen the limiter's clock show this time. */
export async function checkClock(db: Queryable, leastUs: number | string | null): Promise<void> {
  await sqlOn(db).call('check_epoch', [leastUs, null, null])
}

/** Takes a forward step of the store's clock out of the limiter's, as a worker does that has seen it; resolves to the answer. */
export async function undoClockStep(db: Queryable, us: number): Promise<string | undefined> {
  const sql = 'select engine.undo_clock_step($1, (select clock_offset_us from sluice.epoch)) as moved'
  return (await sqlOn(db).query<{ moved: string }>(sql, [us]))[0]?.moved
}

/** Grants units of a bucket, as a claim does; resolves to the id of the grant. */
export async function grantOf(db: Queryable, bucket: string, units = 1, id = newId()): Promise<string> {
  await db.query(
    `select ${fn}.append_ledger(array(select r::${fn}.room from ${roomOf('array[$1::bigint]')} r), $2, array[$3::bigint], array[$3::bigint])`,
    [hash64(bucket), id, units],
  )
  return id
}

/** Gives back units of a grant. */
export async function refund(db: Queryable, bucket: string, grant: string, units: number): Promise<void> {
  await sqlOn(db).call('refund_units', [hash64(bucket), grant, units])
}

/** Charges units that were used beyond a grant. */
export async function chargeMore(db: Queryable, bucket: string, grant: string, units: number, nowUs: number) {
  await sqlOn(db).call('charge_overrun', [hash64(bucket), grant, units, nowUs])
}

/** The name of the function that charges requests once more: its only result is under it. */
export const chargeAgainCall = 'charge_again'

/** Charges requests once more whose answers came so late that their arrival is not known. */
export async function chargeAgain(db: Queryable, bucket: string, units: number): Promise<void> {
  await sqlOn(db).call(chargeAgainCall, [[hash64(bucket)], [units], null])
}

/** Charges what others use of a bucket: the vendor states how much is left of `most`, since and until when. */
export async function chargeOthers(
  db: Queryable,
  bucket: string,
  { most, left, sinceUs, resetUs }: { most: number; left: number; sinceUs: number; resetUs: number | null },
): Promise<{ units: number; heldUs: number }> {
  const params = [[hash64(bucket)], [most], [left], [sinceUs], [resetUs], null]
  const [row] = await sqlOn(db).call<{ units: string; held_us: string }>('charge_others', params)
  return { units: Number(row?.units ?? 0), heldUs: Number(row?.held_us ?? 0) }
}

/**
 * Holds buckets for a time. `trialUs`: after that they grant one request in so long, until the vendor accepts one. `cause`: why, if not
 * because of the vendor.
 */
export async function hold(
  db: Queryable,
  buckets: readonly string[],
  us: number,
  trialUs: number | null = null,
  cause: string | null = null,
): Promise<void> {
  await sqlOn(db).call('hold_buckets', [buckets.map(hash64), us, null, cause, trialUs])
}

/** Holds buckets as after a bad answer of the vendor's; resolves to the ids of those that are held, and for how long. */
export async function refuse(
  db: Queryable,
  buckets: readonly string[],
  answer: {
    shared?: readonly string[]
    waitUs?: number | undefined
    ageUs?: number
    text?: string
    cause?: string
    host?: string
  },
): Promise<{ held: string[]; waitUs: number }> {
  const { shared = [], waitUs, ageUs = 0, text = 'no', cause = 'refused', host } = answer
  const params = [buckets.map(hash64), shared.map(hash64), waitUs ?? null, ageUs, null, text, cause, host ?? null]
  const [row] = await sqlOn(db).call<{ held: string[]; wait_us: string }>('refuse_buckets', params)
  return { held: row?.held ?? [], waitUs: Number(row?.wait_us) }
}

/** Lets nothing of these buckets be granted ahead up to a time, because takes wait for them. */
export async function stopGrantsAhead(db: Queryable, buckets: readonly number[], untilUs: number): Promise<void> {
  await sqlOn(db).call('stop_grants_ahead', [buckets, untilUs])
}

/** Locks buckets until the end of the transaction, as a claim does. */
export async function lockBuckets(db: Queryable, buckets: readonly string[]): Promise<void> {
  await sqlOn(db).call('lock_buckets', [buckets])
}

/** Sums rows of the ledger from a time on (null: the new ones), one portion; resolves to where the next call goes on. */
export async function sumUsage(
  db: Queryable,
  afterUs: number | string | null = 0,
): Promise<{ until: string | null; more: boolean }> {
  const [row] = await sqlOn(db).call<{ until: string | null; more: boolean }>('sum_ledger', [afterUs])
  return { until: row?.until ?? null, more: row?.more === true }
}

/** Deletes sums of usage that are older. */
export async function deleteUsage(db: Queryable, keepMs: number): Promise<void> {
  await sqlOn(db).call('delete_old_usage', [keepMs, null])
}

/** Deletes rows of the ledger that are older and prove nothing any more. */
export async function deleteLedger(db: Queryable, keepUs: number): Promise<void> {
  await sqlOn(db).call('delete_old_ledger', [keepUs, 0])
}

/** The quota of one period after more units (below 0: fewer) at a time. */
export async function quotaWith(db: Queryable, period: readonly number[], atUs: number, units: number) {
  const sql = `select engine.count_in_quotas($1, '{quota}', '{0}', $2, $3) as quota`
  const [row] = await sqlOn(db).query<{ quota: string[][] }>(sql, [[period], atUs, units])
  return row?.quota[0]?.map(Number)
}

/** Locks the epoch under which the same limits may be used in Redis, as a claim does; resolves to it. */
export async function lockRedisEpoch(db: Queryable): Promise<string | undefined> {
  return (await sqlOn(db).call<{ lock_redis_epoch: string }>('lock_redis_epoch'))[0]?.lock_redis_epoch
}

/** Puts the next epoch in force if `found` still is; resolves to the one that is, and whether the process with `own` has put it. */
export async function putRedisEpoch(db: Queryable, found: string | undefined, next: string, own: string | null = null) {
  const [row] = await sqlOn(db).call<{ epoch: string; mine: boolean }>('replace_redis_epoch', [found, next, own])
  return row && { epoch: row.epoch, mine: row.mine }
}

/** The buckets that this call of the store renews, if it is one that does. */
export function renewedBy(statement: unknown, params: unknown): readonly unknown[] | undefined {
  return statement === 'renew_buckets' ? (params as [readonly unknown[]])[0] : undefined
}
