/** Our own connection to Redis, by ioredis, set so that every fault is noticed soon and the client sends nothing twice. */
import type { Cluster, Redis } from 'ioredis'
import { systemClock } from '../core/clock.ts'
import { StoreError, UsageError, codeOf } from '../core/errors.ts'
import type { Store } from '../db/store.ts'
import { addressOf, type RedisAddress } from './address.ts'
import type { RedisClient } from './client.ts'

/** A connection that can be opened again, and closed. */
export interface RedisConnection extends RedisClient {
  /** Loads the client, so that it can be opened. @throws UsageError SLUICE_MISSING_PEER */
  load(): Promise<void>
  /** Opens the connection, unless it is open; before, nothing can be sent. Rejects if that fails now, and goes on trying. */
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

/** How often the client tries again, and its time-outs. */
const common = {
  lazyConnect: true,
  // Sluice itself repeats a script whose reply was lost, with the same id; the client must not.
  autoResendUnfulfilledCommands: false,
  maxRetriesPerRequest: 0,
  enableOfflineQueue: false,
  // Nobody would catch its error, which ends the process, and it would be lost with its connection (`listenRedis`).
  autoResubscribe: false,
  connectTimeout: 2_000,
  // Each call has its own time-out; an epoch with many buckets takes seconds to begin.
  commandTimeout: 10_000,
  // Without an answer to a command for this time, the connection is half-open.
  socketTimeout: 5_000,
  retryStrategy: () => 50,
}
const listenBeatMs = 2_000
/** The client's own text. */
const notYet = 'Connection is closed.'
/** Runs a command without keys on the node of a cluster that has the limits. */
const routed = 'return redis.call(unpack(ARGV))'
/** A key in the slot of all limits (docs/redis-protocol.md). */
const slotKey = '{limits}'

/** A connection to an address (`addressOf`); opened again and again until it is closed. */
class Connection implements RedisConnection {
  readonly #address: RedisAddress
  #redis: Redis | Cluster | undefined
  #cause: Error | undefined
  #isClosed = false

  /** @throws UsageError SLUICE_BAD_URL */
  constructor(url: string) {
    this.#address = addressOf(url)
  }

