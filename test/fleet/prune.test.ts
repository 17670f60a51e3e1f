import pg from 'pg'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { storeOn } from '../../src/db/store.ts'
import { StoreClock, systemClock } from '../../src/core/clock.ts'
import { StoreEpoch } from '../../src/claim/definitions/clock.ts'
import { Sluice } from '../../src/sluice.ts'
import { RetentionSettings } from '../../src/fleet/retention.ts'
import { Maintenance } from '../../src/fleet/maintenance.ts'
import { blocked, count, empty, engines, openOn, ownClock, quietTask } from '../claim/engine.ts'
import { later, until } from '../until.ts'
import { leastIdAt, summarizePartitions } from '../store/engine.ts'
import { undoClockStep, watchClock } from '../limits/engine.ts'

const day = 86_400_000
const hour = 3_600_000
const old = '20200101'
const oldMs = Date.UTC(2020, 0, 1)

/** A job created in 2020, in history, that finished this number of days ago. */
const finished = (table: string, n: number | 'i', days: number) =>
  `insert into sluice.${table} (id, state, task, queue, priority, attempt, failed, crashes, ambiguous, created_at, finished_at)
   select (lpad(to_hex(${oldMs}::bigint), 12, '0') || lpad(to_hex(${n}), 20, '0'))::uuid, 'done', 't', 'q', 0, 1, 0, 0, false,
     sluice.now(), sluice.now() - interval '${days} days'`
const partition = (table: string) =>
  `create table sluice.${table}_${old} partition of sluice.${table}
   for values from (${leastIdAt(oldMs)}) to (${leastIdAt(oldMs + day)})`

