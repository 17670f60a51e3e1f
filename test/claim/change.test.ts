/** What happens to waiting jobs when a limit changes under them, and when the data were restored into another server. */
import pg from 'pg'
import { beforeEach, expect, test } from 'vitest'
import { z } from 'zod'
import type { Queryable } from '../../src/db/db.ts'
import { type AnyTask, type Limit, limit, type Rate, Sluice, task } from '../../src/index.ts'
import { freshDatabase } from '../servers/database.ts'
import { copies } from '../rows.ts'
import { later, until } from '../until.ts'
import { blocked, claim, enter } from './engine.ts'

let database: Awaited<ReturnType<typeof freshDatabase>>

// Each test has a store of its own, because definitions and their charges outlast a test.
beforeEach(async () => {
  database = await freshDatabase()
})

function numbered(rate: Rate): AnyTask {
  const input = z.object({ i: z.number() })
  return task('numbered', {
    input,
    limits: [limit('changing', { rate })],
    run: () => undefined,
  }) as unknown as AnyTask
}

async function inSluice<T>(schema: string, body: (sluice: Sluice) => Promise<T>): Promise<T> {
  const sluice = await Sluice.open({ store: database.url, schema })
  try {
    return await body(sluice)
  } finally {
    await sluice.close()
  }
}

/** As if 15 s had passed since a process last had what is defined in code. */
const allGone = (query: Queryable['query'], schema: string) =>
  query(`update ${schema}.limit_source set seen_at = '-infinity'`)

test('jobs that wait an hour for a limit run as soon as a new definition makes room', async () => {
  const schema = 'raised'
  const slow = numbered('1/h')
  await inSluice(schema, async (sluice) => {
    await sluice.sendMany(slow, [{ i: 1 }, { i: 2 }, { i: 3 }])
    expect(await sluice.dispatchOnce([slow])).toBe(1)
    expect(await sluice.dispatchOnce([slow])).toBe(0)
  })
  const fast = numbered('6000/min')
  await inSluice(schema, async (sluice) => {
    await allGone((sql) => sluice.db.query(sql), schema)
    expect(await sluice.dispatchOnce([fast])).toBe(2)
  })
})

test('a claim that decides by the old definition while the definition changes does not keep jobs waiting', async () => {
  const slow = numbered('1/h')
  const fast = numbered('6000/min')
  const name = new URL(database.url).pathname.slice(1)
  const other = new pg.Client(database.url)
  await other.connect()
  const query = async (sql: string, params?: readonly unknown[]) => (await other.query(sql, params as unknown[])).rows
  try {
    await inSluice('sluice', async (sluice) => {
      await sluice.sendMany(slow, [{ i: 1 }, { i: 2 }, { i: 3 }])
      await other.query('begin')
      const claimed = await claim({ query } as Queryable, await enter(sluice.db), ['numbered'], 3)
      expect(claimed.jobs).toHaveLength(1)
    })
    // A worker that meets a lock time-out meanwhile tries again.
    await query(`alter database ${name} set lock_timeout = '20ms'`)
    await inSluice('sluice', async (sluice) => {
      await allGone((sql) => sluice.db.query(sql), 'sluice')
      let isDefined = false
      const defining = later(sluice.define([fast]).finally(() => (isDefined = true)))
      await until(async () => isDefined || (await blocked(sluice.db)) > 0, 'it waits for the claim')
      await other.query('commit')
      await defining
      expect(await sluice.dispatchOnce([fast])).toBe(2)
    })
  } finally {
    await query(`alter database ${name} reset lock_timeout`)
    await other.end()
  }
})

/** A task whose limits differ from one version of the code to the next. */
function versioned(limits: readonly Limit[]): AnyTask {
  const input = z.object({ a: z.string(), b: z.string().optional() })
  return task('versioned', { input, limits: limits as never, run: () => undefined }) as unknown as AnyTask
}

const takesOf = async (sluice: Sluice, schema: string) =>
  (await sluice.db.query<{ buckets: string[] }>(`select buckets from ${schema}.job order by seq`)).map(
    ({ buckets }) => buckets,
  )

