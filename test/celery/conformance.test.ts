/**
 * Points of the conformance list that need real servers: Celery's workers, RabbitMQ and Redis. A name begins with its points;
 * scripts/conformance.mjs counts them.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { CeleryTaskError, openProducer, type Producer, signature } from '../../src/celery/index.ts'
import { type CeleryEvent, eventExchange, readEvents } from '../../src/celery/event.ts'
import { readIncoming } from '../../src/celery/transport.ts'
import { connectRedis } from '../servers/resp.ts'
import { until } from '../until.ts'
import { expectEta, openStage, type Stage } from './stage.ts'

let stage: Stage
let rpc: Producer
let stored: Producer
let notes: Awaited<ReturnType<typeof connectRedis>>

beforeAll(async () => {
  stage = await openStage()
  rpc = await openProducer({ broker: stage.url })
  stored = await openProducer({ broker: stage.url, results: stage.redis.url, queue: 'stored' })
  notes = await connectRedis(stage.redis.port)
})

afterAll(async () => {
  notes?.close()
  await rpc?.close()
  await stored?.close()
  await stage?.close()
})

/** What the tasks `note` have written under this name. */
async function noted(key: string, count: number): Promise<unknown> {
  await until(async () => Number(await notes.send('LLEN', [key])) >= count, `${count} notes under ${key}`)
  return notes.send('LRANGE', [key, '0', '-1'])
}

