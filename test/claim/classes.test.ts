/** Checks work that could grow with idle data, such as many classes or many new lanes, and a foreign lock on a job. */
import pg from 'pg'
import { describe, expect, it, onTestFinished } from 'vitest'
import { newId } from '../../src/core/hash.ts'
import type { Queryable } from '../../src/db/db.ts'
import { Claims } from '../../src/claim/claim.ts'
import { sqlOn, storeOn } from '../../src/db/store.ts'
import { limit } from '../../src/limits/limit.ts'
import { label } from '../../src/limits/pool.ts'
import { later, until } from '../until.ts'
import { wakeForMissedWork } from '../fleet/engine.ts'
import { renewedBy } from '../limits/engine.ts'
import { queryable } from '../servers/database.ts'
import {
  blocked,
  claim,
  claimAll,
  count,
  done,
  emptied,
  engines,
  enter,
  mainEngines,
  perTenant,
  quietTask,
} from './engine.ts'
import { costOfClaim, letClaimsWait, lockClasses } from './engine-parts.ts'

const at = emptied(engines[0])
const rows = (n: number, of = (i: number): object => ({ n: i })) => Array.from({ length: n }, (_, i) => of(i))

/** Rows that the server has written into these tables so far; or another figure of PostgreSQL's. */
async function written(db: Queryable, what = 'n_tup_ins + n_tup_upd + n_tup_del', where = ''): Promise<number> {
  await db.query('select pg_stat_clear_snapshot()')
  const [row] = await db.query<{ n: string }>(
    `select sum(${what}) as n from pg_stat_xact_user_tables where schemaname = 'sluice' ${where}`,
  )
  return Number(row?.n ?? 0)
}

describe('new lanes', () => {
  it('cost a claim linear work: lanes that a claim leaves are read later, and are not written again', async () => {
    const { sluice, db, worker } = at
    const flood = quietTask('classes.flood', [perTenant('classes.own', '10/s')])
    await sluice.sendMany(
      flood,
      rows(9_000, (i) => ({ tenant: `t${i}` })),
    )
    const perClaim = await db.transaction(async (tx) => {
      const before = await written(tx)
      await claim(tx, worker, [flood.name], 1)
      return (await written(tx)) - before
    })
    // First the classes are created; then 1,000 lanes, each with its bucket, and the rows of one claim.
    expect(perClaim).toBeLessThan(2 * 1_000 + 50)
    expect(await count(db, 'sluice.arrival')).toBeLessThanOrEqual(2 * 9_000)
    const all = await claimAll(db, worker, [flood.name], 8_999)
    expect(new Set(all.map(({ id }) => id)).size).toBe(8_999)
    expect(await count(db, 'sluice.arrival')).toBeLessThanOrEqual(2 * 9_000)
  })
})

describe('buckets under a new definition', () => {
  it('are renewed by a few in each statement, so that it takes no longer than a statement may', async () => {
    const { sluice, db, worker } = at
    const name = 'classes.renewed'
    const own = quietTask(name, [perTenant(name, '100/s', 100)])
    const inputs = Array.from({ length: 20 }, (_, i) => ({ tenant: `t${i}` }))
    await sluice.sendMany(own, inputs)
    await done(db, await claimAll(db, worker, [name], 20))
    await sluice.limits.set(name, { rate: '200/s' }, { reason: 'test' })
    await sluice.sendMany(own, inputs)
    const store = storeOn(db)
    const call = store.call.bind(store) as (...given: unknown[]) => Promise<never>
    const renewed: number[] = []
    store.call = (...given: unknown[]) => {
      const buckets = renewedBy(given[0], given[1])
      if (buckets) renewed.push(buckets.length)
      return call(...given)
    }
    const claims = new Claims(store)
    const who = { worker, queues: undefined, tasks: [name] }
    for (let left = 20; left > 0;) {
      const { jobs } = await claims.claim(who, left, { idle: false, ahead: 0 }, AbortSignal.timeout(60_000))
      left -= jobs.length
    }
    expect(renewed).toEqual([16, 4])
    await sluice.limits.unset(name)
  })
})

