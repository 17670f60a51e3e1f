import pg from 'pg'
import { expect, it } from 'vitest'
import { newId } from '../../src/core/hash.ts'
import type { Queryable } from '../../src/db/db.ts'
import { limit } from '../../src/limits/limit.ts'
import { isLong } from '../long.ts'
import { claim, count, done, engines, enter, openOn, perTenant, quietTask } from './engine.ts'

const total = isLong ? 500_000 : 30_000
const batch = 500

const median = (values: readonly number[]) => values.toSorted((a, b) => a - b)[values.length >> 1] ?? 0

/** Claims, and tells how many pages the server looked at: what a claim costs, whatever else the machine does. */
async function buffers(db: Queryable, id: string, worker: string, want: number): Promise<number> {
  const [row] = await db.query<{ 'QUERY PLAN': { Plan: Record<string, number> }[] }>(
    `explain (analyze, buffers, format json) select * from sluice.claim_v1('${id}', ${worker}, null, '{t}', ${want}, null, false)`,
  )
  const plan = row?.['QUERY PLAN'][0]?.Plan ?? {}
  return (plan['Shared Hit Blocks'] ?? 0) + (plan['Shared Read Blocks'] ?? 0)
}

/** Sends, claims and ends `total` jobs while another transaction holds the horizon, and measures the claims. */
async function run(lanes: number) {
  const sluice = await openOn(engines[0])
  const { db } = sluice
  const shared = limit('shared', { rate: '1000000/s', burst: 1_000_000 })
  const task = quietTask('t', lanes === 1 ? [shared] : [shared, perTenant('own', '1000000/s', 1_000_000)])
  const worker = await enter(db)
  const input = (n: number) => ({ n, tenant: `tenant-${n % lanes}` })
  const holder = new pg.Client(sluice.url)
  await holder.connect()
  await holder.query('begin isolation level repeatable read')
  await holder.query('select count(*) from sluice.job')
  const claims: number[] = []
  for (let sent = 0; sent < total; sent += batch) {
    await sluice.sendMany(
      task,
      Array.from({ length: batch }, (_, i) => input(sent + i)),
    )
    for (let left = batch; left > 0;) {
      const id = newId()
      claims.push(await buffers(db, id, worker, left))
      const { jobs } = await claim(db, worker, ['t'], left, id)
      left -= jobs.length
      expect(await done(db, jobs)).toEqual([])
    }
  }
  expect(await count(db, 'sluice.done')).toBe(Math.ceil(total / batch) * batch)
  expect(await count(db, 'sluice.lane')).toBe(lanes)
  await holder.query('commit')
  await holder.end()
  await sluice.close()
  const fifth = Math.floor(claims.length / 5)
  return { first: median(claims.slice(0, fifth)), last: median(claims.slice(-fifth)), claims: claims.length }
}

// Every lane becomes empty and is filled again each time; what is left of growth are the seats that it had and left.
it.each([
  [1, 1.5],
  [50, 2.5],
])(
  'a transaction held open does not slow claims down (%i lanes, at most x %d)',
  async (lanes, most) => {
    const { first, last, claims } = await run(lanes)
    process.stdout.write(
      `${total} jobs, ${lanes} lane(s), ${claims} claims: median of the first fifth ${first} pages, of the last ${last} pages\n`,
    )
    expect(first).toBeGreaterThan(batch)
    expect(last / first).toBeLessThan(most)
  },
  60_000 + total * 10,
)
