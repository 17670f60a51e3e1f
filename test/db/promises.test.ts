/** Settings of sessions that would break what Sluice promises: commits that do not wait for the disk, snapshots that are too old. */
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { newId } from '../../src/core/hash.ts'
import { limit } from '../../src/limits/limit.ts'
import { Sluice } from '../../src/sluice.ts'
import { sqlOn } from '../../src/db/store.ts'
import type { Queryable } from '../../src/db/db.ts'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import { defineGate } from '../../src/gates/gates.ts'
import { Jobs } from '../../src/operations/jobs.ts'
import { pausesOn } from '../../src/operations/pauses.ts'
import { claim, claimsInHand, count, engines, enter, finish, quietTask, settle } from '../claim/engine.ts'
import { freshDatabase } from '../servers/database.ts'
import { startPgbouncer } from '../servers/pgbouncer.ts'
import { startPostgres } from '../servers/postgres.ts'
import { until } from '../until.ts'
import { acquire, further, placesTaken } from '../takes/engine.ts'
import { checkClock, hold } from '../limits/engine.ts'
import { jobsLeft } from '../store/engine.ts'

const calls = limit('calls', { window: '1000/h', concurrency: 1_000 })
const work = quietTask('work', [calls])

it('a server killed with -9 under a role with synchronous_commit off loses nothing that was acknowledged', async () => {
  // Only a commit that waits writes the log to the disk.
  const server = await startPostgres({ settings: { wal_writer_delay: '10s', wal_writer_flush_after: '1GB' } })
  onTestFinished(() => server.close())
  const admin = new pg.Client(server.adminUrl)
  await admin.connect()
  await admin.query('alter role sluice set synchronous_commit = off')
  await admin.end()
  const sluice = await Sluice.open({ store: server.url })
  onTestFinished(() => sluice.close())
  const [role] = await sluice.db.query(`select current_setting('synchronous_commit') as level`)
  expect(role).toEqual({ level: 'off' })
  const worker = await enter(sluice.db)
  let own: pg.Client
  const acts = {
    'a send': () => sluice.send(work, {}),
    'sends of many': () => sluice.sendMany(work, [{}, {}, {}]),
    'a send with a key': () => sluice.send(work, {}, { idempotencyKey: newId() }),
    'a send in SQL': () => own.query(`select sluice.send('work', '{}')`),
    'a send in a transaction': async () => {
      await own.query('begin')
      await sluice.send(work, {}, { tx: own })
      await own.query('commit')
    },
    // As workers do after a restart of the server, without which a claim returns nothing.
    'a claim': () => checkClock(sluice.db, null).then(() => claim(sluice.db, worker, ['work'], 3)),
    'a take': () => sluice.takes.take(calls),
  }
  const kept = async () => {
    const { db } = sluice
    const [jobs, grants] = [await jobsLeft(db), await count(db, 'sluice.ledger')]
    return { jobs, grants, claims: await claimsInHand(db), places: await placesTaken(db) }
  }
  for (const [name, act] of Object.entries(acts)) {
    own = new pg.Client(server.url)
    own.on('error', () => {})
    await own.connect()
    await act()
    const before = await kept()
    await server.stop('immediate')
    await server.start()
    await until(
      () =>
        kept().then(
          () => true,
          () => false,
        ),
      'it is back',
    )
    expect(await kept(), name).toEqual(before)
    if (name === 'a claim') expect(before).toMatchObject({ claims: 1 })
  }
})

describe.each(engines)('on $name', ({ store }) => {
  let sluice: Sluice
  let worker: string
  let job: ClaimedJob
  const acts: Record<string, (db: Queryable) => Promise<unknown>> = {
    'send in SQL': (db) => db.query(`select sluice.send('work', '{}')`),
    'a claim': (db) => claim(db, worker, ['work'], 1),
    'a finish': (db) => finish(db, [{ job, outcome: 'done' }], []),
    'a further grant': (db) => further(db, job, ['calls']),
    'a settlement': (db) => settle(db, job, 'calls', 3),
    'a take': (db) => acquire(db, 'calls'),
    'a hold': (db) => hold(db, ['calls'], 1_000_000),
    'a pause of a limit': (db) => pausesOn(sqlOn(db)).pause({ limit: 'calls' }, { reason: 'why' }),
    'a gate': (db) => defineGate(sqlOn(db), 'night', { tasks: ['work'], reason: 'why' }),
    'a cancellation': (db) => new Jobs(sqlOn(db)).cancel(job.id),
    'a setting': (db) => db.query(`insert into sluice.setting (name, value, at) values ('x', '"1"', sluice.now())`),
  }
  beforeAll(async () => {
    sluice = await Sluice.open({ store: await store() })
    worker = await enter(sluice.db)
    await sluice.send(work, {})
    await sluice.send(work, {})
    job = (await claim(sluice.db, worker, ['work'], 1)).jobs[0] as ClaimedJob
  })
  afterAll(() => sluice.close())

  /** The setting after an act, in a transaction that began with another one. */
  const levelAfter = async (act: (db: Queryable) => Promise<unknown>, level: string) => {
    let after: unknown
    const undone = new Error('only to look')
    const looked = sluice.db.transaction(async (tx) => {
      await tx.query(`set local synchronous_commit = ${level}`)
      await act(tx)
      after = (await tx.query<{ level: string }>(`select current_setting('synchronous_commit') as level`))[0]?.level
      throw undone
    })
    await expect(looked).rejects.toBe(undone)
    return after
  }

  it.each(Object.entries(acts))('the commit waits for the disk after %s', async (_, act) => {
    expect(await levelAfter(act, 'off')).toBe('on')
    expect(await levelAfter(act, 'local')).toBe('local')
    expect(await levelAfter((db) => db.query('select 1'), 'off')).toBe('off')
  })

  it.each(['repeatable read', 'serializable'])(
    'nothing is granted at isolation level %s, and sends go on',
    async (level) => {
      const at = (act: ((db: Queryable) => Promise<unknown>) | undefined) =>
        sluice.db.transaction(async (tx) => {
          await tx.query(`set transaction isolation level ${level}`)
          return act?.(tx)
        })
      for (const name of ['a claim', 'a further grant', 'a take', 'a hold'])
        await expect(at(acts[name]), name).rejects.toMatchObject({
          code: 'SLW03',
          message: expect.stringContaining(level) as string,
        })
      expect(await at(acts['send in SQL'])).toHaveLength(1)
    },
  )
})

it('a setting that another client left on a pooled connection does not affect claims', async () => {
  const { url } = await freshDatabase()
  const bouncer = await startPgbouncer(url, 1)
  onTestFinished(() => bouncer.close())
  const sluice = await Sluice.open({ store: bouncer.url, listenUrl: url })
  onTestFinished(() => sluice.close())
  const worker = await enter(sluice.db)
  await sluice.send(work, {})
  const other = new pg.Client(bouncer.url)
  await other.connect()
  await other.query(`set default_transaction_isolation = 'repeatable read'`)
  await expect(claim(sluice.db, worker, ['work'], 1)).rejects.toMatchObject({ code: 'SLW03' })
  await other.query('reset default_transaction_isolation')
  await other.end()
  expect((await claim(sluice.db, worker, ['work'], 1)).jobs).toHaveLength(1)
  expect(await claimsInHand(sluice.db)).toBe(1)
})
