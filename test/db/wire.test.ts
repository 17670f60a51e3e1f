import fs from 'node:fs'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import fc from 'fast-check'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import type { Clock } from '../../src/core/clock.ts'
import { frame, frames, query, text } from '../../src/db/frame.ts'
import { connectInfo } from '../../src/db/owner.ts'
import type { ConnectInfo } from '../../src/db/owner.ts'
import { openPglite } from '../../src/db/pglite.ts'
import type { PgliteDb } from '../../src/db/pglite.ts'
import { Session } from '../../src/db/session.ts'
import { forAllInTime } from '../for-all.ts'

let dir: string
let db: PgliteDb
let info: ConnectInfo
const clients: pg.Client[] = []
/** Ends every sleep of the owner's clock, which here only the limit on silent transactions uses. */
const naps = new Set<() => void>()
const clock: Clock = {
  ...systemClock,
  sleep: (_, signal) =>
    new Promise((resolve) => {
      naps.add(resolve)
      signal?.addEventListener('abort', () => resolve(), { once: true })
    }),
}

beforeAll(async () => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'sluice-wire-'))
  db = await openPglite({ dir, clock })
  info = (await connectInfo(dir))!
})

afterEach(async () => {
  await Promise.all(clients.splice(0).map((client) => client.end().catch(() => {})))
})

afterAll(async () => {
  await db.close()
  fs.rmSync(dir, { recursive: true, force: true })
})

async function connect(): Promise<pg.Client> {
  const client = new pg.Client({ ...info })
  client.on('error', () => {})
  await client.connect()
  clients.push(client)
  return client
}

/** A bare connection: sends frames, and collects the reply up to the next ReadyForQuery. */
async function bare() {
  const socket = net.connect(path.join(info.host, `.s.PGSQL.${info.port}`))
  let bytes = Buffer.alloc(0)
  let look = () => {}
  socket.on('data', (chunk: Buffer) => {
    bytes = Buffer.concat([bytes, chunk])
    look()
  })
  socket.on('close', () => look())
  socket.on('error', () => {})
  const until = (type: string) =>
    new Promise<string>((resolve) => {
      look = () => {
        const types = [...frames(bytes)].map((each) => each.type).join('')
        if (!types.includes(type) && !socket.closed) return
        bytes = Buffer.alloc(0)
        resolve(types)
      }
      look()
    })
  const startup = Buffer.concat([Buffer.from([0, 3, 0, 0]), text('user'), text('postgres'), Buffer.from([0])])
  const head = Buffer.alloc(4)
  head.writeInt32BE(startup.length + 4)
  socket.write(Buffer.concat([head, startup]))
  await until('Z')
  const ask = (type: string, ...sent: Buffer[]) => {
    socket.write(Buffer.concat(sent))
    return until(type)
  }
  return { socket, ask, until }
}

const zero = Buffer.from([0, 0])
const parse = (name: string, sql: string) => frame('P', text(name), text(sql), zero)
const bind = (name: string) => frame('B', text(''), text(name), zero, zero, zero)
const execute = frame('E', text(''), Buffer.alloc(4))
const sync = frame('S')

test('large replies leave no listeners at the socket behind', async () => {
  const warnings: Error[] = []
  const keep = (warning: Error) => void warnings.push(warning)
  process.on('warning', keep)
  try {
    const client = await connect()
    for (let i = 0; i < 15; i++) await client.query(`select repeat('x', 2000000)`)
  } finally {
    process.off('warning', keep)
  }
  expect(warnings).toEqual([])
})

test('transactions of four socket clients and of the owner exclude each other', async () => {
  await db.script('drop table if exists counter; create table counter (n int); insert into counter values (0)')
  const pool = new pg.Pool({ ...info, max: 4 })
  const add = async (run: (sql: string, params?: unknown[]) => Promise<{ n: number }[]>) => {
    const [row] = await run('select n from counter')
    await run('update counter set n = $1', [row!.n + 1])
  }
  const outside = async () => {
    const client = await pool.connect()
    await client.query('begin')
    await add(async (sql, params) => (await client.query<{ n: number }>(sql, params)).rows)
    await client.query('commit')
    client.release()
  }
  const inside = () => db.transaction((tx) => add((sql, params) => tx.query(sql, params)))
  await Promise.all(Array.from({ length: 100 }, (_, i) => (i % 2 === 0 ? outside() : inside())))
  await Promise.all(Array.from({ length: 100 }, () => pool.query('update counter set n = n + 1')))
  expect(await db.query('select n from counter')).toEqual([{ n: 200 }])
  await pool.end()
})