describe('maintenance', () => {
  const [postgres] = engines
  let sluice: Sluice
  let other: pg.Client
  beforeAll(async () => {
    sluice = await openOn(postgres)
    other = new pg.Client(sluice.url)
    await other.connect()
  })
  afterAll(async () => {
    await other.end()
    await sluice.close()
  })
  beforeEach(() => empty(sluice.db))
  afterEach(async () => {
    await other.query('rollback')
    await sluice.db.script(`drop table if exists sluice.done_${old}, sluice.failed_${old}`)
  })

  it('warns once if its role may not create tables, and does the rest', async () => {
    const { db } = sluice
    const lines: string[] = []
    const log = { debug() {}, info() {}, error() {}, warn: (message: string) => void lines.push(message) }
    let nowMs = 0
    const clock = { ...systemClock, monotonicMs: () => nowMs }
    const at = storeOn(db, { clock, log })
    const maintenance = new Maintenance(at, new RetentionSettings(at, {}))
    const [newest] = await db.query<{ name: string }>(
      `select max(relname) as name from pg_class where relname ~ '^done_2\\d{7}$'`,
    )
    const name = newest?.name
    await db.script(`drop table sluice.${name}; revoke create on schema sluice from current_user`)
    try {
      await db.query(
        `insert into sluice.idempotency values ('t', 'k', gen_random_uuid(), sluice.now() - interval '1 day')`,
      )
      for (let i = 0; i < 2; i++) {
        nowMs += 2 * hour
        await maintenance.run()
      }
      expect(lines.filter((line) => line.includes('may not do all of the maintenance'))).toHaveLength(1)
      expect(await count(db, 'sluice.idempotency')).toBe(0)
    } finally {
      await db.script('grant create on schema sluice to current_user')
      await maintenance.prune({})
    }
    expect(await count(db, `pg_class where relname = '${name}'`)).toBe(1)
  })

  it('deletes all that is past its retention, however much it is, and nothing else', async () => {
    const { db } = sluice
    const aged = `(extract(epoch from sluice.now()) * 1000000)::bigint - 8 * 86400000000`
    await db.query(
      `insert into sluice.idempotency select 't', i::text, gen_random_uuid(), sluice.now() + make_interval(secs => case when i > 25000 then 9 else -9 end)
       from generate_series(1, 25003) i`,
    )
    // Two buckets' rows of last week, the newest of each among them; and one bucket with a row of today.
    await db.query(
      `insert into sluice.ledger (bucket, n, at, debt, version, units)
       select i % 2, i, ${aged} + i, '{1}', 1, 1 from generate_series(1, 45000) i`,
    )
    await db.query(`insert into sluice.ledger (bucket, n, at, debt, version, units)
      values (1, 50000, ${aged} + 8 * 86400000000, '{1}', 1, 1)`)
    await db.query(`insert into sluice.arrival select '5'::xid8, 0, 1, i, 1 from generate_series(1, 45000) i`)
    await db.query(`insert into sluice.class_state values (0, 1, pg_current_snapshot(), 0)`)
    await db.query(`insert into sluice.class_state values (0, 2, pg_current_snapshot(), 0)`)
    await db.script(`${finished('done', 1, 8)}; ${finished('done', 2, 6)}; ${finished('failed', 3, 8)}`)
    await sluice.prune()
    expect(await count(db, 'sluice.idempotency')).toBe(3)
    expect(await db.query('select bucket::int, n::int from sluice.ledger order by n')).toEqual([
      { bucket: 0, n: 45_000 },
      { bucket: 1, n: 50_000 },
    ])
    expect(await count(db, 'sluice.arrival')).toBe(0)
    expect(await db.query('select right(id::text, 1) as n from sluice.done_late')).toEqual([{ n: '2' }])
    expect(await count(db, 'sluice.failed')).toBe(0)
  })

  it('keeps no partition locked while it works on something slow', async () => {
    await sluice.db.script(`${partition('done')}; ${partition('failed')}; ${finished('failed', 1, 6)}`)
    await other.query('begin; lock table sluice.ledger in share mode')
    await sluice.db.query(`insert into sluice.idempotency values ('t', 'held', gen_random_uuid(), sluice.now())`)
    const pruned = later(sluice.prune())
    await until(async () => (await blocked(sluice.db)) > 0, 'it waits for the ledger')
    // Locks of the sessions that wait: an autovacuum of the server may hold others.
    const held = `pg_locks l join pg_stat_activity a using (pid)
      where a.datname = current_database() and pid in (select pid from pg_locks where not granted)
        and l.relation in ('sluice.done'::regclass, 'sluice.idempotency'::regclass)`
    expect(await count(sluice.db, held)).toBe(0)
    await other.query('rollback')
    expect((await pruned).partitions).toMatchObject([{ name: `done_${old}` }])
    expect(await count(sluice.db, 'sluice.failed')).toBe(1)
  })

  it('finds no recent end of a job among many without a full read, even where the server has no summaries of them', async () => {
    const { db } = sluice
    await db.script(`${partition('done')}; alter table sluice.done_${old} set (autovacuum_enabled = off)`)
    await db.script(`${finished('done', 'i', 20)} from generate_series(1, 40000) i`)
    const read = async () => {
      const sql = `explain (analyze, buffers, format json) select exists (select from sluice.done_${old} where finished_at >= now())`
      return db.transaction(async (tx) => {
        await tx.query('set local enable_seqscan = off')
        const [row] = await tx.query<{ 'QUERY PLAN': [{ Plan: Record<string, number> }] }>(sql)
        const { 'Shared Hit Blocks': hit = 0, 'Shared Read Blocks': other = 0 } = row?.['QUERY PLAN'][0].Plan ?? {}
        return hit + other
      })
    }
    expect(await read()).toBeGreaterThan(200)
    await summarizePartitions(db, day)
    expect(await read()).toBeLessThan(40)
    expect((await sluice.prune({ keepDone: '19d' })).partitions).toMatchObject([
      { name: `done_${old}`, rows: expect.any(Number) },
    ])
  })

  it('lists in a dry run what it would delete, deletes nothing, and keeps done and failed jobs apart', async () => {
    const { db } = sluice
    await db.script(`${partition('done')}; ${partition('failed')}`)
    await db.script(`${finished('done', 1, 20)}; ${finished('done', 2, 20)}; ${finished('failed', 3, 20)}`)
    await db.script(`create table sluice.aside (like sluice.done); insert into sluice.aside select * from sluice.failed;
      drop table sluice.failed_${old}; insert into sluice.failed_late select * from sluice.aside; drop table sluice.aside`)
    await db.query(
      `insert into sluice.idempotency select 't', i::text, gen_random_uuid(), sluice.now() + make_interval(hours => 2 * i - 7) from generate_series(1, 5) i`,
    )
    await db.query(
      `insert into sluice.ledger (bucket, n, at, debt, version, units) select 1, i, i, '{1}', 1, 1 from generate_series(1, 4) i`,
    )
    const dropped = { name: `done_${old}`, rows: 2, bytes: expect.toSatisfy((bytes) => Number(bytes) >= 8_192) }
    const rest = { late: 0, keys: 3, ledger: 3 }
    const keep = { keepDone: '19d', keepFailed: '21d' } as const
    expect(await sluice.prune({ dryRun: true, ...keep, keepDone: '21d' })).toEqual({ partitions: [], ...rest })
    for (let times = 0; times < 2; times++)
      expect(await sluice.prune({ dryRun: true, ...keep })).toEqual({ partitions: [dropped], ...rest })
    expect(await sluice.prune({ dryRun: true })).toEqual({ partitions: [dropped], ...rest, late: 1 })
    expect(await sluice.prune(keep)).toEqual({ partitions: [dropped], ...rest, buckets: 0 })
    expect([await count(db, 'sluice.done'), await count(db, 'sluice.failed')]).toEqual([0, 1])
    expect(await sluice.prune({ keepFailed: '19d' })).toMatchObject({ late: 1, keys: 0, ledger: 0 })
  })

  it('uses for all processes the retention that one of them set, until another sets a different one', async () => {
    const { url } = sluice
    const open = (options: object) => Sluice.open({ store: url as string, ...options })
    const said = await open({ retention: { failed: '30d' }, prune: { at: '03:00', zone: 'Europe/Berlin' } })
    const quiet = await open({})
    const other = await open({ retention: { failed: '19d' } })
    const worker = await said.work([quietTask('some')])
    const settings = () => quiet.db.query('select name, value from sluice.setting order by name')
    await until(async () => (await settings()).length === 2, 'the worker has said it')
    expect(await settings()).toEqual([
      { name: 'keepFailedMs', value: 30 * day },
      { name: 'prune', value: { at: '03:00', zone: 'Europe/Berlin', for: 4 * 3_600_000 } },
    ])
    await quiet.db.script(`${finished('done', 1, 20)}; ${finished('failed', 2, 20)}; ${finished('failed', 3, 31)}`)
    expect(await quiet.prune({ dryRun: true })).toMatchObject({ late: 2 })
    // The setting of the fleet overrides the start option of one process, unless a call sets it for this once.
    expect(await other.prune({ dryRun: true })).toMatchObject({ late: 2 })
    expect(await other.prune({ dryRun: true, keepFailed: '19d' })).toMatchObject({ late: 3 })
    await worker.stop()
    await Promise.all([said, quiet, other].map((each) => each.close()))
    for (const options of [
      { retention: { done: '-1d' } },
      { prune: { at: '3:00' } },
      { prune: { at: '03:00', zone: 'x' } },
    ])
      await expect(open(options)).rejects.toMatchObject({ code: 'SLUICE_BAD_OPTION' })
  })

  it('does not drop a job that finishes just then', async () => {
    await sluice.db.script(partition('done'))
    await other.query('begin')
    await other.query(finished('done', 1, 0))
    let isOver = false
    const pruned = later(sluice.prune().finally(() => (isOver = true)))
    await until(async () => isOver || (await blocked(sluice.db)) > 0, 'it waits for the partition')
    await other.query('commit')
    await pruned
    expect(await count(sluice.db, 'sluice.done')).toBe(1)
  })

  it('does not wait for an open transaction that uses an expired key again', async () => {
    await sluice.db.query(`insert into sluice.idempotency values ('t', 'again', gen_random_uuid(), sluice.now())`)
    await other.query('begin')
    await sluice.send(quietTask('t'), {}, { idempotencyKey: 'again', tx: other })
    await sluice.prune()
    await other.query('commit')
    expect(await count(sluice.db, `sluice.idempotency where key = 'again'`)).toBe(1)
  })
})

