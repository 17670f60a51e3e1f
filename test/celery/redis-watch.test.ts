/** A worker on Redis that rests while nothing comes, because Redis reports changes. */
import { expect, it } from 'vitest'
import { waitingKey } from '../../src/celery/unacked.ts'
import type { RedisConsumerOptions } from '../../src/celery/redis-consumer.ts'
import { openRedis, type RedisConnection } from '../../src/redis/connect.ts'
import { until } from '../until.ts'
import { prefix, receiveFrom, type RedisStage, useRedis } from './receive.ts'

let { redis, producer, admin } = {} as RedisStage
useRedis((stage) => ({ redis, producer, admin } = stage))

const receive = (more: Partial<RedisConsumerOptions> = {}, on?: RedisConnection) => receiveFrom(redis.url, more, on)

/** A message as a producer writes it. */
async function envelope(n: number): Promise<unknown> {
  await producer.delay('add', [n], { queue: 'envelopes' })
  return admin.send('RPOP', [`${prefix}envelopes`])
}

// Longer than thirty looks of a worker that does not rest.
const restMs = 300

/** A connection, and for how long, in ms, nobody has looked on it. */
async function looking() {
  const real = openRedis(redis.url) as RedisConnection
  await real.open()
  let lookedMs = 0
  const on = Object.assign(Object.create(real) as RedisConnection, {
    send(command: string, args: readonly string[]) {
      lookedMs = performance.now()
      return real.send(command, args)
    },
    close: () => real.close(),
  })
  return { on, idleMs: () => performance.now() - lookedMs }
}

it('a worker rests while nothing comes, and begins at once what comes then', async () => {
  const { on, idleMs } = await looking()
  const { got } = await receive({ prefetch: 20 }, on)
  let waitedMs = 0
  for (let n = 1; n <= 6; n++) {
    await until(() => idleMs() > restMs, 'it rests')
    const sentMs = performance.now()
    if (n % 2 === 0) await producer.delay('add', [n], { priority: 9 })
    // As another worker puts a message off.
    else await admin.send('ZADD', [prefix + waitingKey, '1', `${prefix}celery\n${String(await envelope(n))}`])
    await until(() => got.length === n, 'it arrives')
    waitedMs += performance.now() - sentMs
  }
  expect(waitedMs).toBeLessThan(6 * restMs)
})

it('a worker whose user may not watch keys looks again and again', async ({ onTestFinished }) => {
  await admin.send('ACL', ['SETUSER', 'blind', 'on', '>secret', '~*', '&*', '+@all', '-client|tracking'])
  onTestFinished(async () => void (await admin.send('ACL', ['DELUSER', 'blind'])))
  const { got } = await receive({ url: redis.url.replace('://', '://blind:secret@') })
  await producer.delay('add', [1])
  await until(() => got.length === 1)
})

it('a worker rests also if its user may subscribe only later', async ({ onTestFinished }) => {
  await admin.send('ACL', ['SETUSER', 'deaf', 'on', '>secret', '~*', '&*', '+@all', '-subscribe'])
  onTestFinished(async () => void (await admin.send('ACL', ['DELUSER', 'deaf'])))
  const { on, idleMs } = await looking()
  const { got } = await receive({ url: redis.url.replace('://', '://deaf:secret@') }, on)
  await until(async () => JSON.stringify(await admin.send('ACL', ['LOG'])).includes('deaf'), 'it was refused')
  await admin.send('ACL', ['SETUSER', 'deaf', '+subscribe'])
  await until(() => idleMs() > restMs, 'it rests')
  await producer.delay('add', [1])
  await until(() => got.length === 1, 'it arrives')
})
