import pg from 'pg'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { sqlOn } from '../../src/db/store.ts'
import { bloat, snapshots, type StorageAt, tableSizes, wraparound } from '../../src/cli/storage.ts'
import type { Db } from '../../src/db/db.ts'
import { Sluice } from '../../src/sluice.ts'
import { startPostgres } from '../servers/postgres.ts'
import { until } from '../until.ts'
import { createProject, objects } from './program.ts'
import { freshDatabase } from '../servers/database.ts'
import { leastIdAt } from '../store/engine.ts'

let server: Awaited<ReturnType<typeof startPostgres>>
let sluice: Sluice
let admin: pg.Client
let at: StorageAt

beforeAll(async () => {
  server = await startPostgres({ settings: { max_prepared_transactions: 2, autovacuum_naptime: '1d' } })
  sluice = await Sluice.open({ store: server.url })
  at = { sql: sqlOn(sluice.db), schema: 'sluice', isEmbedded: false }
  const url = new URL(server.adminUrl)
  url.pathname = '/sluice'
  admin = new pg.Client(url.href)
  await admin.connect()
})
afterAll(async () => {
  await admin.end()
  await sluice.close()
  await server.close()
})

const clock = (minutes: number) =>
  sluice.db.script(
    `create or replace function sluice.now() returns timestamptz language sql volatile as
     $$ select clock_timestamp() + interval '${minutes} min' $$`,
  )

it('doctor names a prepared transaction that keeps dead rows, how to end it, and which views its role may not read', async () => {
  await admin.query(`begin; select pg_current_xact_id()`)
  expect(await snapshots(at)).toMatchObject({ status: 'ok', text: expect.stringContaining('grant pg_read_all_stats') })
  await admin.query(`prepare transaction 'left'`)
  expect(await snapshots(at)).toEqual({ status: 'ok', text: 'no snapshot is older than 5 min' })
  await clock(6)
  expect(await snapshots(at)).toEqual({
    status: 'warn',
    text: expect.stringMatching(/prepared transaction left \(of postgres, 6 min\); end .* `rollback prepared 'left'`$/),
  })
  await clock(0)
  await admin.query(`rollback prepared 'left'`)
  // A source that may not be read is reported, and the others are read all the same.
  const db = {
    ...sluice.db,
    query: (sql: string, params?: unknown[]) =>
      sql.includes('pg_prepared_xacts') ? Promise.reject(new Error('permission denied')) : sluice.db.query(sql, params),
  } as Db
  expect(await snapshots({ ...at, sql: sqlOn(db) })).toMatchObject({
    status: 'ok',
    text: expect.stringContaining('prepared transactions could not be read (permission denied)'),
  })
})

it('dead rows that autovacuum leaves are a problem until they are vacuumed, and so is an autovacuum that is off', async () => {
  expect(await bloat(at)).toMatchObject({ status: 'ok' })
  await sluice.db.query(
    `insert into sluice.idempotency select 't', i::text, gen_random_uuid(), sluice.now() from generate_series(1, 110000) i`,
  )
  await sluice.db.query('delete from sluice.idempotency')
  await until(async () => (await bloat(at))?.status === 'warn', 'the statistics tell')
  expect(await bloat(at)).toMatchObject({
    text: expect.stringMatching(/idempotency \(110000 dead, \d+ live, not vacuumed yet\).*`vacuum sluice.idempotency`/),
  })
  const project = createProject({ DATABASE_URL: server.url })
  const shown = await project.runWarm(['status', '--storage'])
  expect(shown).toMatchObject({ code: 0, out: expect.stringMatching(/^bloat +dead rows[^]*^TABLE +ROWS +DEAD/m) })
  const [status] = objects((await project.runWarm(['status', '--storage', '--json'])).out)
  expect(status).toMatchObject({
    problems: [{ check: 'bloat', text: expect.stringContaining('idempotency') }],
    alarms: [],
    storage: expect.arrayContaining([expect.objectContaining({ table: 'idempotency', dead: 110_000 })]),
  })
  await project.close()
  await sluice.db.script('vacuum sluice.idempotency')
  await until(async () => (await bloat(at))?.status === 'ok', 'it is clean')
  await sluice.db.script('alter table sluice.lane set (autovacuum_enabled = false)')
  expect(await bloat(at)).toMatchObject({ status: 'warn', text: expect.stringContaining('off for lane') })
  await sluice.db.script('alter table sluice.lane reset (autovacuum_enabled)')
  expect((await tableSizes(at)).map((one) => one.table)).toEqual(
    expect.arrayContaining(['done', 'done_late', 'ledger']),
  )
})

it('the age of the oldest row is a problem long before PostgreSQL refuses work', async () => {
  expect(await wraparound(at)).toMatchObject({ status: 'ok' })
  const aged = (age: number) => wraparound({ ...at, sql: sqlOn({ query: async () => [{ age, multi: 5 }] as never }) })
  expect(await aged(700e6)).toMatchObject({ status: 'warn', text: expect.stringContaining('700 of 2,100 million') })
  expect(await aged(1_600e6)).toMatchObject({ status: 'fail' })
})

it('doctor checks an embedded engine only for what applies to it', async () => {
  const own = await Sluice.open({ store: (await freshDatabase()).url })
  const embedded = { sql: sqlOn(own.db), schema: 'sluice', isEmbedded: true }
  expect(await snapshots(embedded)).toMatchObject({ status: 'ok' })
  expect(await bloat(embedded)).toMatchObject({ status: 'ok' })
  expect(await wraparound(embedded)).toMatchObject({ status: 'ok' })
  await own.close()
})

it('prune lists what it would drop, and then drops it', async () => {
  const day = 86_400_000
  const project = createProject({ DATABASE_URL: server.url })
  await sluice.db.script(`create table sluice.done_20200101 partition of sluice.done
    for values from (${leastIdAt(Date.UTC(2020, 0, 1))}) to (${leastIdAt(Date.UTC(2020, 0, 1) + day)});
    insert into sluice.idempotency values ('t', 'k', gen_random_uuid(), sluice.now() - interval '1 s')`)
  for (let times = 0; times < 2; times++)
    expect(await project.runWarm(['prune', '--dry-run'])).toMatchObject({
      code: 0,
      out: expect.stringMatching(
        /^would delete: done_20200101 \(0 jobs, \d+ kB\)\nwould delete: 1 idempotency keys\n$/,
      ),
    })
  expect(await project.runWarm(['prune', '--keep-done', 'x'])).toMatchObject({
    code: 2,
    err: expect.stringContaining('SLUICE_BAD_OPTION'),
  })
  expect(objects((await project.runWarm(['prune', '--keep-done', '3650d', '--json', '--dry-run'])).out)).toEqual([
    { dryRun: true, partitions: [], late: 0, keys: 1, ledger: 0 },
  ])
  expect(objects((await project.runWarm(['prune', '--json'])).out)).toMatchObject([
    { dryRun: false, partitions: [{ name: 'done_20200101', rows: 0 }], late: 0, keys: 1, ledger: 0, buckets: 0 },
  ])
  project.write('sluice.config.ts', `export default { retention: { failed: 'long' } }`)
  expect(await project.run(['prune'])).toMatchObject({ code: 2, err: expect.stringContaining('retention.failed') })
  await project.close()
})
