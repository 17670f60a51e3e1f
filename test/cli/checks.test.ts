import pg from 'pg'
import { expect, it } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import { checks } from '../../src/cli/checks.ts'
import { migrate } from '../../src/db/migrate.ts'
import type { Opened } from '../../src/db/open.ts'
import { openPg } from '../../src/db/pg.ts'
import { limit, Sluice, task } from '../../src/index.ts'
import { enter } from '../claim/engine.ts'
import { freshDatabase } from '../servers/database.ts'
import { startRabbit } from '../servers/rabbitmq.ts'
import { startRedis } from '../servers/redis.ts'
import { connectRedis } from '../servers/resp.ts'
import { until } from '../until.ts'

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

it('doctor compares what Redis accepts with what is connected, and with what workers may open', async (context) => {
  const redis = await startRedis()
  context.onTestFinished(() => redis.close())
  const admin = await connectRedis(redis.port)
  context.onTestFinished(() => admin.close())
  const crm = limit('crm', { rate: '100/s' })
  const note = task('note', { limits: [crm], run: () => undefined })
  const { url } = await freshDatabase()
  const sluice = await Sluice.open({ store: url, redis: redis.url, celeryBroker: redis.url })
  context.onTestFinished(() => sluice.close())
  const connected = async () =>
    String(await admin.send('CLIENT', ['LIST']))
      .trim()
      .split('\n').length
  const before = await connected()
  await sluice.work([note], { celery: ['celery'] })
  await until(async () => (await connected()) - before >= 5, 'the worker has connected')
  expect((await connected()) - before).toBeLessThanOrEqual(6)
  const store = { db: sluice.db, url, directUrl: url, owner: false, embedded: false }
  const found = () => checks['clients']?.({ store, schema: 'sluice', redis: redis.url })
  const most = (count: number) => admin.send('CONFIG', ['SET', 'maxclients', String(count)])
  await most(100)
  const text = expect.stringMatching(
    /^Redis accepts 100 clients, and has \d+, those of workers among them; 1 program with workers may open 6$/,
  )
  expect(await found()).toEqual({ status: 'ok', text })
  // Its clients are among those that are connected, and are not counted twice.
  await most((await connected()) + 4)
  expect(await found()).toMatchObject({ status: 'ok' })
  await until(async () => {
    await most((await connected()) + 1)
    const { status, text: said = '' } = (await found()) ?? {}
    return status === 'warn' && said.endsWith('may open 6: raise maxclients')
  }, 'the client of doctor is the last one that Redis accepts')
  expect(await checks['clients']?.({ store, schema: 'sluice' })).toBe(undefined)
  const away = 'redis://127.0.0.1:1'
  expect(await checks['clients']?.({ store, schema: 'sluice', redis: away })).toBe(undefined)
})

it('doctor finds a RabbitMQ that allows too few channels, or no further connection', async (context) => {
  const rabbit = await startRabbit()
  context.onTestFinished(() => rabbit.close())
  const host = await rabbit.fresh()
  const store = {} as Opened
  const found = (amqp = host.url) => checks['channels']?.({ store, schema: 'sluice', amqp })
  // As with Redis, `doctor` shows the error, whether or not a process uses it yet.
  await expect(found('amqp://127.0.0.1:1')).rejects.toThrow('there is no RabbitMQ at 127.0.0.1:1: ')
  expect(await found()).toMatchObject({ status: 'ok', text: expect.stringMatching(/^RabbitMQ accepts \d+ channels/) })
  await rabbit.evaluate('application:set_env(rabbit, channel_max, 8)')
  expect(await found()).toMatchObject({
    status: 'warn',
    text: expect.stringMatching(
      /accepts 8 channels .* up to 16, and one for each queue that it reads: raise channel_max/,
    ),
  })
  await rabbit.evaluate(`rabbit_vhost_limit:set(<<"${host.name}">>, [{<<"max-connections">>, 0}], <<"test">>)`)
  await expect(found()).rejects.toThrow(/a limit of connections is reached/)
})