it.each([
  { how: 'forward', byMs: 40 * day },
  { how: 'back', byMs: -40 * day },
])('"a step of the store\'s clock by 40 days $how makes nothing older"', async ({ byMs }) => {
  const sluice = await openOn(engines[0])
  const { db } = sluice
  const startMs = Date.UTC(2030, 0, 1)
  const store = await ownClock(db, startMs)
  await watchClock(db)
  let [realMs, offMs] = [0, 0]
  const clock = { ...systemClock, monotonicMs: () => realMs, bootMs: () => realMs }
  const storeClock = new StoreClock()
  const log = { debug() {}, info() {}, warn() {}, error() {} }
  const epoch = new StoreEpoch(storeOn(db, { clock, log }), storeClock)
  const pass = async (ms: number) => {
    realMs += ms
    await store.set(startMs + realMs + offMs)
  }
  const kept = async () => {
    const at = storeOn(db, { clock })
    const maintenance = new Maintenance(at, new RetentionSettings(at, {}), () => storeClock.cap(realMs))
    const said = await maintenance.prune({ dryRun: true })
    const jobs = await count(db, 'sluice.done')
    const keys = await count(db, 'sluice.idempotency')
    await maintenance.prune({})
    // The dry run announces what the run does.
    expect(said.keys).toBe(keys - (await count(db, 'sluice.idempotency')))
    expect(said.partitions.reduce((sum, { rows }) => sum + rows, said.late)).toBe(
      jobs - (await count(db, 'sluice.done')),
    )
    return [await count(db, 'sluice.done'), await count(db, 'sluice.idempotency')]
  }
  const keyed = (key: string) => sluice.send(quietTask('t'), {}, { idempotencyKey: key })
  await store.set(startMs)
  await epoch.check()
  await db.script(`${partition('done')}; ${finished('done', 1, 0)}`)
  await keyed('before')
  await pass(hour)
  await epoch.check()
  offMs = byMs
  await pass(0)
  // Before any claim has looked, and after.
  if (byMs > 0) expect(await kept()).toEqual([1, 1])
  await epoch.check()
  expect(await kept()).toEqual([1, 1])
  await db.query(finished('done', 2, 0))
  await keyed('after')
  for (let hours = 1; hours < 23; hours++) {
    await pass(hour)
    await epoch.check()
  }
  expect(await kept()).toEqual([2, 2])
  for (let days = 0; days < 5; days++) {
    await pass(day)
    await epoch.check()
  }
  // Rows written by a clock that was then set back look younger than they are, and stay for longer.
  expect(await kept()).toEqual([2, byMs > 0 ? 0 : 1])
  await pass(1.5 * day)
  await epoch.check()
  expect((await kept())[0]).toBe(byMs > 0 ? 0 : 2)
  await sluice.close()
})

it('"a step of the store\'s clock forward frees no idempotency key within its day"', async () => {
  const sluice = await openOn(engines[0])
  const { db } = sluice
  const startMs = Date.UTC(2030, 0, 1)
  const store = await ownClock(db, startMs)
  await watchClock(db)
  const send = (key: string) => sluice.send(quietTask('stepped'), {}, { idempotencyKey: key })
  const before = await send('before')
  await store.set(startMs + hour + 2 * day)
  expect(await undoClockStep(db, 2 * day * 1_000)).toBe('moved')
  const after = await send('after')
  expect(await send('before')).toBe(before)
  await store.set(startMs + 24.5 * hour + 2 * day)
  expect(await send('before')).not.toBe(before)
  expect(await send('after')).toBe(after)
  await sluice.close()
})