test('a large value passes in both directions', async () => {
  const client = await connect()
  const large = 'é'.repeat(4_000_000)
  const { rows } = await client.query<{ large: string }>('select $1::text as large', [large])
  expect(rows[0]!.large === large).toBe(true)
})

test('a reply of any size reaches a client that reads it', async () => {
  const client = await connect()
  const { rows } = await client.query(`select repeat('x', 1000000) as text from generate_series(1, 70)`)
  expect(rows.length).toBe(70)
})

test('an error reaches its client with its code, and its connection goes on', async () => {
  const client = await connect()
  await expect(client.query('select 1/0')).rejects.toMatchObject({ code: '22012' })
  await expect(client.query('select $1::int', ['x'])).rejects.toMatchObject({ code: '22P02' })
  await client.query('begin')
  await expect(client.query('selec')).rejects.toMatchObject({ code: '42601' })
  await expect(client.query('select 1')).rejects.toMatchObject({ code: '25P02' })
  await client.query('rollback')
  expect((await client.query('select 1 as one')).rows).toEqual([{ one: 1 }])
})

test('prepared statements of one name belong to their own clients, and survive each other', async () => {
  const [a, b] = [await connect(), await connect()]
  const ask = async (client: pg.Client, sql: string) => (await client.query({ name: 'same', text: sql })).rows
  for (let i = 0; i < 3; i++) {
    expect(await ask(a, `select 'a' as who`)).toEqual([{ who: 'a' }])
    expect(await ask(b, `select 'b' as who`)).toEqual([{ who: 'b' }])
    expect(await db.call('own', `select 'owner' as who`, [])).toEqual([{ who: 'owner' }])
  }
  await b.end()
  expect(await ask(a, `select 'a' as who`)).toEqual([{ who: 'a' }])
  await (await connect()).query('discard all')
  expect(await ask(a, `select 'a' as who`)).toEqual([{ who: 'a' }])
  await (await connect()).query('deallocate all')
  expect(await db.call('own', `select 'owner' as who`, [])).toEqual([{ who: 'owner' }])
})

test('a client that leaves leaves no prepared statement', async () => {
  const count = async () =>
    (
      await db.query<{ n: number }>(
        `select count(*)::int as n from pg_prepared_statements where statement like '%leaver%'`,
      )
    )[0]!.n
  const before = await count()
  const client = await connect()
  await client.query({ name: 'leaver', text: 'select 1 as leaver' })
  expect(await count()).toBe(before + 1)
  await client.end()
  await expect.poll(count).toBe(before)
})

test('an unnamed statement survives other clients between parse and bind, and a failed one does not exist', async () => {
  const { ask, socket } = await bare()
  expect(await ask('Z', parse('', `select 'mine'`), sync)).toBe('1Z')
  await db.query(`select 'theirs' as x, $1::int`, [1])
  expect(await ask('Z', bind(''), execute, sync)).toBe('2DCZ')
  expect(await ask('Z', parse('', 'selec'), sync)).toBe('EZ')
  await db.query(`select 'theirs' as x, $1::int`, [1])
  expect(await ask('Z', bind(''), execute, sync)).toBe('EZ')
  expect(await ask('Z', parse('n', `select 1`), sync)).toBe('1Z')
  expect(await ask('Z', parse('n', `select 2`), sync)).toBe('EZ')
  expect(await ask('Z', bind('n'), execute, sync)).toBe('2DCZ')
  expect(await ask('Z', frame('C', Buffer.from('S'), text('n')), sync)).toBe('3Z')
  expect(await ask('Z', bind('n'), execute, sync)).toBe('EZ')
  socket.destroy()
})

