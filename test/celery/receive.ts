/** Consumers of messages in a Redis, which end with the test. */
import { afterAll, beforeAll, beforeEach, onTestFinished } from 'vitest'
import { openProducer, type Producer } from '../../src/celery/index.ts'
import {
  consumeRedis,
  RedisConsumer,
  type RedisConsumerOptions,
  type RedisIncoming,
} from '../../src/celery/redis-consumer.ts'
import { readTask } from '../../src/celery/task-message.ts'
import { silent } from '../../src/core/log.ts'
import type { RedisConnection } from '../../src/redis/connect.ts'
import { type RedisServer, startRedis } from '../servers/redis.ts'
import { connectRedis } from '../servers/resp.ts'

/** Before all keys. */
export const prefix = 'shop:'

/** The Redis of the tests of one file. */
export interface RedisStage {
  redis: RedisServer
  /** Sends to it. */
  producer: Producer
  /** Looks into it. */
  admin: Awaited<ReturnType<typeof connectRedis>>
}

/** Starts a Redis for the tests of this file, each of which finds it empty. @param ready called once it is there */
export function useRedis(ready: (stage: RedisStage) => void): void {
  const stage: Partial<RedisStage> = {}
  beforeAll(async () => {
    const redis = (stage.redis = await startRedis())
    const producer = (stage.producer = await openProducer({ broker: redis.url, keyPrefix: prefix, results: 'none' }))
    const admin = (stage.admin = await connectRedis(redis.port))
    ready({ redis, producer, admin })
  })
  beforeEach(() => stage.admin?.send('FLUSHALL', []))
  afterAll(async () => {
    stage.admin?.close()
    await stage.producer?.close()
    await stage.redis?.close()
  })
}

/** A consumer and what it has received. @param on a connection; default: its own */
export async function receiveFrom(url: string, more: Partial<RedisConsumerOptions>, on?: RedisConnection) {
  const got: RedisIncoming[] = []
  const onMessage = (incoming: RedisIncoming) => got.push(incoming)
  const given = {
    url,
    prefix,
    log: silent,
    queues: ['celery'],
    prefetch: 1,
    visibleAfterMs: 3_600_000,
    onMessage,
    ...more,
  }
  const consumer = on === undefined ? await consumeRedis(given) : new RedisConsumer(on, given)
  onTestFinished(() => consumer.close())
  return { got, consumer }
}

/** The first argument of what was received. */
export const first = async ({ message }: RedisIncoming) => (await readTask(message)).args[0]
