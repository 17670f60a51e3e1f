/** Messages in Redis that wait for a time, as those that a limit denies. */
import { describe, expect, it } from 'vitest'
import { noTraffic } from '../../src/amqp/traffic.ts'
import { waitingKey } from '../../src/celery/unacked.ts'
import { heldIndexKey, heldKey } from '../../src/celery/kombu.ts'
import type { RedisConsumerOptions, RedisIncoming } from '../../src/celery/redis-consumer.ts'
import { openRedis, type RedisConnection } from '../../src/redis/connect.ts'
import { until } from '../until.ts'
import { first, prefix, receiveFrom, type RedisStage, useRedis } from './receive.ts'

let { redis, producer, admin } = {} as RedisStage
useRedis((stage) => ({ redis, producer, admin } = stage))

const receive = (more: Partial<RedisConsumerOptions> = {}, on?: RedisConnection) => receiveFrom(redis.url, more, on)
const number = async (command: string, key: string) => Number(await admin.send(command, [prefix + key]))

describe('a worker of ours on Redis', () => {
  it('puts messages off: each comes back at its time, to its list, and once, however many workers look', async () => {
    const one = await receive({ prefetch: 20 })
    for (let n = 0; n < 20; n++) await producer.delay('add', [n], { priority: n % 2 === 0 ? 0 : 9 })
    await until(() => one.got.length === 20)
    await one.consumer.stop()
    const times = new Map<unknown, number>()
    const now = async () => {
      const [s, us] = (await admin.send('TIME', [])) as [string, string]
      return Number(s) * 1_000 + Number(us) / 1_000
    }
    for (const [i, incoming] of one.got.entries()) {
      times.set(await first(incoming), (await now()) + (20 - i) * 20)
      expect(await incoming.putOff(incoming.message, (20 - i) * 20)).toBe(true)
    }
    const seen: [unknown, number, boolean, number | undefined][] = []
    const onMessage = async (incoming: RedisIncoming) => {
      seen.push([await first(incoming), await now(), incoming.isRedelivered, incoming.message.priority])
      await incoming.ack()
    }
    await Promise.all(Array.from({ length: 3 }, () => receive({ onMessage, prefetch: 20 })))
    await until(() => seen.length === 20, 'all come back')
    expect(new Set(seen.map(([n]) => n)).size).toBe(20)
    for (const [n, atMs, isRedelivered, priority] of seen) {
      expect(atMs).toBeGreaterThanOrEqual(times.get(n) ?? Infinity)
      expect([isRedelivered, priority]).toEqual([false, Number(n) % 2 === 0 ? 0 : 9])
    }
    expect([await number('ZCARD', waitingKey), await number('HLEN', heldKey)]).toEqual([0, 0])
  })

  it('puts a message off once, though the reply is lost, and not if another worker has it', async () => {
    const real = openRedis(redis.url) as RedisConnection
    await real.open()
    let isLosing = true
    const on = Object.assign(Object.create(real) as RedisConnection, {
      async send(command: string, args: readonly string[]) {
        const reply = await real.send(command, args)
        if (!args.includes('3600000') || !isLosing) return reply
        isLosing = false
        throw new Error('the reply was lost')
      },
      close: () => real.close(),
    })
    await producer.delay('add', [1])
    const { got, consumer } = await receive({ visibleAfterMs: 60_000 }, on)
    await until(() => got.length === 1)
    const putOff = () => got[0]?.putOff(got[0].message, 3_600_000)
    await expect(putOff()).rejects.toThrow('the reply was lost')
    expect(await putOff()).toBe(false)
    expect([await number('ZCARD', waitingKey), await number('HLEN', heldKey)]).toEqual([1, 0])
    await consumer.stop()
    await producer.delay('add', [2])
    const lost = await receive()
    await until(() => lost.got.length === 1)
    await lost.consumer.stop()
    const [had] = lost.got
    // To this one an hour has passed.
    const next = await receive({ visibleAfterMs: 0 })
    await until(() => next.got.length > 0)
    expect(await had?.putOff(had.message, 3_600_000)).toBe(false)
    expect(await number('ZCARD', waitingKey)).toBe(1)
  })

  it('has a message come again at once, where stock Celery finds it, and also after it has ended it', async () => {
    for (const n of [1, 2]) await producer.delay('add', [n], { priority: 3 })
    const { got, consumer } = await receive({ prefetch: 2 })
    await until(() => got.length === 2)
    await consumer.stop()
    expect(await got[0]?.putOff(got[0].message, 0)).toBe(true)
    expect(await got[1]?.ack()).toBe(true)
    expect(await got[1]?.putOff(got[1].message, 0)).toBe(true)
    const list = 'celery\u0006\u00163'
    expect([await number('LLEN', list), await number('ZCARD', waitingKey), await number('HLEN', heldKey)]).toEqual([
      2, 0, 0,
    ])
    const next = await receive({ prefetch: 2 })
    await until(() => next.got.length === 2)
    expect(await Promise.all(next.got.map(first))).toEqual([1, 2])
    expect(next.got.map(({ isRedelivered }) => isRedelivered)).toEqual([false, false])
  })

  it.for([heldKey, heldIndexKey])(
    'has a message come again once, though %s has a value of another program',
    async (key) => {
      await producer.delay('add', [1])
      const { got, consumer } = await receive()
      await until(() => got.length === 1)
      await consumer.stop()
      expect(await got[0]?.ack()).toBe(true)
      await admin.send('SET', [prefix + key, 'foreign'])
      const putOff = () => got[0]?.putOff(got[0].message, 0)
      await expect(putOff()).rejects.toThrow('WRONGTYPE')
      await admin.send('DEL', [prefix + key])
      expect(await putOff()).toBe(true)
      expect(await number('LLEN', 'celery')).toBe(1)
    },
  )

  it('puts what has waited to the end of its list, and passes by a list that is none', async () => {
    const one = await receive({ prefetch: 2 })
    for (const priority of [0, 3]) await producer.delay('add', [priority], { priority })
    await until(() => one.got.length === 2)
    await one.consumer.stop()
    await producer.delay('add', ['fresh'])
    const foreign = `${prefix}celery\u0006\u00163`
    await admin.send('SET', [foreign, 'mine'])
    for (const incoming of one.got.toReversed()) expect(await incoming.putOff(incoming.message, 1)).toBe(true)
    const next = await receive({ prefetch: 0 })
    await until(async () => (await number('LLEN', 'celery')) === 2, 'one has come back')
    expect(await number('ZCARD', waitingKey)).toBe(1)
    await admin.send('DEL', [foreign])
    next.consumer.setPrefetch(3)
    await until(() => next.got.length === 3)
    expect(await Promise.all(next.got.map(first))).toEqual(['fresh', 0, 3])
  })

  it('brings back what waits behind thousands for lists that are none', async () => {
    await admin.send('SET', [`${prefix}celery`, 'mine'])
    const refused = Array.from({ length: 1_500 }, (_, n) => ['1', `${prefix}celery\n${n}`]).flat()
    await admin.send('ZADD', [prefix + waitingKey, ...refused])
    await admin.send('ZADD', [prefix + waitingKey, '2', `${prefix}other\nnext`, '2', 'no line'])
    await receive({ queues: ['none'], prefetch: 0 })
    await until(async () => (await number('LLEN', 'other')) === 1, 'it is there')
    expect(await number('ZCARD', waitingKey)).toBe(1_501)
  })

  it('keeps a message whose putting off fails until that is repeated', async () => {
    const real = openRedis(redis.url) as RedisConnection
    await real.open()
    let isFull = true
    const on = Object.assign(Object.create(real) as RedisConnection, {
      send: (command: string, args: readonly string[]) =>
        isFull && args.includes('3600000')
          ? Promise.reject(new Error('OOM command not allowed when used memory > maxmemory'))
          : real.send(command, args),
      close: () => real.close(),
    })
    const visibleAfterMs = 400
    await producer.delay('add', [1])
    const traffic = noTraffic()
    const { got } = await receive({ visibleAfterMs, traffic }, on)
    await until(() => got.length === 1)
    const other = await receive({ visibleAfterMs })
    const score = async () =>
      Number(((await admin.send('ZRANGE', [prefix + heldIndexKey, '0', '0', 'WITHSCORES'])) as string[])[1])
    const begun = await score()
    const putOff = () => got[0]?.putOff(got[0].message, 3_600_000)
    await expect(putOff()).rejects.toThrow('OOM')
    await until(async () => other.got.length > 0 || (await score()) > begun + (2 * visibleAfterMs) / 1_000)
    expect(other.got).toEqual([])
    isFull = false
    expect(await putOff()).toBe(true)
    expect([await number('ZCARD', waitingKey), await number('HLEN', heldKey)]).toEqual([1, 0])
    expect(traffic).toEqual({ published: 1, delivered: 1, settled: 1 })
  })
})
