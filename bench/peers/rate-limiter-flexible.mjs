// rate-limiter-flexible on Redis. It has no queue, so the jobs are a list in the same Redis. Each of ten loops of a process takes a point of
// the limiter, then the next job; when it is denied it waits for as long as the limiter states.
import { setTimeout as sleep } from 'node:timers/promises'
import { scriptsRun, windowOf } from '../load.mjs'

const loops = 10
const list = 'jobs'

async function open({ url }, { rate }) {
  const { RateLimiterRedis } = await import('rate-limiter-flexible')
  const { Redis } = await import('ioredis')
  const redis = new Redis(url, { maxRetriesPerRequest: null })
  const { units: points, windowMs } = windowOf(rate)
  const limiter = new RateLimiterRedis({ storeClient: redis, points, duration: windowMs / 1_000 })
  /** Returns after how many ms to take a point again; 0: one was taken. */
  const take = () =>
    limiter.consume('vendor').then(
      () => 0,
      (denied) => {
        if (denied instanceof Error) throw denied
        return Math.max(denied.msBeforeNext, 1)
      },
    )
  return {
    sendMany: (inputs) => redis.rpush(list, ...inputs.map((input) => JSON.stringify(input))),
    async work(handle) {
      let isOver = false
      const loop = async () => {
        while (!isOver) {
          const waitMs = await take()
          if (waitMs > 0) await sleep(waitMs)
          else {
            const job = await redis.lpop(list)
            if (job === null) return
            await handle(JSON.parse(job))
          }
        }
      }
      const running = Array.from({ length: loops }, loop)
      return {
        stop() {
          isOver = true
          return Promise.all(running)
        },
      }
    },
    sharedCalls: () => scriptsRun(redis),
    close: () => redis.disconnect(),
  }
}

export default {
  name: 'rate-limiter-flexible',
  packages: ['rate-limiter-flexible', 'ioredis'],
  server: 'redis',
  settings: ({ rate }) => `RateLimiterRedis, ${rate}, ${loops} loops a process, no insurance limiter`,
  open,
}
