/** Finds the broker that a URL means. */
import type { Log } from '../core/log.ts'
import type { Carrier } from './carrier.ts'
import { redisCarrier } from './redis-transport.ts'
import { amqpCarrier } from './transport.ts'

/** How to reach the broker of Celery's workers. */
export interface Connecting {
  /** URL of RabbitMQ, or of Redis. */
  url: string
  /** Stands before all keys of a Redis. */
  prefix?: string | undefined
  /** Shown in RabbitMQ's tools. */
  name: string
  log: Log
}

/** True for the URL of a Redis. */
export const isRedis = (url: string): boolean => /^\s*rediss?[:+]/.test(url)

/**
 * Connects to a broker.
 * @throws UsageError SLUICE_BAD_URL, SLUICE_MISSING_PEER; StoreError SLUICE_BROKER_UNREACHABLE, SLUICE_REDIS_UNREACHABLE
 */
export function openCarrier({ url, prefix = '', name, log }: Connecting): Promise<Carrier> {
  return isRedis(url) ? redisCarrier({ url, prefix, log }) : amqpCarrier({ url, name, log })
}
