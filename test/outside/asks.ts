import { fn } from '../servers/fn.ts'
import { randomUUID } from 'node:crypto'
import { newId } from '../../src/core/hash.ts'
import type { Queryable } from '../../src/db/db.ts'

/** One `acquire`; see the fields. */
export interface Asked {
  grant?: string
  line?: string
  cost?: number
  waitUs?: number
  holder?: string
  lifeMs?: number
}

/** What it answers. */
export interface Answer {
  granted: boolean
  soonestMs: number
  waitMs: number
  lifeMs: number | undefined
  lost: boolean
}

const ms = (us: string | null) => Number(us ?? 0) / 1_000

/** Takes as a process does, on any connection that speaks SQL. */
export async function acquire(db: Queryable, take: string, asked: Asked = {}): Promise<Answer> {
  const { grant = randomUUID(), line, cost = 1, waitUs, holder = newId(), lifeMs = 15_000 } = asked
  const [row] = await db.query<
    Record<'wait_us' | 'soonest_us' | 'life_us', string | null> & { granted: boolean; lost: boolean }
  >(`select * from ${fn}.acquire($1, $2, null, $3, $4, $5, null, $6, $7, null)`, [
    grant,
    line ?? null,
    take,
    cost,
    waitUs ?? null,
    holder,
    lifeMs * 1_000,
  ])
  if (row === undefined) throw new Error('no answer')
  const { granted, lost } = row
  const lifeLeftMs = row.life_us === null ? undefined : ms(row.life_us)
  return { granted, lost, soonestMs: ms(row.soonest_us), waitMs: ms(row.wait_us), lifeMs: lifeLeftMs }
}

/** Somebody who waits, and asks each time when told to. */
export const taker = (db: Queryable, take: string, cost = 1) => {
  const line = newId()
  return () => acquire(db, take, { line, cost })
}
