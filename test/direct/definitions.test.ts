/** What a worker without a store knows of limits. */
import { expect, it } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import { silent } from '../../src/core/log.ts'
import { DirectDefinitions } from '../../src/direct/definitions.ts'
import { limit } from '../../src/index.ts'
import type { RedisClient } from '../../src/redis/client.ts'
import { freshRedis } from '../servers/redis.ts'

const { client } = await freshRedis()

it('definitions are not taken from the replies to other calls, after one was lost', async () => {
  const [fast, slow] = [limit('fast', { rate: '100/s' }), limit('slow', { rate: '1/s' })]
  let isLost = false
  let former: unknown
  const shifted: RedisClient = {
    async send(command, args) {
      const reply = await client.send(command, args)
      const given = isLost ? former : reply
      former = reply
      return given
    },
  }
  const common = { redis: shifted, prefix: 'sluice:', clock: systemClock, log: silent }
  const definitions = new DirectDefinitions({ ...common, limits: [fast, slow] })
  await definitions.define()
  isLost = true
  await expect(definitions.read()).rejects.toMatchObject({ code: 'SLUICE_REDIS_ANSWER' })
  await expect(definitions.restore()).rejects.toMatchObject({ code: 'SLUICE_REDIS_ANSWER' })
  expect(definitions.bucket('fast')?.rules[0]).toMatchObject({ capacity: fast.rules[0]?.capacity })
})
