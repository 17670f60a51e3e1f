/** Takes from Redis whose replies are lost: the caller does not use them, so they are refunded. */
import { randomUUID } from 'node:crypto'
import { expect, it, onTestFinished, vi } from 'vitest'
import { limit, Sluice } from '../../src/index.ts'
import type { RedisClient } from '../../src/redis/client.ts'
import { SharedDefinitions } from '../../src/redis/definitions.ts'
import { RedisLimiter } from '../../src/redis/limiter.ts'
import { freshDatabase } from '../servers/database.ts'
import { startRedis } from '../servers/redis.ts'
import { connectRedis } from '../servers/resp.ts'
import { until } from '../until.ts'

const ten = limit('ten', { rate: '10/h', burst: 10 })

/** Takes of a limit of ten in Redis, whose replies can be lost; `ids`: the ids of the calls. */
async function setting() {
  const redis = await startRedis()
  onTestFinished(() => redis.close())
  const client = await connectRedis(redis.port)
  onTestFinished(() => client.close())
  const state = {
    isLosing: false,
    ids: new Set<string>(),
    calls: [] as { buckets: unknown[]; items: { takes: [number, number][] }[] }[],
  }
  const losing: RedisClient = {
    async send(command, args) {
      const reply = await client.send(command, args)
      const text = String(args.at(-1))
      if (!text.includes('"items"')) return reply
      const call = JSON.parse(text) as { id: string } & (typeof state.calls)[number]
      state.calls.push(call)
      if (!state.isLosing) return reply
      state.ids.add(call.id)
      throw new Error('the connection was lost')
    },
  }
  const sluice = await Sluice.open({ store: (await freshDatabase()).url, redis: losing })
  onTestFinished(() => sluice.close())
  const limiter = new RedisLimiter(client)
  /** Whether Redis has room for this number of units, which are taken. */
  const hasRoom = async (units: number) => {
    const items = [{ want: 1, takes: [{ bucket: 0, units }] }]
    const bucket = { name: 'ten', rules: ten.rules, version: 1, isOwn: true }
    const answer = await limiter.reserve({ id: randomUUID(), buckets: [bucket], items })
    return answer.isDecided && answer.results[0]?.granted === 1
  }
  return { client, state, takes: sluice.takes, hasRoom }
}

it('a take without a reply in time is denied, and the units that Redis granted are refunded', async () => {
  const { state, takes, hasRoom } = await setting()
  await (await takes.take(ten)).giveBack()
  state.isLosing = true
  expect(await takes.tryTake(ten, { cost: 4 })).toMatchObject({ granted: false })
  // All calls had one id, however many there were.
  expect(state.ids.size).toBe(1)
  state.isLosing = false
  await until(() => hasRoom(10))
})

it('a refund after a lost reply leaves the charges with which an epoch began', async () => {
  const { client, state, takes, hasRoom } = await setting()
  await takes.take(ten, { cost: 5 })
  await client.send('FLUSHALL', [])
  await until(async () => {
    const lease = await takes.tryTake(ten).catch(() => undefined)
    if (lease?.granted === true) await lease.lease.giveBack()
    return lease?.granted === true
  })
  state.isLosing = true
  expect(await takes.tryTake(ten, { cost: 4 })).toMatchObject({ granted: false })
  state.isLosing = false
  await until(() => hasRoom(5))
  expect(await hasRoom(1)).toBe(false)
})

it('a take is denied whose limit is no longer in Redis when it is requested again', async () => {
  const { state, takes } = await setting()
  const other = limit('other', { rate: '10/h', burst: 10 })
  await takes.take([ten, other])
  const bucket = Object.getOwnPropertyDescriptor(SharedDefinitions.prototype, 'bucket')
    ?.value as SharedDefinitions['bucket']
  const reading = vi.spyOn(SharedDefinitions.prototype, 'bucket')
  onTestFinished(() => reading.mockRestore())
  reading.mockImplementation(function (this: SharedDefinitions, name) {
    return name === 'ten' && state.ids.size > 0 ? undefined : bucket.call(this, name)
  })
  state.isLosing = true
  expect(await takes.tryTake([ten, other])).toMatchObject({ granted: false })
  const named = state.calls.map(({ buckets, items }) => [
    buckets.length,
    items.flatMap(({ takes: of }) => of.map(([i]) => i)),
  ])
  expect(named).toEqual(named.map(() => [2, [1, 2]]))
})