test('a flush is answered at once, keeps the turn, and is rolled back when the client leaves before its sync', async () => {
  await db.script('drop table if exists flushed; create table flushed (n int)')
  const { ask, socket } = await bare()
  expect(await ask('C', parse('', 'insert into flushed values (1)'), bind(''), execute, frame('H'))).toBe('12C')
  const waiting = db.query('select n from flushed')
  socket.destroy()
  expect(await waiting).toEqual([])
})

test('a simple query after an error waits for the sync, as on a server, and disturbs no other client', async () => {
  const { socket } = await bare()
  socket.write(Buffer.concat([parse('', 'selec'), frame('Q', text('select 1'))]))
  const waiting = db.query('select 1 as one')
  socket.end()
  socket.resume()
  expect(await waiting).toEqual([{ one: 1 }])
})

test('a client that disconnects in mid-transaction is rolled back, and the others go on', async () => {
  await db.script('drop table if exists torn; create table torn (n int)')
  const client = await connect()
  await client.query('begin')
  await client.query('insert into torn values (1)')
  const waiting = db.query('select n from torn')
  const socket = (client as unknown as { connection: { stream: net.Socket } }).connection.stream
  socket.destroy()
  expect(await waiting).toEqual([])
})

test('a client that falls silent in mid-transaction is disconnected', async () => {
  await db.script('drop table if exists silent; create table silent (n int)')
  const client = await connect()
  const gone = new Promise((resolve) => client.once('end', resolve))
  await client.query('begin')
  await client.query('insert into silent values (1)')
  const waiting = db.query('select n from silent')
  for (const wake of naps) wake()
  expect(await waiting).toEqual([])
  await gone
})

test('a client that leaves while it waits for its turn leaves nothing behind', async () => {
  const { socket, until } = await bare()
  const reached = db.transaction(async (tx) => {
    socket.end(frame('Q', text('create table from_the_gone (n int)')))
    await tx.query('select 1')
  })
  await reached
  await until('?')
  expect(await db.query('select 1 as one')).toEqual([{ one: 1 }])
})

test('notifications pass between owner and clients, and each receives only its own channels', async () => {
  const [a, b] = [await connect(), await connect()]
  const heard: string[] = []
  a.on('notification', ({ channel, payload }) => heard.push(`a ${channel} ${payload}`))
  b.on('notification', ({ channel, payload }) => heard.push(`b ${channel} ${payload}`))
  const stop = await db.listen('news', (payload) => heard.push(`owner news ${payload}`))
  await a.query('LISTEN News')
  await b.query('listen news; listen "Other"')
  const all = async (payload: string) => {
    heard.length = 0
    await db.query(`select pg_notify('news', $1), pg_notify('Other', $1)`, [payload])
    await Promise.all([a.query('select 1'), b.query('select 1'), db.query('select 1')])
    return heard.sort()
  }
  expect(await all('1')).toEqual(['a news 1', 'b Other 1', 'b news 1', 'owner news 1'])
  await b.query('unlisten news')
  expect(await all('2')).toEqual(['a news 2', 'b Other 2', 'owner news 2'])
  await b.query('discard all')
  expect(await all('3')).toEqual(['a news 3', 'owner news 3'])
  await stop()
  expect(await all('4')).toEqual(['a news 4'])
  heard.length = 0
  await b.query(`notify news, 'from b'`)
  await a.query('select 1')
  expect(heard).toEqual(['a news from b'])
})

test('COPY from the client is refused, and ends neither the connection nor the engine', async () => {
  await db.script('drop table if exists copied; create table copied (n int)')
  const client = await connect()
  await expect(client.query('copy copied from stdin')).rejects.toThrow(/COPY/i)
  await expect(client.query({ name: 'copy', text: 'copy copied from stdin' })).rejects.toThrow(/COPY/i)
  await expect(db.query('copy copied from stdin', [])).rejects.toThrow(/COPY/i)
  await expect(db.script('select 1; copy copied from stdin')).rejects.toThrow(/COPY/i)
  expect(
    (await client.query({ name: 'copy', text: 'select 1 as one' }).catch(() => client.query('select 1 as one'))).rows,
  ).toEqual([{ one: 1 }])
  expect(await db.query('select 1 as one')).toEqual([{ one: 1 }])
})

