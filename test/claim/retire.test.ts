import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import pg from 'pg'
import { hash64 } from '../../src/core/hash.ts'
import { limit } from '../../src/limits/limit.ts'
import type { Queryable } from '../../src/db/db.ts'
import { later, until } from '../until.ts'
import { deleteLedger } from '../limits/engine.ts'
import { queryable } from '../servers/database.ts'
import { blocked, claimAll, count, done, emptied, mainEngines, perTenant, quietTask } from './engine.ts'
import { absorbArrivals, createClasses, deleteLanes, retireBuckets } from './engine-parts.ts'

const weekUs = 7 * 86_400_000_000
const perRate = quietTask('retire.rate', [perTenant('retire.rate', '100/min')])
const perPlace = quietTask('retire.place', [
  limit('retire.place', { concurrency: 2, by: (input: { tenant?: string | undefined }) => input.tenant ?? '' }),
])
const perMonth = quietTask('retire.month', [
  limit('retire.month', {
    window: '100/30d' as never,
    by: (input: { tenant?: string | undefined }) => input.tenant ?? '',
  }),
])

describe.each(mainEngines)('buckets on $name', (engine) => {
  const at = emptied(engine)
  let client: pg.Client | undefined
  const other: Queryable = { query: (sql, params) => queryable(client as pg.Client).query(sql, params) }
  beforeEach(async () => {
    if (at.sluice.url === undefined) return
    client = new pg.Client(at.sluice.url)
    await client.connect()
  })
  afterEach(async () => {
    await client?.end()
    client = undefined
  })

  const retire = () => retireBuckets(at.db, weekUs)
  const collect = () => deleteLanes(at.db)
  /** Makes all rows older by this number of days. */
  const age = (days: number) => at.db.query(`update sluice.ledger set at = at - ${days} * 86400000000`)
  const run = async (task: typeof perRate, tenant: string) => {
    await at.sluice.send(task, { tenant })
    const jobs = await claimAll(at.db, at.worker, [task.name], 1)
    expect(jobs).toHaveLength(1)
    return jobs
  }
  const buckets = () => count(at.db, 'sluice.bucket')

  it('a key without jobs for a week leaves no rows, and has its full room when it returns', async () => {
    for (const tenant of ['a', 'b', 'c']) await done(at.db, await run(perRate, tenant))
    await collect()
    await age(6)
    expect(await retire()).toBe(0)
    await age(2)
    // More than the newest row is left: old rows of the ledger are deleted first.
    await at.db.query(`insert into sluice.ledger (bucket, n, at, debt, version, units)
      select bucket, 0, at - 1, debt, version, 0 from sluice.ledger where bucket = ${hash64('retire.rate:c')}`)
    expect(await retire()).toBe(2)
    await deleteLedger(at.db, weekUs)
    expect([await retire(), await buckets(), await count(at.db, 'sluice.ledger')]).toEqual([1, 0, 0])
    await done(at.db, await run(perRate, 'a'))
    expect(await at.db.query('select n::int, units::int as units from sluice.ledger')).toEqual([{ n: 1, units: 1 }])
    expect(await at.sluice.prune()).toMatchObject({ buckets: 0, ledger: 0 })
  })

  it('a bucket whose data fail is parked, and keeps no other from being deleted', async () => {
    for (const tenant of ['bad', 'good']) await done(at.db, await run(perPlace, tenant))
    await collect()
    await age(8)
    await deleteLedger(at.db, weekUs)
    await at.db.query(`update sluice.ledger set debt = '{-9223372036854775808}'
      where bucket = ${hash64('retire.place:bad')}`)
    expect([await retire(), await retire(), await buckets()]).toEqual([0, 1, 1])
    expect(await at.sluice.parked()).toMatchObject([{ kind: 'limit', name: 'retire.place:bad' }])
  })

  it('a bucket stays while a lane has it, while a job of it runs or is on hold, and for as long as a rule looks back', async () => {
    const [running] = await run(perRate, 'running')
    const [counted] = await run(perPlace, 'running')
    await done(at.db, [...(await run(perRate, 'held')), ...(await run(perMonth, 'long'))])
    await at.sluice.send(perRate, { tenant: 'waiting' })
    await createClasses(at.db)
    await absorbArrivals(at.db)
    await collect()
    await age(8)
    await at.db.query(`update sluice.ledger set hold = (extract(epoch from sluice.now()) * 1000000)::bigint + 1000000000
      where bucket = ${hash64('retire.rate:held')}`)
    expect([await retire(), await buckets()]).toEqual([0, 5])
    await at.db.query('update sluice.ledger set hold = 1 where hold > 0')
    await done(at.db, [running, counted] as never)
    await age(8)
    await deleteLedger(at.db, weekUs)
    expect([await retire(), await buckets()]).toEqual([3, 2])
    await age(23)
    expect([await retire(), await buckets()]).toEqual([1, 1])
    expect(await claimAll(at.db, at.worker, ['retire.rate'], 1)).toHaveLength(1)
  })

  it('a step forward of the clock retires no bucket, because the caller bounds the time', async () => {
    await done(at.db, await run(perRate, 'a'))
    await collect()
    await age(6)
    const retireBy = async (clockOffsetUs: number) => {
      const cap = `select ((extract(epoch from clock_timestamp()) * 1000000)::bigint + $1)::text as us`
      const [row] = await at.db.query<{ us: string }>(cap, [clockOffsetUs])
      return retireBuckets(at.db, weekUs - 86_400_000_000, row?.us)
    }
    expect(await retireBy(-3_600_000_000)).toBe(0)
    expect(await retireBy(0)).toBe(1)
  })

  it.runIf(engine.name === 'PostgreSQL')(
    'a claim that creates a lane during the retirement keeps the bucket, or creates it anew',
    async () => {
      await done(at.db, await run(perRate, 'a'))
      await collect()
      await age(8)
      await at.sluice.send(perRate, { tenant: 'a' })
      await other.query('begin')
      await absorbArrivals(other)
      expect(await retire()).toBe(0)
      await other.query('rollback')
      await other.query('begin')
      await retireBuckets(other, weekUs)
      const claimed = later(claimAll(at.db, at.worker, ['retire.rate'], 1))
      await until(async () => (await blocked(at.db)) > 0, 'it waits for the buckets')
      expect(await buckets()).toBe(1)
      await other.query('commit')
      expect(await claimed).toHaveLength(1)
      expect([await buckets(), await count(at.db, 'sluice.ledger')]).toEqual([1, 1])
    },
  )
})