describe.concurrent('Node sends to a Celery worker', () => {
  it('1: the result comes over rpc', async () => {
    expect(await (await rpc.delay('add', [2, 3])).result()).toBe(5)
  })

  it('2: the result comes from Redis', async () => {
    expect(await (await stored.delay('add', [2, 3])).result()).toBe(5)
  })

  it('3: names, unicode and a megabyte arrive as they are', async () => {
    const kwargs = { name: 'ä "q" \u0000 \u2028 😀', nested: { a: [1, 2.5, null, true] } }
    const large = 'ü'.repeat(2 ** 19)
    expect(await (await rpc.delay('echo', [large], { kwargs })).result()).toEqual({ args: [large], kwargs })
  })

  it('4: no arguments are an empty list', async () => {
    expect(await (await rpc.delay('echo')).result()).toEqual({ args: [], kwargs: {} })
  })

  it('5: whole numbers in headers arrive as they are', async () => {
    const options = { hardLimitS: 300, softLimitS: 240, headers: { mine: 12_345 } }
    expect(await (await rpc.delay('seen', [], options)).result()).toMatchObject({
      timelimit: [300, 240],
      headers: 12_345,
    })
    const all = await rpc.group(Array.from({ length: 201 }, () => signature('seen')))
    expect(await all[200]?.result()).toMatchObject({ group_index: 200 })
    expect(await all[130]?.result()).toMatchObject({ group_index: 130 })
  })

  it('6: a task waits for its eta, to the millisecond', async () => {
    const eta = new Date(Math.floor(Date.now() / 1_000) * 1_000 + 1_999)
    const sent = await rpc.delay('started', [], { eta })
    const beganMs = Number(await sent.result()) * 1_000
    expect(beganMs).toBeGreaterThanOrEqual(eta.getTime())
    console.info(`begun ${(beganMs - eta.getTime()).toFixed(1)} ms after its eta`)
    await expectEta(rpc, stage.control, stage.rpcWorker)
  })

  it('7: what has expired is revoked, and the broker drops what nobody receives', async () => {
    const late = await rpc.delay('add', [1, 2], { countdown: '1s', expires: '500ms' })
    await expect(late.result()).rejects.toMatchObject({ code: 'SLUICE_CELERY_REVOKED', type: 'TaskRevokedError' })
    const dead: string[] = []
    const route = { 'x-dead-letter-exchange': '', 'x-dead-letter-routing-key': 'dead' }
    await stage.broker.declare({ queues: [{ name: 'dead' }, { name: 'unread', arguments: route }] })
    await stage.broker.consume('dead', { prefetch: 1, noAck: true }, (one) =>
      dead.push(readIncoming(one).correlationId ?? ''),
    )
    const { id } = await rpc.delay('add', [1, 2], { queue: 'unread', expires: 50 })
    await until(() => dead.length > 0)
    expect(dead).toEqual([id])
  })

  it('9: the soft limit raises an error in the task, and the hard limit kills it', async () => {
    expect(await (await rpc.delay('slow', [60], { softLimitS: 1, hardLimitS: 50 })).result()).toBe('soft')
    const killed = await rpc.delay('slow', [60], { hardLimitS: 1 })
    await expect(killed.result()).rejects.toMatchObject({ type: 'TimeLimitExceeded', args: [1] })
  })

  it.each(['rpc', 'Redis'])(
    '10: an error of Python has type, module, arguments and traceback, over %s',
    async (way) => {
      const producer = way === 'rpc' ? rpc : stored
      const error: unknown = await (await producer.delay('fail')).result().catch((caught: unknown) => caught)
      expect(error).toBeInstanceOf(CeleryTaskError)
      const traceback = expect.stringContaining("raise OutOfLuck('seven', 7)")
      expect(error).toMatchObject({
        code: 'SLUICE_CELERY_FAILED',
        type: 'ValueError',
        module: 'builtins',
        args: ['boom', 1],
      })
      const own = await producer.delay('fail', ['own'])
      await expect(own.result()).rejects.toMatchObject({
        type: 'OutOfLuck',
        module: 'worker',
        args: ['seven', 7],
        traceback,
      })
    },
  )

  it('11: a success that is to be ignored is not reported', async () => {
    const ignored = await stored.delay('add', [1, 1], { ignoreResult: true })
    await (await stored.delay('add', [1, 2])).result()
    expect(await notes.send('GET', [`celery-task-meta-${ignored.id}`])).not.toContain('SUCCESS')
    await expect(ignored.result()).rejects.toMatchObject({ code: 'SLUICE_BAD_OPTION' })
  })

  it('12: a task that no worker knows fails with NotRegistered', async () => {
    await expect((await rpc.delay('nowhere')).result()).rejects.toMatchObject({
      type: 'NotRegistered',
      args: ['nowhere'],
    })
  })

  it("13: a task's own retries have one id, and show their states", async () => {
    const sent = await rpc.delay('again')
    const states: string[] = []
    expect(await sent.result({ onState: (state) => states.push(state) })).toEqual([sent.id, 2])
    expect(states.at(-1)).toBe('SUCCESS')
    expect(states.filter((one) => one === 'RETRY').length).toBeGreaterThan(0)
  })

  it('14: what follows a success or a failure is sent', async () => {
    await rpc.delay('add', [1, 2], { link: [signature('note', ['won'])] })
    expect(await noted('won', 1)).toEqual(['3'])
    const link = [signature('note', ['said', 'fixed'], { immutable: true })]
    await rpc.delay('add', [1, 2], { link })
    expect(await noted('fixed', 1)).toEqual(['said'])
    const { id } = await rpc.delay('fail', [], { linkError: [signature('mourn')] })
    expect(await noted('lost', 1)).toEqual([id])
  })

  it('15: a chain of three passes its results on', async () => {
    const last = await rpc.chain([signature('add', [1, 2]), signature('add', [3]), signature('add', [4])])
    expect(await last.result()).toBe(10)
    const broken = await rpc.chain([signature('add', [1, 2])])
    expect(await broken.result()).toBe(3)
  })

  it('16: a compressed message is read', async () => {
    const text = 'x'.repeat(100_000)
    expect(await (await rpc.delay('echo', [text], { compress: true })).result()).toMatchObject({ args: [text] })
  })

  it('17: a topic takes a task to its queue', async () => {
    expect(await (await rpc.delay('add', [2, 3], { exchange: 'jobs', queue: 'jobs.add' })).result()).toBe(5)
  })

  it('18: a task that no queue takes is an error', async () => {
    await expect(rpc.delay('add', [1, 2], { queue: 'missing' })).rejects.toMatchObject({
      code: 'SLUICE_BROKER_UNROUTED',
    })
  })

  it('whole numbers beyond 2^53 arrive as they are, both ways', async () => {
    expect(await (await rpc.delay('large')).result()).toBe(2n ** 60n)
    expect(await (await rpc.delay('add', [2n ** 60n, 1])).result()).toBe(2n ** 60n + 1n)
  })

  it('gives a wait up, and names the state', async () => {
    const sent = await rpc.delay('started', [], { countdown: '1h' })
    const waits = sent.result({ within: 50 })
    await expect(waits).rejects.toMatchObject({ code: 'SLUICE_CELERY_LATE' })
    await stage.control.revoke(sent.id, { workers: [stage.rpcWorker] })
  })
})

