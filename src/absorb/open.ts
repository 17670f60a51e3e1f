/** Opens what the absorber of a worker needs, when the worker starts. */
import { openBroker } from '../amqp/broker.ts'
import { PatientStart } from '../amqp/patient-start.ts'
import { logTraffic } from '../amqp/traffic.ts'
import { isRedis } from '../celery/connect.ts'
import { openPlace } from '../celery/redis-transport.ts'
import { durationMs } from '../core/rate.ts'
import type { Store } from '../db/store.ts'
import type { RedisConnection } from '../redis/connect.ts'
import { celeryRoutes, type CeleryWork } from '../worker/celery-work.ts'
import { Absorber, type AbsorberOptions } from './absorber.ts'
import type { CeleryBroker } from './broker.ts'
import { RabbitCeleryBroker } from './rabbit-broker.ts'
import { openRedisBroker } from './redis-broker.ts'

/** Parameters of `createAbsorbing`; see the fields. */
export interface AbsorbingOptions extends Pick<
  AbsorberOptions,
  'store' | 'sender' | 'tasks' | 'slots' | 'running' | 'alarms'
> {
  celery: CeleryWork
  /** URL of the broker of Celery producers. @throws if there is none */
  broker(): string
  /** As `result_backend` of Celery: `rpc://`, or `redis://…`; undefined: a broker in Redis has them, too, else `rpc://`. */
  results: string | undefined
}

/** Turns messages of Celery producers into jobs, beside a worker. */
export interface Absorbing {
  start(): Promise<void>
  /** Reads no more. */
  stop(): Promise<void>
  abort(): Promise<void>
  /** Sends the results of what has ended, and closes the connections. */
  close(): Promise<void>
}

/** It is called so in the log. */
const reader = 'what reads the queues of Celery producers'

/** Returns what absorbs. It connects when it starts; a RabbitMQ that is away is waited for. */
export function createAbsorbing(options: AbsorbingOptions): Absorbing {
  const { clock, log } = options.store
  let open: Open | undefined
  const start = async () => {
    open = await openAbsorber(options)
  }
  const opening = new PatientStart({ who: reader, clock, log, start })
  const stop = async () => {
    await opening.end()
    await open?.absorber.stop()
  }
  return {
    start: () => opening.begin(),
    stop,
    abort: stop,
    async close() {
      await opening.end()
      await open?.close()
    },
  }
}

/** An absorber, and its connections. */
interface Open {
  absorber: Absorber
  close(): Promise<void>
}

/** Leaves no connection if it fails. */
async function openAbsorber(options: AbsorbingOptions): Promise<Open> {
  const { celery, results, broker: urlOf, ...others } = options
  const { queues, events = false, trackStarted: tracksStarted = false, routes = {} } = celery
  const url = urlOf()
  const broker = await brokerOf(url, celery, options.store)
  let redis: RedisConnection | undefined
  let absorber: Absorber | undefined
  const close = async () => {
    await absorber?.close()
    await redis?.close()
    await broker.close()
    logTraffic(options.store.log, reader, broker.traffic, [absorber?.calls ?? 0, 'calls'])
  }
  try {
    const place = results ?? (isRedis(url) ? url : 'rpc://')
    redis = place === 'rpc://' ? undefined : await openPlace(place)
    const queueOf = celeryRoutes(routes)
    absorber = new Absorber({ ...others, broker, redis, queues, queueOf, events, tracksStarted })
    await absorber.start()
    return { absorber, close }
  } catch (error) {
    await close().catch(() => {})
    throw error
  }
}

async function brokerOf(
  url: string,
  { keyPrefix, visibilityTimeout = '1h' }: CeleryWork,
  store: Store,
): Promise<CeleryBroker> {
  const { log } = store
  if (isRedis(url))
    return openRedisBroker({ url, prefix: keyPrefix ?? '', log, visibleAfterMs: durationMs(visibilityTimeout) })
  return new RabbitCeleryBroker(await openBroker({ url, name: `sluice ${store.schema}`, log }))
}
