import { fn } from '../servers/fn.ts'
import { randomUUID } from 'node:crypto'
import { newId } from '../../src/core/hash.ts'
import type { Queryable } from '../../src/db/db.ts'

/** One take in SQL; see the fields. */
export interface Asked {
  grant?: string
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
}

const ms = (us: string | null) => Number(us ?? 0) / 1_000

/** Takes (of several buckets all or nothing) as a process does, on any connection that speaks SQL. */
export async function acquire(db: Queryable, take: string | string[], asked: Asked = {}): Promise<Answer> {
  const { grant = randomUUID(), line = null, cost = 1, waitUs = null, back, holder = newId() } = asked
  const { lifeMs = 15_000 } = asked
  const takes = [take].flat()
  const units = takes.map(() => cost)
  const [row] = await db.query<
    Record<'wait_us' | 'soonest_us' | 'life_us', string | null> & { granted: boolean; lost: boolean }
  >(`select * from ${fn}.acquire_grant($1, $2, $3, $4, $5, null, null, null, $6)`, [
    grant,
    takes,
    units,
    back ?? null,
    back === undefined ? null : units,
    JSON.stringify({ line, wait: waitUs, holder, life: lifeMs * 1_000 }),
  ])
  if (row === undefined) throw new Error('no answer')
  const { granted, lost } = row
  const lifeLeftMs = row.life_us === null ? undefined : ms(row.life_us)
  return { granted, lost, soonestMs: ms(row.soonest_us), waitMs: ms(row.wait_us), lifeMs: lifeLeftMs }
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
  const params = [grant, takes, units, back ?? null, back === undefined ? null : units, job?.id, job?.claim]
  const [row] = await db.query<{ granted: boolean; lost: boolean }>(
    `select granted, lost from ${fn}.acquire_grant($1, $2, $3, $4, $5, null, $6, $7)`,
    params,
  )
  return row
}
