/** Points of the conformance list with Redis as the broker. A name begins with its points (scripts/conformance.mjs). */
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import {
  CeleryTaskError,
  type Control,
  openControl,
  openProducer,
  type Producer,
  signature,
} from '../../src/celery/index.ts'
import { type CeleryEvent, eventExchange, readEvents } from '../../src/celery/event.ts'
import { channelOf, readEnvelope } from '../../src/celery/kombu.ts'
import { findPython } from '../examples/interpreter.ts'
import { type RedisServer, startRedis } from '../servers/redis.ts'
import { connectRedis } from '../servers/resp.ts'
import { until } from '../until.ts'
import { expectEta } from './stage.ts'
import { type CeleryWorker, startCelery } from './worker.ts'

const keyPrefix = 'shop:'
let redis: RedisServer
let workers: CeleryWorker[]
let control: Control
let stored: Producer
let rpc: Producer
let notes: Awaited<ReturnType<typeof connectRedis>>

beforeAll(async () => {
  redis = await startRedis()
  const python = await findPython('celery', 'redis')
  const OPTIONS = JSON.stringify({ global_keyprefix: keyPrefix })
  const start = (name: string, backend: string, flags: string[]) => {
    const env = { BROKER: redis.url, BACKEND: backend, NOTES: redis.url, OPTIONS }
    return startCelery({ python, app: 'worker', name, env, flags })
  }
  workers = [
    start('store', redis.url, ['-c', '2', '-Q', 'celery,topical,stored']),
    start('rpc', 'rpc://', ['--pool', 'solo', '-Q', 'replied']),
  ]
  control = await openControl({ broker: redis.url, keyPrefix })
  await Promise.all(workers.map((worker) => worker.ready(control)))
  stored = await openProducer({ broker: redis.url, keyPrefix })
  rpc = await openProducer({ broker: redis.url, keyPrefix, results: 'rpc', queue: 'replied' })
  notes = await connectRedis(redis.port)
})

afterAll(async () => {
  notes?.close()
  await rpc?.close()
  await stored?.close()
  await Promise.all((workers ?? []).map((worker) => worker.kill()))
  await control?.close()
  await redis?.close()
})

/** What the tasks `note` have written under this name. */
async function noted(key: string, count: number): Promise<unknown> {
  await until(async () => Number(await notes.send('LLEN', [key])) >= count, `${count} notes under ${key}`)
  return notes.send('LRANGE', [key, '0', '-1'])
}

