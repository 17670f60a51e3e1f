/** A connection to Redis of our own, by ioredis, set so that every fault settles soon and nothing is sent twice by itself. */
import type { Redis } from 'ioredis'
import { StoreError, UsageError } from '../core/errors.ts'
import type { RedisClient } from './client.ts'

/** A connection that can be made anew, and ended. */
export interface RedisConnection extends RedisClient {
  /** Opens it; before, nothing can be sent. Once. It rejects when that cannot be done now, and goes on trying. */
  open(): Promise<void>
  /** Its replies may be mixed up, or it is half-open: it is closed, and another opened. */
  reset(): void
  close(): Promise<void>
}

/** Where a URL leads, or a connection that somebody else opened, who closes it, too. @throws as `connectRedis` */
export async function openRedis(given: string | RedisClient | undefined): Promise<RedisConnection | undefined> {
  if (given === undefined || given === '') return undefined
  if (typeof given === 'string') return connectRedis(given)
  return {
    send: (command, args) => given.send(command, args),
    open: async () => {},
    reset: () => {},
    close: async () => {},
  }
}

/**
 * Makes one; it is opened again and again for as long as it is not closed.
 * @param url `redis://[user:password@]host[:port][/db]`, `rediss://` with TLS
 * @throws UsageError SLUICE_BAD_URL, SLUICE_MISSING_PEER
 */
async function connectRedis(url: string): Promise<RedisConnection> {
  if (!URL.canParse(url) || !/^rediss?:\/\/[^/]/.test(url))
    throw new UsageError('SLUICE_BAD_URL', 'REDIS_URL is no redis://host:port/db (or rediss:// with TLS)')
  const redis = new (await clientClass())(url, {
    lazyConnect: true,
    // A script that ran although its reply was lost is asked for again by us, with the same id; the client must not.
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    enableOfflineQueue: false,
    connectTimeout: 2_000,
    commandTimeout: 1_000,
    // Nothing was heard for so long though something was asked: half-open.
    socketTimeout: 3_000,
    retryStrategy: () => 50,
  })
  let cause: Error | undefined
  // Each command says so by itself; without a listener it would end the process.
  redis.on('error', (error) => (cause = error))
  redis.on('ready', () => (cause = undefined))
  const explain = (error: Error): never => {
    if (!/stream isn't writeable|connection is closed/i.test(error.message)) throw error
    const { hostname, port } = new URL(url)
    const why = cause === undefined ? '' : `: ${cause.message || String((cause as { code?: unknown }).code)}`
    const text = `there is no connection to Redis at ${hostname}:${port || 6379}${why}`
    throw new StoreError('SLUICE_REDIS_UNREACHABLE', text, { cause: error })
  }
  return {
    open: () => redis.connect().catch(explain),
    send: (command, args) => redis.call(command, ...args).catch(explain),
    reset: () => redis.disconnect(true),
    close: async () => {
      redis.disconnect()
    },
  }
}

async function clientClass(): Promise<typeof Redis> {
  try {
    return (await import('ioredis')).Redis
  } catch (error) {
    throw new UsageError('SLUICE_MISSING_PEER', 'limits in Redis need the package ioredis: npm install ioredis@6', {
      cause: error,
    })
  }
}
