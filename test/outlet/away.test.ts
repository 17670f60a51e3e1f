/** Dispatchers, workers of fleets, and workers that read Celery's queues, that start while RabbitMQ is away. */
import { beforeAll, beforeEach, expect, it, onTestFinished } from 'vitest'
import { Redis } from 'ioredis'
import { z } from 'zod'
import { fleet as lookAtFleet } from '../../src/cli/fleet.ts'
import { openProducer } from '../../src/celery/index.ts'
import { limit, remoteTask, task, workDirectly } from '../../src/index.ts'
import { Sluice } from '../../src/sluice.ts'
import { storeOn } from '../../src/db/store.ts'
import { freshDatabase } from '../servers/database.ts'
import { type Broker, freshBroker } from '../servers/rabbitmq.ts'
import { freePort } from '../servers/postgres.ts'
import { startRedis } from '../servers/redis.ts'
import { type Proxy, startProxy } from '../servers/proxy.ts'
import { queuesOf } from '../bus/stage.ts'
import { later, until } from '../until.ts'

const input = z.unknown()
let store: string
let host: Broker
let proxy: Proxy
let amqp: string
let runs: unknown[]
let lines: string[]
const note = task('note', { input, run: (one) => void runs.push(one) })
const limited = task('limited', {
  input,
  limits: [limit('one', { rate: '100/s' })],
  run: (one) => void runs.push(one),
})
const far = remoteTask('far', { input: z.object({}), queue: 'far', slots: 1 })

const keep = (text: string) => void lines.push(text)
const log = { debug() {}, info: keep, warn: keep, error: keep }
const told = (part: string) => lines.filter((line) => line.includes(part))
/** Whether there is a queue with such a name. */
const exists = async (name: RegExp) => [...(await queuesOf(host)).keys()].some((queue) => name.test(queue))

beforeAll(async () => void (store = (await freshDatabase()).url))
beforeEach(async (context) => {
  host = await freshBroker()
  proxy = await startProxy({ port: Number(new URL(host.url).port) })
  // The last of all: what stops takes its leave.
  context.onTestFinished(() => proxy.close())
  await proxy.refuse()
  amqp = proxy.url(host.url)
  runs = []
  lines = []
})

async function open(url = amqp) {
  const sluice = await Sluice.open({ store, amqp: url, celeryBroker: url, log })
  onTestFinished(() => sluice.close())
  return sluice
}

it('a worker calls for a dispatcher before there was one, and keeps its connection', async () => {
  const sluice = await open(host.url)
  await sluice.execute([note])
  await until(async () => await exists(/^sluice\.sluice\./), 'the queue of the worker')
  await sluice.send(note, 'early')
  await sluice.dispatch([note])
  await until(() => runs.length === 1, 'the job has run')
  expect(told('connection to RabbitMQ')).toEqual([])
})

it('a fleet says what it waits for, and works as soon as RabbitMQ is there', async () => {
  const sluice = await open()
  await sluice.dispatch([note, far])
  await sluice.execute([note])
  await sluice.send(note, 'a')
  expect(told('the dispatcher waits for RabbitMQ')).toHaveLength(1)
  expect(told('the worker waits for RabbitMQ')).toHaveLength(1)
  const at = { sql: storeOn(sluice.db), schema: 'sluice', isEmbedded: false }
  const status = await lookAtFleet(at, amqp)
  expect(status).toMatchObject({ status: 'warn' })
  expect(status?.text).toMatch(/^1 dispatcher for 0 workers; there is no RabbitMQ at /)
  await proxy.pass()
  await until(() => runs.length === 1, 'the job has run')
  await until(() => told('the dispatcher goes on').length === 1)
  expect(told('the worker goes on')).toHaveLength(1)
  // Results of Celery workers come there.
  expect(await exists(/^sluice\.celery\./)).toBe(true)
})

it('workers that read the queues of Celery do what else they do, and read as soon as RabbitMQ is there', async () => {
  const sluice = await open()
  await sluice.work([note], { celery: ['celery'] })
  const direct = await workDirectly([note], { celery: ['direct'], celeryBroker: amqp, log })
  onTestFinished(() => direct.stop())
  await sluice.send(note, 'own')
  await until(() => runs.length === 1, 'a job of the store has run')
  expect(told('queues of Celery producers waits for RabbitMQ')).toHaveLength(1)
  expect(told('the worker waits for RabbitMQ')).toHaveLength(1)
  await proxy.pass()
  await until(async () => (await exists(/^celery$/)) && (await exists(/^direct$/)), 'they have declared their queues')
  const producer = await openProducer({ broker: host.url })
  onTestFinished(() => producer.close())
  for (const queue of ['celery', 'direct'])
    expect(await (await producer.delay('note', [queue], { queue })).result({ within: '30s' })).toBe(null)
  expect(runs).toEqual(['own', ['celery'], ['direct']])
})

