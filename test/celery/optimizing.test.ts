/** How many messages a stock worker holds, as in Celery's guide to optimizing, measured on Redis; long form only. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Control, openControl, openProducer, type Producer } from '../../src/celery/index.ts'
import { heldKey } from '../../src/celery/kombu.ts'
import { findPython } from '../examples/interpreter.ts'
import { isLong } from '../long.ts'
import { type RedisServer, startRedis } from '../servers/redis.ts'
import { connectRedis } from '../servers/resp.ts'
import { until } from '../until.ts'
import { startCelery } from './worker.ts'

const slots = 2
let redis: RedisServer
let producer: Producer
let control: Control
let admin: Awaited<ReturnType<typeof connectRedis>>
let python: string

beforeAll(async () => {
  if (!isLong) return
  python = await findPython('celery', 'redis')
  redis = await startRedis()
  producer = await openProducer({ broker: redis.url, results: 'none' })
  control = await openControl({ broker: redis.url })
  admin = await connectRedis(redis.port)
})
afterAll(async () => {
  admin?.close()
  await control?.close()
  await producer?.close()
  await redis?.close()
})

/** Runs a worker of two slots that finds the queue as it is, until `done` resolves. */
async function withWorker<T>(multiplier: number, env: Record<string, string>, done: () => Promise<T>): Promise<T> {
  const all = { BROKER: redis.url, BACKEND: redis.url, NOTES: redis.url, ...env }
  const flags = ['-c', String(slots), '-Q', 'none', '--prefetch-multiplier', String(multiplier)]
  const worker = startCelery({ python, app: 'worker', name: `m${multiplier}`, env: all, flags })
  try {
    await worker.ready(control)
    await control.request('add_consumer', { queue: 'celery' }, { workers: [worker.name], within: '20s' })
    return await done()
  } finally {
    await worker.kill()
  }
}

const length = async (command: string, key: string) => Number(await admin.send(command, [key]))

describe.runIf(isLong)('a stock worker', () => {
  it.each([
    [1, 'early', 2 * slots],
    [1, 'late', slots],
    [4, 'early', 5 * slots],
    [4, 'late', 4 * slots],
  ])(
    'with multiplier %i and %s acks takes as many messages off the queue as its slots and the multiplier allow',
    async (multiplier, acks, most) => {
      await admin.send('FLUSHALL', [])
      for (let i = 0; i < 40; i++) await producer.delay('slow', [600], { ignoreResult: true })
      const taken = await withWorker(multiplier, acks === 'late' ? { LATE: '1' } : {}, async () => {
        let last = -1
        // Twice the same, with everything begun that can be.
        await until(async () => {
          const now = 40 - (await length('LLEN', 'celery'))
          const isSteady = now === last && now >= most
          last = now
          return isSteady
        })
        return { off: last, held: await length('HLEN', heldKey) }
      })
      console.info(`multiplier ${multiplier}, ${acks} acks: ${taken.off} off the queue, ${taken.held} not acknowledged`)
      expect(taken.off).toBe(most)
    },
  )
})
