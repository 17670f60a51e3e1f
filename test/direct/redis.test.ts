/** Workers without a store whose broker is a Redis: what waits, and what becomes of messages when a worker or a connection is lost. */
import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, expect, it, type TestContext } from 'vitest'
import { z } from 'zod'
import { waitingKey } from '../../src/celery/unacked.ts'
import { openProducer } from '../../src/celery/index.ts'
import { heldIndexKey, heldKey, listOf, markRedelivered, readHeld, writeEnvelope } from '../../src/celery/kombu.ts'
import { readResult } from '../../src/celery/result.ts'
import { blank, type TaskMessage, writeTask } from '../../src/celery/task-message.ts'
import { systemClock } from '../../src/core/clock.ts'
import { silent } from '../../src/core/log.ts'
import { progressHeader } from '../../src/direct/message.ts'
import { openRedisBroker } from '../../src/direct/redis-broker.ts'
import { limit, task } from '../../src/index.ts'
import { startCelery } from '../celery/worker.ts'
import { findPython } from '../examples/interpreter.ts'
import { startProxy } from '../servers/proxy.ts'
import { startRedis, type RedisServer } from '../servers/redis.ts'
import { connectRedis, type Connection } from '../servers/resp.ts'
import { until } from '../until.ts'
import { direct } from './stage.ts'

const input = z.unknown()
let redis: RedisServer
let admin: Connection
beforeAll(async () => {
  redis = await startRedis()
  admin = await connectRedis(redis.port)
})
beforeEach(() => admin.send('FLUSHALL', []))
afterAll(async () => {
  admin.close()
  await redis.close()
})

const number = async (command: string, key: string) => Number(await admin.send(command, [key]))
/** How many messages wait for a time, are held by workers, and lie in the list of the queue. */
const places = async () => [
  await number('ZCARD', waitingKey),
  await number('HLEN', heldKey),
  await number('ZCARD', heldIndexKey),
  await number('LLEN', 'celery'),
]

async function text(name: string, args: unknown[], more: Partial<TaskMessage> = {}) {
  const id = more.id ?? randomUUID()
  const wire = await writeTask({ ...blank, id, rootId: id, task: name, args, ...more }, { nowMs: Date.now() })
  const { priority = 0 } = more
  return { id, text: writeEnvelope({ ...wire, priority }, { exchange: '', routingKey: 'celery' }, randomUUID()) }
}

/** Sends a task as a producer of Celery does. */
async function send(name: string, args: unknown[] = [], more: Partial<TaskMessage> = {}): Promise<string> {
  const sent = await text(name, args, more)
  await admin.send('LPUSH', [listOf('celery', more.priority), sent.text])
  return sent.id
}

/** Resolves to the last state of a task. */
async function stateOf(id: string): Promise<string> {
  const read = async () => (await admin.send('GET', [`celery-task-meta-${id}`])) as string | null
  await until(async () => (await read()) !== null, `the result of ${id}`)
  return readResult(String(await read())).state
}

const start = (context: TestContext, tasks: Parameters<typeof direct>[1], more: object = {}) =>
  direct(context, tasks, { celeryBroker: redis.url, redis: redis.url, ...more })

it('what a limit denies waits in a sorted set, holds no slot and nothing else, and counts no attempt', async (context) => {
  const attempts: number[] = []
  // The limit begins closed, for as long as it looks back.
  const slow = task('slow', {
    input,
    limits: [limit('slow', { rate: '50/2s' })],
    run: (_, { attempt }) => void attempts.push(attempt),
  })
  const free = task('free', { input, run: () => 'ran' })
  const worker = await start(context, [slow, free], { concurrency: 2 })
  const count = 30
  for (let n = 0; n < count; n++) await send('slow', [n], { priority: n % 2 === 0 ? 0 : 6 })
  await until(async () => (await number('ZCARD', waitingKey)) === count, 'all wait')
  expect(await places()).toEqual([count, 0, 0, 0])
  expect([worker.running, worker.counts.begun]).toEqual([0, 0])
  expect(await stateOf(await send('free'))).toBe('SUCCESS')
  await until(() => worker.counts.done === count + 1, 'all have run')
  await until(async () => (await places()).every((n) => n === 0), 'nothing stays behind')
  expect(attempts).toEqual(Array.from({ length: count }, () => 1))
})

