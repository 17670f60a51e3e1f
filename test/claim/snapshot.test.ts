import pg from 'pg'
import { expect, it } from 'vitest'
import { newId } from '../../src/core/hash.ts'
import type { Queryable } from '../../src/db/db.ts'
import { limit } from '../../src/limits/limit.ts'
import { isLong } from '../long.ts'
import { claim, count, done, engines, enter, openOn, perTenant, quietTask } from './engine.ts'
import { pagesOfRound } from '../fleet/engine.ts'
import { costOfClaim } from './engine-parts.ts'
import { numbered } from '../rows.ts'

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
    // As autovacuum may do when nothing waits: then the planner takes indexes of what waits for empty ones.
    if (sent === total / 2) await db.query('vacuum analyze sluice.lane, sluice.list')
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
  // The quickest claim, because a busy machine delays most of them.
  const costs = (of: readonly Cost[]) => ({
    pages: median(of.map((one) => one.pages)),
    ms: Math.min(...of.map((one) => one.ms)),
  })
  return { first: costs(claims.slice(0, fifth)), last: costs(claims.slice(-fifth)) }
}

// Every lane is emptied and filled again each time: in the short form 24 times, in the long one 60 times.
const total = isLong ? 30_000 : 12_000
it.each([
  [1, total, 1.3],
  [50, total, 1.3],
])('an open transaction does not slow claims down (%i lanes, %i jobs, at most x %d)', async (lanes, total, most) => {
  const { first, last } = await run(lanes, total)
  expect(first.pages).toBeGreaterThan(batch)
  expect(last.pages / first.pages).toBeLessThan(most)
})

/** Holds back all cleaning while `during` runs. */
async function withOldSnapshot(url: string | undefined, during: () => Promise<void>): Promise<void> {
  const holder = new pg.Client(url)
  await holder.connect()
  await holder.query('begin isolation level repeatable read')
  await holder.query('select count(*) from sluice.job')
  await during()
  await holder.query('commit')
  await holder.end()
}

it('an open transaction does not slow claims of a long backlog down', async () => {
  const sluice = await openOn(engines[0])
  const { db } = sluice
  const task = quietTask('t', [limit('shared', { rate: '1000000/s', burst: 1_000_000 })])
  const worker = await enter(db)
  const claims = 2_000
  await sluice.sendMany(task, numbered(5 * claims))
  await withOldSnapshot(sluice.url, async () => {
    const costs: number[] = []
    // The list of ready lanes is written once a second: right after that a claim reads no dead turns.
    const since = performance.now()
    while (costs.length < claims || performance.now() - since < 4_000)
      costs.push((await cost(db, newId(), worker, 1)).pages)
    const half = Math.floor(costs.length / 2)
    expect(Math.min(...costs.slice(half)) / Math.min(...costs.slice(0, half))).toBeLessThan(1.5)
  })
  await sluice.close()
})

it('an open transaction does not slow the rounds of a worker down that has ended many claims', async () => {
  const sluice = await openOn(engines[0])
  const { db } = sluice
  const worker = await enter(db)
  await withOldSnapshot(sluice.url, async () => {
    const round = () => pagesOfRound(db, worker)
    const costs = [await round(), await round()]
    await db.query(
      `insert into sluice.claim (id, worker, at, lanes, seqs)
       select gen_random_uuid(), ${worker}, sluice.now_us() - 60000000, array_fill(1, array[500]), '{}'
       from generate_series(1, 2000)`,
    )
    await db.query('delete from sluice.claim')
    costs.push(await round(), await round())
    expect((costs[3] ?? 0) - (costs[1] ?? 0)).toBeLessThan(100)
  })
  await sluice.close()
})

it('a claim that leaves jobs shows, too, from when on the next one has to look for what is due', async () => {
  const sluice = await openOn(engines[0])
  const { db } = sluice
  const slow = quietTask('slow', [perTenant('own', '1/s', 1)])
  const worker = await enter(db)
  const inputs = Array.from({ length: 20 }, (_, n) => ({ tenant: `tenant-${n % 10}` }))
  await sluice.sendMany(slow, inputs)
  expect(await done(db, (await claim(db, worker, ['slow'], 20)).jobs)).toEqual([])
  const { since, now } = await sinceOf(db, worker)
  expect(now - since).toBeGreaterThanOrEqual(5_000_000)
  expect(now - since).toBeLessThan(60_000_000)
  // One claim serves one of these lists, so the others stay due.
  await db.query('update sluice.list set due = sluice.now_us() - 60000000 where id <> 0')
  const later = await sinceOf(db, worker)
  expect(later.now - later.since).toBeGreaterThan(60_000_000)
  await sluice.close()
})

/** Claims one job without knowing what was due before, and returns from when on the next claim has to look. */
async function sinceOf(db: Queryable, worker: string): Promise<{ since: number; now: number }> {
  const { since, nowUs } = await claim(db, worker, ['slow'], 1)
  return { since: Number(since ?? undefined), now: nowUs }
}

it.runIf(isLong)(
  'a transaction that is open for 500,000 jobs of one lane makes claims at most 1.5 times as slow',
  async () => {
    const { first, last } = await run(1, 500_000)
    process.stdout.write(`a claim of 500: ${JSON.stringify({ first, last })}\n`)
    expect(last.ms / first.ms).toBeLessThan(1.5)
  },
)
