/** What is asked of Redis where answers are lost: nobody uses it, so it goes back. */
import { randomUUID } from 'node:crypto'
import { afterEach, expect, it } from 'vitest'
import { limit, Sluice } from '../../src/index.ts'
import type { RedisClient } from '../../src/redis/client.ts'
import { RedisLimiter } from '../../src/redis/limiter.ts'
import { freshDatabase } from '../servers/database.ts'
import { startRedis } from '../servers/redis.ts'
import { connectRedis } from '../servers/resp.ts'
import { until } from '../until.ts'

const ends: (() => unknown)[] = []
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end()
})

it('a take that had no answer in time is denied, and what Redis granted it goes back', async () => {
  const redis = await startRedis()
  ends.push(() => redis.close())
  const client = await connectRedis(redis.port)
  ends.push(() => client.close())
  let isLosing = false
  const ids = new Set<string>()
  const losing: RedisClient = {
    async send(command, args) {
      const reply = await client.send(command, args)
      const text = String(args.at(-1))
      if (!isLosing || !text.includes('"items"')) return reply
      ids.add((JSON.parse(text) as { id: string }).id)
      throw new Error('the connection was lost')
    },
  }
  const sluice = await Sluice.open({ store: (await freshDatabase()).url, redis: losing })
  ends.push(() => sluice.close())
  const ten = limit('ten', { rate: '10/h', burst: 10 })
  await (await sluice.takes.take(ten)).giveBack()
  isLosing = true
  expect(await sluice.takes.tryTake(ten, { cost: 4 })).toMatchObject({ granted: false })
  // It was asked under one id, however often.
  expect(ids.size).toBe(1)
  isLosing = false
  const bucket = { name: 'ten', rules: ten.rules, version: 1, isOwn: true }
  const limiter = new RedisLimiter(client)
  await until(async () => {
    const items = [{ want: 1, takes: [{ bucket: 0, units: 10 }] }]
    const answer = await limiter.reserve({ id: randomUUID(), buckets: [bucket], items })
    return answer.isDecided && answer.results[0]?.granted === 1
  })
})
