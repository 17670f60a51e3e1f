/** How messages of Celery producers are gathered, so that a busy fleet records many of them at once. */
import { randomUUID } from 'node:crypto'
import { expect, it, type TestContext } from 'vitest'
import { Absorber } from '../../src/absorb/absorber.ts'
import type { IncomingCall } from '../../src/absorb/broker.ts'
import { noTraffic } from '../../src/amqp/traffic.ts'
import { signature } from '../../src/celery/signature.ts'
import { blank, type TaskMessage, writeTask } from '../../src/celery/task-message.ts'
import { systemClock } from '../../src/core/clock.ts'
import { statementCharsMax } from '../../src/core/payload.ts'
import { storeOn } from '../../src/db/store.ts'
import { Sluice, task } from '../../src/index.ts'
import { copies } from '../rows.ts'
import { freshDatabase } from '../servers/database.ts'
import { until } from '../until.ts'
import { plain } from './stage.ts'

/** An absorber of the tasks `note` and `other`, and what it records, sends and acknowledges; `isPaused`: no pause ends by itself. */
async function absorbing({ onTestFinished }: Pick<TestContext, 'onTestFinished'>, isPaused = false) {
  const { url } = await freshDatabase()
  const sluice = await Sluice.open({ store: url })
  onTestFinished(() => sluice.close())
  const sleep = (_: number, signal?: AbortSignal) =>
    new Promise<void>((resolve) => {
      if (signal?.aborted === true) resolve()
      else signal?.addEventListener('abort', () => resolve())
    })
  const store = storeOn(sluice.db, { clock: isPaused ? { ...systemClock, sleep } : systemClock })
  const run = store.run.bind(store) as (...given: unknown[]) => Promise<never>
  const batches: number[] = []
  store.run = (...[name, args]: unknown[]) => {
    if (name === 'absorb/record_calls') batches.push(((args as unknown[])[0] as unknown[]).length)
    return run(name, args)
  }
  let receive: (incoming: IncomingCall) => void = () => {}
  const none = async () => {}
  const sent: unknown[] = []
  const send = async (message: unknown) => void sent.push(message)
  const consume = async (_: unknown, take: typeof receive) => ((receive = take), { stop: none })
  const broker = {
    lowerFirst: false,
    traffic: noTraffic(),
    consume,
    send,
    reply: send,
    announce: none,
    listen: none,
    close: none,
  }
  const absorber = new Absorber({
    store,
    broker,
    sender: sluice,
    tasks: ['note', 'other'].map((name) => task(name, { run: () => {} })),
    ...plain,
  })
  await absorber.start()
  onTestFinished(() => absorber.close())
  const acked: string[] = []
  const take = async (...messages: readonly Partial<TaskMessage>[]) => {
    const wires = messages.map((message) => {
      const id = message.id ?? randomUUID()
      return writeTask(
        { ...blank, task: 'note', rootId: id, replyTo: 'replies', ...message, id },
        { nowMs: Date.now() },
      )
    })
    for (const message of await Promise.all(wires))
      receive({
        queue: 'celery',
        message,
        isInHand: true,
        ack: () => acked.push(String(message.headers['task'])),
        requeue() {},
      })
  }
  return { sluice, batches, sent, acked, take }
}

it('an absorber absorbs a first message at once, and gathers the next ones until they are enough', async (context) => {
  const { batches, acked, take } = await absorbing(context, true)
  await take({})
  await until(() => acked.length === 1)
  await take(...copies(99, {}))
  expect(batches).toEqual([1])
  await take({})
  await until(() => acked.length === 101)
  expect(batches).toEqual([1, 100])
})

it('an absorber takes messages with one id for one call, also if they arrive together', async (context) => {
  const { sluice, sent, acked, take } = await absorbing(context)
  await take({ id: 'same' }, { id: 'same', task: 'other' }, {})
  await until(() => acked.length === 3)
  expect((await sluice.list()).map((job) => job.task)).toEqual(['note', 'note'])
  expect(sent).toEqual([])
})

it('an absorber records no more at a time than a statement should have', async (context) => {
  const { batches, acked, take } = await absorbing(context)
  const callbacks = [signature('other', ['x'.repeat(250_000)])]
  await take(...copies(40, { callbacks }))
  await until(() => acked.length === 40)
  expect(Math.max(...batches)).toBeLessThanOrEqual(Math.ceil(statementCharsMax / 250_000))
})