describe.concurrent('Node sends to a Celery worker over Redis', () => {
  it('1: the result comes over rpc', async () => {
    expect(await (await rpc.delay('add', [2, 3])).result()).toBe(5)
  })

  it('2: the result comes from the same Redis', async () => {
    expect(await (await stored.delay('add', [2, 3])).result()).toBe(5)
  })

  it('3 and 4: names, unicode, a megabyte and nothing at all arrive as they are', async () => {
    const kwargs = { name: 'ä "q" \u0000 \u2028 😀', nested: { a: [1, 2.5, null, true] } }
    const large = 'ü'.repeat(2 ** 19)
    expect(await (await stored.delay('echo', [large], { kwargs })).result()).toEqual({ args: [large], kwargs })
    expect(await (await stored.delay('echo')).result()).toEqual({ args: [], kwargs: {} })
  })

  it('5: whole numbers in headers arrive as they are', async () => {
    const options = { hardLimitS: 300, softLimitS: 240, headers: { mine: 12_345 } }
    const seen = await (await stored.delay('seen', [], options)).result()
    expect(seen).toMatchObject({ timelimit: [300, 240], headers: 12_345 })
  })

  it('6: a task waits for its eta, to the millisecond', async () => {
    const eta = new Date(Date.now() + 1_000)
    const beganMs = Number(await (await stored.delay('started', [], { eta })).result()) * 1_000
    expect(beganMs).toBeGreaterThanOrEqual(eta.getTime())
    await expectEta(stored, control, 'store@host')
  })

  it('7: what has expired is revoked', async () => {
    const late = await stored.delay('add', [1, 2], { countdown: '1s', expires: '500ms' })
    await expect(late.result()).rejects.toMatchObject({ code: 'SLUICE_CELERY_REVOKED', type: 'TaskRevokedError' })
  })

  it('9: the soft limit raises an error in the task, and the hard limit kills it', async () => {
    expect(await (await stored.delay('slow', [60], { softLimitS: 1, hardLimitS: 50 })).result()).toBe('soft')
    const killed = await stored.delay('slow', [60], { hardLimitS: 1 })
    await expect(killed.result()).rejects.toMatchObject({ type: 'TimeLimitExceeded', args: [1] })
  })

  it.each(['rpc', 'Redis'])(
    '10: an error of Python has type, module, arguments and traceback, over %s',
    async (way) => {
      const error: unknown = await (
        await (way === 'rpc' ? rpc : stored).delay('fail', ['own'])
      )
        .result()
        .catch((caught: unknown) => caught)
      expect(error).toBeInstanceOf(CeleryTaskError)
      const traceback = expect.stringContaining("raise OutOfLuck('seven', 7)")
      expect(error).toMatchObject({ type: 'OutOfLuck', module: 'worker', args: ['seven', 7], traceback })
    },
  )

  it('11: a success that is to be ignored is not reported', async () => {
    const { id } = await stored.delay('add', [1, 1], { ignoreResult: true })
    const report = () => notes.send('GET', [`celery-task-meta-${id}`])
    await until(async () => (await report()) !== null, 'it has begun')
    const one = { workers: ['store@host'], within: '20s' } as const
    const state = async () => JSON.stringify(await control.request('query_task', { ids: [id] }, one))
    await until(async () => !/"(active|reserved)"/.test(await state()), 'it has ended')
    expect(await report()).toContain('STARTED')
  })

  it('12: a task that no worker knows fails with NotRegistered', async () => {
    const unknown = await stored.delay('nowhere')
    await expect(unknown.result()).rejects.toMatchObject({ type: 'NotRegistered', args: ['nowhere'] })
  })

  it("13: a task's own retries have one id", async () => {
    const sent = await stored.delay('again')
    expect(await sent.result()).toEqual([sent.id, 2])
  })

  it('14: what follows a success or a failure is sent', async () => {
    await stored.delay('add', [1, 2], { link: [signature('note', ['won'])] })
    expect(await noted('won', 1)).toEqual(['3'])
    const { id } = await stored.delay('fail', [], { linkError: [signature('mourn')] })
    expect(await noted('lost', 1)).toEqual([id])
  })

  it('15: a chain of three passes its results on', async () => {
    const last = await stored.chain([signature('add', [1, 2]), signature('add', [3]), signature('add', [4])])
    expect(await last.result()).toBe(10)
  })

  it('a task of a chain or a group is sent by its own options', async () => {
    const options = { time_limit: 300, soft_time_limit: 240, headers: { mine: 12_345 }, queue: 'stored' }
    const seen = { timelimit: [300, 240], headers: 12_345 }
    expect(await (await stored.chain([signature('seen', [], { options })])).result()).toMatchObject(seen)
    const [one] = await stored.group([signature('seen', [], { options })], { countdown: '1h', softLimitS: 9 })
    const [soon] = await stored.group([signature('seen', [], { options: { countdown: 0 } })], { countdown: '1h' })
    expect(one).toBeDefined()
    expect(await soon?.result()).toMatchObject({ timelimit: [null, null] })
    const odd = stored.group([signature('seen', [], { options: { group_id: 'g' } })])
    await expect(odd).rejects.toMatchObject({ code: 'SLUICE_BAD_OPTION' })
  })

  it('a chord sends the task that follows with all results, or fails with its member', async () => {
    const members = [signature('add', [1, 2]), signature('add', [3, 4]), signature('add', [5, 6])]
    const last = await stored.chord(members, signature('echo', ['more']))
    expect(await last.result()).toEqual({ args: [[3, 7, 11], 'more'], kwargs: {} })
    const broken = await stored.chord([...members, signature('fail')], signature('echo'))
    await expect(broken.result()).rejects.toMatchObject({ type: 'ChordError' })
    for (const refused of [rpc.chord(members, signature('echo')), stored.chord([], signature('echo'))])
      await expect(refused).rejects.toMatchObject({ code: 'SLUICE_BAD_OPTION' })
  })

  it('a call is refused without a name, or with arguments that are no list', async () => {
    for (const odd of [stored.delay(5 as never), stored.delay(''), stored.delay('add', { a: 1 } as never)])
      await expect(odd).rejects.toMatchObject({ code: 'SLUICE_BAD_OPTION' })
  })

  it('16: a compressed message is read', async () => {
    const text = 'x'.repeat(100_000)
    expect(await (await stored.delay('echo', [text], { compress: true })).result()).toMatchObject({ args: [text] })
  })

  it('17: a topic takes a task to its queue', async () => {
    const sent = await stored.delay('add', [2, 3], { exchange: 'jobs', queue: 'jobs.add' })
    expect(await sent.result()).toBe(5)
  })

  it('18: a task that no queue of an exchange takes is an error', async () => {
    const nowhere = stored.delay('add', [1, 2], { exchange: 'jobs', queue: 'other.add' })
    await expect(nowhere).rejects.toMatchObject({ code: 'SLUICE_BROKER_UNROUTED' })
  })
})