it('what reads from a Redis of Celery, or finds results there, begins as soon as that is there', async () => {
  const redis = await startRedis()
  const gate = await startProxy({ port: redis.port })
  onTestFinished(() => redis.close())
  onTestFinished(() => gate.close())
  await gate.refuse()
  const url = gate.url(redis.url)
  const sluice = await Sluice.open({ store, amqp: host.url, celeryBroker: url, celeryResults: url, log })
  onTestFinished(() => sluice.close())
  await sluice.work([note], { celery: ['celery'] })
  await sluice.dispatch([note, far])
  await sluice.send(note, 'own')
  await until(() => runs.length === 1, 'a job of the store has run')
  expect(told('queues of Celery producers waits for Redis')).toHaveLength(1)
  expect(told('the dispatcher waits for Redis')).toHaveLength(1)
  await gate.pass()
  await until(() => told('goes on: Redis is there').length === 2, 'both have begun')
  const producer = await openProducer({ broker: redis.url })
  onTestFinished(() => producer.close())
  expect(await (await producer.delay('note', ['celery'])).result({ within: '30s' })).toBe(null)
  expect(runs).toEqual(['own', ['celery']])
})

it('they stop while they wait for Redis, and end with an error where it is there, and refuses', async () => {
  const redis = await startRedis()
  onTestFinished(() => redis.close())
  const admin = new Redis(redis.url)
  await admin.config('SET', 'requirepass', 'secret')
  admin.disconnect()
  const away = `redis://127.0.0.1:${await freePort()}/0`
  const sluice = await Sluice.open({ store, amqp: host.url, celeryBroker: away, celeryResults: away, log })
  const all = [
    await sluice.work([note], { celery: ['celery'] }),
    await sluice.dispatch([far]),
    await workDirectly([limited], { celery: ['direct'], celeryBroker: host.url, redis: away, log }),
  ]
  await Promise.all(all.map((one) => one.stop()))
  await sluice.close()
  const wrong = redis.url.replace('redis://', 'redis://:wrong@')
  for (const url of [wrong, redis.url]) {
    const refused = await Sluice.open({ store, amqp: host.url, celeryBroker: url, celeryResults: url, log })
    onTestFinished(() => refused.close())
    const direct = { celery: ['direct'], celeryBroker: host.url, log }
    const starting = [
      refused.work([note], { celery: ['celery'] }),
      refused.dispatch([far]),
      workDirectly([limited], { ...direct, redis: url }),
      workDirectly([note], { ...direct, celeryResults: url }),
    ]
    for (const one of starting.map((each) => later<unknown>(each)))
      await expect(one).rejects.toMatchObject({ code: 'SLUICE_BAD_REDIS' })
  }
})

it('a worker without a store reads nothing until the Redis of its limits, and of its results, is there', async () => {
  const [limits, results] = await Promise.all([startRedis(), startRedis()])
  for (const redis of [limits, results]) onTestFinished(() => redis.close())
  await Promise.all([limits.kill(), results.kill()])
  await proxy.pass()
  const options = { celery: ['celery'], celeryBroker: host.url, redis: limits.url, celeryResults: results.url, log }
  const direct = await workDirectly([limited], options)
  onTestFinished(() => direct.stop())
  expect(told('the worker waits for Redis')).toHaveLength(1)
  expect(told('the worker waits for Redis')[0]).toContain(`127.0.0.1:${limits.port}`)
  await limits.start()
  const client = new Redis(limits.url)
  onTestFinished(() => client.disconnect())
  await until(async () => (await client.exists('sluice:{limits}:epoch')) === 1, 'it has begun the limits')
  expect(await exists(/^celery$/)).toBe(false)
  await results.start()
  await until(() => told('the worker goes on: Redis is there').length === 1)
  const producer = await openProducer({ broker: host.url, results: results.url })
  onTestFinished(() => producer.close())
  expect(await (await producer.delay('limited', ['a'])).result({ within: '30s' })).toBe(null)
  expect(runs).toEqual([['a']])
})

it('they stop while they wait', async () => {
  const sluice = await open()
  const all = [
    await sluice.dispatch([note, far]),
    await sluice.execute([note]),
    await sluice.work([note], { celery: ['celery'] }),
    await workDirectly([note], { celery: ['direct'], celeryBroker: amqp, log }),
  ]
  await Promise.all(all.map((one) => one.stop()))
  await sluice.close()
  await proxy.pass()
  expect(told('goes on:')).toEqual([])
  expect(proxy.connections).toBe(0)
})

it('they end with an error where RabbitMQ is there, and refuses', async () => {
  const sluice = await open(host.url.replace('guest:guest', 'guest:wrong'))
  const elsewhere = await open(`${host.url}-not-there`)
  const direct = { celery: ['direct'], celeryBroker: host.url.replace('guest:guest', 'guest:wrong'), log }
  const starting = [
    sluice.dispatch([note]),
    sluice.execute([note]),
    sluice.work([note], { celery: ['celery'] }),
    workDirectly([note], direct),
    elsewhere.dispatch([note]),
  ].map((one) => later<unknown>(one))
  for (const one of starting) await expect(one).rejects.toMatchObject({ code: 'SLUICE_BROKER_REFUSED' })
})