test('TLS is declined as by a server without it', async () => {
  const client = new pg.Client({ ...info, ssl: { rejectUnauthorized: false } })
  await expect(client.connect()).rejects.toThrow('does not support SSL')
})

test('no sequence of bytes from a client stops the engine', { timeout: 300_000 }, async () => {
  const letter = fc.constantFrom(...'QPBDECSHXdcfFpz~\0'.split(''))
  const body = fc.oneof(
    fc.uint8Array({ maxLength: 40 }).map((bytes) => Buffer.from(bytes)),
    fc.constantFrom('', 'select 1', 'begin', 'copy pg_class from stdin', 'S', 'P').map((sql) => text(sql)),
  )
  const framed = fc.tuple(letter, body).map(([type, bytes]) => frame(type, bytes))
  const raw = fc.uint8Array({ maxLength: 60 }).map((bytes) => Buffer.from(bytes))
  const sent = fc.array(
    fc.oneof(
      { weight: 5, arbitrary: framed },
      { weight: 1, arbitrary: raw },
      { weight: 2, arbitrary: fc.constantFrom(sync, parse('', 'select 1'), bind(''), execute, frame('H')) },
    ),
    { minLength: 1, maxLength: 12 },
  )
  await forAllInTime(300, sent, async (parts) => {
    const { socket, until } = await bare()
    for (const part of parts) socket.write(part)
    socket.end()
    socket.resume()
    await until('?')
    expect(await db.query('select 1 as one')).toEqual([{ one: 1 }])
  })
})

test('a frame above the limit and an invalid first packet are refused', async () => {
  const { socket, until } = await bare()
  socket.write(Buffer.from([0x51, 0x7f, 0xff, 0xff, 0xff]))
  expect(await until('?')).toBe('E')
  const nonsense = net.connect(path.join(info.host, `.s.PGSQL.${info.port}`))
  nonsense.on('error', () => {}).resume()
  const closed = new Promise((resolve) => nonsense.once('close', resolve))
  nonsense.write('GET / HTTP/1.1\r\n\r\n')
  await closed
  expect(await db.query('select 1 as one')).toEqual([{ one: 1 }])
})

test('an owner that closes notifies its clients, and rolls back their transactions', async () => {
  const other = fs.mkdtempSync(path.join(os.tmpdir(), 'sluice-wire-'))
  const closing = await openPglite({ dir: other, clock })
  const client = new pg.Client({ ...(await connectInfo(other))! })
  const errors: Error[] = []
  client.on('error', (error) => errors.push(error))
  await client.connect()
  await client.query('begin; create table t (n int)')
  const gone = new Promise((resolve) => client.once('end', resolve))
  await closing.close()
  await gone
  expect(errors[0]).toMatchObject({ code: '57P01' })
  expect(await connectInfo(other)).toBeUndefined()
  const again = await openPglite({ dir: other, clock })
  await expect(again.query('select * from t')).rejects.toMatchObject({ code: '42P01' })
  await again.close()
  fs.rmSync(other, { recursive: true, force: true })
})

test('what the backend has begun is answered before the error that ends a session, and nothing is begun after it', async () => {
  const sent: string[] = []
  const answers: ((bytes: Buffer) => void)[] = []
  const engine = {
    waitForTurn: async () => () => {},
    exec: () => new Promise<Buffer>((resolve) => answers.push(resolve)),
    checkpointIfGrown: async () => {},
  }
  const hub = { engine, clock, sessions: new Set(), prepared: new Map(), greeting: frame('R'), relisten: false }
  const peer = { send: (bytes: Buffer) => void sent.push(bytes.toString('latin1', 0, 1)), hangUp() {} }
  const session = new Session(hub as never, peer, undefined)
  await session.receive(Buffer.from([0, 0, 0, 8, 0, 3, 0, 0]))
  const working = session.receive(Buffer.concat([query('select 1'), query('select 2')]))
  await expect.poll(() => answers.length).toBe(1)
  const failing = session.fail('57P01', 'closing')
  answers[0]?.(frame('Z', Buffer.from('I')))
  await Promise.all([working, failing])
  expect(sent.join('')).toBe('RZE')
  expect(answers).toHaveLength(1)
})
