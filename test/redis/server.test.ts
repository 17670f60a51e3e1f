import { readFileSync } from 'node:fs'
import { beforeEach, expect, it } from 'vitest'
import { limit } from '../../src/limits/limit.ts'
import type { RedisClient } from '../../src/redis/client.ts'
import { RedisLimiter } from '../../src/redis/limiter.ts'
import { checkServer, readLoad, type ServerCheck } from '../../src/redis/server.ts'
import { freshRedis } from '../servers/redis.ts'
import { bucket, decided, seedOf } from './calls.ts'
import { connectRedis } from '../servers/resp.ts'

const { server, client } = await freshRedis()
beforeEach(async () => {
  await client.send('FLUSHALL', [])
  await client.send('CONFIG', ['RESETSTAT'])
})

const set = (name: string, value: string) => client.send('CONFIG', ['SET', name, value])
const said = ({ findings }: ServerCheck) =>
  findings.map(({ code, isError }) => `${code} ${isError ? 'error' : 'warning'}`)
/** A server with other replies. */
const saying = (change: (command: string, reply: unknown) => unknown): RedisClient => ({
  send: async (command, args) => change(command, await client.send(command, args)),
})
const told = (from: RegExp, to: string) =>
  saying((command, reply) => (command === 'INFO' ? (reply as string).replace(from, to) : reply))

it('the check of a server finds no fault with one that keeps its data', async () => {
  expect(await checkServer(client)).toEqual({ findings: [], evicted: 0 })
})

it('the check of a server finds that keys are evicted, could be, or were', async () => {
  const before = await checkServer(client)
  await set('maxmemory-policy', 'volatile-lru')
  expect(said(await checkServer(client))).toEqual(['may-evict warning'])
  expect(said(await checkServer(told(/maxmemory_policy.*/, '')))).toEqual(['may-evict warning'])
  await set('maxmemory', '2mb')
  expect(said(await checkServer(client))).toEqual(['evicts error'])
  for (let i = 0; i < 30; i++) await client.send('SET', [`k${i}`, 'x'.repeat(100_000), 'EX', '1000'])
  await set('maxmemory', '0')
  await set('maxmemory-policy', 'noeviction')
  const after = await checkServer(client, before)
  expect(said(after)).toEqual(['evicted error'])
  expect(said(await checkServer(client))).toEqual(['evicted warning'])
  expect(said(await checkServer(client, after))).toEqual([])
})

it('the clients that a server accepts are in INFO, else in its settings, or not known', async () => {
  await set('maxclients', '321')
  const { connected = 0, most } = await readLoad(client)
  expect([connected > 0, most]).toEqual([true, 321])
  const silent = told(/maxclients:.*/, '')
  expect(await readLoad(silent)).toMatchObject({ most: 321 })
  const send: RedisClient['send'] = async (command, args) => {
    if (command === 'CONFIG') throw new Error("ERR unknown command 'CONFIG'")
    return silent.send(command, args)
  }
  expect(await readLoad({ send })).toMatchObject({ most: undefined })
  await set('maxclients', '10000')
})

it('the check of a server finds a replica, an old version, and clocks that differ', async () => {
  await client.send('REPLICAOF', ['127.0.0.1', '1'])
  expect(said(await checkServer(client))).toEqual(['replica error'])
  await client.send('REPLICAOF', ['NO', 'ONE'])
  const versions = ['4.0.14', '5.0.0', '7.2.4', '10.0.1', '']
  const looks = await Promise.all(versions.map((one) => checkServer(told(/redis_version:.*/, `redis_version:${one}`))))
  expect(looks.map(said)).toEqual([['old error'], [], [], [], []])
  const clocks = [-3600, -5, 5, 3600].map((off) =>
    saying((command, reply) => (command === 'TIME' ? [String(Number((reply as string[])[0]) + off), '0'] : reply)),
  )
  expect((await Promise.all(clocks.map((one) => checkServer(one)))).map(said)).toEqual([
    ['clock warning'],
    [],
    [],
    ['clock warning'],
  ])
})

it('the check of a server needs no more permissions than the docs list', async () => {
  const docs = readFileSync(new URL('../../docs/redis.md', import.meta.url), 'utf8')
  const rules = /^\+eval .*$/m.exec(docs)?.[0].split(' ') ?? []
  expect(rules).toContain('~sluice:*')
  await client.send('ACL', ['SETUSER', 'least', 'on', '>secret', ...rules])
  const user = await connectRedis(server.port)
  await user.send('AUTH', ['least', 'secret'])
  await user.send('SELECT', ['0'])
  expect(await checkServer(user)).toEqual({ findings: [], evicted: 0 })
  const limiter = new RedisLimiter(user)
  await limiter.write()
  const buckets = [bucket('flow', { window: '5/min', concurrency: 3 }), bucket('place', { concurrency: 3 })]
  const seeds = buckets.map((one) => seedOf(one))
  expect(await limiter.begin({ owner: 'sluice', epoch: 'least', closeUs: 0, seeds })).toMatchObject({ isDecided: true })
  const items = [{ want: 2, takes: buckets.map((_, at) => ({ bucket: at, units: 1 })) }]
  expect(decided(await limiter.reserve({ id: 'g', buckets, items }))).toMatchObject([{ granted: 2 }])
  const acts = buckets.map((_, at) => ({ bucket: at, grant: 'g', isUnused: true as const }))
  expect(decided(await limiter.settle({ id: 's', buckets, acts }))).toEqual([-2, -2])
  const { rules: own } = limit('flow', { window: '5/min' })
  expect(await limiter.publish({ name: 'flow', version: 1, rules: own, isKeyed: false, grantUs: 1 })).toBe(1)
  user.close()
})

it('the check of a server reports missing permissions, and does without them', async () => {
  await client.send('ACL', ['SETUSER', 'limits', 'on', '>secret', '~*', '+@all'])
  const user = await connectRedis(server.port)
  await user.send('AUTH', ['limits', 'secret'])
  const look = async (...rules: string[]) => {
    await client.send('ACL', ['SETUSER', 'limits', '+@all', ...rules])
    return said(await checkServer(user))
  }
  expect(await look('-info')).toEqual(['no-info warning', 'nameless warning'])
  expect(await look('-@scripting')).toEqual(['no-scripts error'])
  expect(await look('-time')).toEqual(['no-scripts error'])
  // Where the history's name is not readable, an epoch is accepted that began without one, and none that had one.
  const limiter = new RedisLimiter(client)
  await limiter.begin({ owner: 'sluice', epoch: 'named', closeUs: 0 })
  await client.send('ACL', ['SETUSER', 'limits', '+@all', '-info'])
  const blindly = new RedisLimiter(user)
  const ask = () => blindly.reserve({ id: String(performance.now()), buckets: [], items: [] })
  expect(await ask()).toMatchObject({ why: 'lost', epoch: 'named' })
  await blindly.begin({ owner: 'sluice', epoch: 'nameless', instead: 'named', closeUs: 0 })
  expect(await ask()).toMatchObject({ isDecided: true })
  user.close()
})
