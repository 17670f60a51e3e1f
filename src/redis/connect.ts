/** Our own connection to Redis, by ioredis, set so that every fault is noticed soon and the client sends nothing twice. */
import type { Redis } from 'ioredis'
import { StoreError, UsageError } from '../core/errors.ts'
import type { RedisClient } from './client.ts'

/** A connection that can be opened again, and closed. */
export interface RedisConnection extends RedisClient {
  /** Loads the client, so that it can be opened. @throws UsageError SLUICE_MISSING_PEER */
  load(): Promise<void>
  /** Opens the connection, once; before, nothing can be sent. Rejects if that fails now, and goes on trying. */
  open(): Promise<void>
  /** Closes it and opens another, because its replies may be mixed up, or it is half-open. */
  reset(): void
  close(): Promise<void>
}

/** Returns a connection to a URL, or one that the caller opened and closes itself. @throws UsageError SLUICE_BAD_URL */
export function openRedis(given: string | RedisClient | undefined): RedisConnection | undefined {
  if (given === undefined || given === '') return undefined
  if (typeof given === 'string') return new Connection(given)
  const nothing = async () => {}
  return {
    send: (command, args) => given.send(command, args),
    load: nothing,
    open: nothing,
    reset() {},
    close: nothing,
  }
}

/** `redis://[user:password@]host[:port][/db]`, `rediss://` with TLS; opened again and again until it is closed. */
class Connection implements RedisConnection {
  readonly #url: string
  #redis: Redis | undefined
  #cause: Error | undefined
  #isClosed = false

  /** @throws UsageError SLUICE_BAD_URL */
  constructor(url: string) {
    if (!URL.canParse(url) || !/^rediss?:\/\/[^/]/.test(url))
      throw new UsageError('SLUICE_BAD_URL', 'REDIS_URL must be redis://host:port/db (or rediss:// with TLS)')
    this.#url = url
  }

  async load(): Promise<void> {
    if (this.#redis !== undefined || this.#isClosed) return
    const redis = new (await clientClass())(this.#url, {
      lazyConnect: true,
      // Sluice itself repeats a script whose reply was lost, with the same id; the client must not.
      autoResendUnfulfilledCommands: false,
      maxRetriesPerRequest: 0,
      enableOfflineQueue: false,
      connectTimeout: 2_000,
      // Each call has its own time-out; an epoch with many buckets takes seconds to begin.
      commandTimeout: 10_000,
      // Without an answer to a command for this time, the connection is half-open.
      socketTimeout: 5_000,
      retryStrategy: () => 50,
    })
    // Each command reports its own error; without a listener an error would end the process.
    redis.on('error', (error) => (this.#cause = error))
    redis.on('ready', () => (this.#cause = undefined))
    this.#redis = redis
  }

  async open(): Promise<void> {
    await this.load()
    if (this.#isClosed) return
    await this.#redis?.connect().catch((error: Error) => this.#explain(error))
  }

  async send(command: string, args: readonly string[]): Promise<unknown> {
    if (this.#redis === undefined) throw new StoreError('SLUICE_REDIS_UNREACHABLE', 'Redis is not connected yet')
    return this.#redis.call(command, ...args).catch((error: Error) => this.#explain(error))
  }

  reset(): void {
    this.#redis?.disconnect(true)
  }

  async close(): Promise<void> {
    this.#isClosed = true
    this.#redis?.disconnect()
  }

  #explain(error: Error): never {
    if (!/stream isn't writeable|connection is closed/i.test(error.message)) throw error
    const { hostname, port } = new URL(this.#url)
    const cause = this.#cause
    const why = cause === undefined ? '' : `: ${cause.message || String((cause as { code?: unknown }).code)}`
    const text = `there is no connection to Redis at ${hostname}:${port || 6379}${why}`
    throw new StoreError('SLUICE_REDIS_UNREACHABLE', text, { cause: error })
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