describe('Node inspects and controls Celery workers over Redis', () => {
  it('8: the lower number comes first', async () => {
    for (const priority of [9, 3, 0, 6]) await stored.delay('note', [priority, 'order'], { queue: 'ranked', priority })
    await control.request('add_consumer', { queue: 'ranked' }, { workers: ['rpc@host'], within: '20s' })
    expect(await noted('order', 4)).toEqual(['0', '3', '6', '9'])
  })

  it('36: requests reach those that are meant', async () => {
    const one = { workers: ['store@host'], within: '20s' } as const
    expect(await control.request('ping', {}, one)).toEqual({ 'store@host': { ok: 'pong' } })
    const done = { 'store@host': { ok: 'new rate limit set successfully' } }
    expect(await control.rateLimit('started', '10/m', one)).toEqual(done)
    const waiting = await stored.delay('started', [], { countdown: 1_500 })
    expect(await control.revoke(waiting.id, one)).toMatchObject({ 'store@host': { ok: expect.any(String) } })
    await expect(waiting.result()).rejects.toMatchObject({ code: 'SLUICE_CELERY_REVOKED' })
  })

  it('39: the events of a worker are read', async () => {
    const { Redis } = await import('ioredis')
    const listener = new Redis(redis.url)
    onTestFinished(() => listener.disconnect())
    const events: CeleryEvent[] = []
    listener.on('pmessage', (_pattern: string, _channel: string, text: string) => {
      void readEvents(readEnvelope(text).message).then((some) => events.push(...some))
    })
    await listener.psubscribe(`${keyPrefix}${channelOf(eventExchange, 0)}/*`)
    const one = { workers: ['store@host'], within: '20s' } as const
    await control.request('enable_events', {}, one)
    const { id } = await stored.delay('add', [2, 3])
    const own = () => events.filter(({ fields }) => fields['uuid'] === id).map(({ type }) => type)
    await until(() => own().length === 3)
    expect(own()).toEqual(['task-received', 'task-started', 'task-succeeded'])
    await until(() => events.some(({ type, hostname }) => type === 'worker-heartbeat' && hostname === 'store@host'))
    await control.request('disable_events', {}, one)
  })

  it('leaves nothing of its own behind, and keeps to the prefix', async () => {
    const keys = async () => (await notes.send('KEYS', ['*'])) as string[]
    const before = await keys()
    const producer = await openProducer({ broker: redis.url, keyPrefix, results: 'rpc', queue: 'replied' })
    expect(await (await producer.delay('add', [2, 3])).result()).toBe(5)
    await producer.close()
    // A worker acknowledges its task after the result, so its key may be there for a moment.
    await expect.poll(async () => (await keys()).filter((key) => !before.includes(key))).toEqual([])
    expect(before.filter((key) => /kombu|unacked|^celery$/.test(key) && !key.startsWith(keyPrefix))).toEqual([])
  })

  it('hears workers again after Redis has lost all data', async () => {
    await notes.send('FLUSHALL', [])
    await until(async () => Object.keys(await control.request('ping', {}, { answers: 2, within: 500 })).length === 2)
  })
})
