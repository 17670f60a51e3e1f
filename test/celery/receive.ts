/** Consumers of messages in a Redis, which end with the test. */
import { onTestFinished } from 'vitest'
import {
  consumeRedis,
  RedisConsumer,
  type RedisConsumerOptions,
  type RedisDelivery,
} from '../../src/celery/redis-consumer.ts'
import { readTask } from '../../src/celery/task-message.ts'
import { silent } from '../../src/core/log.ts'
import type { RedisConnection } from '../../src/redis/connect.ts'

/** Before all keys. */
export const prefix = 'shop:'

/** A consumer and what it has received. @param on a connection; default: its own */
export async function receiveFrom(url: string, more: Partial<RedisConsumerOptions>, on?: RedisConnection) {
  const got: RedisDelivery[] = []
  const onMessage = (delivery: RedisDelivery) => got.push(delivery)
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
export const first = async ({ message }: RedisDelivery) => (await readTask(message)).args[0]