describe.each(mainEngines)('arrivals that claims read in portions, on $name', (engine) => {
  const store = emptied(engine)
  it('are not lost when they commit late or fall between two portions', async () => {
    const flood = quietTask('classes.late', [perTenant('classes.late', '1000/s', 1_000)])
    await store.sluice.sendMany(
      flood,
      rows(2_500, (i) => ({ tenant: `a${i}` })),
    )
    const seen = new Set<string>()
    const take = async (want: number) => {
      for (const { id } of (await claim(store.db, store.worker, [flood.name], want)).jobs) seen.add(id)
    }
    await take(5)
    await store.sluice.sendMany(
      flood,
      rows(2_500, (i) => ({ tenant: `b${i}` })),
    )
    await take(5)
    for (const { id } of await claimAll(store.db, store.worker, [flood.name], 5_000 - seen.size)) seen.add(id)
    expect(seen.size).toBe(5_000)
  })
})

it('a claim that reads a portion leaves the arrivals that it writes itself to the next claim', async () => {
  const { sluice, db, worker } = at
  const [own, other] = [
    quietTask('classes.written', [perTenant('classes.written', '1000/s', 5_000)]),
    quietTask('classes.new'),
  ]
  await sluice.send(own, { tenant: 'x' })
  await claimAll(db, worker, [own.name], 1)
  const stranger = new pg.Client(sluice.url)
  await stranger.connect()
  onTestFinished(() => stranger.end())
  // On a busy machine sending many takes longer than a claim waits for a lock.
  await letClaimsWait(db)
  // Its transaction has an id before it reads: it finds out about a class. Then it waits for the lock of the other class.
  await sluice.send(other, {})
  await sluice.send(own, { tenant: 'x' })
  await sluice.send(own, { tenant: 'due' }, { delay: '50ms' })
  await until(async () => (await count(db, 'sluice.job where due_at < sluice.now()')) === 1, 'it is due')
  await stranger.query('begin')
  await lockClasses(queryable(stranger), own.name)
  const claimed = later(claim(db, worker, [own.name, other.name], 100))
  await until(async () => (await blocked(db)) > 0, 'it waits for the class')
  await sluice.sendMany(
    own,
    rows(2_500, (i) => ({ tenant: `n${i}` })),
  )
  await stranger.query('commit')
  const first = (await claimed).jobs.length
  expect(await claimAll(db, worker, [own.name, other.name], 2_503 - first)).toHaveLength(2_503 - first)
})

describe('another client', () => {
  it('that locks a waiting job stops only that job', async () => {
    const { sluice, db, worker } = at
    const [a, b] = [quietTask('classes.a'), quietTask('classes.b')]
    const held = await sluice.send(a, {})
    const stranger = new pg.Client(sluice.url)
    await stranger.connect()
    try {
      await stranger.query('begin')
      await stranger.query('select 1 from sluice.job where id = $1 for update', [held])
      await sluice.sendMany(a, rows(3))
      await sluice.sendMany(b, rows(3))
      const others = await claimAll(db, worker, [a.name, b.name], 6)
      expect(others).toHaveLength(6)
      await done(db, others)
      const { jobs, again, wakeUs } = await claim(db, worker, [a.name, b.name], 5, newId(), { idle: true })
      expect({ jobs, again }).toEqual({ jobs: [], again: false })
      expect(wakeUs).toBeLessThanOrEqual(250_000)
    } finally {
      await stranger.end()
    }
    await until(async () => (await claim(db, worker, [a.name], 1)).jobs[0]?.id === held, 'the job is free again')
  })
})

