/** Opens what the absorber of a worker needs, when the worker starts. */
import { openBroker } from '../amqp/broker.ts'
import { isRedis } from '../celery/connect.ts'
import { openPlace } from '../celery/redis-transport.ts'
import { durationMs } from '../core/rate.ts'
import type { Store } from '../db/store.ts'
import type { RedisConnection } from '../redis/connect.ts'
import type { AnyTask, Sender } from '../tasks/task.ts'
import type { CeleryWork } from '../worker/celery-work.ts'
import { Absorber } from './absorber.ts'
import type { Post } from './post.ts'
import { RabbitPost } from './rabbit-post.ts'
import { openRedisPost } from './redis-post.ts'

/** What an absorber needs; see the fields. */
export interface AbsorbingOptions {
  store: Store
  sender: Sender
  tasks: readonly AnyTask[]
  celery: CeleryWork
  /** URL of the broker of Celery producers. @throws if there is none */
  broker(): string
  /** As `result_backend` of Celery: `rpc://`, or `redis://…`; undefined: a broker in Redis has them, too, else `rpc://`. */
  results: string | undefined
  /** Attempts at once. */
  slots: number
  /** Attempts that run now. */
  running(): number
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

/** Returns what absorbs. It connects when it starts. */
export function absorbing(options: AbsorbingOptions): Absorbing {
  let post: Post | undefined
  let redis: RedisConnection | undefined
  let absorber: Absorber | undefined
  const { celery, results, broker, ...others } = options
  const { queues, events = false, trackStarted: tracksStarted = false } = celery
  const stop = async () => absorber?.stop()
  const close = async () => {
    await absorber?.close()
    await redis?.close()
    await post?.close()
  }
  return {
    async start() {
      const url = broker()
      try {
        post = await postOf(url, celery, options.store)
        const place = results ?? (isRedis(url) ? url : 'rpc://')
        redis = place === 'rpc://' ? undefined : await openPlace(place)
        absorber = new Absorber({ ...others, post, redis, queues, events, tracksStarted })
        await absorber.start()
      } catch (error) {
        await close().catch(() => {})
        throw error
      }
    },
    stop,
    abort: stop,
    close,
  }
}

async function postOf(url: string, { keyPrefix, visibilityTimeout = '1h' }: CeleryWork, store: Store): Promise<Post> {
  const { log } = store
  if (isRedis(url))
    return openRedisPost({ url, prefix: keyPrefix ?? '', log, visibleAfterMs: durationMs(visibilityTimeout) })
  return new RabbitPost(await openBroker({ url, name: `sluice ${store.schema}`, log }))
}
