/** Results, for those who wait for them. */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { expect, it, type TestContext } from 'vitest'
import { openBroker } from '../../src/amqp/broker.ts'
import { resultKey, resultMessage, writeResult } from '../../src/celery/result.ts'
import { redisResults, rpcResults } from '../../src/celery/results.ts'
import { carrierOver, publish } from '../../src/celery/transport.ts'
import { silent } from '../../src/core/log.ts'
import { freshBroker } from '../servers/rabbitmq.ts'
import { startRedis } from '../servers/redis.ts'
import { connectRedis } from '../servers/resp.ts'
import { until } from '../until.ts'

async function stage({ onTestFinished }: TestContext) {
  const redis = await startRedis()
  onTestFinished(() => redis.close())
  const [admin, results] = await Promise.all([connectRedis(redis.port), redisResults(redis.url)])
  onTestFinished(async () => {
    admin.close()
    await results.close()
  })
  const raw = (id: string, text: string) => admin.send('SET', [resultKey(id), text])
  const report = (id: string, state: string, value: unknown) =>
    raw(id, writeResult({ id, state, value, traceback: undefined }))
  return { redis, results, report, raw }
}

it('results are not kept when they were read, however long another one is awaited', async (context) => {
  const { results, report } = await stage(context)
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  const used = () => {
    collect()
    return process.memoryUsage().heapUsed
  }
  results.watch('slow', () => {})
  const value = 'x'.repeat(2 ** 20)
  const read = async (from: number, to: number) => {
    for (let n = from; n < to; n++) {
      await report(`${n}`, 'SUCCESS', value)
      expect((await results.waitForLast(`${n}`, 60_000)).state).toBe('SUCCESS')
      results.forget(`${n}`)
    }
  }
  await read(0, 2)
  const before = used()
  await read(2, 52)
  expect((used() - before) / 2 ** 20).toBeLessThan(20)
})

it('results reject with what a caller throws that is told of states', async (context) => {
  const { results, report } = await stage(context)
  const last = results.waitForLast('told', 60_000, () => {
    throw new RangeError('boom')
  })
  await report('told', 'STARTED', null)
  await expect(last).rejects.toThrow('boom')
  await report('told', 'SUCCESS', 1)
  expect(await results.waitForLast('told', 60_000)).toMatchObject({ state: 'SUCCESS', value: 1 })
})

it('results that cannot be read are the reason why a caller has none', async (context) => {
  const { results, raw } = await stage(context)
  const states: string[] = []
  await raw('pickled', '\u0080\u0005K\u0003.')
  const last = results.waitForLast('pickled', 500, (state) => states.push(state))
  await expect(last).rejects.toMatchObject({
    code: 'SLUICE_CELERY_LATE',
    message: expect.stringContaining('set result_serializer = "json"'),
  })
  expect(states).toEqual(['UNREADABLE'])
})

it('results of a Redis that was away can be read as soon as it is back, also if nobody waits for one', async (context) => {
  const { redis, results } = await stage(context)
  results.watch('a', () => {})
  expect(results.canRead).toBe(true)
  await redis.kill()
  await until(() => !results.canRead)
  results.forget('a')
  await redis.start()
  await until(() => results.canRead)
})

it('results cannot be read while their queue is not that of their producer', async (context) => {
  const { url } = await freshBroker()
  const open = async () => {
    const broker = await openBroker({ url, name: 'test', log: silent })
    context.onTestFinished(() => broker.close())
    return broker
  }
  const results = await rpcResults(carrierOver(await open()), silent, { isKept: true })
  expect(results.canRead).toBe(true)
  const thief = await open()
  await thief.use((channel) =>
    Promise.all([channel.deleteQueue(results.replyTo), channel.assertQueue(results.replyTo, { exclusive: true })]),
  )
  await until(() => !results.canRead)
  await thief.close()
  await until(() => results.canRead)
})

it('results may be lost with their queue, of which their producer learns also while its connection stands', async (context) => {
  const { broker, open } = await createProducers(context)
  const [own, other] = [await open(), await open()]
  const gaps: string[] = []
  own.watchGaps(() => gaps.push('own'))
  await own.adopt(other.replyTo, () => gaps.push('adopted'))
  await broker.use((channel) => channel.deleteQueue(other.replyTo))
  await until(() => gaps.includes('adopted'))
  await broker.use((channel) => channel.deleteQueue(own.replyTo))
  await until(() => gaps.filter((gap) => gap === 'own').length === 2)
})

const reports = [
  { state: 'STARTED', value: { pid: 1, hostname: 'celery@a' } },
  { state: 'REVOKED', value: { type: 'TaskRevokedError', module: 'm', args: ['expired'] } },
  { state: 'SUCCESS', value: 1 },
]

it.for(['Redis', 'rpc'])(
  'results follow on the refusal of a copy of their message that came too late: %s',
  async (by, context) => {
    const { results, report } = by === 'Redis' ? await stage(context) : await createProducer(context)
    const told: string[] = []
    results.watch('a', ({ state }) => told.push(state))
    for (const { state, value } of reports) {
      await report('a', state, value)
      await until(() => told.at(-1) === state, state)
    }
  },
)

/** Producers that keep results until they are done with them, on one broker. */
async function createProducers({ onTestFinished }: TestContext) {
  const broker = await openBroker({ url: (await freshBroker()).url, name: 'test', log: silent })
  onTestFinished(() => broker.close())
  return {
    broker,
    open: () => rpcResults(carrierOver(broker), silent, { isKept: true }),
    report: (id: string, routingKey: string, state = 'SUCCESS', value: unknown = 1) =>
      publish(broker, resultMessage({ id, state, value, traceback: undefined }), { exchange: '', routingKey }),
  }
}

async function createProducer(context: TestContext) {
  const { open, report } = await createProducers(context)
  const results = await open()
  return {
    results,
    report: (id: string, state: string, value: unknown) => report(id, results.replyTo, state, value),
  }
}

it('results go to each of several heirs that read one queue and wait for different tasks', async (context) => {
  const { open, report } = await createProducers(context)
  const [gone, heir, other] = [await open(), await open(), await open()]
  await gone.close()
  const told = { heir: new Set<string>(), other: new Set<string>() }
  const ids = Array.from({ length: 20 }, (_, n) => `of another ${n}`)
  for (const id of ids) other.watch(id, () => told.other.add(id))
  heir.watch('own', () => told.heir.add('own'))
  await Promise.all(ids.map((id) => report(id, gone.replyTo)))
  await report('own', gone.replyTo)
  await heir.adopt(gone.replyTo)
  await until(() => told.heir.size === 1, 'the heir has its own')
  await other.adopt(gone.replyTo)
  await until(() => told.other.size === ids.length, 'the other one has its own, beside a heir that lives')
})

it('results stay for their producer if it was only silent for a while, and an heir reads its queue, too', async (context) => {
  const { open, report } = await createProducers(context)
  const [producer, heir] = [await open(), await open()]
  await heir.adopt(producer.replyTo)
  const told = new Set<string>()
  const ids = Array.from({ length: 20 }, (_, n) => `later ${n}`)
  for (const id of ids) producer.watch(id, () => told.add(id))
  await Promise.all(ids.map((id) => report(id, producer.replyTo)))
  await until(() => told.size === ids.length, 'the producer has its own')
})
