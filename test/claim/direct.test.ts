/** A lane that is served directly looks to all others like one that was served among several. */
import { afterEach, beforeAll, describe, expect, it } from 'vitest'
import { storeOn } from '../../src/db/store.ts'
import { hash64 } from '../../src/core/hash.ts'
import { Claims } from '../../src/claim/claim.ts'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import { limit } from '../../src/limits/limit.ts'
import { label } from '../../src/limits/pool.ts'
import { acquire } from '../takes/engine.ts'
import { copies } from '../rows.ts'
import { until } from '../until.ts'
import { lockBuckets } from '../limits/engine.ts'
import {
  blocked,
  claim,
  claimAll,
  done,
  emptied,
  enter,
  mainEngines,
  ownClock,
  perTenant,
  quietTask,
} from './engine.ts'

const startMs = 1_800_000_000_000
const rows = (n: number, tenant = 'a') => copies(n, { tenant })
const tenants = (jobs: readonly { input: unknown }[]) => jobs.map(({ input }) => (input as { tenant: string }).tenant)

describe.each(mainEngines)('on $name', (engine) => {
  const at = Object.assign(emptied(engine), { clock: {} as Awaited<ReturnType<typeof ownClock>> })
  beforeAll(async () => void (at.clock = await ownClock(at.db, startMs)))
  afterEach(() => at.clock.set(startMs))

  it('takers outside of jobs give no turn to jobs that wait only for a worker', async () => {
    const { db } = at
    await at.sluice.sendMany(quietTask('slow', [limit('v', { rate: '100/s', burst: 100 })]), rows(200))
    await done(db, await claimAll(db, at.worker, ['slow'], 100))
    expect(await claimAll(db, at.worker, ['slow'], 5)).toEqual([])
    let took = 0
    for (let i = 1; i <= 20; i++) {
      // All of the room is free again.
      await at.clock.set(startMs + i * 2_000)
      const jobs = await claimAll(db, at.worker, ['slow'], 1)
      expect(jobs).toHaveLength(1)
      await done(db, jobs)
      for (let j = 0; j < 4; j++) if ((await acquire(db, 'v')).granted) took++
    }
    expect(took).toBe(80)
  })

  it('a claim returns inputs up to 64 KiB, from one lane and from several', async () => {
    const { db } = at
    const wide = limit('wide', { rate: '100000/s', burst: 100_000 })
    const text = 'x'.repeat(400)
    for (const [name, lanes] of Object.entries({ one: 1, several: 3 })) {
      const to = quietTask(name, [wide, perTenant(`own.${name}`, '100000/s', 100_000)])
      await at.sluice.sendMany(
        to,
        Array.from({ length: 400 }, (_, i) => ({ tenant: `t${i % lanes}`, text })),
      )
      // The first claim makes the lanes known.
      const first = await claim(db, at.worker, [name], 1)
      const { jobs } = await claim(db, at.worker, [name], 300)
      expect(first.jobs).toHaveLength(1)
      expect(jobs).toHaveLength(300)
      const size = JSON.stringify(jobs[0]?.input).length
      const withInput = jobs.filter(({ input }) => input !== undefined)
      expect(withInput.length).toBeGreaterThan(0.8 * (65_536 / size))
      expect(withInput.length).toBeLessThan(65_536 / size + 1)
      expect(jobs.slice(0, withInput.length)).toEqual(withInput)
    }
  })

  it('a new fair key shares with one that was alone, even if that one once waited for its own bucket', async () => {
    const { db } = at
    const keyed = quietTask('keyed', [perTenant('each', '10/s', 20)])
    await at.sluice.sendMany(keyed, [...rows(100, 'one'), ...rows(60, 'two')])
    for (let i = 1; i <= 10; i++) {
      await at.clock.set(startMs + i * 500)
      await done(db, await claimAll(db, at.worker, ['keyed'], 50))
    }
    // Only the first tenant has jobs left; from now on workers are slow.
    await at.clock.set(startMs + 10_000)
    await done(db, await claimAll(db, at.worker, ['keyed'], 1))
    await at.sluice.sendMany(keyed, rows(100, 'three'))
    const jobs = []
    for (let i = 0; i < 10; i++) jobs.push(...(await claimAll(db, at.worker, ['keyed'], 1)))
    expect(tenants(jobs).filter((tenant) => tenant === 'three')).toHaveLength(5)
  })

  it('the first claim of a class with a label returns the time at which its bucket has room again', async () => {
    const { db } = at
    const worker = await enter(db, ['hosted'], { host: 'h1' })
    const hosted = quietTask('hosted', [limit('ip', { rate: '10/s', burst: 1, by: label('host') })])
    await at.sluice.sendMany(hosted, rows(3))
    const { jobs, again, wakeUs } = await claim(db, worker, ['hosted'], 10, undefined, { idle: true })
    expect(jobs).toHaveLength(1)
    expect(again).toBe(false)
    expect(wakeUs).toBeGreaterThan(0)
    expect(wakeUs).toBeLessThan(200_000)
  })

  it.runIf(engine.name === 'PostgreSQL')('a claim never locks a bucket out of order', async () => {
    const { db } = at
    const each = perTenant('shared', '2/s', 3)
    const [left, right] = [quietTask('left', [each]), quietTask('right', [each])]
    const bucket = (tenant: string) => hash64(`shared:${tenant}`)
    const stripe = (tenant: string) => Number(BigInt.asUintN(10, BigInt(bucket(tenant))))
    const [low = '', high = ''] = ['k1', 'k2'].toSorted((a, b) => stripe(a) - stripe(b))
    const other = await enter(db)
    // In `left` the lane of `high` is empty, and that of `low` waits; `right` has both.
    await at.sluice.sendMany(left, rows(1, high))
    await done(db, await claimAll(db, at.worker, ['left'], 5))
    await at.sluice.sendMany(left, rows(20, low))
    await done(db, await claimAll(db, at.worker, ['left'], 5))
    await at.sluice.sendMany(right, rows(1, 'k3'))
    await done(db, await claimAll(db, other, ['right'], 5))
    await at.sluice.sendMany(right, [...rows(20, low), ...rows(20, high)])
    await at.sluice.sendMany(left, rows(10, high))
    const claims: Promise<unknown>[] = []
    await db.transaction(async (tx) => {
      await lockBuckets(tx, [bucket(high)])
      claims.push(claim(db, at.worker, ['left'], 2))
      await until(async () => (await blocked(db)) === 1, 'one waits for the bucket')
      claims.push(claim(db, other, ['right'], 5))
      await until(async () => (await blocked(db)) === 2, 'the other does, with the lower one in hand')
      // The list of the lower bucket falls due.
      await at.clock.set(startMs + 600)
    })
    await Promise.all(claims)
  })

  it.each([
    ['a lane that is alone', ['a']],
    ['lanes among others', ['a', 'b']],
  ])('a claim returns jobs complete while rows of theirs are deleted: %s', async (_, keys) => {
    // The embedded engine has one connection, so no other deletes while it claims.
    if (engine.name !== 'PostgreSQL') return
    const { db } = at
    const gone = quietTask('gone', [perTenant('gone.each', '100/s', 20)])
    await at.sluice.sendMany(
      gone,
      keys.flatMap((key) => rows(4, key)),
    )
    await done(db, await claimAll(db, at.worker, ['gone'], keys.length))
    const claims = new Claims(storeOn(db))
    const who = { worker: at.worker, queues: undefined, tasks: ['gone'] }
    const jobs = await db.transaction(async (tx) => {
      // Deletes the other rows, whose inputs are read after the claim.
      await tx.query('delete from sluice.job where seq in (select min(seq) from sluice.job group by lane)')
      return (await claims.claim(who, 50, { idle: false, ahead: 0 }, new AbortController().signal)).jobs
    })
    expect(tenants(jobs).toSorted()).toEqual(keys.flatMap((key) => [key, key]))
    expect(jobs.every(({ task }) => task === 'gone')).toBe(true)
  })

  it('a claim returns the right data of each job, whatever order the query plan reads the rows in', async () => {
    const { db } = at
    const tasks = ['told', 'retold'].map((name) => quietTask(name, [perTenant('told.each', '1000/s', 200)]))
    const turn = ['a', 'b', 'c', 'd', 'e'].flatMap((key) => rows(1, key))
    for (let i = 0; i < 10; i++)
      for (const told of tasks) await at.sluice.sendMany(told, [...turn, ...turn, ...turn, ...turn])
    const jobs = await db.transaction(async (tx) => {
      await tx.query('set local enable_tidscan = off')
      await tx.query('discard plans')
      const { jobs } = await claim(tx, at.worker, ['told', 'retold'], 40)
      await tx.query('discard plans')
      return jobs as ClaimedJob[]
    })
    const stored = await db.query<{ id: string; is: string }>(
      `select id, task || ' ' || buckets[1] as is from sluice.job where claim is not null`,
    )
    const are = new Map(jobs.map(({ id, task, buckets }) => [id, `${task} ${buckets?.[0]}`]))
    expect(are).toEqual(new Map(stored.map(({ id, is }) => [id, is])))
    expect(are.size).toBe(40)
  })
})