describe('Node inspects and controls Celery workers', () => {
  it('8: higher priorities come first in a queue with priorities', async () => {
    await stage.broker.declare({ queues: [{ name: 'ranked', arguments: { 'x-max-priority': 10 } }] })
    for (const priority of [1, 9, 5]) await stored.delay('note', [priority, 'order'], { queue: 'ranked', priority })
    await stage.control.request('add_consumer', { queue: 'ranked' }, { workers: [stage.redisWorker], within: '20s' })
    expect(await noted('order', 3)).toEqual(['9', '5', '1'])
  })

  it('ping, stats and registered are answered by those that are meant', async () => {
    const { rpcWorker, redisWorker, control } = stage
    const both = { workers: [rpcWorker, redisWorker], within: '20s' } as const
    expect(await control.request('ping', {}, both)).toEqual({
      [rpcWorker]: { ok: 'pong' },
      [redisWorker]: { ok: 'pong' },
    })
    const stats = await control.request('stats', {}, { workers: [rpcWorker], within: '20s' })
    expect(stats).toMatchObject({ [rpcWorker]: { pool: { 'max-concurrency': 4 } } })
    const tasks = await control.request('registered', {}, { answers: 2, within: '20s' })
    expect(tasks[redisWorker]).toContain('add')
    expect(await control.request('nonsense', {}, both)).toMatchObject({ [rpcWorker]: { error: expect.any(String) } })
    expect(await control.request('ping', {}, { workers: ['nobody@host'], within: 50 })).toEqual({})
  })

  it('36: rate_limit and revoke reach a worker, also at a logical time beyond 127', async () => {
    const { rpcWorker, control } = stage
    const one = { workers: [rpcWorker], within: '20s' } as const
    for (let i = 0; i < 130; i++) await control.request('ping', {}, { workers: ['nobody@host'], within: 0 })
    const done = { [rpcWorker]: { ok: 'new rate limit set successfully' } }
    expect(await control.rateLimit('started', '10/m', one)).toEqual(done)
    expect(await control.rateLimit('started', 0, one)).toMatchObject({ [rpcWorker]: { ok: expect.any(String) } })
    await expect(control.rateLimit('started', '10/d')).rejects.toMatchObject({ code: 'SLUICE_BAD_RATE' })
    const waiting = await rpc.delay('started', [], { countdown: 1_500 })
    expect(await control.revoke(waiting.id, one)).toMatchObject({ [rpcWorker]: { ok: expect.any(String) } })
    await expect(waiting.result()).rejects.toMatchObject({ code: 'SLUICE_CELERY_REVOKED' })
  })

  it('39: the events of a worker are read', async () => {
    const events: CeleryEvent[] = []
    await stage.broker.declare({
      exchanges: [{ name: eventExchange, type: 'topic' }],
      queues: [{ name: 'watch', exclusive: true, durable: false }],
      bindings: [{ exchange: eventExchange, to: { queue: 'watch' }, routingKey: '#' }],
    })
    await stage.broker.consume('watch', { prefetch: 1, noAck: true }, async (one) => {
      events.push(...(await readEvents(readIncoming(one))))
    })
    const { id } = await rpc.delay('add', [2, 3])
    const own = () => events.filter(({ fields }) => fields['uuid'] === id).map(({ type }) => type)
    await until(() => own().length === 3)
    expect(own()).toEqual(['task-received', 'task-started', 'task-succeeded'])
    await until(() => events.some(({ type, hostname }) => type === 'worker-heartbeat' && hostname === stage.rpcWorker))
  })
})
