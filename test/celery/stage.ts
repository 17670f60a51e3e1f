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
  const [{ url }, redis] = await Promise.all([freshBroker(), startRedis()])
  const broker = await openBroker({ url, name: 'test', log: silent })
  const workers = await startWorkers({ broker: url, notes: redis.url }, [
    { name: 'rpc@host', backend: 'rpc://', flags: ['-c', '4', '-E', '-Q', 'celery,topical'] },
    { name: 'redis@host', backend: redis.url, flags: ['--pool', 'solo', '-Q', 'stored'] },
  ])
  const close = async () => {
    await workers.close()
    await broker.close()
    await redis.close()
  }
  return { url, redis, broker, control: workers.control, rpcWorker: 'rpc@host', redisWorker: 'redis@host', close }
}

/** Stock workers. */
export interface Workers {
  control: Control
  close(): Promise<void>
}

/**
 * Starts stock workers, and waits until all answer.
 * @param at `notes`: URL of the Redis in which tasks leave notes; `options`: Celery's `broker_transport_options`
 */
export async function startWorkers(
  at: { broker: string; notes: string; options?: Record<string, unknown>; keyPrefix?: string },
  wanted: readonly { name: string; backend: string; flags: readonly string[] }[],
): Promise<Workers> {
  const python = await findPython('celery', 'redis')
  const log: string[] = []
  const options = JSON.stringify({ ...at.options, ...(at.keyPrefix ? { global_keyprefix: at.keyPrefix } : {}) })
  const workers = wanted.map(({ name, backend, flags }) => {
    const all = ['-n', name, '-l', 'WARNING', '--without-gossip', '--without-mingle', ...flags]
    const own = { BROKER: at.broker, BACKEND: backend, NOTES: at.notes, OPTIONS: options, PYTHONDONTWRITEBYTECODE: '1' }
    // A group of its own: the worker's pool ends with it.
    const worker = spawn(python, ['-m', 'celery', '-A', 'worker', 'worker', ...all], {
      cwd: place,
      env: { ...process.env, ...own },
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    for (const stream of [worker.stdout, worker.stderr]) stream.on('data', (text) => log.push(String(text)))
    return worker
  })
  const control = await openControl({ broker: at.broker, ...(at.keyPrefix ? { keyPrefix: at.keyPrefix } : {}) })
  const close = async () => {
    await Promise.all(workers.map(end))
    await control.close()
  }
  const names = wanted.map(({ name }) => name)
  try {
    await until(async () => {
      const ended = workers.find(({ exitCode }) => exitCode !== null)
      if (ended !== undefined) throw new Error('a worker has ended')
      const answers = await control.request('ping', {}, { workers: names, within: 500 })
      return Object.keys(answers).length === names.length
    }, 'all workers answer')
  } catch (error) {
    await close()
    throw new Error(`Celery did not start:\n${log.join('').slice(-3_000)}`, { cause: error })
  }
  return { control, close }
}

async function end(worker: ChildProcess): Promise<void> {
  if (worker.pid === undefined || worker.exitCode !== null) return
  const ended = new Promise((resolve) => worker.once('exit', resolve))
  process.kill(-worker.pid, 'SIGKILL')
  await ended
}
