import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import pg from 'pg'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import { connectInfo } from '../../src/db/owner.ts'
import { openStore } from '../../src/db/open.ts'
import { openPg } from '../../src/db/pg.ts'
import { openPglite } from '../../src/db/pglite.ts'
import { Successor } from '../../src/db/successor.ts'
import { freshDatabase } from '../servers/database.ts'

let dir: string
beforeEach(() => void (dir = fs.mkdtempSync(path.join(os.tmpdir(), 'sluice-successor-'))))
afterEach(() => fs.rmSync(dir, { recursive: true, force: true }))

test('connections that are lost at once open the engine once, and a process that closes meanwhile releases the directory', async () => {
  const log = vi.fn<(message: string) => void>()
  const successor = new Successor(dir, systemClock, log)
  const opening = [successor.takeOver(), successor.takeOver(), successor.takeOver()]
  await successor.close()
  expect(await Promise.all(opening)).toEqual([true, true, true])
  expect(log).toHaveBeenCalledExactlyOnceWith(expect.stringContaining('this process owns it now'))
  expect(await connectInfo(dir)).toBeUndefined()
})

test('a process that has closed does not become the owner of a directory', async () => {
  const successor = new Successor(dir, systemClock, () => {})
  await successor.close()
  expect(await successor.takeOver()).toBe(false)
  expect(successor.isOwner).toBe(false)
  expect(await connectInfo(dir)).toBeUndefined()
})

test('what an owner that closes has not run is run by the next one, once', async () => {
  const owner = await openPglite({ dir, clock: systemClock })
  await owner.script('create table t (n int)')
  const { db } = await openStore({ store: dir, clock: systemClock })
  const insert = (n: number) => db.query('insert into t values ($1)', [n])
  await Promise.all([1, 2, 3].map(insert))
  // Nothing else runs while its transaction is open.
  const first = new pg.Client({ ...(await connectInfo(dir))! })
  first.on('error', () => {})
  await first.connect()
  await first.query('begin')
  const waiting = [4, 5, 6].map(insert)
  await new Promise((resolve) => setImmediate(resolve))
  await owner.close()
  await Promise.all(waiting)
  expect(await db.query('select n from t order by n')).toEqual([1, 2, 3, 4, 5, 6].map((n) => ({ n })))
  await db.close()
})

test('a statement is not repeated for ever if each owner closes before it runs it', async () => {
  const { url } = await freshDatabase()
  let nowMs = 0
  const clock = { ...systemClock, monotonicMs: () => (nowMs += 2_000) }
  const takeOver = vi.fn<() => Promise<boolean>>(async () => true)
  const db = openPg({ url, clock, successor: { takeOver, close: async () => {} } as unknown as Successor })
  await db.query('create sequence tries')
  const closing = db.script(
    `do $$ begin perform nextval('tries'); raise exception 'closing' using errcode = 'admin_shutdown'; end $$`,
  )
  await expect(closing).rejects.toMatchObject({
    code: 'SLUICE_STORE_UNREACHABLE',
    message: expect.stringContaining('keep one process of this directory running'),
  })
  const [{ last_value: tries } = { last_value: '0' }] = await db.query<{ last_value: string }>('select * from tries')
  expect(Number(tries)).toBeGreaterThan(1)
  await db.close()
})

test('statements that run while the owner closes are answered, and none runs twice', async () => {
  const owner = await openPglite({ dir, clock: systemClock })
  await owner.script('create table t (n int)')
  const all = await Promise.all([1, 2].map(() => openStore({ store: dir, clock: systemClock })))
  let n = 0
  let isOver = false
  const insert = async (at: number) => {
    while (!isOver) await all[at % 2]?.db.query('insert into t values ($1)', [n++])
  }
  const inserting = Array.from({ length: 8 }, (_, at) => insert(at))
  const reached = (least: number) =>
    vi.waitFor(() => expect(n).toBeGreaterThan(least), { timeout: 60_000, interval: 1 })
  await reached(50)
  await owner.close()
  await reached(n + 50)
  isOver = true
  await Promise.all(inserting)
  const [counted] = (await all[0]?.db.query('select count(*)::int as all, count(distinct n)::int as own from t')) ?? []
  expect(counted).toEqual({ all: n, own: n })
  for (const { db } of all) await db.close()
})
