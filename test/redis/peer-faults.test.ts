/** Limits that are shared in Redis, point by point: a Redis that is away, has lost its state, or must not be used. */
import { randomUUID } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { numbered } from '../rows.ts'
import { type AnyTask, limit, Sluice, task } from '../../src/index.ts'
import { checks } from '../../src/cli/checks.ts'
import { openStore } from '../../src/db/open.ts'
import { systemClock } from '../../src/core/clock.ts'
import { RedisLimiter } from '../../src/redis/limiter.ts'
import { freshDatabase } from '../servers/database.ts'
import { until } from '../until.ts'
import { lockRedisEpoch, putRedisEpoch } from '../limits/engine.ts'
import { counted, input, redisFor, slow } from './peer-stage.ts'

describe.concurrent('while Redis is away', () => {
  it('limits wait and are explained, open limits go by the store, and all go on when Redis is back', async (context) => {
    const { open, redis } = await redisFor(context)
    const { sluice, store, errors } = await open()
    const closed = counted([slow(false)])
    const open1 = task('open', {
      input,
      limits: [limit('open', { rate: '2/h', burst: 2, onStoreError: 'open' })],
      run: ({ n }) => void opened.push(n),
    }) as unknown as AnyTask
    const opened: number[] = []
    await redis.kill()
    await sluice.work([closed.call, open1])
    const id = await sluice.send(closed.call as never, { n: 1 } as never)
    await sluice.sendMany(open1, numbered(3))
    await until(() => opened.length === 2)
    await until(async () => (await sluice.why(id))?.reasons[0]?.kind === 'redis-away')
    // A Redis that was removed on purpose counts as away until its row is deleted.
    const forgets = 'run `sluice limits redis --stores 0`'
    expect((await sluice.why(id))?.reasons[0]?.todo).toContain(forgets)
    const opening = await openStore({ store, clock: systemClock })
    context.onTestFinished(() => opening.db.close())
    expect(closed.ran).toEqual([])
    await redis.start()
    await until(() => closed.ran.length === 1)
    expect(opened).toHaveLength(2)
    expect(errors.join()).toContain('is away')
    await until(async () => (await checks['shared']?.({ store: opening, schema: 'sluice' }))?.status === 'ok')
    await redis.kill()
    await until(async () => (await checks['shared']?.({ store: opening, schema: 'sluice' }))?.status === 'fail')
    expect((await checks['shared']?.({ store: opening, schema: 'sluice' }))?.text).toContain(forgets)
  })
})

it.concurrent('a Redis that is read-only counts as away, and gets a request only now and then', async (context) => {
  const { connect, open } = await redisFor(context)
  const { sluice, store, errors } = await open()
  const { call, ran } = counted([slow(false)])
  await sluice.work([call])
  const client = await connect()
  await client.send('CONFIG', ['SET', 'maxmemory', '1'])
  const opening = await openStore({ store, clock: systemClock })
  context.onTestFinished(() => opening.db.close())
  await sluice.sendMany(call, numbered(5))
  await until(async () => (await checks['shared']?.({ store: opening, schema: 'sluice' }))?.status === 'fail')
  expect(errors.join()).toContain('memory is full')
  const calls = async () =>
    Number(/cmdstat_evalsha:calls=(\d+)/.exec(String(await client.send('INFO', ['commandstats'])))?.[1])
  const before = await calls()
  const sinceMs = performance.now()
  await until(() => performance.now() - sinceMs > 2_000)
  expect((await calls()) - before).toBeLessThan(100)
  await client.send('CONFIG', ['SET', 'maxmemory', '0'])
  await until(() => ran.length === 5)
})

