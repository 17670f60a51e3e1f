import { expect, it } from 'vitest'
import { limit } from '../../src/limits/limit.ts'
import type { Stood } from '../../src/redis/call.ts'
import type { Published } from '../../src/redis/definition.ts'
import { RedisLimiter } from '../../src/redis/limiter.ts'
import { freshRedis } from '../servers/redis.ts'

const { client } = await freshRedis()
const limiter = new RedisLimiter(client, { prefix: 'app:', domain: 'crm' })

const published = (version: number, options: Parameters<typeof limit>[1]): Published => {
  const { name, rules, keyed: isKeyed, grantUs } = limit('mail', options)
  return { name, rules, version, isKeyed, grantUs }
}
const stands = async () => JSON.parse((await client.send('GET', ['app:{crm}:d:mail'])) as string) as { version: number }

it('a published definition has its numbers, its keys and its calendar in words, and does not expire', async () => {
  const options = { rate: '100/min', quota: '5000/day', zone: 'America/New_York', by: 'customer' } as const
  expect(await limiter.publish({ ...published(3, options), countedFrom: 2, isFull: true })).toBe(3)
  const rate = { drain: 13, weight: 8_600_000, room: 10, slot: 0, span: 60_200_000 }
  const pace = { drain: 1, weight: 603_000, room: 10, slot: 0, span: 60_200_000, pace: 100_000 }
  const day = { drain: 1, weight: 1, room: 5_000, slot: 0, span: 180_000_200_000, margin: 200_000 }
  expect(await stands()).toEqual({
    version: 3,
    counted: 2,
    full: true,
    keyed: true,
    grant: 100_000,
    keep: 180_000_200_000,
    rules: [rate, pace, { ...day, calendar: { unit: 'day', zone: 'America/New_York' } }],
  })
  expect(await client.send('TTL', ['app:{crm}:d:mail'])).toBe(-1)
})

it('a smaller version never replaces a greater one, in whatever order they come', async () => {
  const versions = [5, 9, 4, 12, 7, 10, 11, 8, 6]
  const told = await Promise.all(versions.map((one) => limiter.publish(published(one, { rate: `${one}/min` }))))
  expect(told).toEqual([5, 9, 9, 12, 12, 12, 12, 12, 12])
  expect(await stands()).toMatchObject({ version: 12, keyed: false, rules: [{ room: 1 }] })
})

it('what another program has written in its place is replaced', async () => {
  const key = 'app:{crm}:d:mail'
  for (const [command, ...args] of [
    ['LPUSH', key, 'of a stranger'],
    ['SET', key, 'of a stranger'],
    ['SET', key, '{}'],
  ] as const) {
    await client.send('DEL', [key])
    await client.send(command, args)
    expect(await limiter.publish(published(1, { rate: '1/min' }))).toBe(1)
    expect(await stands()).toMatchObject({ version: 1 })
  }
})

it('what another program has written in place of what databases agree on is replaced by what they know', async () => {
  const { version, name, ...values } = { ...published(7, { rate: '7/min' }), isPublished: true }
  const agree = async (stood?: Stood) => (await limiter.agree('one', [{ version, name, ...values, stood }]))[0]
  const before = await agree()
  await client.send('DEL', ['app:{crm}:v:mail'])
  await client.send('LPUSH', ['app:{crm}:v:mail', 'of a stranger'])
  expect(await agree(before?.stood)).toEqual(before)
})
