import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest'
import { PGlite } from '@electric-sql/pglite'
import { systemClock } from '../../src/core/clock.ts'
import { UsageError } from '../../src/core/errors.ts'
import { openPglite } from '../../src/db/pglite.ts'
import type { PgliteDb } from '../../src/db/pglite.ts'
import { later } from '../until.ts'
import { start } from './fixtures/child.ts'
import { isLong } from '../long.ts'

const clock = systemClock
let memory: PgliteDb
const dirs: string[] = []

beforeAll(async () => {
  memory = await openPglite({ clock })
})

afterAll(async () => {
  await memory.close()
})

afterEach(() => {
  vi.restoreAllMocks()
  for (const dir of dirs.splice(0)) fs.rmSync(dir, { recursive: true, force: true })
})

function fresh(): string {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'sluice-pglite-'))
  dirs.push(dir)
  return dir
}

test('values have the same types as with node-postgres', async () => {
  const [row] = await memory.query(
    `select 9007199254740993::bigint as big, 7 as int, '{"a":[1,null]}'::jsonb as j, '"s"'::json as s, '2026-01-02T03:04:05.678Z'::timestamptz as at,
     1.50::numeric as n, true as b, null as nothing, array[1,9007199254740993]::bigint[] as bigs, array['a,"b"',null,'NULL'] as texts, '\\xdeadbeef'::bytea as bytes,
     1.5::float8 as f, '00000000-0000-7000-8000-000000000001'::uuid as id`,
  )
  expect(row).toEqual({
    big: '9007199254740993',
    int: 7,
    j: { a: [1, null] },
    s: 's',
    at: new Date('2026-01-02T03:04:05.678Z'),
    n: '1.50',
    b: true,
    nothing: null,
    bigs: ['1', '9007199254740993'],
    texts: ['a,"b"', null, 'NULL'],
    bytes: Buffer.from('deadbeef', 'hex'),
    f: 1.5,
    id: '00000000-0000-7000-8000-000000000001',
  })
})

test.each(['query', 'call'] as const)(
  'parameters of %s are sent as node-postgres sends them, arrays with nulls too',
  async (how) => {
    const sql = `select $1::bigint[] as bigs, $2::text[] as texts, $3::uuid[] as ids, $4::jsonb[] as jsons, $5::jsonb as j, $6::timestamptz as at, $7::bigint as big, $8::text as nothing, $9::bytea as bytes, $10::int[] as empty`
    const id = '00000000-0000-7000-8000-000000000001'
    const texts = ['', ' ', 'NULL', 'a"b\\c', '{x,y}', 'é\n', null]
    const params = [
      ['9007199254740993', null, '-1'],
      texts,
      [id, null],
      ['{"a":"\\"q\\""}', null, '[1,2]', '"s"'],
      { k: "it's" },
      new Date(1_700_000_000_123),
      9007199254740993n,
      null,
      Buffer.from([0, 255]),
      [],
    ]
    const [row] = how === 'query' ? await memory.query(sql, params) : await memory.call('round-trip', sql, params)
    expect(row).toEqual({
      bigs: params[0],
      texts,
      ids: [id, null],
      jsons: [{ a: '"q"' }, null, [1, 2], 's'],
      j: { k: "it's" },
      at: params[5],
      big: '9007199254740993',
      nothing: null,
      bytes: params[8],
      empty: [],
    })
  },
)

test('a failed statement rejects with the error of Postgres, and the next one works', async () => {
  await expect(memory.query('select 1/0')).rejects.toMatchObject({ code: '22012' })
  await expect(memory.call('bad', 'selec 1', [])).rejects.toMatchObject({ code: '42601' })
  await expect(memory.script('select 1; select * from nowhere')).rejects.toMatchObject({ code: '42P01' })
  expect(await memory.query('select 1 as one')).toEqual([{ one: 1 }])
})

test('a statement that is larger than the engine takes is refused, and the next one works', async () => {
  const large = 'x'.repeat(65 * 2 ** 20)
  await expect(memory.query('select length($1)', [large])).rejects.toMatchObject({ code: 'SLUICE_PAYLOAD_TOO_LARGE' })
  await expect(memory.call('large', 'select $1::text[]', [[large]])).rejects.toBeInstanceOf(UsageError)
  expect(await memory.query('select 1 as one')).toEqual([{ one: 1 }])
})

