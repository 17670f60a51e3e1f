import { expect, it } from 'vitest'
import { listenRedis } from '../../src/redis/connect.ts'
import { startProxy } from '../servers/proxy.ts'
import { startRedis } from '../servers/redis.ts'
import { connectRedis } from '../servers/resp.ts'
import { until } from '../until.ts'

it('a listener listens again whose connection was lost while it subscribed again', async ({ onTestFinished }) => {
  const redis = await startRedis()
  const proxy = await startProxy({ port: redis.port })
  const publisher = await connectRedis(redis.port)
  const heard: string[] = []
  const listening = await listenRedis(proxy.url(redis.url), 'news', (text) => heard.push(text))
  onTestFinished(async () => {
    listening.close()
    publisher.close()
    await proxy.close()
    await redis.close()
  })
  const lost = proxy.swallow({ when: 'subscribe', leave: 'closed' })
  proxy.reset()
  await lost
  await until(async () => (await publisher.send('PUBLISH', ['news', 'one'])) === 1, 'it listens', 15_000)
  await until(() => heard.length > 0)
  expect(heard).toEqual(['one'])
})
