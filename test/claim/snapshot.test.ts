import pg from 'pg'
import { expect, it } from 'vitest'
import { newId } from '../../src/core/hash.ts'
import type { Queryable } from '../../src/db/db.ts'
import { limit } from '../../src/limits/limit.ts'
import { isLong } from '../long.ts'
import { claim, count, done, engines, enter, openOn, perTenant, quietTask } from './engine.ts'
import { costOfClaim } from './engine-parts.ts'

const batch = 500

const median = (values: readonly number[]) => values.toSorted((a, b) => a - b)[values.length >> 1] ?? 0

/** Claims; resolves to what it cost, whatever else the machine does. */
const cost = (db: Queryable, id: string, worker: string, want: number) => costOfClaim(db, worker, ['t'], want, { id })
type Cost = Awaited<ReturnType<typeof cost>>

/** Sends, claims and ends `total` jobs while another transaction holds the xmin horizon, and measures the claims. */
async function run(lanes: number, total: number) {
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
  const claims: Cost[] = []
  for (let sent = 0; sent < total; sent += batch) {
    await sluice.sendMany(
      task,
      Array.from({ length: batch }, (_, i) => input(sent + i)),
    )
    for (let left = batch; left > 0;) {
      const id = newId()
      claims.push(await cost(db, id, worker, left))
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
  const medians = (of: readonly Cost[]) => ({
    pages: median(of.map((one) => one.pages)),
    ms: median(of.map((one) => one.ms)),
  })
  return { first: medians(claims.slice(0, fifth)), last: medians(claims.slice(-fifth)) }
}

// Every lane is emptied and filled again each time; the remaining growth comes from the seats that it had and left.
it.each([
  [1, 30_000, 1.5],
  [50, 30_000, 2.5],
])('an open transaction does not slow claims down (%i lanes, %i jobs, at most x %d)', async (lanes, total, most) => {
  const { first, last } = await run(lanes, total)
  expect(first.pages).toBeGreaterThan(batch)
  expect(last.pages / first.pages).toBeLessThan(most)
})

it.runIf(isLong)(
  'a transaction that is open for 500,000 jobs of one lane makes claims at most 1.5 times as slow',
  async () => {
    const { first, last } = await run(1, 500_000)
    process.stdout.write(`a claim of 500: ${JSON.stringify({ first, last })}\n`)
    expect(last.ms / first.ms).toBeLessThan(1.5)
  },
)