test('a limit that is added to a task holds for jobs that wait already, even while workers run the old code', async () => {
  const before = versioned([])
  const after = versioned([limit('added', { rate: '10/h' })])
  await inSluice('added', async (sluice) => {
    await sluice.sendMany(before, copies(5, { a: 'x' }))
    expect(await sluice.dispatchOnce([after])).toBe(1)
    expect(await takesOf(sluice, 'added')).toEqual(Array.from({ length: 4 }, () => ['added']))
    expect(await sluice.dispatchOnce([before])).toBe(0)
    const [done] = await sluice.list({ state: 'done' })
    expect(await sluice.jobs.get(done?.id ?? '')).toMatchObject({ attempt: 1, failed: 0 })
    // Only the one used grant is charged, and none was lost.
    expect(await sluice.db.query('select sum(units)::int as n from added.ledger')).toEqual([{ n: 1 }])
  })
})

test('a limit whose key comes from another field moves waiting jobs to their new buckets, and jobs without that key fail', async () => {
  const by = (path: 'a' | 'b') => versioned([limit('keyed', { rate: '10/h', by: path }) as unknown as Limit])
  await inSluice('rekeyed', (sluice) =>
    sluice.sendMany(by('a'), [{ a: 'x', b: 'y' }, { a: 'z', b: 'y' }, { a: 'keyless' }]),
  )
  await inSluice('rekeyed', async (sluice) => {
    expect(await sluice.dispatchOnce([by('b')])).toBe(2)
    expect(await takesOf(sluice, 'rekeyed')).toEqual([['keyed:y']])
    const [failed] = await sluice.list({ state: 'failed' })
    expect(await sluice.jobs.get(failed?.id ?? '')).toMatchObject({
      reason: 'refused',
      error: { code: 'SLUICE_MISSING_KEY' },
    })
  })
})

test('a process refuses two different limits of one name, wherever they meet, and accepts the same limit twice', async () => {
  const named = (name: string, rate: Rate) =>
    task(name, { input: z.object({}), limits: [limit('twin', { rate })], run: () => undefined })
  const conflict = expect.objectContaining({
    code: 'SLUICE_LIMIT_CONFLICT',
    message: expect.stringMatching(/10\/h.*20\/h/),
  })
  const [first, same, other] = [named('first', '10/h'), named('same', '10/h'), named('other', '20/h')]
  await inSluice('twins', async (sluice) => {
    await sluice.define([first as AnyTask, same as AnyTask])
    await expect(sluice.send(other, {})).rejects.toThrow(conflict)
    await expect(sluice.work([other as AnyTask])).rejects.toThrow(conflict)
    await sluice.send(same, {})
  })
  await inSluice('twins', async (sluice) => {
    await expect(sluice.define([first as AnyTask, other as AnyTask])).rejects.toThrow(conflict)
  })
})

test('a job fails with the cause when its limit computes another key at each attempt', async () => {
  let n = 0
  const unstable = versioned([limit('unstable', { rate: '6000/min', by: () => n++ }) as unknown as Limit])
  await inSluice('unstable', async (sluice) => {
    const id = await sluice.send(unstable, { a: 'x' })
    await sluice.dispatchOnce([unstable])
    expect(await sluice.jobs.get(id)).toMatchObject({ state: 'failed', error: { code: 'SLUICE_UNSTABLE_KEY' } })
  })
})

test('old and new jobs run once each after the data were restored into a server with younger transactions', async () => {
  const schema = 'restored'
  const fast = numbered('6000/min')
  await inSluice(schema, async (sluice) => {
    await sluice.sendMany(fast, [{ i: 1 }, { i: 2 }])
    expect(await sluice.dispatchOnce([fast])).toBe(2)
    await sluice.sendMany(fast, [{ i: 3 }, { i: 4 }])
    // As after a restore: all recorded transaction ids lie in this server's future.
    await sluice.db.query(`update ${schema}.class_state set snap = '900000000000:900000000000:'`)
    await sluice.sendMany(fast, [{ i: 5 }])
    expect(await sluice.dispatchOnce([fast])).toBe(3)
    expect(await sluice.dispatchOnce([fast])).toBe(0)
    const status = await sluice.jobs.status()
    expect(status.waiting).toBe(0)
  })
})