it('a message that waits for a slot goes to another worker when its own stops, and is no call that may have been made', async (context) => {
  let release = () => {}
  const released = new Promise<void>((resolve) => (release = resolve))
  const held = task('held', { input, run: () => released })
  const seen: boolean[] = []
  const once = task('once', { input, mode: 'at-most-once', run: (_, { ambiguous }) => void seen.push(ambiguous) })
  const worker = await start(context, [held, once], { concurrency: 1, grace: '10m' })
  await send('held')
  await until(() => worker.counts.begun === 1, 'it runs')
  const id = await send('once')
  const stopped = worker.stop()
  await start(context, [once])
  expect(await stateOf(id)).toBe('SUCCESS')
  expect(seen).toEqual([false])
  release()
  await stopped
  expect(await places()).toEqual([0, 0, 0, 0])
})

it('a worker that stops keeps what runs, however long that takes', async (context) => {
  let release = () => {}
  const released = new Promise<void>((resolve) => (release = resolve))
  const runs: boolean[] = []
  const held = task('held', { input, run: (_, { ambiguous }) => (runs.push(ambiguous), released) })
  const visibilityTimeout = '1s'
  const worker = await start(context, [held], { visibilityTimeout, grace: '10m' })
  await send('held')
  await until(() => runs.length === 1, 'it runs')
  const stopped = worker.stop()
  const other = await start(context, [held], { visibilityTimeout })
  const score = async () =>
    Number(((await admin.send('ZRANGE', [heldIndexKey, '0', '0', 'WITHSCORES'])) as string[])[1])
  const begun = await score()
  await until(async () => (await score()) > begun + 2.5, 'its time has come more than once')
  expect([runs.length, other.counts.delivered]).toEqual([1, 0])
  release()
  await stopped
  expect(await places()).toEqual([0, 0, 0, 0])
})

it('what a worker had that is gone runs again, and knows that; a stopped limit loses nothing', async (context) => {
  const seen: [unknown, boolean][] = []
  const note = task('note', {
    input,
    retry: { base: 1, max: 1 },
    run: (given, { ambiguous }) => void seen.push([given, ambiguous]),
  })
  const lost = await text('note', [1])
  await admin.send('HSET', [heldKey, 'gone', `[${lost.text}, "", "celery"]`])
  await admin.send('ZADD', [heldIndexKey, '1', 'gone'])
  await start(context, [note])
  expect(await stateOf(lost.id)).toBe('SUCCESS')
  expect(seen).toEqual([[[1], true]])
  await until(async () => (await places()).every((n) => n === 0), 'nothing stays behind')
})

it('a message that fails when it is delivered again leaves the success of before', async (context) => {
  const note = task('note', {
    input,
    retry: { base: 1, max: 1, attempts: 1 },
    run: () => Promise.reject(new Error('no')),
  })
  const again = await text('note', [1])
  const success = JSON.stringify({ task_id: again.id, status: 'SUCCESS', result: 5, traceback: null, children: [] })
  await admin.send('SET', [`celery-task-meta-${again.id}`, success])
  await admin.send('LPUSH', ['celery', markRedelivered(again.text)])
  const worker = await start(context, [note], { trackStarted: true })
  await until(() => worker.counts.begun === 1 && worker.running === 0, 'it has failed')
  expect(await admin.send('GET', [`celery-task-meta-${again.id}`])).toBe(success)
})

// A point of the list of conformance with Celery (scripts/conformance.mjs) begins with its number.
it('27: a message that has ended ten workers is put aside when it ends one more, and its producer learns that', async (context) => {
  const seen: unknown[] = []
  const note = task('note', {
    input,
    retry: { base: 1, max: 1 },
    run: (given, { ambiguous }) => void seen.push([given, ambiguous]),
  })
  const left = (crashes: number) => ({ headers: { [progressHeader]: JSON.stringify({ crashes }) } })
  const [last, lethal] = [await text('note', [1], left(9)), await text('note', [2], left(10))]
  // A worker that is lost with both.
  for (const [i, one] of [last, lethal].entries()) {
    await admin.send('HSET', [heldKey, String(i), `[${one.text}, "", "celery"]`])
    await admin.send('ZADD', [heldIndexKey, '1', String(i)])
  }
  await start(context, [note], { park: true })
  expect(await stateOf(lethal.id)).toBe('FAILURE')
  expect(await stateOf(last.id)).toBe('SUCCESS')
  expect(seen).toEqual([[[1], true]])
  await until(async () => (await number('LLEN', 'celery.parked')) === 1, 'it is put aside')
  expect(await admin.send('RPOP', ['celery.parked'])).toContain('crashed')
})

