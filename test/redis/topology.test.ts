/** Limits in a Redis behind TLS, behind sentinels, and in a cluster. */
import { describe, expect, it, vi } from 'vitest'
import { limit, Sluice } from '../../src/index.ts'
import { systemClock } from '../../src/core/clock.ts'
import { freePort } from '../../scripts/postgres.mjs'
import { openRedis } from '../../src/redis/connect.ts'
import { end, type Owner } from '../fleet/children.ts'
import { freshDatabase } from '../servers/database.ts'
import { startProxy } from '../servers/proxy.ts'
import { type RedisServer, selfSigned, startCluster, startRedis, startSentinel } from '../servers/redis.ts'
import { connectRedis } from '../servers/resp.ts'
import { until } from '../until.ts'
import { world } from './world.ts'

vi.setConfig({ testTimeout: 300_000 })
const jobs = 120

async function open({ onTestFinished }: Owner, redis: string): Promise<Sluice> {
  const log = { debug() {}, info() {}, warn() {}, error() {} }
  const sluice = await Sluice.open({ store: (await freshDatabase()).url, redis, log })
  onTestFinished(() => sluice.close())
  return sluice
}

/** Takes as soon as that is possible. */
async function take(sluice: Sluice, of: Parameters<Sluice['takes']['tryTake']>[0]): Promise<void> {
  await until(async () => {
    const taken = await sluice.takes.tryTake(of).catch(() => ({ granted: false }))
    return taken.granted
  })
}

/** Sends jobs, does something when some are done, and checks the arrivals at the vendor. */
async function prove(test: Owner, redisUrl: string, meanwhile: () => Promise<void>): Promise<Sluice> {
  const run = await world(test, ['eu'], redisUrl)
  const [store] = run.stores
  if (store === undefined) throw new Error('no store')
  const members = await Promise.all([store.enter(), store.enter()])
  await store.send(jobs)
  await until(async () => (await store.ended()) > jobs / 5, 'some are done', 120_000)
  await meanwhile()
  await until(async () => (await store.ended()) === jobs, 'all are done', 180_000)
  await run.proved(jobs)
  await end(members)
  return store.sluice
}

const epochOf = async (sluice: Sluice) =>
  (await sluice.db.query<{ epoch: string }>('select epoch from sluice.shared'))[0]?.epoch

describe.concurrent('a Redis behind TLS', () => {
  it('is used by its own authority, and by no other one', async (context) => {
    const { onTestFinished } = context
    const { cert, key } = await selfSigned()
    const port = String(await freePort())
    const files = { 'tls-cert-file': cert, 'tls-key-file': key, 'tls-ca-cert-file': cert }
    const redis = await startRedis({ 'tls-port': port, 'tls-auth-clients': 'no', ...files })
    onTestFinished(() => redis.close())
    const sluice = await open(context, `rediss://127.0.0.1:${port}/0?ca=${encodeURIComponent(cert)}`)
    await take(sluice, limit('crm', { rate: '10/h', burst: 10 }))
    const client = await connectRedis(redis.port)
    onTestFinished(() => client.close())
    expect(await client.send('EXISTS', ['sluice:{limits}:b:crm'])).toBe(1)
    const stranger = openRedis(`rediss://127.0.0.1:${port}/0`)
    onTestFinished(() => stranger?.close())
    await expect(stranger?.open()).rejects.toThrow(/self-signed certificate/)
  })
})

/** A master and its replica, which has all. */
async function pair({ onTestFinished }: Owner): Promise<[RedisServer, RedisServer]> {
  const both = await Promise.all([startRedis(), startRedis()])
  for (const one of both) onTestFinished(() => one.close())
  const client = await connectRedis(both[1].port)
  onTestFinished(() => client.close())
  await client.send('REPLICAOF', ['127.0.0.1', String(both[0].port)])
  await until(async () => String(await client.send('INFO', ['replication'])).includes('master_link_status:up'))
  return both
}

async function watched(test: Owner) {
  const { onTestFinished } = test
  const [master, replica] = await pair(test)
  const sentinel = await startSentinel(master)
  onTestFinished(() => sentinel.close())
  const client = await connectRedis(sentinel.port)
  onTestFinished(() => client.close())
  // It learns of replicas every ten seconds.
  await until(async () => String(await client.send('SENTINEL', ['replicas', 'limits'])).includes(String(replica.port)))
  return { master, url: `redis+sentinel://127.0.0.1:${sentinel.port}/limits` }
}

describe.concurrent('a Redis that sentinels watch', () => {
  it('leads to nothing exceeded or lost when a replica takes over, and jobs go on by themselves', async (context) => {
    const { master, url } = await watched(context)
    let before: string | undefined
    const client = await connectRedis(master.port)
    const sluice = await prove(context, url, async () => {
      before = String(await client.send('HGET', ['sluice:{limits}:epoch', 'id']))
      client.close()
      await master.kill()
    })
    expect(await epochOf(sluice)).not.toBe(before)
  })

  it('closes a published limit after that for as long as it looks back, and opens it again', async (context) => {
    const { master, url } = await watched(context)
    const sluice = await open(context, url)
    const shared = limit('shared', { window: '5/4s', published: true })
    await take(sluice, shared)
    const killedMs = systemClock.monotonicMs()
    await master.kill()
    await take(sluice, shared)
    expect(systemClock.monotonicMs() - killedMs).toBeGreaterThan(4_000)
  })
})

