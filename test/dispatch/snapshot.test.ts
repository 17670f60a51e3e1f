import pg from 'pg'
import { expect, it } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import { limit } from '../../src/limits/limit.ts'
import { claim, count, done, engines, enter, openOn, perTenant, quietTask } from './engine.ts'

const total = Number(process.env['SLUICE_TEST_JOBS'] ?? 30_000)
const batch = 500

const median = (values: readonly number[]) => values.toSorted((a, b) => a - b)[values.length >> 1] ?? 0

/** Sends, claims and ends `total` jobs while another transaction holds the horizon, and times the claims. */
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
  const claimsMs: number[] = []
  for (let sent = 0; sent < total; sent += batch) {
    await sluice.sendMany(task, Array.from({ length: batch }, (_, i) => input(sent + i)))
    for (let left = batch; left > 0; ) {
      const startMs = systemClock.monotonicMs()
      const { jobs } = await claim(db, worker, ['t'], left)
      claimsMs.push(systemClock.monotonicMs() - startMs)
      left -= jobs.length
      expect(await done(db, jobs)).toEqual([])
    }
  }
  expect(await count(db, 'sluice.done')).toBe(Math.ceil(total / batch) * batch)
  const [dead] = await db.query<{ n: string }>(`select count(*) as n from sluice.lane`)
  expect(Number(dead?.n)).toBe(lanes)
  await holder.query('commit')
  await holder.end()
  await sluice.close()
  const fifth = Math.floor(claimsMs.length / 5)
  return { first: median(claimsMs.slice(0, fifth)), last: median(claimsMs.slice(-fifth)), claims: claimsMs.length }
}

it.each([1, 50])('a transaction held open does not slow claims down (%i lanes)', async (lanes) => {
  const { first, last, claims } = await run(lanes)
  process.stdout.write(`${total} jobs, ${lanes} lane(s), ${claims} claims: median of the first fifth ${first.toFixed(2)} ms, of the last ${last.toFixed(2)} ms\n`)
  expect(last / first).toBeLessThan(1.5)
}, 60_000 + total * 10)
