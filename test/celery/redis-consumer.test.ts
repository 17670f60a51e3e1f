import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { describe, expect, it } from 'vitest'
import { openControl } from '../../src/celery/index.ts'
import { heldIndexKey, heldKey } from '../../src/celery/kombu.ts'
import { parkedKey, waitingKey } from '../../src/celery/unacked.ts'
import { logTo, silent } from '../../src/core/log.ts'
import { callRedis } from '../../src/celery/redis-call.ts'
import type { RedisConsumerOptions, RedisIncoming } from '../../src/celery/redis-consumer.ts'
import { openRedis, type RedisConnection } from '../../src/redis/connect.ts'
import { findPython } from '../examples/interpreter.ts'
import { startProxy } from '../servers/proxy.ts'
import { until } from '../until.ts'
import { first, prefix, receiveFrom, type RedisStage, useRedis } from './receive.ts'

let { redis, producer, admin } = {} as RedisStage
useRedis((stage) => ({ redis, producer, admin } = stage))

const receive = (more: Partial<RedisConsumerOptions> = {}, on?: RedisConnection) => receiveFrom(redis.url, more, on)

/**
 * A connection that loses the reply to the next command after `dropNext`: until it is replaced, each reply is taken for that of the
 * command before. `failOn`: the next command with such an argument fails.
 */
async function openMixing() {
  const real = openRedis(redis.url) as RedisConnection
  await real.open()
  type Waiting = { resolve: (reply: unknown) => void; reject: (error: unknown) => void }[]
  let waiting: Waiting = []
  let isDropping = false
  let failing: string | undefined
  const on: RedisConnection = {
    load: () => real.load(),
    open: () => real.open(),
    close: () => real.close(),
    reset() {
      const old = waiting
      waiting = []
      for (const { reject } of old.splice(0)) reject(new Error('the connection was replaced'))
    },
    send(command, args) {
      if (failing !== undefined && args.includes(failing)) {
        failing = undefined
        return Promise.reject(new Error('the connection was lost'))
      }
      const [mine, isDropped] = [waiting, isDropping]
      isDropping = false
      return new Promise((resolve, reject) => {
        mine.push({ resolve, reject })
        real.send(command, args).then(
          (reply) => void (isDropped || mine.shift()?.resolve(reply)),
          (error: unknown) => mine.shift()?.reject(error),
        )
      })
    },
  }
  return { on, dropNext: () => void (isDropping = true), failOn: (part: string) => void (failing = part) }
}

const number = async (command: string, key: string) => Number(await admin.send(command, [prefix + key]))

/** Runs fixtures/peer.py, a program with stock Celery. */
async function peer(args: string[], env: Record<string, string> = {}): Promise<void> {
  const python = await findPython('celery', 'redis')
  const file = fileURLToPath(new URL('fixtures/peer.py', import.meta.url))
  await promisify(execFile)(python, [file, ...args], { env: { ...process.env, BROKER: redis.url, ...env } })
}