it.concurrent('a master is found again, however often its connection is replaced while sentinels are looked up', async (context) => {
  const { onTestFinished } = context
  const { url } = await watched(context)
  const connection = openRedis(url)
  onTestFinished(() => connection?.close())
  await connection?.open()
  let times = 0
  await until(() => {
    connection?.reset()
    return ++times === 50
  })
  await until(async () => (await connection?.send('PING', []).catch(() => '')) === 'PONG', 'it answers', 20_000)
})

it.concurrent('an address that leads to a replica by now is connected to anew, until it leads to a master', async (context) => {
  const { onTestFinished } = context
  const [master, replica] = await pair(context)
  const leads = { port: master.port }
  const way = await startProxy(leads)
  onTestFinished(() => way.close())
  const sluice = await open(context, way.url(master.url))
  const slow = limit('slow', { rate: '100/h', burst: 100 })
  await take(sluice, slow)
  const [one, other] = await Promise.all([master, replica].map(({ port }) => connectRedis(port)))
  onTestFinished(() => one?.close())
  onTestFinished(() => other?.close())
  await other?.send('REPLICAOF', ['NO', 'ONE'])
  await one?.send('REPLICAOF', ['127.0.0.1', String(replica.port)])
  leads.port = replica.port
  await take(sluice, slow)
  expect(await other?.send('EXISTS', ['sluice:{limits}:epoch'])).toBe(1)
})

it.concurrent('a connection on which replies are lost, also while Redis is looked for, is replaced', async (context) => {
  const redis = await startRedis()
  context.onTestFinished(() => redis.close())
  const way = await startProxy({ port: redis.port })
  context.onTestFinished(() => way.close())
  const sluice = await open(context, way.url(redis.url))
  const slow = limit('slow', { rate: '100/h', burst: 100 })
  await take(sluice, slow)
  const lost = way.swallow({ when: 'EVALSHA' })
  const taken = take(sluice, slow)
  await lost
  // The process reads the reply to each further command too late, as that to the command before.
  await way.swallow({ when: 'EVALSHA' })
  await expect(taken).resolves.toBeUndefined()
})

describe.concurrent('a cluster', () => {
  it('has all limits in one slot, and leads to nothing exceeded when that slot moves to another node', async (context) => {
    const { onTestFinished } = context
    const nodes = await startCluster()
    for (const node of nodes) onTestFinished(() => node.close())
    const clients = await Promise.all(nodes.map(({ port }) => connectRedis(port)))
    for (const client of clients) onTestFinished(() => client.close())
    const slot = String(await clients[0]?.send('CLUSTER', ['KEYSLOT', 'sluice:{limits}:epoch']))
    const keys = (i: number) => clients[i]?.send('CLUSTER', ['GETKEYSINSLOT', slot, '1000']) as Promise<string[]>
    const owner = async () => (await Promise.all(clients.map((_, i) => keys(i)))).findIndex(({ length }) => length > 0)
    const url = `redis+cluster://${nodes.map(({ port }) => `127.0.0.1:${port}`).join(',')}`
    let [before, from, to]: [unknown, number, number] = [undefined, -1, -1]
    const sluice = await prove(context, url, async () => {
      from = await owner()
      to = (from + 1) % 3
      before = await clients[from]?.send('HGET', ['sluice:{limits}:epoch', 'id'])
      await move(slot, nodes, clients, from, to)
    })
    expect(await owner()).toBe(to)
    const now = await epochOf(sluice)
    expect(now).not.toBe(before)
    expect(await clients[to]?.send('HGET', ['sluice:{limits}:epoch', 'id'])).toBe(now)
  })
})

it('a connection to a cluster that is closed while it looks for the slots leaves no timer', async ({
  onTestFinished,
}) => {
  const nodes = await startCluster()
  for (const node of nodes) onTestFinished(() => node.close())
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  onTestFinished(() => void vi.useRealTimers())
  const connection = openRedis(`redis+cluster://${nodes.map(({ port }) => `127.0.0.1:${port}`).join(',')}`)
  // Only a wait lets the time pass.
  connection?.open().catch(() => {})
  await until(async () => (await connection?.send('PING', []).catch(() => '')) === 'PONG', 'it answers')
  // It looks for them every five seconds.
  vi.advanceTimersByTime(5_000)
  await connection?.close()
  await until(() => vi.getTimerCount() === 0, 'no timer is left')
})

type Client = Awaited<ReturnType<typeof connectRedis>>

/** Moves a slot with its keys to another node, as `redis-cli --cluster reshard` does. */
async function move(slot: string, nodes: RedisServer[], clients: Client[], from: number, to: number): Promise<void> {
  const [source, target] = [clients[from], clients[to]]
  const ids = await Promise.all(clients.map((client) => client.send('CLUSTER', ['MYID'])))
  await target?.send('CLUSTER', ['SETSLOT', slot, 'IMPORTING', String(ids[from])])
  await source?.send('CLUSTER', ['SETSLOT', slot, 'MIGRATING', String(ids[to])])
  const port = String(nodes[to]?.port)
  await until(async () => {
    const keys = (await source?.send('CLUSTER', ['GETKEYSINSLOT', slot, '100'])) as string[]
    if (keys.length === 0) return true
    await source?.send('MIGRATE', ['127.0.0.1', port, '', '0', '5000', 'KEYS', ...keys])
    return false
  })
  for (const client of [target, source]) await client?.send('CLUSTER', ['SETSLOT', slot, 'NODE', String(ids[to])])
}