  async load(): Promise<void> {
    if (this.#redis !== undefined || this.#isClosed) return
    const redis = createClient(this.#address, await loadClients())
    // Each command reports its own error; without a listener an error would end the process.
    redis.on('error', (error) => (this.#cause = error))
    redis.on('ready', () => (this.#cause = undefined))
    // The client gives up for good when it is to leave a server while it is looking for the next one, as after a failover.
    redis.on('end', () => systemClock.after(common.retryStrategy(), () => void this.open().catch(() => {})))
    this.#redis = redis
  }

  async open(): Promise<void> {
    await this.load()
    const redis = this.#redis
    if (this.#isClosed || redis === undefined || redis.status === 'ready') return
    // Otherwise it is being opened, again and again.
    if (!['wait', 'end'].includes(redis.status)) this.#explain(new Error(notYet))
    await redis.connect().catch((error: Error) => this.#explain(error))
  }

  async send(command: string, args: readonly string[]): Promise<unknown> {
    if (this.#redis === undefined) throw new StoreError('SLUICE_REDIS_UNREACHABLE', 'Redis is not connected yet')
    return this.#call(this.#redis, command, args).catch((error: Error) => this.#explain(error))
  }

  #call(redis: Redis | Cluster, command: string, args: readonly string[]): Promise<unknown> {
    if (this.#address.kind !== 'cluster') return redis.call(command, ...args)
    // Without a key a cluster's client would choose any node, which has another clock and another history.
    if (command === 'TIME' || command === 'INFO') return redis.call('EVAL', routed, '1', slotKey, command, ...args)
    const [text = '', count, ...more] = args
    if (command === 'EVAL' && count === '0') return redis.call('EVAL', text, '1', slotKey, ...more)
    return redis.call(command, ...args)
  }

  reset(): void {
    this.#redis?.disconnect(true)
  }

  async close(): Promise<void> {
    this.#isClosed = true
    this.#redis?.disconnect()
  }

  #explain(error: Error): never {
    if (!/stream isn't writeable|connection is closed|cluster isn't ready|failed to refresh slots/i.test(error.message))
      throw error
    const { kind, hosts } = this.#address
    const at = hosts.map(({ host, port }) => `${host}:${port}`).join(', ')
    const cause = this.#cause
    const why = cause === undefined ? '' : `: ${cause.message || String(codeOf(cause))}`
    const text = `there is no connection to Redis at ${kind === 'server' ? '' : `the ${kind} `}${at}${why}`
    throw new StoreError('SLUICE_REDIS_UNREACHABLE', text, { cause: error })
  }
}

/** What listens to a channel. */
export interface Listening {
  /** Redis's id of its connection; undefined: there is none. */
  readonly id: string | undefined
  close(): void
}

/**
 * Listens to a channel, on a connection of its own that is opened again until it is closed.
 * @throws UsageError SLUICE_BAD_URL, SLUICE_MISSING_PEER; the client's errors, if that fails now
 */
export async function listenRedis(url: string, channel: string, onText: (text: string) => void): Promise<Listening> {
  // By protocol 3 the client would drop what Redis itself reports.
  const redis = createClient(addressOf(url), await loadClients(), { protocol: 2 })
  let isClosed = false
  let id: string | undefined
  const connectAgain = () => {
    if (!isClosed) redis.connect().catch(() => {})
  }
  const subscribeAgain = () => void redis.subscribe(channel).catch(() => {})
  // Before the subscription, behind which Redis takes no other command.
  const readId = () =>
    void redis
      .call('CLIENT', 'ID')
      .then((found) => (id = String(found)))
      .catch(() => {})
  redis.on('error', () => {})
  redis.on('close', () => (id = undefined))
  redis.on('message', (_, text: string) => onText(text))
  redis.on('end', () => systemClock.after(common.retryStrategy(), connectAgain))
  // A half-open connection is noticed only by an answer that does not come. A subscription may be repeated, and one that
  // failed must be.
  const beat = (): void => {
    disarm = systemClock.after(listenBeatMs, () => {
      subscribeAgain()
      beat()
    })
  }
  let disarm = () => {}
  const close = () => {
    isClosed = true
    disarm()
    redis.disconnect()
  }
  try {
    await redis.connect()
    readId()
    await redis.subscribe(channel)
  } catch (error) {
    close()
    throw error
  }
  redis.on('ready', () => {
    readId()
    subscribeAgain()
  })
  beat()
  return {
    get id() {
      return id
    },
    close,
  }
}

function createClient(
  address: RedisAddress,
  { Redis, Cluster }: Clients,
  more: { protocol?: 2 } = {},
): Redis | Cluster {
  const { kind, hosts, master: name, username, password, sentinelPassword, db, tls } = address
  const options = {
    ...common,
    ...more,
    ...(username === undefined ? {} : { username }),
    ...(password === undefined ? {} : { password }),
    ...(tls === undefined ? {} : { tls }),
  }
  if (kind === 'cluster') {
    const cluster = new Cluster(hosts, {
      redisOptions: options,
      lazyConnect: true,
      enableOfflineQueue: false,
      clusterRetryStrategy: common.retryStrategy,
      slotsRefreshInterval: 5_000,
      // A command whose reply was lost is not sent again, as above.
      retryDelayOnFailover: 0,
      retryDelayOnClusterDown: 0,
    })
    const refresh = cluster.refreshSlotsCache.bind(cluster)
    // When the client is closed while it refreshes its slots, it would go on to refresh them, and the process would never end.
    cluster.refreshSlotsCache = (done) =>
      refresh((error) => (['disconnecting', 'close', 'end'].includes(cluster.status) ? undefined : done?.(error)))
    return cluster
  }
  if (kind === 'server') return new Redis({ ...options, ...hosts[0], db })
  return new Redis({
    ...options,
    sentinels: hosts,
    name,
    db,
    sentinelRetryStrategy: common.retryStrategy,
    sentinelCommandTimeout: 2_000,
    // Leaves a master that another one has replaced, even if it goes on.
    failoverDetector: true,
    ...(sentinelPassword === undefined ? {} : { sentinelPassword }),
    ...(tls === undefined ? {} : { enableTLSForSentinelMode: true, sentinelTLS: tls }),
  })
}

type Clients = Pick<typeof import('ioredis'), 'Redis' | 'Cluster'>

async function loadClients(): Promise<Clients> {
  try {
    const { Redis, Cluster } = await import('ioredis')
    return { Redis, Cluster }
  } catch (error) {
    throw new UsageError('SLUICE_MISSING_PEER', 'limits in Redis need the package ioredis: npm install ioredis@6', {
      cause: error,
    })
  }
}

/** Warns, if limits are shared in Redis, that other programs do not see the grants of a process without Redis. */
export async function warnOfSharing(store: Store): Promise<void> {
  const [row] = await store.query('select 1 from sluice.shared')
  const text =
    'limits of this database are shared in Redis, but this process has no Redis (REDIS_URL): other programs do not see what it is granted. If no process uses Redis any more, run `sluice limits redis --stores 0`'
  if (row !== undefined) store.log.warn(text)
}