test('a transaction commits as a whole, or not at all', async () => {
  await memory.script('drop table if exists whole; create table whole (n int)')
  expect(
    await memory.transaction(async (tx) => {
      await tx.query('insert into whole values ($1)', [1])
      await tx.script('insert into whole values (2); insert into whole values (3)')
      return 'done'
    }),
  ).toBe('done')
  await expect(
    memory.transaction(async (tx) => {
      await tx.query('delete from whole')
      throw new Error('no')
    }),
  ).rejects.toThrow('no')
  expect(await memory.query('select sum(n)::int as sum from whole')).toEqual([{ sum: 6 }])
})

test('a transaction whose body did not wait for its queries has all of them, or none', async () => {
  await memory.script('drop table if exists loose; create table loose (xid text)')
  const add = 'insert into loose values (pg_current_xact_id()::text)'
  const failed = memory.transaction((tx) => Promise.all(['select 1/0', add, add, add].map((text) => tx.query(text))))
  await expect(failed).rejects.toMatchObject({ code: '22012' })
  expect(await memory.query('select * from loose')).toEqual([])
  await memory.transaction(async (tx) => void [add, add, add].map((text) => tx.query(text)))
  const counts = await memory.query('select count(*)::int as n, count(distinct xid)::int as transactions from loose')
  expect(counts).toEqual([{ n: 3, transactions: 1 }])
})

test('a transaction that swallowed an error reports that nothing was stored', async () => {
  await expect(
    memory.transaction(async (tx) => {
      await tx.query('select 1/0').catch(() => {})
    }),
  ).rejects.toMatchObject({ code: 'SLUICE_TRANSACTION_ABORTED' })
})

test('a query beside the open transaction throws instead of deadlocking from inside it, and waits for its turn from elsewhere', async () => {
  const order: string[] = []
  let begun = () => {}
  const begins = new Promise<void>((resolve) => (begun = resolve))
  let go = () => {}
  const gate = new Promise<void>((resolve) => (go = resolve))
  const transaction = later(
    memory.transaction(async (tx) => {
      begun()
      for (const attempt of [
        () => memory.query('select 1'),
        () => memory.call('x', 'select 1', []),
        () => memory.script('select 1'),
        () => memory.transaction(async () => {}),
        () => memory.listen('x', () => {}),
        async () => memory.checkOutside('a call'),
      ])
        await expect(attempt()).rejects.toMatchObject({ code: 'SLUICE_QUERY_OUTSIDE_TRANSACTION' })
      await gate
      await tx.query('select 1')
      order.push('transaction')
    }),
  )
  await Promise.race([begins, transaction])
  const elsewhere = memory.query('select 1').then(() => order.push('elsewhere'))
  go()
  await Promise.all([transaction, elsewhere])
  expect(order).toEqual(['transaction', 'elsewhere'])
})

test('code that outlives its transaction cannot query through it, but may query the database', async () => {
  let late: (() => Promise<unknown>) | undefined
  let free: (() => Promise<unknown>) | undefined
  await memory.transaction(async (tx) => {
    late = () => tx.query('select 1')
    const { AsyncResource } = await import('node:async_hooks')
    free = AsyncResource.bind(() => memory.query('select 1 as one'))
  })
  await expect(late!()).rejects.toMatchObject({ code: 'SLUICE_TRANSACTION_OVER' })
  expect(await free!()).toEqual([{ one: 1 }])
})

test('notifications reach those who listen, until they stop', async () => {
  const heard: string[] = []
  const stop = await memory.listen('Odd "name"', (payload) => heard.push(payload))
  expect(memory.listening()).toBe(true)
  await memory.query('select pg_notify($1, $2)', ['Odd "name"', 'one'])
  await memory.transaction((tx) => tx.query('select pg_notify($1, $2)', ['Odd "name"', 'two']))
  await memory.query('select 1')
  expect(heard).toEqual(['one', 'two'])
  await stop()
  await memory.query('select pg_notify($1, $2)', ['Odd "name"', 'three'])
  await memory.query('select 1')
  expect(heard).toEqual(['one', 'two'])
})

test('close waits for running statements and may be called twice, and then every call is refused as closed', async () => {
  const db = await openPglite({ clock })
  const running = later(db.query('select 1 as one'))
  const transaction = later(db.transaction((tx) => tx.query('select 2 as two')))
  await Promise.all([db.close(), db.close()])
  expect(await running).toEqual([{ one: 1 }])
  expect(await transaction).toEqual([{ two: 2 }])
  await expect(db.query('select 1')).rejects.toMatchObject({ code: 'SLUICE_CLOSED' })
  await expect(db.transaction(async () => {})).rejects.toMatchObject({ code: 'SLUICE_CLOSED' })
  await db.close()
})

