import { randomUUID } from 'node:crypto'
import net from 'node:net'
import { afterAll, afterEach, beforeAll, expect, it, onTestFinished } from 'vitest'
import pg from 'pg'
import { storeOn } from '../../src/db/store.ts'
import { type Clock, systemClock } from '../../src/core/clock.ts'
import type { Db } from '../../src/db/db.ts'
import { LateRequests } from '../../src/db/late-requests.ts'
import { openPg } from '../../src/db/pg.ts'
import { freshDatabase } from '../servers/database.ts'
import { later } from '../until.ts'
import { attemptCalls } from '../claim/engine.ts'

let url: string
let admin: pg.Client
let pooler: net.Server
let throughPooler: string
const open: Db[] = []

const opened = (to: string, connections = 10) => {
  const db = openPg({ url: to, clock: systemClock, connections })
  open.push(db)
  return db
}
const setDefault = (level: string) =>
  admin.query(`alter database ${new URL(url).pathname.slice(1)} set default_transaction_isolation = '${level}'`)

/** The properties of a pooler for its clients: no start-up options, and a process id that is not the backend's. */
function startPooler(target: URL): Promise<net.Server> {
  const server = net.createServer((client) => {
    const backend = net.connect(Number(target.port), target.hostname)
    let isGreeted = false
    client.once('data', (startup: Buffer) => {
      if (startup.includes('options\0')) client.destroy()
      backend.write(startup)
      client.pipe(backend)
    })
    backend.on('data', (bytes: Buffer) => {
      const key = isGreeted ? -1 : bytes.indexOf(Buffer.from('K\0\0\0\x0c'))
      if (key >= 0) {
        isGreeted = true
        bytes.writeInt32BE(bytes.readInt32BE(key + 5) + 1, key + 5)
      }
      client.write(bytes)
    })
    for (const [one, other] of [
      [client, backend],
      [backend, client],
    ] as const)
      one.on('error', () => {}).on('close', () => other.destroy())
  })
  return new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(server)))
}

beforeAll(async () => {
  url = (await freshDatabase()).url
  admin = new pg.Client(url)
  await admin.connect()
  pooler = await startPooler(new URL(url))
  const changed = new URL(url)
  changed.port = String((pooler.address() as net.AddressInfo).port)
  changed.hostname = '127.0.0.1'
  throughPooler = changed.href
})
afterEach(() => Promise.all(open.splice(0).map((db) => db.close())))
afterAll(async () => {
  await admin.end()
  pooler.close()
})

it('connections have a name, which the URL may change and a pooler keeps', async () => {
  const named = (at: string) => opened(at).query(`select current_setting('application_name') as name`)
  expect(await named(url)).toEqual([{ name: 'sluice' }])
  expect(await named(`${url}?application_name=shop`)).toEqual([{ name: 'shop' }])
  expect(await named(throughPooler)).toEqual([{ name: '' }])
})

it('a transaction begins at read committed, whatever the default of the database is', async () => {
  await setDefault('repeatable read')
  const db = opened(url)
  const level = `select current_setting('transaction_isolation') as level`
  const committed = [{ level: 'read committed' }]
  expect(await db.query(level)).toEqual(committed)
  expect(await db.call(attemptCalls.claim, level, [])).toEqual(committed)
  expect(await db.transaction((tx) => tx.query(level))).toEqual(committed)
})

it('a transaction through a pooler refuses another isolation level, and leaves no setting on the connection', async () => {
  await setDefault('repeatable read')
  await expect(opened(throughPooler).query('select 1')).rejects.toMatchObject({ code: 'SLUICE_BAD_ISOLATION' })
  await setDefault('read committed')
  const db = opened(throughPooler)
  const left = `select current_setting('idle_in_transaction_session_timeout') as idle,
    (select count(*)::int from pg_prepared_statements) as prepared`
  for (let i = 0; i < 2; i++) expect(await db.call('left', left, [])).toEqual([{ idle: '0', prepared: 0 }])
  expect(await opened(url).call('left', left, [])).toEqual([{ idle: '1min', prepared: 1 }])
})

it('a server without a free connection is said to have none, not to be silent', async ({ onTestFinished: after }) => {
  const { url: own, adminUrl } = await freshDatabase()
  const above = new pg.Client(adminUrl)
  await above.connect()
  const role = `crowded_${randomUUID().replaceAll('-', '')}`
  await above.query(`create role ${role} login password 'secret' connection limit 0`)
  after(async () => {
    await above.query(`drop role ${role}`)
    await above.end()
  })
  const to = new URL(own)
  to.username = role
  to.password = 'secret'
  let nowMs = 0
  const clock = { ...systemClock, sleep: async () => {}, monotonicMs: () => (nowMs += 10_000) }
  const db = openPg({ url: to.href, clock })
  open.push(db)
  await expect(db.query('select 1')).rejects.toMatchObject({
    code: 'SLUICE_STORE_UNREACHABLE',
    message: expect.stringMatching(
      /answers, but has no connection free for this process \(too many connections for role/,
    ),
  })
})

it('a connection that listens for weeks leaks no abort listener with its pings', async () => {
  const signals: AbortSignal[] = []
  const enough = new Promise<void>((resolve) => {
    const clock: Clock = {
      ...systemClock,
      sleep: async (_ms, signal) => {
        if (signal !== undefined) signals.push(signal)
        if (signals.length === 20) resolve()
      },
    }
    const db = openPg({ url, clock })
    open.push(db)
    void db.listen('some', () => {})
  })
  await enough
  expect(new Set(signals).size).toBe(1)
})

it('a reply that arrived while this process was stopped is not late', async () => {
  const db = openPg({ url, clock: systemClock, answerMs: 200 })
  open.push(db)
  await db.query('select 1')
  const asked = later(db.query('select 1 as n from pg_sleep(0.05)'))
  // The statement is on its way.
  await new Promise((resolve) => setImmediate(resolve))
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1_000)
  expect(await asked).toEqual([{ n: 1 }])
})

