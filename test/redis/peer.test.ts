/** Limits that are shared in Redis, point by point: on a real PostgreSQL and a real Redis, in one process. */
import { fn } from '../servers/fn.ts'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { type AnyTask, type Context, type Limit, limit, Sluice, task } from '../../src/index.ts'
import { checks } from '../../src/cli/checks.ts'
import { openStore } from '../../src/db/open.ts'
import { systemClock } from '../../src/core/clock.ts'
import type { RedisClient } from '../../src/redis/client.ts'
import { RedisLimiter } from '../../src/redis/limiter.ts'
import { freshDatabase } from '../servers/database.ts'
import { type RedisServer, startRedis } from '../servers/redis.ts'
import { connectRedis } from '../servers/resp.ts'
import { until } from '../until.ts'

const input = z.object({ n: z.number() })
// So slow that nothing drains during a test.
const slow = (published: boolean) => limit('slow', { rate: '10/h', burst: 10, published })

let redis: RedisServer
const ends: (() => unknown)[] = []
beforeEach(async () => {
  redis = await startRedis()
})
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end()
  await redis.close()
})

interface Opened {
  sluice: Sluice
  store: string
  errors: string[]
}

async function open(where: string | RedisClient = redis.url, store?: string, redisPrefix?: string): Promise<Opened> {
  const url = store ?? (await freshDatabase()).url
  const errors: string[] = []
  const error = (text: string, about?: object) => void errors.push(`${text} ${JSON.stringify(about)}`)
  const log = { debug() {}, info() {}, warn() {}, error }
  const prefix = redisPrefix === undefined ? {} : { redisPrefix }
  const sluice = await Sluice.open({ store: url, redis: where, allowPrivate: ['127.0.0.1'], log, ...prefix })
  ends.push(() => sluice.close())
  return { sluice, store: url, errors }
}

/** A program that takes in Redis and uses nothing of Sluice except the published definitions. */
async function foreigner(of: Limit) {
  const client = await connectRedis(redis.port)
  ends.push(() => client.close())
  const limiter = new RedisLimiter(client)
  const key = 'sluice:{limits}:d:'
  const version = async () =>
    (JSON.parse(String(await client.send('GET', [key + of.name]))) as { version: number }).version
  return async (units = 1) => {
    const bucket = { name: of.name, rules: of.rules, version: await version() }
    const answer = await limiter.reserve({
      id: randomUUID(),
      buckets: [bucket],
      items: [{ want: units, takes: [{ bucket: 0, units: 1 }] }],
    })
    return answer.isDecided ? answer.results[0]?.granted : answer.why
  }
}

function counted(
  limits: readonly Limit<{ n: number }>[],
  run: (context: Context, n: number) => unknown = () => undefined,
) {
  const ran: number[] = []
  const call = task('call', {
    input,
    limits,
    retry: { attempts: 1 },
    async run({ n }, context) {
      await run(context, n)
      ran.push(n)
    },
  })
  return { call: call as unknown as AnyTask, ran }
}

/** The URL of a server that gives these answers. */
async function answering(answer: (response: ServerResponse) => void): Promise<string> {
  const server = createServer((_, response) => answer(response))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  ends.push(() => server.close())
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
}

const rows = (count: number) => Array.from({ length: count }, (_, n) => ({ n }))

