/** The times at which denied messages come back to workers without a store. */
import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { delayMaxMs } from '../../src/amqp/delays.ts'
import { systemClock } from '../../src/core/clock.ts'
import { Bookings } from '../../src/direct/bookings.ts'
import { limit } from '../../src/index.ts'
import type { RedisClient } from '../../src/redis/client.ts'
import { openRedis } from '../../src/redis/connect.ts'
import { type RedisServer, startRedis } from '../servers/redis.ts'

let server: RedisServer
let redis: ReturnType<typeof openRedis>
beforeAll(async () => {
  server = await startRedis()
  redis = openRedis(server.url)
  await redis?.open()
})
afterAll(async () => {
  await redis?.close()
  await server?.close()
})

const slow = { ...limit('denied', { rate: '10/h' }), version: 1 }

function bookings(client: RedisClient | undefined = redis, epoch = () => 'epoch', definition = () => slow) {
  if (client === undefined) throw new Error('there is a server')
  const how = { clock: systemClock, epoch, definition, mostMs: delayMaxMs }
  return new Bookings({ ...how, redis: client, prefix: `${randomUUID()}:` })
}

it('bookings are used as far ahead as the broker can let messages wait, however many are denied at once', async () => {
  const some = bookings()
  const all = await some.book('a', 80, 1, 0)
  const apartMs = 3_600_000 / 10
  // One after the other, as fast as the limit allows; the others come back later, and book again then.
  for (const [i, ms] of all.slice(0, 30).entries()) {
    expect(ms).toBeGreaterThanOrEqual(i * apartMs)
    expect(ms).toBeLessThan((i + 1) * apartMs * 1.1)
  }
  expect(all.length).toBe(80)
  expect(Math.max(...all)).toBeLessThanOrEqual(delayMaxMs)
  const left = await some.book('a', 5, 1, 0)
  expect(left.every((ms) => ms >= (delayMaxMs * 2) / 3 - 1)).toBe(true)
})

it('bookings come soon if Redis returns the reply to another command', async () => {
  for (const reply of ['OK', ['decided', 'other', 1, 2]]) {
    const some = bookings({ send: async () => reply })
    const [first = 0, second] = await some.book('a', 2, 1, 1_000)
    expect(first).toBe(1_000)
    expect(second).toBeGreaterThan(first)
  }
})

it('bookings begin anew with an epoch, because the clock of Redis may have been set back', async () => {
  let epoch = 'first'
  const some = bookings(redis, () => epoch)
  await some.book('a', 30, 1, 0)
  expect(some.findBooked(['a'])).toBe('a')
  epoch = 'second'
  expect(some.findBooked(['a'])).toBeUndefined()
  expect(await some.book('a', 1, 1, 0)).toEqual([0])
})

it('bookings begin anew with a definition, because a faster one has room for messages that come now', async () => {
  let definition = slow
  const some = bookings(redis, undefined, () => definition)
  await some.book('a', 30, 1, 0)
  expect(some.findBooked(['a'])).toBe('a')
  definition = { ...limit('denied', { rate: '100/s' }), version: 2 }
  expect(some.findBooked(['a'])).toBeUndefined()
  const [first = 0, second = 0] = await some.book('a', 2, 1, 0)
  expect(first).toBe(0)
  expect(second).toBeLessThan(1_000)
})
