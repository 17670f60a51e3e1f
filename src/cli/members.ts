/** The keys that `sluice limits` lists for limits with a pool or a label: its members or values, and their room. */
import { amount } from '../core/money.ts'
import type { Sql } from '../db/store.ts'
import type { LimitLine } from '../index.ts'

/** The room of one key. */
export interface KeyRoom {
  key: string
  /** Units that are free now; null: the key was never used, so all are. */
  free: number | null
  /** When units become free, in ms since 1970 by the store's clock; null: some are free, or time does not free any. */
  nextMs: number | null
}

const keysMax = 64
const endlessUs = 2 ** 53 - 1

/** Reads the room of the members of a pool, or of the values that a label has had; undefined: the limit has other keys. */
export async function keyRooms(sql: Sql, { name, label, pool }: LimitLine): Promise<KeyRoom[] | undefined> {
  if (pool === undefined && label === undefined) return undefined
  const rows = await sql.query<{
    key: string
    free: string | null
    next: string | null
    now: string
    clock_offset_us: string
  }>(
    `select k.key, r.avail as free, r.next, n.us as now, n.clock_offset_us
       from (select engine.limiter_now_us() as us, clock_offset_us from sluice.epoch limit 1) n
       cross join (select unnest($2::text[]) as key union all
                   select * from (select key from sluice.bucket where name = $1 and $2 is null order by key limit ${keysMax}) b) k
       left join sluice.bucket b on b.id = sluice.hash64($1 || ':' || k.key)
       left join lateral unnest(engine.bucket_room(array[b.id], n.us)) r on b.id is not null order by k.key`,
    [name, pool ?? null],
  )
  return rows.map(({ key, free, next, now, clock_offset_us: offset }) => ({
    key,
    free: free === null ? null : Number(free),
    nextMs:
      next === null || Number(free) > 0 || Number(next) >= endlessUs
        ? null
        : (Math.max(Number(next), Number(now)) - Number(offset)) / 1_000,
  }))
}

/** Formats the room of a key in one line; `currency` of a limit in money. */
export function keyLine({ key, free, nextMs }: KeyRoom, currency: string | undefined): string {
  if (free === null) return `${key}: unused`
  if (nextMs === null) return `${key}: ${amount(free, currency)} free`
  return `${key}: none free before ${new Date(nextMs).toISOString()}`
}