test('each awaited commit on a directory is synced to the disk by an fsync of its own, and reads need none', async () => {
  const db = await openPglite({ dir: fresh(), clock })
  await db.script('create table t (n int)')
  const seen = [db.syncs()]
  for (let n = 0; n < 20; n++) {
    await db.call('insert', 'insert into t values ($1)', [n])
    seen.push(db.syncs())
  }
  for (let n = 0; n < 20; n++) expect(seen[n + 1]).toBeGreaterThan(seen[n]!)
  await db.query('select * from t')
  const before = db.syncs()
  for (let n = 0; n < 20; n++) await db.query('select 1')
  expect(db.syncs()).toBe(before)
  await db.close()
  expect(memory.syncs()).toBe(0)
})

test('a failed fsync lets the commit fail, and every commit from then on', async () => {
  const dir = fresh()
  const db = await openPglite({ dir, clock })
  await db.script('create table t (n int)')
  // A disk that fails on demand: the one fault that cannot be produced for real without root.
  const broken = vi.spyOn(fs, 'fdatasyncSync').mockImplementation(() => {
    throw Object.assign(new Error('input/output error'), { code: 'EIO' })
  })
  await expect(db.query('insert into t values (1)')).rejects.toMatchObject({ code: 'SLUICE_STORE_UNREACHABLE' })
  expect(broken).toHaveBeenCalled()
  broken.mockRestore()
  await expect(db.query('insert into t values (2)')).rejects.toMatchObject({ code: 'SLUICE_STORE_UNREACHABLE' })
  expect(await db.ended).toMatchObject({ message: expect.stringContaining('input/output error') as string })
  await db.close()
  const again = await openPglite({ dir, clock })
  expect(await again.query('select n from t where n = 2')).toEqual([])
  await again.close()
})

test(
  'repeated kill -9 under load loses no acknowledged row, and a second opener is refused by pid meanwhile',
  { timeout: 300_000 },
  async () => {
    const dir = fresh()
    const acknowledged = new Set<string>()
    for (let round = 0; round < (isLong ? 3 : 1); round++) {
      const child = start('insert.ts', dir)
      const enough = String(acknowledged.size + 300)
      await child.line((line) => Number(line) >= Number(enough))
      if (round === 0)
        await expect(openPglite({ dir, clock })).rejects.toMatchObject({
          code: 'SLUICE_STORE_OWNED',
          message: expect.stringContaining(`process ${child.process.pid} `) as string,
        })
      await child.kill()
      for (const line of child.lines) acknowledged.add(line)
    }
    const db = await openPglite({ dir, clock })
    const stored = new Set((await db.query<{ id: string }>('select id from t')).map((row) => row.id))
    expect([...acknowledged].filter((id) => !stored.has(id))).toEqual([])
    expect(acknowledged.size).toBeGreaterThanOrEqual(280 * (isLong ? 3 : 1))
    await db.close()
  },
)

test('a first opening that was interrupted is started over', async () => {
  const dir = fresh()
  fs.mkdirSync(path.join(dir, 'pg.new'))
  fs.writeFileSync(path.join(dir, 'pg.new', 'PG_VERSION'), '18\n')
  const said: string[] = []
  const db = await openPglite({ dir, clock, log: (message) => said.push(message) })
  expect(said).toHaveLength(1)
  expect(await db.query('select 1 as one')).toEqual([{ one: 1 }])
  expect(fs.readdirSync(dir).sort()).toEqual(['.s.PGSQL.5432', 'owner', 'pg'])
  await db.close()
})

test('a bundle without the files of the engine is told what to do', async () => {
  const missing = Object.assign(new Error("ENOENT: no such file or directory, open '/app/pglite.data'"), {
    code: 'ENOENT',
    syscall: 'open',
  })
  vi.spyOn(PGlite, 'create').mockRejectedValue(missing)
  await expect(openPglite({ clock })).rejects.toThrow(/pglite\.data.*a bundler has to leave the package out/)
})

test('the write-ahead log does not grow without end', { timeout: 300_000 }, async () => {
  const dir = fresh()
  const db = await openPglite({ dir, clock })
  await db.script('create table t (filler text)')
  for (let n = 0; n < 400; n++)
    await db.call('fill', `insert into t select md5(i::text) || repeat('x', 400) from generate_series(1, 2000) i`, [])
  const [log] = await db.query<{ written: string; kept: string }>(
    `select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0') as written, (select sum(size) from pg_ls_waldir()) as kept`,
  )
  expect(Number(log!.written)).toBeGreaterThan(350e6)
  expect(Number(log!.kept)).toBeLessThan(0.8 * Number(log!.written))
  await db.close()
})
