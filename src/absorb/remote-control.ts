/** Obeys Celery's remote control as far as a worker of ours can: `revoke`, and questions of `celery inspect`. */
import { randomUUID } from 'node:crypto'
import { hostname } from 'node:os'
import type { Broker } from '../amqp/broker.ts'
import { type ControlRequest, readRequest, replyExchange, requestExchange, writeReply } from '../celery/control.ts'
import { publish, received } from '../celery/transport.ts'
import type { Log } from '../core/log.ts'

/** What it needs; see the fields. */
export interface RemoteControlOptions {
  log: Log
  broker: Broker
  /** Names of tasks. */
  names: readonly string[]
  queues: readonly string[]
  slots: number
  /** Calls off these tasks, whether they run or not. */
  revoke(ids: readonly string[]): Promise<void>
}

/** Listens as long as its broker is open. */
export class RemoteControl {
  /** Its name among Celery's workers. */
  readonly name = `sluice-${process.pid}@${hostname()}`
  readonly #options: RemoteControlOptions
  #clock = 0

  constructor(options: RemoteControlOptions) {
    this.#options = options
  }

  async open(): Promise<void> {
    const { broker, log } = this.#options
    const queue = `${randomUUID()}.${requestExchange}`
    await broker.declare({
      exchanges: [{ name: requestExchange, type: 'fanout', durable: false }],
      queues: [{ name: queue, durable: false, exclusive: true }],
      bindings: [{ exchange: requestExchange, to: { queue } }],
    })
    await broker.consume(queue, { prefetch: 1, noAck: true }, async (delivery) => {
      try {
        await this.#obey(await readRequest(received(delivery)))
      } catch (error) {
        log.warn('a request of Celery to its workers cannot be carried out; it is dropped', { err: error })
      }
    })
  }

  async #obey(request: ControlRequest): Promise<void> {
    const { destination, ticket, replyTo } = request
    if (destination !== undefined && !destination.includes(this.name)) return
    const answer = await this.#answer(request)
    if (replyTo === undefined || ticket === undefined) return
    const reply = writeReply(this.name, answer, { ticket, clock: ++this.#clock })
    const to = { exchange: replyExchange, routingKey: replyTo, mandatory: false }
    await publish(this.#options.broker, reply, to)
  }

  async #answer({ method, arguments: given }: ControlRequest): Promise<unknown> {
    const { names, queues, slots } = this.#options
    if (method === 'ping') return { ok: 'pong' }
    if (method === 'hello') return { revoked: {}, clock: ++this.#clock }
    if (method === 'registered') return names
    if (method === 'active_queues') return queues.map((name) => ({ name }))
    if (method === 'stats') return { pid: process.pid, pool: { 'max-concurrency': slots } }
    if (method === 'revoke') return this.#revoke(given['task_id'])
    if (method === 'rate_limit') return { error: 'limits are set with `sluice limits set`, for the whole fleet' }
    return { error: `a worker of Sluice does not know the request ${method}` }
  }

  async #revoke(ids: unknown): Promise<unknown> {
    const all = (Array.isArray(ids) ? ids : [ids]).filter((id) => typeof id === 'string')
    await this.#options.revoke(all)
    return { ok: `tasks ${all.join(', ')} flagged as revoked` }
  }
}