it('connections that are lost again and again lose nothing, and have nothing run twice', async (context) => {
  const seen: number[] = []
  const call = task('call', {
    input: z.tuple([z.number()]),
    limits: [limit('lossy', { rate: '100/s' })],
    run: ([n]) => void seen.push(n),
  })
  const worker = await start(context, [call], { concurrency: 5 })
  const count = 150
  for (let n = 0; n < count; n++) {
    if (n % 30 === 15) await admin.send('CLIENT', ['KILL', 'TYPE', 'normal', 'SKIPME', 'yes'])
    await send('call', [n])
  }
  for (let round = 0; round < 5; round++) {
    const before = seen.length
    await until(() => seen.length > before || seen.length === count, 'it goes on')
    await admin.send('CLIENT', ['KILL', 'TYPE', 'normal', 'SKIPME', 'yes'])
  }
  await until(() => seen.length >= count, 'all have run')
  await until(async () => worker.running === 0 && (await places()).every((n) => n === 0), 'nothing stays behind')
  expect(seen.toSorted((a, b) => a - b)).toEqual(Array.from({ length: count }, (_, n) => n))
})

it('a message that another program has put back while it runs runs again, and knows that', async (context) => {
  let release = () => {}
  const released = new Promise<void>((resolve) => (release = resolve))
  const seen: boolean[] = []
  const held = task('held', {
    input,
    retry: { base: 1, max: 1 },
    run: (_, { ambiguous }) => (seen.push(ambiguous), released),
  })
  const worker = await start(context, [held])
  await send('held')
  await until(() => seen.length === 1, 'it runs')
  // As kombu does after `visibility_timeout`.
  const [tag, text] = (await admin.send('HGETALL', [heldKey])) as [string, string]
  await admin.send('HDEL', [heldKey, tag])
  await admin.send('ZREM', [heldIndexKey, tag])
  await admin.send('RPUSH', ['celery', markRedelivered(readHeld(text).text)])
  await until(() => worker.counts.delivered >= 2, 'it is there again')
  release()
  await until(() => seen.length === 2, 'it runs again')
  await until(async () => worker.running === 0 && (await places()).every((n) => n === 0), 'nothing stays behind')
  expect(seen).toEqual([false, true])
})

it('a Redis that is emptied has nothing any more, and workers go on', async (context) => {
  let release = () => {}
  const released = new Promise<void>((resolve) => (release = resolve))
  const calls: string[] = []
  const held = task('held', { input, run: () => released })
  const waits = task('waits', { input, limits: [limit('waits', { rate: '1/h' })], run: () => void calls.push('waits') })
  const free = task('free', { input, run: () => void calls.push('free') })
  const worker = await start(context, [held, waits, free], { concurrency: 2 })
  await send('held')
  await send('waits')
  await until(async () => (await number('ZCARD', waitingKey)) === 1 && worker.running === 1, 'one runs, one waits')
  await admin.send('FLUSHALL', [])
  release()
  await until(() => worker.counts.done === 1 && worker.running === 0, 'the one that runs ends')
  expect(await stateOf(await send('free'))).toBe('SUCCESS')
  await until(async () => worker.running === 0 && (await places()).every((n) => n === 0), 'nothing comes back')
  expect(calls).toEqual(['free'])
})

it('a worker stops though Redis is away', async (context) => {
  const own = await startRedis()
  context.onTestFinished(() => own.close())
  const producer = await openProducer({ broker: own.url, results: 'none' })
  context.onTestFinished(() => producer.close())
  let release = () => {}
  const released = new Promise<void>((resolve) => (release = resolve))
  const held = task('held', { input, run: () => released })
  const worker = await direct(context, [held], { celeryBroker: own.url, grace: '1s' })
  await producer.delay('held')
  await until(() => worker.counts.begun === 1, 'it runs')
  await own.kill()
  release()
  await worker.stop()
  expect(worker.running).toBe(0)
})

