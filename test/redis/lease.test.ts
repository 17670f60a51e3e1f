import { randomUUID } from 'node:crypto'
import { beforeAll, beforeEach, expect, it, onTestFinished } from 'vitest'
import { z } from 'zod'
import { limit, Sluice, task } from '../../src/index.ts'
import { storeOn } from '../../src/db/store.ts'
import { openRedis, type RedisConnection } from '../../src/redis/connect.ts'
import { RedisLimiter } from '../../src/redis/limiter.ts'
import { RedisPeerLimiter } from '../../src/redis/peer.ts'
import { findPython } from '../examples/interpreter.ts'
import { freshDatabase } from '../servers/database.ts'
import { freshRedis } from '../servers/redis.ts'
import { until } from '../until.ts'
import { Caller } from './caller.ts'
import { bucket, decided } from './calls.ts'

let python: string
const { server, client } = await freshRedis()
const limiter = new RedisLimiter(client, { prefix: 'app:', domain: 'crm' })
beforeAll(async () => {
  python = await findPython('redis')
})
beforeEach(async () => {
  await client.send('FLUSHALL', [])
})
const caller = (): Caller => {
  const one = new Caller(python, server.url)
  onTestFinished(() => one.end())
  return one
}
const place = (version = 1, concurrency = 1) => bucket('place', { concurrency }, version)
const take = async (id: string, of = place()): Promise<number | undefined> => {
  const items = [{ want: 1, takes: [{ bucket: 0, units: 1 }] }]
  return decided(await limiter.reserve({ id, buckets: [of], items, leaseUs: 60_000_000 }))[0]?.granted
}
const renew = async (grant: string, renewUs: number, places?: number): Promise<number | undefined> => {
  const act = { bucket: 0, grant, renewUs, ...(places === undefined ? {} : { places }) }
  return decided(await limiter.settle({ id: randomUUID(), buckets: [place()], acts: [act] }))[0]
}
const begin = (instead?: string) => limiter.begin({ owner: 'sluice', epoch: randomUUID(), closeUs: 0, instead })

it('a leased place is free when it is given back, or when its lease ends', async () => {
  await begin()
  expect(await take('a')).toBe(1)
  expect(await take('b')).toBe(0)
  const acts = [{ bucket: 0, grant: 'a', ended: 1 }]
  expect(decided(await limiter.settle({ id: 'end', buckets: [place()], acts }))).toEqual([1])
  expect(await take('c')).toBe(1)
  expect(await renew('c', 1)).toBe(1)
  await until(async () => (await take(randomUUID())) === 1)
  expect(await renew('c', 1_000_000)).toBe(0)
})

it('a lease outlives a change of the definition', async () => {
  await begin()
  expect(await take('a')).toBe(1)
  expect(await take('b', place(2, 2))).toBe(1)
  expect(await take('c', place(3, 1))).toBe(0)
})

it('a process of Sluice gets the places of its jobs back, even where they count as lost', async () => {
  await begin()
  expect(await renew('job', 30_000_000, 1)).toBe(1)
  expect(await take('a')).toBe(0)
})

it('a process in Python that is killed loses its place, and one that lives keeps it', async () => {
  await begin()
  const { name, rules, keyed: isKeyed, grantUs } = limit('place', { concurrency: 1 })
  await limiter.publish({ name, rules, version: 1, isKeyed, grantUs, countedFrom: 1, isLeased: true })
  const [first, second] = [caller(), caller()]
  const { value: id } = await first.ask('lease', ['place'], 5, 3)
  // Longer than the lease lasts without a renewal.
  expect(await second.ask('lease', ['place'], 4, 3)).toMatchObject({ error: 'Denied' })
  expect(await first.ask('lost', id, 0)).toEqual({ value: false })
  first.end()
  const { value: other } = await second.ask('lease', ['place'], 60, 3)
  expect(other).toEqual(expect.any(String))
  expect(await second.ask('release', other)).toEqual({ value: null })
  const { value: last } = await second.ask('lease', ['place'], 0, 3)
  // What Redis forgets is lost.
  await client.send('FLUSHALL', [])
  expect(await second.ask('lost', last, 60)).toEqual({ value: true })
})

it('jobs and programs in other languages never hold more places together than the limit has', async () => {
  const { url: store } = await freshDatabase()
  const redis = { send: (command: string, args: (string | number)[]) => client.send(command, args.map(String)) }
  const sluice = await Sluice.open({ store, redis, redisPrefix: 'jobs:' } as never)
  onTestFinished(() => sluice.close())
  const own = limit('shared', { concurrency: 1, published: true })
  let isRunning = false
  let goOn = () => {}
  const call = task('call', {
    input: z.object({}),
    limits: [own],
    run: () => {
      isRunning = true
      return new Promise<void>((done) => (goOn = done))
    },
  })
  await sluice.work([call])
  await sluice.send(call, {})
  await until(() => isRunning)
  const other = new RedisLimiter(client, { prefix: 'jobs:' })
  const text = JSON.parse(String(await client.send('GET', ['jobs:{limits}:d:shared']))) as {
    leased: boolean
    version: number
  }
  expect(text.leased).toBe(true)
  const one = { ...bucket('shared', { concurrency: 1 }, text.version) }
  const items = [{ want: 1, takes: [{ bucket: 0, units: 1 }] }]
  const lease = async (id: string) =>
    decided(await other.reserve({ id, buckets: [one], items, leaseUs: 60_000_000 }))[0]?.granted
  expect(await lease('denied')).toBe(0)
  isRunning = false
  goOn()
  let id = ''
  await until(async () => (await lease((id = randomUUID()))) === 1)
  await sluice.send(call, {})
  await until(async () => (await sluice.db.query(`select 1 from sluice.ledger where hold > 0`)).length > 0)
  expect(isRunning).toBe(false)
  decided(await other.settle({ id: randomUUID(), buckets: [one], acts: [{ bucket: 0, grant: id, ended: 1 }] }))
  await until(() => isRunning)
  goOn()
})

it('a process takes over the place of a job that goes on, and frees it when that has ended', async () => {
  const { url: store } = await freshDatabase()
  const sluice = await Sluice.open({ store, redis: server.url, redisPrefix: 'heirs:' })
  onTestFinished(() => sluice.close())
  const limits = [limit('shared', { concurrency: 1, published: true }), limit('free', { rate: '1/s' })]
  await sluice.define([task('call', { input: z.object({}), limits, run: () => {} })])
  const connection = openRedis(server.url) as RedisConnection
  await connection.open()
  const peer = new RedisPeerLimiter({ store: storeOn(sluice.db), connection, prefix: 'heirs:', stores: 1 })
  onTestFinished(() => peer.close())
  peer.start()
  await peer.waitUntilReady()
  const other = new RedisLimiter(client, { prefix: 'heirs:' })
  const lease = async () => {
    const text = JSON.parse(String(await client.send('GET', ['heirs:{limits}:d:shared']))) as { version: number }
    const items = [{ want: 1, takes: [{ bucket: 0, units: 1 }] }]
    const buckets = [bucket('shared', { concurrency: 1 }, text.version)]
    const answer = await other.reserve({ id: randomUUID(), buckets, items, leaseUs: 1 })
    return answer.isDecided ? answer.results[0]?.granted : undefined
  }
  // Nobody else has it, and a lease of a microsecond is soon over.
  await until(async () => (await lease()) === 1)
  const grant = await peer.takePlaces(['shared', 'free'])
  await until(async () => (await lease()) === 0)
  peer.freePlaces(grant, ['shared', 'free'])
  await until(async () => (await lease()) === 1)
})