describe('a worker of ours on Redis', () => {
  it('takes by priority, and by turns of the queues, and never more than it may hold', async () => {
    for (const queue of ['a', 'b'])
      for (const priority of [9, 0, 0]) await producer.delay('add', [`${queue}${priority}`], { queue, priority })
    const { got, consumer } = await receive({ queues: ['a', 'b'] })
    const order: unknown[] = []
    for (let i = 0; i < 6; i++) {
      await until(() => got.length === i + 1)
      expect([consumer.inHand, await number('HLEN', heldKey), await number('ZCARD', heldIndexKey)]).toEqual([1, 1, 1])
      order.push(await first(got[i] as RedisIncoming))
      expect(await got[i]?.ack()).toBe(true)
    }
    expect(order).toEqual(['a0', 'b0', 'a0', 'b0', 'a9', 'b9'])
    expect([await number('HLEN', heldKey), await number('ZCARD', heldIndexKey), await got[0]?.ack()]).toEqual([
      0,
      0,
      false,
    ])
  })

  it('gets what Python sends', async () => {
    const { got } = await receive({ prefix: '', prefetch: 10 })
    await peer(['send', '3'])
    await until(() => got.length === 3)
    expect(await Promise.all(got.map(first))).toEqual([0, 1, 2])
  })

  it('leaves the end of a message unknown if a reply was lost, and replaces the connection', async ({
    onTestFinished,
  }) => {
    const way = await startProxy({ port: redis.port })
    onTestFinished(() => way.close())
    await producer.delay('add', ['held'])
    const { got } = await receive({ url: way.url(redis.url), prefetch: 2 })
    await until(() => got.length === 1)
    await way.swallow({ when: 'EVALSHA' })
    // Its reply is taken for that of the fetch before.
    await expect(got[0]?.ack()).rejects.toThrow()
    expect(await number('HLEN', heldKey)).toBe(0)
    await producer.delay('add', ['next'])
    await until(() => got.length === 2)
    expect(await got[1]?.ack()).toBe(true)
  })

  it('that is gone gives its messages to another one, and does not end them any more', async () => {
    await producer.delay('add', [1], { priority: 6 })
    const lost = await receive({ visibleAfterMs: 3_600_000 })
    await until(() => lost.got.length === 1)
    // To this one an hour has passed.
    const next = await receive({ visibleAfterMs: 0, prefetch: 1 })
    await until(() => next.got.length > 0)
    expect(next.got[0]?.isRedelivered).toBe(true)
    expect(next.got[0]?.message.headers['redelivered']).toBe(true)
    expect(await lost.got[0]?.ack()).toBe(false)
  })

  it('that lives keeps its messages beyond that time', async () => {
    const visibleAfterMs = 400
    await producer.delay('add', [1])
    const { got } = await receive({ visibleAfterMs })
    await until(() => got.length === 1)
    const other = await receive({ visibleAfterMs })
    const score = async () => Number(await admin.send('ZSCORE', [prefix + heldIndexKey, await tag()]))
    const tag = async () => String(((await admin.send('HKEYS', [prefix + heldKey])) as string[])[0])
    const begun = await score()
    await until(async () => (await score()) > begun + (2 * visibleAfterMs) / 1_000)
    expect(other.got).toEqual([])
    expect(await got[0]?.ack()).toBe(true)
  })

  it('keeps what it has renewed while another worker was about to give it away', async () => {
    await producer.delay('add', [1])
    const mine = await receive()
    await until(() => mine.got.length === 1)
    const [tag = ''] = (await admin.send('HKEYS', [prefix + heldKey])) as string[]
    const real = openRedis(redis.url) as RedisConnection
    await real.open()
    let tries = 0
    const on = Object.assign(Object.create(real) as RedisConnection, {
      async send(command: string, args: readonly string[]) {
        if (args.includes(tag)) {
          tries++
          // In an hour, so that it is due only once.
          await admin.send('ZADD', [prefix + heldIndexKey, String(Date.now() / 1_000 + 3_600), tag])
        }
        return real.send(command, args)
      },
      close: () => real.close(),
    })
    // To this one an hour has passed.
    const other = await receive({ visibleAfterMs: 0 }, on)
    await until(() => tries > 0)
    await producer.delay('add', [2])
    await until(() => other.got.length > 0)
    expect(await first(other.got[0] as RedisIncoming)).toBe(2)
    expect(await mine.got[0]?.ack()).toBe(true)
  })

  it('leaves nothing in hand that stock Celery cannot take over', async () => {
    await peer(['send', '2'])
    const { got } = await receive({ prefix: '', prefetch: 2, visibleAfterMs: 3_600_000 })
    await until(() => got.length === 2)
    await peer(['restore'], { VISIBLE: '0.001' })
    expect(await got[1]?.ack()).toBe(false)
    expect(await got[0]?.ack()).toBe(false)
    await until(() => got.length === 4)
    expect(new Set(await Promise.all(got.slice(2).map(first)))).toEqual(new Set([0, 1]))
  })

  it('puts what it has in hand back when it ends', async () => {
    await producer.delay('add', [1], { priority: 9 })
    const { got, consumer } = await receive()
    await until(() => got.length === 1)
    await consumer.close()
    expect([await number('HLEN', heldKey), await number('LLEN', 'celery\u0006\u00169')]).toEqual([0, 1])
    const next = await receive()
    await until(() => next.got.length > 0)
    expect(next.got[0]?.isRedelivered).toBe(true)
    expect(await next.got[0]?.requeue()).toBe(true)
    await until(() => next.got.length === 2)
  })

  it('puts each message back, though a reply is lost and others are taken for it', async () => {
    for (const one of ['a', 'b', 'c']) await producer.delay('add', [one])
    const { on, dropNext } = await openMixing()
    const { got } = await receive({ prefetch: 3 }, on)
    await until(() => got.length === 3)
    expect(await got[0]?.ack()).toBe(true)
    dropNext()
    await Promise.allSettled(got.slice(1).map((one) => one.requeue()))
    await until(() => got.length === 5, 'both come again')
    expect(new Set(await Promise.all(got.slice(3).map(first)))).toEqual(new Set(['b', 'c']))
  })

  it('gets what it took in one step with what is due, though giving that back fails', async () => {
    const { on, failOn } = await openMixing()
    failOn('lost')
    await producer.delay('add', ['due'])
    const text = await admin.send('RPOP', [`${prefix}celery`])
    await admin.send('HSET', [prefix + heldKey, 'lost', `[${String(text)}, "", "celery"]`])
    await admin.send('ZADD', [prefix + heldIndexKey, '1', 'lost'])
    await producer.delay('add', ['fresh'])
    const { got } = await receive({ prefetch: 2 }, on)
    await until(() => got.length === 2, 'both arrive')
    const seen = await Promise.all(got.map(async (one) => [await first(one), one.isRedelivered]))
    expect(new Map(seen as [unknown, boolean][])).toEqual(
      new Map([
        ['due', true],
        ['fresh', false],
      ]),
    )
  })

  it('parks what it cannot read, and goes on', async () => {
    for (const text of ['no JSON', '[]', '{"body": 1}']) await admin.send('LPUSH', [`${prefix}celery`, text])
    await producer.delay('add', [1])
    const { got } = await receive()
    await until(() => got.length === 1)
    expect(await admin.send('LRANGE', [prefix + parkedKey, '0', '-1'])).toEqual(['no JSON', '[]', '{"body": 1}'])
    expect(await number('HLEN', heldKey)).toBe(1)
  })

  it('leaves out a queue whose key is no list, names it once, and reads it as soon as it is one', async () => {
    await admin.send('SET', [`${prefix}b`, 'of a stranger'])
    const lines: string[] = []
    const log = logTo((level, message) => lines.push(`${level} ${message}`))
    const { got } = await receive({ queues: ['b', 'a'], prefetch: 10, log })
    for (const n of [1, 2]) {
      await producer.delay('add', [n], { queue: 'a' })
      await until(() => got.length === n)
    }
    expect(lines).toEqual([
      expect.stringMatching(/^error the list shop:b in Redis cannot be read, so its tasks wait: WRONGTYPE /),
    ])
    await admin.send('DEL', [`${prefix}b`])
    await producer.delay('add', [3], { queue: 'b' })
    await until(() => got.length === 3)
  })

  it('gets what it took in one step with what nobody can read, though putting that aside fails', async () => {
    const { on, failOn } = await openMixing()
    failOn('no JSON')
    await admin.send('LPUSH', [`${prefix}celery`, 'no JSON'])
    for (const one of ['a', 'b']) await producer.delay('add', [one])
    const { got } = await receive({ prefetch: 3 }, on)
    await until(() => got.length === 2, 'both arrive')
    expect(got.map(({ isRedelivered }) => isRedelivered)).toEqual([false, false])
    expect(await number('LLEN', parkedKey)).toBe(1)
  })

  it.for([heldKey, heldIndexKey, waitingKey, parkedKey])(
    'loses nothing while %s has a value of another program',
    async (key) => {
      await admin.send('SET', [prefix + key, 'foreign'])
      await admin.send('LPUSH', [`${prefix}celery`, 'no JSON'])
      for (const n of [1, 2]) await producer.delay('add', [n])
      const log = { ...silent, warn: (text: string) => void said.push(text) }
      const said: string[] = []
      const { got } = await receive({ prefetch: 3, log })
      await until(() => said.length > 0, 'it says that')
      await admin.send('DEL', [prefix + key])
      await until(() => got.length === 2, 'both arrive')
      expect(await Promise.all(got.map(first))).toEqual([1, 2])
      expect(await number('LLEN', parkedKey)).toBe(1)
      for (const one of got) expect(await one.ack()).toBe(true)
      expect([
        await number('HLEN', heldKey),
        await number('ZCARD', heldIndexKey),
        await number('LLEN', 'celery'),
      ]).toEqual([0, 0, 0])
    },
  )

  it.for(['other', '_kombu.binding.topics'])(
    'parks what a lost worker had if %s has a value of another program, and goes on',
    async (key) => {
      await producer.delay('add', ['due'])
      const text = String(await admin.send('RPOP', [`${prefix}celery`]))
      const exchange = key === 'other' ? '' : 'topics'
      await admin.send('HSET', [prefix + heldKey, 'lost', `[${text}, "${exchange}", "other"]`])
      await admin.send('ZADD', [prefix + heldIndexKey, '1', 'lost'])
      await admin.send('SET', [prefix + key, 'foreign'])
      await producer.delay('add', ['fresh'])
      const { got } = await receive()
      await until(() => got.length === 1, 'the other one arrives')
      expect(await first(got[0] as RedisIncoming)).toBe('fresh')
      expect(await number('LLEN', parkedKey)).toBe(1)
    },
  )

  it('gives back what Python writes and JSON is not, and goes on', async () => {
    const incoming = { exchange: '', routing_key: 'celery' }
    const text = (x: string) =>
      `{"body": "W10=", "content-type": "application/json", "headers": {"x": ${x}, "n": 12345678901234567890}, ` +
      `"properties": {"body_encoding": "base64", "delivery_info": ${JSON.stringify(incoming)}, "priority": 0}}`
    for (const x of ['NaN', '-Infinity']) {
      await admin.send('HSET', [prefix + heldKey, x, `[${text(x)}, "", "celery"]`])
      await admin.send('ZADD', [prefix + heldIndexKey, '1', x])
    }
    const deep = text(`${'['.repeat(50_000)}${']'.repeat(50_000)}`)
    await admin.send('HSET', [prefix + heldKey, 'deep', `[${deep}, "", "celery"]`])
    await admin.send('ZADD', [prefix + heldIndexKey, '0', 'deep'])
    const { got } = await receive({ prefetch: 10, visibleAfterMs: 60_000 })
    await until(() => got.length === 2, 'what a lost worker had comes again')
    expect(await number('LLEN', parkedKey)).toBe(1)
    const seen = got.map(({ message }) => [message.headers['x'], message.headers['n']])
    expect(seen).toEqual(
      expect.arrayContaining([
        [NaN, 12_345_678_901_234_567_890n],
        [-Infinity, 12_345_678_901_234_567_890n],
      ]),
    )
  })

  it('goes on after its connections are lost, and loses no message', async () => {
    const seen = new Set<unknown>()
    const onMessage = async (incoming: RedisIncoming) => {
      seen.add(await first(incoming))
      await incoming.ack().catch(() => {})
    }
    await receive({ onMessage, visibleAfterMs: 500 })
    const sent: number[] = []
    for (let i = 0; i < 300; i++) {
      if (i % 60 === 30) await admin.send('CLIENT', ['KILL', 'TYPE', 'normal', 'SKIPME', 'yes'])
      const isSent = await producer.delay('add', [i]).then(
        () => true,
        () => false,
      )
      if (isSent) sent.push(i)
    }
    await until(async () => (await number('LLEN', 'celery')) + (await number('HLEN', heldKey)) === 0)
    expect(sent.length).toBeGreaterThan(0)
    expect(sent.filter((one) => !seen.has(one))).toEqual([])
  })
})

it('a connection that leads to a replica by now is opened anew', async () => {
  let resets = 0
  const send = () => Promise.reject(new Error("READONLY You can't write against a read only replica."))
  const on = { send, reset: () => void resets++ } as unknown as RedisConnection
  await expect(callRedis(on, 'LPUSH', ['celery', '{}'])).rejects.toMatchObject({ code: 'SLUICE_REDIS_REFUSED' })
  expect(resets).toBe(1)
})

it('requests to workers leave no connection if their user may not receive the answers', async () => {
  await admin.send('ACL', ['SETUSER', 'narrow', 'on', '>secret', '~*', '&*', '+@all', '-sadd'])
  const broker = redis.url.replace('://', '://narrow:secret@')
  await expect(openControl({ broker })).rejects.toMatchObject({ code: 'SLUICE_REDIS_REFUSED' })
  await until(async () => !String(await admin.send('CLIENT', ['LIST'])).includes('user=narrow'))
})
