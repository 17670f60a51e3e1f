/** Dispatchers, workers of fleets, and workers that read Celery's queues, that start while RabbitMQ is away. */
import { beforeAll, beforeEach, expect, it, onTestFinished } from 'vitest'
import { z } from 'zod'
import { fleet as lookAtFleet } from '../../src/cli/fleet.ts'
import { openProducer } from '../../src/celery/index.ts'
import { remoteTask, task, workDirectly } from '../../src/index.ts'
import { Sluice } from '../../src/sluice.ts'
import { storeOn } from '../../src/db/store.ts'
import { freshDatabase } from '../servers/database.ts'
import { type Broker, freshBroker } from '../servers/rabbitmq.ts'
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
  const direct = await workDirectly([note], { celery: ['direct'], amqp, log })
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

it('they stop while they wait', async () => {
  const sluice = await open()
  const all = [
    await sluice.dispatch([note, far]),
    await sluice.execute([note]),
    await sluice.work([note], { celery: ['celery'] }),
    await workDirectly([note], { celery: ['direct'], amqp, log }),
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
  const direct = { celery: ['direct'], amqp: host.url.replace('guest:guest', 'guest:wrong'), log }
  const starting = [
    sluice.dispatch([note]),
    sluice.execute([note]),
    sluice.work([note], { celery: ['celery'] }),
    workDirectly([note], direct),
    elsewhere.dispatch([note]),
  ].map((one) => later<unknown>(one))
  for (const one of starting) await expect(one).rejects.toMatchObject({ code: 'SLUICE_BROKER_REFUSED' })
})