describe.concurrent('after Redis has lost its state', () => {
  it.for([false, true])('the ledger knows what was granted (published: %s)', async (published, context) => {
    const { connect, open } = await redisFor(context)
    const { sluice } = await open()
    const limits = [slow(published)]
    const { call, ran } = counted(limits)
    await sluice.work([call])
    await sluice.sendMany(call, numbered(6))
    await until(() => ran.length === 6)
    const client = await connect()
    await client.send('FLUSHALL', [])
    await sluice.sendMany(call, numbered(20))
    // Only the rest; none of the units that others take too, because their usage is unknown.
    if (!published) await until(() => ran.length === 10)
    await until(async () => (await client.send('HGET', ['sluice:{limits}:epoch', 'id'])) !== null)
    const is = { name: 'slow', rules: limits[0]?.rules ?? [], version: 1, isOwn: !published }
    const items = [{ want: 1, takes: [{ bucket: 0, units: 1 }] }]
    const limiter = new RedisLimiter(client)
    await until(async () => (await limiter.reserve({ id: randomUUID(), buckets: [is], items })).isDecided)
    const answer = await limiter.reserve({ id: randomUUID(), buckets: [is], items })
    expect(answer).toMatchObject({ isDecided: true, results: [{ granted: 0 }] })
    expect(ran.length).toBe(published ? 6 : 10)
    expect(await sluice.verify()).toMatchObject({ isProved: true })
  })

  it('a process that puts another epoch in force waits for all grants under the previous one', async (context) => {
    const { open } = await redisFor(context)
    const { sluice } = await open()
    await sluice.takes.take(slow(false))
    const { db } = sluice
    let isPut = false
    let putting: Promise<unknown> | undefined
    await db.transaction(async (tx) => {
      const was = await lockRedisEpoch(tx)
      await db.query(`update sluice.shared set at = at - interval '1 min'`)
      putting = putRedisEpoch(db, was, 'next').then(() => (isPut = true))
      await until(async () => {
        const [waits] = await db.query(
          `select 1 from pg_locks where locktype = 'advisory' and not granted and objid = 4294967281`,
        )
        return waits !== undefined
      })
      expect(isPut).toBe(false)
    })
    await putting
    // No epoch is handed out twice, and no other one begins while that one is being begun.
    expect(await putRedisEpoch(db, 'next', 'other')).toEqual({ epoch: 'next', mine: false })
    expect(await putRedisEpoch(db, 'next', 'other', 'next')).toEqual({ epoch: 'other', mine: true })
  })
})

describe.concurrent('keys in Redis', () => {
  it('belong to one database, and another database needs a prefix of its own', async (context) => {
    const { open, redis } = await redisFor(context)
    const one = await open()
    // Waiting, because a busy machine may receive the first grant too late to use it.
    await one.sluice.takes.take(slow(false))
    const two = await open()
    const { call, ran } = counted([slow(false)])
    await two.sluice.work([call])
    await two.sluice.sendMany(call, numbered(1))
    await until(() => two.errors.join().includes('SLUICE_REDIS_PREFIX'))
    expect(ran).toEqual([])
    await two.sluice.close()
    const three = await open(redis.url, two.store, 'other:')
    await three.sluice.work([call])
    await until(() => ran.length === 1)
  })
})

it.concurrent('a server that would evict keys is refused', async (context) => {
  const { connect, open } = await redisFor(context)
  const client = await connect()
  await client.send('CONFIG', ['SET', 'maxmemory', '100mb'])
  await client.send('CONFIG', ['SET', 'maxmemory-policy', 'allkeys-lru'])
  const { sluice, errors } = await open()
  const { call, ran } = counted([slow(false)])
  await sluice.work([call])
  await sluice.sendMany(call, numbered(1))
  await until(() => errors.join().includes('noeviction'))
  expect(ran).toEqual([])
  await client.send('CONFIG', ['SET', 'maxmemory-policy', 'noeviction'])
  await until(() => ran.length === 1)
})

it.concurrent('an invalid Redis URL is refused at once', async (context) => {
  const { redis } = await redisFor(context)
  const { url } = await freshDatabase()
  await expect(Sluice.open({ store: url, redis: 'http://somewhere' })).rejects.toMatchObject({ code: 'SLUICE_BAD_URL' })
  await expect(Sluice.open({ store: url, redis: redis.url, redisPrefix: 'a{b' })).rejects.toMatchObject({
    code: 'SLUICE_BAD_REDIS',
  })
})
