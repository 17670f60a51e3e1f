/** How a worker without a store is opened: what it needs, and what it refuses. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { type AnyTask, limit, task } from '../../src/index.ts'
import { type RedisServer, startRedis } from '../servers/redis.ts'
import { freshBroker } from '../servers/rabbitmq.ts'
import { direct } from './stage.ts'

const anything = z.unknown()
let redis: RedisServer
let places: { celeryBroker: string; redis: string }
beforeAll(async () => {
  redis = await startRedis()
  places = { celeryBroker: (await freshBroker()).url, redis: redis.url }
})
afterAll(() => redis.close())

describe('a worker without a store', () => {
  const plain = task('plain', { input: anything, run: () => 0 })
  const limitedTask = task('limited', { input: anything, limits: [limit('one', { rate: '1/s' })], run: () => 0 })

  it('names what is missing', async (context) => {
    const { celeryBroker } = places
    const refused = (tasks: AnyTask[], options: object) =>
      direct(context, tasks, { celeryBroker, redis: '', ...options }).then(
        () => 'started',
        (error: { code: string }) => error.code,
      )
    expect(await refused([limitedTask], {})).toBe('SLUICE_NO_REDIS')
    expect(await refused([plain], { celeryBroker: undefined })).toBe('SLUICE_NO_BROKER')
    expect(await refused([plain], { celery: [] })).toBe('SLUICE_BAD_OPTION')
    expect(await refused([], {})).toBe('SLUICE_NO_TASKS')
    const pool = task('pool', {
      input: anything,
      limits: [limit('p', { rate: '1/s', pool: ['a', 'b'] })],
      run: () => 0,
    })
    expect(await refused([pool], { redis: redis.url })).toBe('SLUICE_NEEDS_STORE')
  })

  it('goes by what a database has published, and takes from nothing else there', async (context) => {
    const own = await startRedis()
    context.onTestFinished(() => own.close())
    const { Redis } = await import('ioredis')
    const client = new Redis(own.url)
    const history = /master_replid:(\w+)/.exec(await client.info('replication'))?.[1] ?? ''
    const epoch = { id: 'e1', history, at: '1000000', most: '0', owner: 'a database' }
    await client.hset('sluice:{limits}:epoch', epoch)
    await expect(direct(context, [limitedTask], { ...places, redis: own.url })).rejects.toMatchObject({
      code: 'SLUICE_NO_SUCH_LIMIT',
    })
    expect(await client.hget('sluice:{limits}:epoch', 'owner')).toBe('a database')
    client.disconnect()
  })
})
