import pg from 'pg'
import { expect, it } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import { checks } from '../../src/cli/checks.ts'
import { migrate } from '../../src/db/migrate.ts'
import { openPg } from '../../src/db/pg.ts'
import { enter } from '../claim/engine.ts'
import { freshDatabase } from '../servers/database.ts'

it('doctor names a transaction that has held back vacuuming for more than 5 minutes', async () => {
  const { url } = await freshDatabase()
  const db = openPg({ url, clock: systemClock })
  const other = new pg.Client({ connectionString: url, application_name: 'tool' })
  await other.connect()
  await migrate(db)
  const found = (minutes: number) =>
    db
      .script(
        `create or replace function sluice.now() returns timestamptz language sql volatile as
         $$ select clock_timestamp() + interval '${minutes} min' $$`,
      )
      .then(() =>
        checks['snapshots']?.({ store: { db, url, directUrl: url, owner: false, embedded: false }, schema: 'sluice' }),
      )
  await other.query('begin isolation level repeatable read; select 1')
  const { rows } = await other.query<{ pid: number }>('select pg_backend_pid() as pid')
  expect(await found(4)).toMatchObject({ status: 'ok' })
  expect(await found(6)).toMatchObject({
    status: 'warn',
    text: expect.stringContaining(
      `pid ${rows[0]?.pid} (tool, idle in transaction, 6 min); end them, the first by \`select pg_terminate_backend(${rows[0]?.pid})\``,
    ),
  })
  await other.end()
  await db.close()
})

it('doctor notices a server that takes no writes, as a standby does', async () => {
  const { url, adminUrl } = await freshDatabase()
  const server = async () => {
    const db = openPg({ url, clock: systemClock })
    const found = await checks['server']?.({
      store: { db, url, directUrl: url, owner: false, embedded: false },
      schema: 'sluice',
    })
    await db.close()
    return found
  }
  expect(await server()).toMatchObject({ status: 'ok' })
  const admin = new pg.Client(adminUrl)
  await admin.connect()
  await admin.query(`alter database ${new URL(url).pathname.slice(1)} set default_transaction_read_only = on`)
  expect(await server()).toMatchObject({
    status: 'fail',
    text: expect.stringMatching(/^PostgreSQL \d.* read-only: is this a replica\?/),
  })
  await admin.query(`alter database ${new URL(url).pathname.slice(1)} reset default_transaction_read_only`)
  await admin.end()
})

it('doctor compares the connections of processes with what the server, the database and the role allow', async () => {
  const { url, adminUrl } = await freshDatabase()
  const db = openPg({ url, clock: systemClock })
  const found = () =>
    checks['connections']?.({ store: { db, url, directUrl: url, owner: false, embedded: false }, schema: 'sluice' })
  const admin = new pg.Client(adminUrl)
  await admin.connect()
  const allow = (most: number) =>
    admin.query(`alter database ${new URL(url).pathname.slice(1)} connection limit ${most}`)
  await allow(50)
  expect(await found()).toMatchObject({ status: 'ok', text: expect.stringContaining('accepts 50 connections') })
  for (let pid = 1; pid <= 3; pid++)
    await db.query('update sluice.worker set pid = $1 where id = $2', [pid, await enter(db)])
  expect(await found()).toMatchObject({
    status: 'warn',
    text: expect.stringMatching(/3 programs with workers may open 54, .*: raise max_connections/),
  })
  await allow(-1)
  await admin.end()
  await db.close()
})
