/** How messages of Celery producers are gathered, so that a busy fleet records many of them at once. */
import { randomUUID } from 'node:crypto'
import { expect, it } from 'vitest'
import { Absorber } from '../../src/absorb/absorber.ts'
import type { Incoming } from '../../src/absorb/post.ts'
import { blank, writeTask } from '../../src/celery/task-message.ts'
import { systemClock } from '../../src/core/clock.ts'
import { storeOn } from '../../src/db/store.ts'
import { Sluice, task } from '../../src/index.ts'
import { freshDatabase } from '../servers/database.ts'
import { until } from '../until.ts'

it('absorbs a first message at once, and gathers the next ones until they are enough', async ({ onTestFinished }) => {
  const { url } = await freshDatabase()
  const sluice = await Sluice.open({ store: url })
  onTestFinished(() => sluice.close())
  // No pause ends by itself.
  const sleep = (_: number, signal?: AbortSignal) =>
    new Promise<void>((resolve) => {
      if (signal?.aborted === true) resolve()
      else signal?.addEventListener('abort', () => resolve())
    })
  const store = storeOn(sluice.db, { clock: { ...systemClock, sleep } })
  const run = store.run.bind(store) as (...given: unknown[]) => Promise<never>
  const batches: number[] = []
  store.run = (...[name, args]: unknown[]) => {
    if (name === 'absorb/record_calls') batches.push(((args as unknown[])[0] as unknown[]).length)
    return run(name, args)
  }
  let receive: (incoming: Incoming) => void = () => {}
  const none = async () => {}
  const consume = async (_: unknown, take: typeof receive) => ((receive = take), { stop: none })
  const post = { lowerFirst: false, consume, send: none, reply: none, announce: none, listen: none, close: none }
  const note = task('note', { run: () => {} })
  const sender = { send: async () => randomUUID() }
  const celery = {
    queues: ['celery'],
    redis: undefined,
    queueOf: () => undefined,
    slots: 1,
    running: () => 0,
    events: false,
    tracksStarted: false,
  }
  const absorber = new Absorber({
    store,
    post,
    sender: sender as never,
    tasks: [note],
    alarms: { evaluate() {} },
    ...celery,
  })
  await absorber.start()
  onTestFinished(() => absorber.close())
  let acked = 0
  const send = async (count: number) => {
    for (let n = 0; n < count; n++) {
      const id = randomUUID()
      const message = await writeTask({ ...blank, task: 'note', id, rootId: id, args: [] }, { nowMs: Date.now() })
      receive({ queue: 'celery', message, isInHand: true, ack: () => acked++, requeue() {} })
    }
  }
  await send(1)
  await until(() => acked === 1)
  await send(99)
  expect(batches).toEqual([1])
  await send(1)
  await until(() => acked === 101)
  expect(batches).toEqual([1, 100])
})