describe('jobs with a limit in Redis', () => {
  it('take in Redis what they take in the store, and leave unused units to others', async () => {
    const { sluice } = await open()
    const limits = [slow(true)]
    const { call, ran } = counted(limits, ({ settle }, n) => (n === 0 ? settle({ slow: 0 }) : undefined))
    await sluice.work([call])
    const other = await foreigner(limits[0] as Limit)
    await sluice.sendMany(call, rows(4))
    await until(() => ran.length === 4)
    await sluice.close()
    // One of the four reported that it had used nothing.
    expect(await other(10)).toBe(7)
  })

  it('wait for units that others used up, are explained, and go on', async () => {
    const { sluice } = await open()
    const shared = limit('shared', { window: '10/4s', published: true })
    const { call, ran } = counted([shared])
    await sluice.work([call])
    const other = await foreigner(shared)
    expect(await other(10)).toBe(10)
    const id = await sluice.send(call as never, { n: 1 } as never)
    await until(async () => (await sluice.why(id))?.reasons.some(({ kind }) => kind === 'redis-used') === true)
    expect(ran).toEqual([])
    await until(() => ran.length === 1)
    const job = await sluice.waitFor(id)
    expect(job).toMatchObject({ state: 'done', attempt: 1, failed: 0 })
  })

  it('run soon after others gave back their units, however slowly the limit would drain', async () => {
    const { sluice } = await open()
    const limits = [slow(true)]
    const { call, ran } = counted(limits)
    await sluice.work([call])
    const client = await connectRedis(redis.port)
    ends.push(() => client.close())
    const limiter = new RedisLimiter(client)
    const bucket = { name: 'slow', rules: limits[0]?.rules ?? [], version: 1 }
    const id = randomUUID()
    await limiter.reserve({ id, buckets: [bucket], items: [{ want: 10, takes: [{ bucket: 0, units: 1 }] }] })
    const first = await sluice.send(call as never, { n: 1 } as never)
    await until(async () => (await sluice.why(first))?.reasons.some(({ kind }) => kind === 'redis-used') === true)
    await limiter.settle({ id: randomUUID(), buckets: [bucket], acts: [{ bucket: 0, grant: id, isUnused: true }] })
    await sluice.sendMany(call, rows(9))
    await until(() => ran.length === 10)
  })

  it('are not delayed by a limit that only counts places, and cause no needless requests for it', async () => {
    const asked: string[] = []
    let returned = 0
    const client = await connectRedis(redis.port)
    ends.push(() => client.close())
    const { sluice } = await open({
      send: (command, args) => {
        const text = command.startsWith('EVAL') ? String(args.at(-1)) : ''
        if (text.includes('"items"')) asked.push(text)
        const { acts = [] } = (text === '' ? {} : JSON.parse(text)) as { acts?: object[] }
        // An act that names a grant and nothing else returns all of it.
        returned += acts.filter((act) => Object.keys(act).join() === 'bucket,grant').length
        return client.send(command, args)
      },
    })
    const { call, ran } = counted([limit('places', { concurrency: 3 }), limit('paced', { rate: '40/s' })])
    for (let n = 0; n < 8; n++) await sluice.work([call], { concurrency: 5 })
    await sluice.sendMany(call, rows(80))
    await until(() => ran.length === 80)
    console.log(`${asked.length} calls to Redis for 80 jobs, of which ${returned} were granted again`)
    expect(asked.every((text) => (JSON.parse(text) as { buckets: unknown[] }).buckets.length === 1)).toBe(true)
    // All of the jobs used a limit that was saturated: a denial would be one more call. So is a grant that a busy machine
    // returns, because it is too old.
    expect(asked.length - returned).toBeLessThan(80 * 1.2)
  })

  it('make other processes wait when the vendor demands silence', async () => {
    const url = await answering((response) => response.writeHead(429, { 'retry-after': '3600' }).end())
    const { sluice } = await open()
    const limits = [slow(true)]
    const { call, ran } = counted(limits, ({ fetch }) => fetch(url).then(() => Promise.reject(new Error('no'))))
    await sluice.work([call])
    const other = await foreigner(limits[0] as Limit)
    expect(await other()).toBe(1)
    await sluice.sendMany(call, rows(1))
    await until(async () => (await other()) === 0)
    expect(ran).toEqual([])
  })

  it('follow a definition that is changed while everything runs', async () => {
    const { sluice } = await open()
    const limits = [slow(true)]
    const { call, ran } = counted(limits)
    await sluice.work([call])
    await sluice.sendMany(call, rows(12))
    await until(() => ran.length === 10)
    await sluice.limits.set('slow', { burst: 20 }, { reason: 'more' })
    await until(() => ran.length === 12)
  })

  it('take further grants for further requests', async () => {
    const url = await answering((response) => response.end('ok'))
    const { sluice } = await open()
    const limits = [slow(true)]
    const { call, ran } = counted(limits, async ({ fetch }) => {
      for (let n = 0; n < 3; n++) await (await fetch(url)).text()
    })
    await sluice.work([call])
    const other = await foreigner(limits[0] as Limit)
    await sluice.sendMany(call, rows(1))
    await until(() => ran.length === 1)
    expect(await other(10)).toBe(7)
  })
})

describe('takes outside of jobs', () => {
  it('take in Redis too, are denied units that others used up, and give units back', async () => {
    const { sluice } = await open()
    const all = slow(true)
    const first = await sluice.takes.take(all)
    const other = await foreigner(all)
    expect(await other(7)).toBe(7)
    await first.giveBack()
    await until(async () => (await other(1)) === 1)
    expect((await sluice.takes.tryTake(all)).granted).toBe(true)
    expect((await sluice.takes.tryTake(all)).granted).toBe(true)
    const denied = await sluice.takes.tryTake(all)
    expect(denied.granted).toBe(false)
    expect(denied.retryAfterMs).toBeGreaterThan(1_000)
    await expect(sluice.takes.take(all, { maxWaitMs: 100 })).rejects.toMatchObject({ code: 'SLUICE_TAKE_TIMEOUT' })
  })

  it('are refused while Redis is away, unless the limit is open', async () => {
    const { sluice } = await open()
    const closed = slow(false)
    const isOpen = limit('open', { rate: '10/h', burst: 10, onStoreError: 'open' })
    expect((await sluice.takes.tryTake(closed)).granted).toBe(true)
    await redis.kill()
    await until(async () => {
      const error: unknown = await sluice.takes.tryTake(closed).catch((told: unknown) => told)
      return (error as { code?: string }).code === 'SLUICE_REDIS_UNREACHABLE'
    })
    for (let n = 0; n < 10; n++) expect((await sluice.takes.tryTake(isOpen)).granted).toBe(true)
    // The store goes on counting.
    expect((await sluice.takes.tryTake(isOpen)).granted).toBe(false)
  })
})

