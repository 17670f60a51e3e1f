/** A producer of Celery, and a worker of ours that absorbs what it sends. */
import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import type { TestContext } from 'vitest'
import { Sluice } from '../../src/sluice.ts'
import type { AnyTask } from '../../src/tasks/task.ts'
import { findPython } from '../examples/interpreter.ts'
import { freshDatabase } from '../servers/database.ts'
import { freshBroker } from '../servers/rabbitmq.ts'

const file = fileURLToPath(new URL('producer.py', import.meta.url))

/** Starts a producer, whose functions are those of producer.py. */
export async function startProducer(broker: string, backend = 'rpc://') {
  const python = await findPython('celery', 'redis')
  const env = { ...process.env, BROKER: broker, BACKEND: backend, PYTHONDONTWRITEBYTECODE: '1' }
  const child = spawn(python, [file], { env, stdio: ['pipe', 'pipe', 'inherit'] })
  const waiting: ((line: string) => void)[] = []
  createInterface(child.stdout).on('line', (line) => waiting.shift()?.(line))
  const ask = <T>(name: string, given: object = {}) =>
    new Promise<T>((resolve, reject) => {
      child.once('exit', () => reject(new Error('the producer has ended')))
      waiting.push((line) => resolve(JSON.parse(line) as T))
      child.stdin.write(`${JSON.stringify([name, given])}\n`)
    })
  return {
    ask,
    send: (task: string, args: unknown[] = [], more: object = {}) => ask<string>('send', { task, args, ...more }),
    result: (id: string) => ask<[string, unknown]>('result', { id }),
    close: () => child.kill('SIGKILL'),
  }
}

/** A broker with a producer, which tests share, because Python takes a second to start. */
export async function openStage() {
  const { url } = await freshBroker()
  return { url, ...(await startProducer(url)) }
}

/** A store, and a worker of these tasks, for one test. */
export async function absorb(
  url: string,
  tasks: readonly AnyTask[],
  { onTestFinished }: Pick<TestContext, 'onTestFinished'>,
  { queues = ['celery'], ...options }: { celeryResults?: string; queues?: string[] } = {},
) {
  const { url: store } = await freshDatabase()
  const sluice = await Sluice.open({ store, amqp: url, ...options })
  onTestFinished(() => sluice.close())
  const worker = await sluice.work(tasks, { celery: queues })
  return { sluice, worker, store }
}