it('a stock worker of Celery executes what has waited, and what it held when it was killed is executed here', async (context) => {
  const visibilityTimeout = '2s'
  const denied = task('add', { input, limits: [limit('never', { rate: '1/h' })], run: () => 0 })
  const first = await start(context, [denied], { visibilityTimeout })
  const sent = await send('add', [2, 3])
  await until(async () => (await number('ZCARD', waitingKey)) === 1, 'it waits')
  await first.stop()
  const python = await findPython('celery', 'redis')
  const OPTIONS = JSON.stringify({ visibility_timeout: 2 })
  const env = { BROKER: redis.url, BACKEND: redis.url, NOTES: redis.url, OPTIONS, LATE: '1' }
  const stock = startCelery({ python, app: 'worker', name: 'stock', env, flags: ['-c', '1', '-Q', 'celery'] })
  context.onTestFinished(() => stock.kill())
  // Its time has come. A worker of ours that serves another queue brings it back.
  const [member = ''] = (await admin.send('ZRANGE', [waitingKey, '0', '-1'])) as string[]
  await admin.send('ZADD', [waitingKey, '1', member])
  const seen: boolean[] = []
  const slow = task('slow', { input, retry: { base: 1, max: 1 }, run: (_, { ambiguous }) => void seen.push(ambiguous) })
  const other = await start(context, [slow], { celery: ['other'], visibilityTimeout })
  const resultOf = async (id: string) => readResult(String(await admin.send('GET', [`celery-task-meta-${id}`])))
  expect(await stateOf(sent)).toMatch(/STARTED|SUCCESS/)
  await until(async () => (await resultOf(sent)).state === 'SUCCESS', 'it has ended')
  expect((await resultOf(sent)).value).toBe(5)
  await other.stop()
  const lost = await send('slow', [600])
  expect(await stateOf(lost)).toBe('STARTED')
  await stock.kill()
  await start(context, [slow], { visibilityTimeout })
  await until(async () => (await resultOf(lost)).state === 'SUCCESS', 'the other one has ended, too')
  expect(seen).toEqual([true])
  await until(async () => (await places()).every((n) => n === 0), 'nothing stays behind')
})

it('a message whose headers JSON cannot state waits, and runs', async (context) => {
  const seen: unknown[] = []
  const later = task('later', {
    input,
    limits: [limit('later', { rate: '50/s' })],
    run: (given) => void seen.push(given),
  })
  await start(context, [later])
  const { text: plain } = await text('later', [1])
  const odd = plain.replace('"headers":{', '"headers":{"odd":NaN,')
  expect(odd).not.toBe(plain)
  await admin.send('LPUSH', ['celery', odd])
  await until(() => seen.length === 1, 'it has run')
})

it('a message whose ids are no text is parked, and holds up no other', async (context) => {
  const odd = (await text('note', [1])).text.replace(/"id":"[^"]*"/, '"id":{"toString":1}')
  expect(odd).toContain('toString')
  await admin.send('LPUSH', ['celery', odd])
  const note = task('note', { input, run: () => undefined })
  await start(context, [note])
  expect(await stateOf(await send('note'))).toBe('SUCCESS')
  await until(async () => (await number('LLEN', 'celery.parked')) === 1, 'it is parked')
})

it('a broker that is closed while it connects leaves no connection', async ({ onTestFinished }) => {
  const way = await startProxy({ port: redis.port })
  onTestFinished(() => way.close())
  const place = { url: way.url(redis.url), prefix: '', log: silent, visibleAfterMs: 60_000, clock: systemClock }
  const broker = await openRedisBroker(place)
  way.delay(100)
  const end = new AbortController()
  const received = broker.receive({ queues: ['celery'], prefetch: 1, signal: end.signal, take() {} })
  await until(() => way.connections === 2, 'it connects to receive')
  end.abort()
  await broker.close()
  await received
  await until(() => way.connections === 0, 'all are closed')
})
