import { expect } from 'vitest'
import { silent } from '../../src/core/log.ts'
import { type Broker, openBroker } from '../../src/amqp/broker.ts'
import { type Control, openControl, type Producer } from '../../src/celery/index.ts'
import { findPython } from '../examples/interpreter.ts'
import { freshBroker } from '../servers/rabbitmq.ts'
import { type RedisServer, startRedis } from '../servers/redis.ts'
import { until } from '../until.ts'
import { startCelery } from './worker.ts'

/** Two stock workers of Celery on a broker of their own. */
export interface Stage {
  /** URL of the broker. */
  url: string
  redis: RedisServer
  broker: Broker
  control: Control
  /** Four processes, results over rpc, events; serves `celery` and `topical`. */
  rpcWorker: string
  /** One task at a time, results in Redis; serves `stored`. */
  redisWorker: string
  close(): Promise<void>
}

/** Starts them, and waits until both answer. A worker takes seconds to start, so all tests share these. */
export async function openStage(): Promise<Stage> {
  const python = await findPython('celery', 'redis')
  const [{ url }, redis] = await Promise.all([freshBroker(), startRedis()])
  const start = (name: string, backend: string, more: string[]) => {
    const env = { BROKER: url, BACKEND: backend, NOTES: redis.url }
    return startCelery({ python, app: 'worker', name, env, flags: more })
  }
  const workers = [
    start('rpc', 'rpc://', ['-c', '4', '-E', '-Q', 'celery,topical']),
    start('redis', redis.url, ['--pool', 'solo', '-Q', 'stored']),
  ]
  const broker = await openBroker({ url, name: 'test', log: silent })
  const control = await openControl({ broker: url })
  const names = ['rpc@host', 'redis@host'] as const
  const close = async () => {
    await Promise.all(workers.map((worker) => worker.kill()))
    await control.close()
    await broker.close()
    await redis.close()
  }
  try {
    await Promise.all(workers.map((worker) => worker.ready(control)))
  } catch (error) {
    await close()
    throw error
  }
  return { url, redis, broker, control, rpcWorker: names[0], redisWorker: names[1], close }
}

/** What a worker answers of a task that it has planned. */
interface Planned {
  eta: string
  request: { id: string }
}

/** The worker means to begin a task at the very millisecond of its eta. How late it does depends on the machine, and on Celery. */
export async function expectEta(producer: Producer, control: Control, worker: string): Promise<void> {
  const eta = new Date(Math.floor(Date.now() / 1_000) * 1_000 + 3_600_999)
  const { id } = await producer.delay('started', [], { eta })
  const one = { workers: [worker], within: '20s' } as const
  let planned: string | undefined
  await until(async () => {
    const { [worker]: all } = await control.request('scheduled', {}, one)
    planned = (all as Planned[] | undefined)?.find(({ request }) => request.id === id)?.eta
    return planned !== undefined
  }, 'the worker has planned it')
  expect(Date.parse(planned ?? '')).toBe(eta.getTime())
  await control.revoke(id, one)
}