it('statements of the engine do not wait for connections that users keep', async () => {
  const db = opened(url, 1)
  const asked = await db.transaction(async () => [
    await db.call('further', 'select 1 as n', []),
    await storeOn(db).query('select $1::int as n', [2]),
  ])
  expect(asked).toEqual([[{ n: 1 }], [{ n: 2 }]])
})

it('a transaction whose callback throws is rolled back and its connection kept, and a cut connection is reported as such', async () => {
  const db = opened(url, 1)
  const pid = async () => (await db.query<{ pid: number }>('select pg_backend_pid() as pid'))[0]?.pid
  const before = await pid()
  await db.script('create table once (n int primary key)')
  for (let i = 0; i < 2; i++) {
    const failing = db.transaction(async (tx) => {
      await tx.query('insert into once values (1)')
      throw Object.assign(new Error('of the user'), { code: 'ECONNRESET' })
    })
    await expect(failing).rejects.toThrow('of the user')
  }
  expect(await pid()).toBe(before)
  const cut = db.transaction((tx) => tx.query('select pg_terminate_backend(pg_backend_pid())'))
  await expect(cut).rejects.toMatchObject({ code: 'SLUICE_STORE_UNREACHABLE' })
  expect(await pid()).not.toBe(before)
})

it('a connection on which a write is refused is replaced, since its name may lead to the primary by then', async () => {
  const readOnly = (is: string) =>
    admin.query(`alter database ${new URL(url).pathname.slice(1)} set default_transaction_read_only = ${is}`)
  onTestFinished(async () => void (await readOnly('off')))
  const write = 'create table if not exists written (n int)'
  const ways = [
    (db: Db) => db.query(write),
    (db: Db) => db.call(attemptCalls.claim, write, []),
    (db: Db) => db.transaction((tx) => tx.query(write)),
  ]
  for (const way of ways) {
    await readOnly('on')
    const db = opened(url)
    await expect(way(db)).rejects.toMatchObject({ code: '25006' })
    await readOnly('off')
    await way(db)
  }
})

it('a connection whose prepared statements are gone is replaced', async () => {
  const db = opened(url, 1)
  const send = () => db.call('send', 'select 1 as n', [])
  await send()
  await db.query('deallocate all')
  await expect(send()).rejects.toMatchObject({ code: '26000' })
  expect(await send()).toEqual([{ n: 1 }])
})

it('a session that does not end holds up a repetition for some 2 s, however slow the server is', async () => {
  let nowMs = 0
  const clock = { ...systemClock, monotonicMs: () => nowMs, sleep: async (ms: number) => void (nowMs += ms) }
  const late = new LateRequests(clock, false)
  late.add({ pid: 1, since: '1' })
  const query = async () => {
    nowMs += 500
    return { rows: [{ n: 1 }] }
  }
  await late.end({ query } as unknown as pg.ClientBase)
  expect(nowMs).toBeLessThan(3_000)
})

it('a parameter that cannot be serialized is an error of the caller, and costs no connection', async () => {
  const db = opened(url, 1)
  const pid = () => db.query('select pg_backend_pid() as pid')
  const before = await pid()
  const circle: unknown[] = [{}]
  Object.assign(circle[0] as object, { circle })
  await expect(db.query('select $1::text, $2::jsonb', ['a', circle[0]])).rejects.toThrow(TypeError)
  expect(await db.query('select $1::text as text', ['b'])).toEqual([{ text: 'b' }])
  expect(await pid()).toEqual(before)
})

it('a request that found all connections in use says so, and does not blame the server', async () => {
  const db = opened(url, 1)
  const error = await db.transaction(() => db.query('select 1').catch((refused: unknown) => refused))
  expect(error).toMatchObject({
    code: 'SLUICE_STORE_UNREACHABLE',
    message: expect.stringContaining('all connections of this process') as string,
  })
})

it('a store has no statement compiled, on its own connections alone', async () => {
  await admin.query(`alter database ${new URL(url).pathname.slice(1)} set jit = on`)
  expect(await opened(url).query('show jit')).toEqual([{ jit: 'off' }])
  expect(await opened(throughPooler).query('show jit')).toEqual([{ jit: 'on' }])
})
