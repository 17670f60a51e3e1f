/** Places that a worker without a store holds, while Redis is away. */
import { expect, it } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import { silent } from '../../src/core/log.ts'
import { DirectLimiter } from '../../src/direct/limiter.ts'
import { limit, newId } from '../../src/index.ts'
import { openRedis } from '../../src/redis/connect.ts'
import { RedisLimiter } from '../../src/redis/limiter.ts'
import { startRedis } from '../servers/redis.ts'
import { until } from '../until.ts'

const { sleep } = systemClock

it('places are leased anew when Redis is back, as often as that is worth', async ({ onTestFinished }) => {
  const server = await startRedis()
  onTestFinished(() => server.close())
  const real = openRedis(server.url)
  if (real === undefined) throw new Error('there is no connection')
  onTestFinished(() => real.close())
  let isAway = false
  /** Places that were leased anew, in each call. */
  const renewed: number[] = []
  const redis = {
    ...real,
    load: () => real.load(),
    open: () => real.open(),
    reset() {},
    close: () => real.close(),
    async send(command: string, args: readonly string[]) {
      if (isAway) throw new Error('it is away')
      const answer = await real.send(command, args)
      const count = args.reduce((sum, text) => sum + text.split('"renew":').length - 1, 0)
      if (count > 0) renewed.push(count)
      return answer
    },
  }
  /** What lasts seconds by design, above all the time between two renewals, lasts no time. */
  let naps = 0
  const clock: typeof systemClock = {
    ...systemClock,
    sleep: (ms, signal, ref) => {
      if (ms > 1_000) naps++
      return sleep(Math.min(ms, 1), signal, ref)
    },
  }
  // An epoch that a worker begins would close them for a minute.
  await real.open()
  await new RedisLimiter(real).begin({ epoch: newId(), owner: 'direct', closeUs: 0 })
  const seats = limit('seats', { concurrency: 5 })
  const limiter = new DirectLimiter({ limits: [seats], redis, prefix: 'sluice:', clock, log: silent })
  await limiter.start()
  onTestFinished(() => limiter.close())
  const answer = await limiter.take([{ buckets: ['seats'], units: [1], count: 2 }])
  expect(answer?.got[0]?.granted).toBe(2)
  isAway = true
  await until(
    async () => (await limiter.take([{ buckets: ['seats'], units: [1], count: 1 }])) === undefined,
    'it is away',
  )
  const [before, napped] = [renewed.length, naps]
  await until(() => naps > napped + 100, 'it would have leased them anew many times')
  isAway = false
  await until(() => renewed.length > before + 2, 'they are leased anew')
  expect(Math.max(...renewed.slice(before))).toBeLessThan(20)
})
