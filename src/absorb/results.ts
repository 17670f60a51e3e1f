/** Sends results to the producers of Celery that wait for them, and the tasks that follow a result. */
import type { Broker } from '../amqp/broker.ts'
import { resultKey, resultMessage, type TaskResult, writeResult } from '../celery/result.ts'
import { writeTask } from '../celery/task-message.ts'
import { writeTime } from '../celery/time.ts'
import { publish } from '../celery/transport.ts'
import type { Clock } from '../core/clock.ts'
import type { Log } from '../core/log.ts'
import type { RedisConnection } from '../redis/connect.ts'
import { type Call, followersOf } from './call.ts'

/** What it needs; see the fields. */
export interface ResultsOptions {
  clock: Clock
  log: Log
  broker: Broker
  /** Where results go; undefined: to the queues that the calls name (rpc). */
  redis: RedisConnection | undefined
}

/** As Celery keeps results. */
const keptS = '86400'

/** The way of results to their producers. */
export class Results {
  readonly #options: ResultsOptions

  constructor(options: ResultsOptions) {
    this.#options = options
  }

  /** Sends a result to where the producer looks for it. The errors are those of the broker, or of Redis. */
  async send(result: TaskResult, { replyTo, ignoreResult, about }: Call): Promise<void> {
    const { broker, redis, clock } = this.#options
    if (ignoreResult) return
    if (redis !== undefined) {
      const text = writeResult(result, { ...about, date_done: writeTime(clock.wallMs()) })
      const key = resultKey(result.id)
      await redis.send('SETEX', [key, keptS, text])
      await redis.send('PUBLISH', [key, text])
    } else if (replyTo !== null) {
      // The producer may be gone, and its queue with it.
      await publish(broker, resultMessage(result), { exchange: '', routingKey: replyTo, mandatory: false })
    }
  }

  /** Sends the tasks that follow a call with this result. One without a queue is logged, and dropped. The errors are those of the broker. */
  async follow(id: string, call: Call, result: TaskResult): Promise<void> {
    const { broker, clock, log } = this.#options
    for (const { message, address } of followersOf(id, call, result)) {
      const wire = await writeTask(message, { nowMs: clock.wallMs() })
      try {
        await publish(broker, wire, address)
      } catch (error) {
        if ((error as { code?: string }).code !== 'SLUICE_BROKER_UNROUTED') throw error
        const about = { task: message.task, follows: id, queue: address.routingKey }
        log.error('a task that follows another one has no queue, and is dropped', about)
      }
    }
  }
}
