/** What Redis is told of grants, where its answer is lost: each word counts once. */
import { afterEach, expect, it } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import { newId } from '../../src/core/hash.ts'
import type { RedisClient } from '../../src/redis/client.ts'
import { RedisLimiter } from '../../src/redis/limiter.ts'
import type { SharedDefinitions } from '../../src/shared/definitions.ts'
import { grantOf, Told } from '../../src/shared/told.ts'
import { bucket, decided } from '../redis/calls.ts'
import { startRedis } from '../servers/redis.ts'
import { connectRedis } from '../servers/resp.ts'
import { until } from '../until.ts'

const ends: (() => unknown)[] = []
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end()
})

it('a part that goes back goes back once, though the answers to it are lost', async () => {
  const redis = await startRedis()
  ends.push(() => redis.close())
  const client = await connectRedis(redis.port)
  ends.push(() => client.close())
  let [told, lost] = [0, 2]
  const losing: RedisClient = {
    async send(command, args) {
      const reply = await client.send(command, args)
      if (!String(args.at(-1)).includes('"acts"')) return reply
      told++
      if (lost-- > 0) throw new Error('the connection was lost')
      return reply
    },
  }
  const limiter = new RedisLimiter(losing)
  const one = bucket('one', { window: '10/h' })
  const epoch = newId()
  await limiter.begin({ epoch, owner: 'test', closeUs: 0 })
  const grant = grantOf(epoch)
  const items = (want: number) => [{ want, takes: [{ bucket: 0, units: 1 }] }]
  await limiter.reserve({ id: grant, buckets: [one], items: items(5) })
  const definitions = { know: async () => {}, bucket: () => one } as unknown as SharedDefinitions
  const words: Told = new Told(
    limiter,
    definitions,
    systemClock,
    () => epoch,
    () => void setImmediate(() => words.go()),
  )
  const sinceMs = systemClock.monotonicMs()
  words.add({ take: 'one', epoch, grant, more: -1, sinceMs })
  await until(() => told === 3)
  await words.settled()
  expect(decided(await limiter.reserve({ id: newId(), buckets: [one], items: items(10) }))).toMatchObject([
    { granted: 6 },
  ])
})