describe('classes', () => {
  it('that have nothing to do cost a claim little', async () => {
    const { sluice, db, worker } = at
    const one = quietTask('classes.many')
    const useOnce = async (queues: number) => {
      for (let i = 0; i < queues; i++) await sluice.send(one, {}, { queue: `q${queues}.${i}` })
      const got = await claimAll(db, worker, [one.name], queues)
      expect(got).toHaveLength(queues)
      await done(db, got)
    }
    const measure = async () => {
      // A worker passes on from when on something is due.
      const { since } = await claim(db, worker, [one.name], 1)
      return (await costOfClaim(db, worker, [one.name], 10, { since })).pages
    }
    await useOnce(30)
    for (let i = 0; i < 4; i++) await measure()
    const few = await measure()
    await useOnce(970)
    // Pages are cleaned up when no transaction of other tests sees their rows any more.
    await until(async () => {
      await wakeForMissedWork(db)
      return (await measure()) < 8 * few
    }, 'a claim looks at few pages')
  })

  it('are retired when nothing waits in them, and return with their next job, even one that commits late', async () => {
    const { sluice, db, worker } = at
    const one = quietTask('classes.once')
    for (let i = 0; i < 200; i++) await sluice.send(one, {}, { queue: `q${i}` })
    await done(db, await claimAll(db, worker, [one.name], 200))
    const late = new pg.Client(sluice.url)
    await late.connect()
    try {
      await late.query('begin isolation level repeatable read')
      await late.query('select 1 from sluice.class limit 1')
      await wakeForMissedWork(db)
      expect(await count(db, 'sluice.class where retired is null')).toBe(0)
      await sluice.send(one, {}, { queue: 'q7' })
      expect(await claimAll(db, worker, [one.name], 1)).toHaveLength(1)
      // This transaction knows the class from before.
      await sluice.send(one, {}, { queue: 'q8', tx: late })
      await wakeForMissedWork(db)
      await late.query('commit')
    } finally {
      await late.end()
    }
    // A round keeps retired classes while other transactions of the server are open.
    const afterRound = (is: () => Promise<boolean>, what: string) =>
      until(async () => {
        await wakeForMissedWork(db)
        return is()
      }, what)
    await afterRound(async () => (await claim(db, worker, [one.name], 1)).jobs.length === 1, 'the late one is found')
    await afterRound(async () => (await count(db, 'sluice.class')) < 130, 'most classes are gone')
  })

  /** Sends jobs of so many classes that a round retires classes in which nothing waits. */
  const fill = async (of: ReturnType<typeof quietTask>) => {
    for (let i = 0; i < 130; i++) await at.sluice.send(of, {}, { queue: `q${i}` })
  }

  it('are not retired while jobs wait in them for a label that has room elsewhere', async () => {
    const { sluice, db } = at
    const many = quietTask('classes.full')
    const hosted = quietTask('classes.hosted', [limit('classes.host', { window: '1/h', by: label('host') })])
    const names = [many.name, hosted.name]
    const [one, two] = [await enter(db, names, { host: 'one' }), await enter(db, names, { host: 'two' })]
    await sluice.send(hosted, {})
    await done(db, await claimAll(db, one, [hosted.name], 1))
    await fill(many)
    await sluice.send(hosted, {})
    expect((await claim(db, one, names, 1)).jobs).toHaveLength(1)
    await wakeForMissedWork(db)
    expect(await claimAll(db, two, [hosted.name], 1)).toHaveLength(1)
  })

  it('that are made anew give a fair key one turn, as before', async () => {
    const { sluice, db, worker } = at
    const [many, one] = [quietTask('classes.others'), quietTask('classes.anew')]
    const send = (n: number, priority: number) => sluice.sendMany(one, rows(n), { priority })
    await send(1, 0)
    await send(1, 1)
    await done(db, await claimAll(db, worker, [one.name], 2))
    await fill(many)
    await done(db, await claimAll(db, worker, [many.name, one.name], 130))
    await until(async () => {
      await wakeForMissedWork(db)
      return (await count(db, `sluice.class where task = '${one.name}'`)) === 0
    }, 'the class is gone')
    await send(2, 0)
    expect((await claim(db, worker, [one.name], 1)).jobs).toHaveLength(1)
    await send(2, 1)
    expect((await claim(db, worker, [one.name], 1)).jobs).toHaveLength(1)
    expect(await sqlOn(db).run('operations/find_broken_lanes')).toEqual([])
  })
})
