/** A producer of Celery, and a worker of ours that absorbs what it sends. */
import { spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import type { TestContext } from 'vitest'
import { openBroker } from '../../src/amqp/broker.ts'
import { isFinal, readResult, type TaskResult } from '../../src/celery/result.ts'
import { blank, type TaskMessage, writeTask } from '../../src/celery/task-message.ts'
import { publish, readIncoming } from '../../src/celery/transport.ts'
import type { WireMessage } from '../../src/celery/wire.ts'
import { silent } from '../../src/core/log.ts'
import type { SluiceOptions } from '../../src/options.ts'
import { Sluice } from '../../src/sluice.ts'
import type { AnyTask } from '../../src/tasks/task.ts'
import type { CeleryWork } from '../../src/worker/celery-work.ts'
import { findPython } from '../examples/interpreter.ts'
import { freshDatabase } from '../servers/database.ts'
import { freshBroker } from '../servers/rabbitmq.ts'
import { later, until } from '../until.ts'

const file = fileURLToPath(new URL('producer.py', import.meta.url))

/** Starts a producer, whose functions are those of producer.py. */
export async function startProducer(broker: string, backend = 'rpc://') {
  const python = await findPython('celery', 'redis')
  const env = { ...process.env, BROKER: broker, BACKEND: backend, PYTHONDONTWRITEBYTECODE: '1' }
  const child = spawn(python, [file], { env, stdio: ['pipe', 'pipe', 'inherit'] })
  const waiting: ((line: string) => void)[] = []
  createInterface(child.stdout).on('line', (line) => waiting.shift()?.(line))
  const ended = later(
    new Promise<never>((_, reject) => child.once('exit', () => reject(new Error('the producer has ended')))),
  )
  const ask = <T>(name: string, given: object = {}) => {
    const answer = new Promise<T>((resolve) => waiting.push((line) => resolve(JSON.parse(line) as T)))
    child.stdin.write(`${JSON.stringify([name, given])}\n`)
    return Promise.race([answer, ended])
  }
  return {
    ask,
    send: (task: string, args: unknown[] = [], more: object = {}) => ask<string>('send', { task, args, ...more }),
    result: (id: string) => ask<[string, unknown]>('result', { id }),
    close: () => child.kill('SIGKILL'),
  }
}

/** A broker with a producer, which tests share, because Python takes a second to start. */
export async function openStage(url?: string) {
  const at = url ?? (await freshBroker()).url
  return { url: at, ...(await startProducer(at, url ?? 'rpc://')) }
}

/** What an absorber of the queue `celery` is made with where a test is about something else. */
export const plain = {
  queues: ['celery'],
  redis: undefined,
  queueOf: () => undefined,
  slots: 1,
  running: () => 0,
  events: false,
  tracksStarted: false,
  alarms: { evaluate() {} },
}

/** A store, and a worker of these tasks, for one test. */
export async function absorb(
  url: string,
  tasks: readonly AnyTask[],
  { onTestFinished }: Pick<TestContext, 'onTestFinished'>,
  { celeryResults, ...how }: { celeryResults?: string } & Partial<CeleryWork> = {},
  more: Pick<SluiceOptions, 'rules' | 'log'> = {},
) {
  const { url: store } = await freshDatabase()
  const results = celeryResults === undefined ? {} : { celeryResults }
  const sluice = await Sluice.open({ store, celeryBroker: url, ...results, ...more })
  onTestFinished(() => sluice.close())
  const worker = await sluice.work(tasks, { celery: { queues: ['celery'], ...how } })
  return { sluice, worker, store }
}

/** Sends messages as a producer of Celery does, but from here, because Python takes seconds to start; and reads their results over rpc. */
export async function openWire(url: string, { onTestFinished }: Pick<TestContext, 'onTestFinished'>) {
  const broker = await openBroker({ url, name: 'test', log: silent })
  onTestFinished(() => broker.close())
  const replyTo = `replies.${randomUUID()}`
  await broker.declare({ queues: [{ name: 'celery' }, { name: replyTo }] })
  const replies: TaskResult[] = []
  const read = (queue: string, onMessage: (message: WireMessage) => unknown) =>
    broker.consume(queue, { prefetch: 100, noAck: true }, (one) => onMessage(readIncoming(one)))
  await read(replyTo, ({ body }) => replies.push(readResult(body.toString())))
  const raw = (message: WireMessage, queue = 'celery') => publish(broker, message, { exchange: '', routingKey: queue })
  const reasons: string[] = []
  const sendTo = async (
    queue: string,
    name: string,
    args: readonly unknown[] = [],
    more: Partial<TaskMessage> = {},
  ): Promise<string> => {
    const id = more.id ?? randomUUID()
    const message: TaskMessage = { ...blank, rootId: id, replyTo, task: name, args, ...more, id: 'short' }
    await raw(named(await writeTask(message, { nowMs: Date.now() }), id), queue)
    return id
  }
  return {
    broker,
    replyTo,
    replies,
    /** Why messages were parked. */
    reasons,
    raw,
    read,
    /** Begins to read what is parked. */
    async park(queue = 'celery.parked') {
      await until(() => broker.use((channel) => channel.checkQueue(queue)).then(Boolean, () => false), 'it is parked')
      await read(queue, ({ headers }) => reasons.push(String(headers['x-sluice-reason'])))
    },
    send: (task: string, args: readonly unknown[] = [], more: Partial<TaskMessage> = {}) =>
      sendTo('celery', task, args, more),
    sendTo,
    /** Resolves to the last result of a task. */
    async result(id: string): Promise<TaskResult> {
      const found = () => replies.find((one) => one.id === id && isFinal(one.state))
      await until(() => found() !== undefined, `the result of ${id}`)
      return found() as TaskResult
    },
  }
}

/** The message, with an id that may be longer than AMQP's own field for it. */
function named(wire: WireMessage, id: string): WireMessage {
  return { ...wire, correlationId: id.slice(0, 50), headers: { ...wire.headers, id } }
}

/** A message of a task that is followed by `b` and `c` in a group, and is a member of the chord of `d`, as Python writes it. */
export function nested(wire: { replyTo: string }, task: string, id: string): WireMessage {
  const { replyTo } = wire
  const signed = (name: string, more: object = {}) => {
    const options = { task_id: name, reply_to: replyTo }
    return { task, args: [], kwargs: {}, options, subtask_type: null, immutable: false, ...more }
  }
  const group = signed('g', {
    task: 'celery.group',
    subtask_type: 'group',
    kwargs: { tasks: [signed('b'), signed('c')] },
  })
  const embed = { callbacks: null, errbacks: null, chain: [group], chord: signed('d') }
  const json = { contentType: 'application/json', contentEncoding: 'utf-8' }
  return { ...json, replyTo, headers: { task, id, group: 'h' }, body: Buffer.from(JSON.stringify([[], {}, embed])) }
}