describe('while Redis is away', () => {
  it('limits wait and are explained, open limits go by the store, and all go on when Redis is back', async () => {
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
    await sluice.sendMany(open1, rows(3))
    await until(() => opened.length === 2)
    await until(async () => (await sluice.why(id))?.reasons[0]?.kind === 'redis-away')
    // A Redis that was removed on purpose counts as away until its row is deleted.
    const forgets = 'delete the row of `sluice.shared`'
    expect((await sluice.why(id))?.reasons[0]?.todo).toContain(forgets)
    const opening = await openStore({ store, clock: systemClock })
    ends.push(() => opening.db.close())
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

it('a Redis that is read-only counts as away, and gets a request only now and then', async () => {
  const { sluice, store, errors } = await open()
  const { call, ran } = counted([slow(false)])
  await sluice.work([call])
  const client = await connectRedis(redis.port)
  ends.push(() => client.close())
  await client.send('CONFIG', ['SET', 'maxmemory', '1'])
  const opening = await openStore({ store, clock: systemClock })
  ends.push(() => opening.db.close())
  await sluice.sendMany(call, rows(5))
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

describe('after Redis has lost its state', () => {
  it.each([false, true])('the ledger knows what was granted (published: %s)', async (published) => {
    const { sluice } = await open()
    const limits = [slow(published)]
    const { call, ran } = counted(limits)
    await sluice.work([call])
    await sluice.sendMany(call, rows(6))
    await until(() => ran.length === 6)
    const client = await connectRedis(redis.port)
    ends.push(() => client.close())
    await client.send('FLUSHALL', [])
    await sluice.sendMany(call, rows(20))
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

  it('a process that puts another epoch in force waits for all grants under the previous one', async () => {
    const { sluice } = await open()
    await sluice.takes.take(slow(false))
    const { db } = sluice
    let isPut = false
    let putting: Promise<unknown> | undefined
    await db.transaction(async (tx) => {
      const [was] = await tx.query<{ epoch: string }>(`select ${fn}.lock_redis_epoch() as epoch`)
      await db.query(`update sluice.shared set at = at - interval '1 min'`)
      putting = db
        .query(`select * from ${fn}.replace_redis_epoch($1, $2, null)`, [was?.epoch, 'next'])
        .then(() => (isPut = true))
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
    const [again] = await db.query(`select epoch, mine from ${fn}.replace_redis_epoch('next', 'other', null)`)
    expect(again).toEqual({ epoch: 'next', mine: false })
    const [own] = await db.query(`select epoch, mine from ${fn}.replace_redis_epoch('next', 'other', 'next')`)
    expect(own).toEqual({ epoch: 'other', mine: true })
  })
})

describe('keys in Redis', () => {
  it('belong to one database, and another database needs a prefix of its own', async () => {
    const one = await open()
    expect((await one.sluice.takes.tryTake(slow(false))).granted).toBe(true)
    const two = await open()
    const { call, ran } = counted([slow(false)])
    await two.sluice.work([call])
    await two.sluice.sendMany(call, rows(1))
    await until(() => two.errors.join().includes('SLUICE_REDIS_PREFIX'))
    expect(ran).toEqual([])
    await two.sluice.close()
    const three = await open(redis.url, two.store, 'other:')
    await three.sluice.work([call])
    await until(() => ran.length === 1)
  })
})

it('a server that would evict keys is refused', async () => {
  const client = await connectRedis(redis.port)
  ends.push(() => client.close())
  await client.send('CONFIG', ['SET', 'maxmemory', '100mb'])
  await client.send('CONFIG', ['SET', 'maxmemory-policy', 'allkeys-lru'])
  const { sluice, errors } = await open()
  const { call, ran } = counted([slow(false)])
  await sluice.work([call])
  await sluice.sendMany(call, rows(1))
  await until(() => errors.join().includes('noeviction'))
  expect(ran).toEqual([])
  await client.send('CONFIG', ['SET', 'maxmemory-policy', 'noeviction'])
  await until(() => ran.length === 1)
})

it('an invalid Redis URL is refused at once', async () => {
  const { url } = await freshDatabase()
  await expect(Sluice.open({ store: url, redis: 'http://somewhere' })).rejects.toMatchObject({ code: 'SLUICE_BAD_URL' })
  await expect(Sluice.open({ store: url, redis: redis.url, redisPrefix: 'a{b' })).rejects.toMatchObject({
    code: 'SLUICE_BAD_REDIS',
  })
})
