/** Settings of sessions that would break what Sluice promises: commits that do not wait for the disk, snapshots that are too old. */
import { randomUUID } from 'node:crypto'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { hash64, newId } from '../../src/core/hash.ts'
import { limit } from '../../src/limits/limit.ts'
import { Sluice } from '../../src/sluice.ts'
import { claim, count, engines, enter, quietTask } from '../claim/engine.ts'
import { freshDatabase } from '../servers/database.ts'
import { fn } from '../servers/fn.ts'
import { startPgbouncer } from '../servers/pgbouncer.ts'
import { startPostgres } from '../servers/postgres.ts'
import { until } from '../until.ts'

const calls = limit('calls', { window: '1000/h', concurrency: 1_000 })
const work = quietTask('work', [calls])
const bucket = hash64('calls')

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
    'a claim': () => claim(sluice.db, worker, ['work'], 3),
    'a take': () => sluice.takes.take(calls),
  }
  const kept = () =>
    sluice.db
      .query(`select (select count(*) from sluice.job)::int as jobs, (select count(*) from sluice.claim)::int as claims,
      (select count(*) from sluice.ledger)::int as grants, (select count(*) from sluice.lease)::int as places`)
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
    if (name === 'a claim') expect(before).toMatchObject([{ claims: 1 }])
  }
})

describe.each(engines)('on $name', ({ store }) => {
  let sluice: Sluice
  let worker: string
  const statements: Record<string, [sql: string, ...params: unknown[]]> = {
    'send in SQL': [`select sluice.send('work', '{}')`],
    'a claim': [`select * from ${fn}.claim_jobs($1, $2, null, '{work}', 1, null, false)`, newId(), 'worker'],
    'a finish': [
      `select ${fn}.finish_attempts($1,'{}',$2,$3,'{1}','{done}','{null}',null,null,null,null,null) as refused`,
      'claims',
      'seqs',
      'ids',
    ],
    'a further grant': [
      `select * from ${fn}.acquire_grant($1,'{calls}','{1}',null,null,null,$2,$3)`,
      newId(),
      'id',
      'claim',
    ],
    'a settlement': [
      `select lost from ${fn}.settle_attempt($1,$2,'calls',3,$3,'{1}',false,null)`,
      'id',
      'claim',
      'claims',
    ],
    'a take': [
      `select * from ${fn}.acquire_grant($1,'{calls}','{1}',null,null,null,null,null,$2)`,
      randomUUID(),
      JSON.stringify({ holder: newId(), life: 15_000_000 }),
    ],
    'a hold': [`select ${fn}.hold_buckets($1, 1000000, null)`, [bucket]],
    'a pause of a limit': [`select ${fn}.pause_limit('calls', '', 'why', 'me')`],
    'a gate': [`select ${fn}.define_gate('night', null, '{work}', null, null, null, null, 'why', 'me', null)`],
    'a cancellation': [`select ${fn}.cancel_job($1, 'why')`, 'id'],
    'a setting': [`insert into sluice.setting (name, value, at) values ('x', '"1"', sluice.now())`],
  }
  let known: Record<string, unknown>
  beforeAll(async () => {
    sluice = await Sluice.open({ store: await store() })
    worker = await enter(sluice.db)
    await sluice.send(work, {})
    await sluice.send(work, {})
    const { jobs } = await claim(sluice.db, worker, ['work'], 1)
    const [job] = jobs
    known = { worker, claim: job?.claim, id: job?.id, claims: [job?.claim], seqs: [job?.seq], ids: [job?.id] }
  })
  afterAll(() => sluice.close())

  const given = (param: unknown) => (typeof param === 'string' && param in known ? known[param] : param)

  /** The setting after a statement, in a transaction that began with another one. */
  const levelAfter = async ([sql, ...params]: [string, ...unknown[]], level: string) => {
    let after: unknown
    const undone = new Error('only to look')
    const looked = sluice.db.transaction(async (tx) => {
      await tx.query(`set local synchronous_commit = ${level}`)
      await tx.query(sql, params.map(given))
      after = (await tx.query<{ level: string }>(`select current_setting('synchronous_commit') as level`))[0]?.level
      throw undone
    })
    await expect(looked).rejects.toBe(undone)
    return after
  }

  it.each(Object.keys(statements))('the commit waits for the disk after %s', async (name) => {
    const statement = statements[name] as [string]
    expect(await levelAfter(statement, 'off')).toBe('on')
    expect(await levelAfter(statement, 'local')).toBe('local')
    expect(await levelAfter(['select 1'], 'off')).toBe('off')
  })

  it.each(['repeatable read', 'serializable'])(
    'nothing is granted at isolation level %s, and sends go on',
    async (level) => {
      const at = (sql: string, params: unknown[]) =>
        sluice.db.transaction(async (tx) => {
          await tx.query(`set transaction isolation level ${level}`)
          return tx.query(sql, params)
        })
      const granting = ['a claim', 'a further grant', 'a take', 'a hold'] as const
      for (const name of granting) {
        const [sql, ...params] = statements[name] as [string]
        await expect(at(sql, params.map(given)), name).rejects.toMatchObject({
          code: 'SLW03',
          message: expect.stringContaining(level) as string,
        })
      }
      expect(await at(...([statements['send in SQL']?.[0], []] as [string, unknown[]]))).toHaveLength(1)
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
  expect(await count(sluice.db, 'sluice.claim')).toBe(1)
})
