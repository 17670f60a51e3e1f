import { type ChildProcess, spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { silent } from '../../src/core/log.ts'
import { type Broker, openBroker } from '../../src/amqp/broker.ts'
import { type Control, openControl } from '../../src/celery/index.ts'
import { findPython } from '../examples/interpreter.ts'
import { freshBroker } from '../servers/rabbitmq.ts'
import { type RedisServer, startRedis } from '../servers/redis.ts'
import { until } from '../until.ts'

const place = fileURLToPath(new URL('fixtures', import.meta.url))

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
  const log: string[] = []
  const start = (name: string, backend: string, more: string[]) => {
    const flags = ['-n', `${name}@host`, '-l', 'WARNING', '--without-gossip', '--without-mingle']
    const env = { ...process.env, BROKER: url, BACKEND: backend, NOTES: redis.url, PYTHONDONTWRITEBYTECODE: '1' }
    // A group of its own: the worker's pool ends with it.
    const worker = spawn(python, ['-m', 'celery', '-A', 'worker', 'worker', ...flags, ...more], {
      cwd: place,
      env,
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    for (const stream of [worker.stdout, worker.stderr]) stream.on('data', (text) => log.push(String(text)))
    return worker
  }
  const workers = [
    start('rpc', 'rpc://', ['-c', '4', '-E', '-Q', 'celery,topical']),
    start('redis', redis.url, ['--pool', 'solo', '-Q', 'stored']),
  ]
  const broker = await openBroker({ url, name: 'test', log: silent })
  const control = await openControl({ broker: url })
  const names = ['rpc@host', 'redis@host'] as const
  const close = async () => {
    await Promise.all(workers.map(end))
    await control.close()
    await broker.close()
    await redis.close()
  }
  try {
    await until(async () => {
      const ended = workers.find(({ exitCode }) => exitCode !== null)
      if (ended !== undefined) throw new Error('a worker has ended')
      return Object.keys(await control.request('ping', {}, { workers: names, within: 500 })).length === 2
    }, 'both workers answer')
  } catch (error) {
    await close()
    throw new Error(`Celery did not start:\n${log.join('').slice(-3_000)}`, { cause: error })
  }
  return { url, redis, broker, control, rpcWorker: names[0], redisWorker: names[1], close }
}

async function end(worker: ChildProcess): Promise<void> {
  if (worker.pid === undefined || worker.exitCode !== null) return
  const ended = new Promise((resolve) => worker.once('exit', resolve))
  process.kill(-worker.pid, 'SIGKILL')
  await ended
}
