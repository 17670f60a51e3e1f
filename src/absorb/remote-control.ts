/** Obeys Celery's remote control as far as a worker of ours can, and refuses the rest with what to do instead. */
import { type ControlRequest, isMeant, readRequest, replyExchange, writeReply } from '../celery/control.ts'
import type { WireMessage } from '../celery/wire.ts'
import type { Log } from '../core/log.ts'
import type { LogicalTime } from '../celery/logical-time.ts'
import type { CeleryBroker } from './broker.ts'

/** Parameters of `RemoteControl`; see the fields. */
export interface RemoteControlOptions {
  log: Log
  broker: CeleryBroker
  /** Its name among Celery's workers. */
  name: string
  time: LogicalTime
  /** Names of tasks. */
  names: readonly string[]
  queues: readonly string[]
  slots: number
  /** Names of the limits of a task; undefined: there is no such task. */
  limitsOf(task: string): readonly string[] | undefined
  /** Calls off these tasks, unless they run; with `isTerminated` those that run, too. */
  revoke(ids: readonly string[], isTerminated: boolean): Promise<void>
  /** How many calls it has reported, by task. */
  totals: Readonly<Record<string, number>>
  /** Answers to further requests. */
  more: Answers
}

type Given = Readonly<Record<string, unknown>>

/** Answers to requests, by Celery's names of them. */
export type Answers = Readonly<Record<string, (given: Given) => unknown>>

/** Units of Celery's rates, as ours. */
const units: Readonly<Record<string, string>> = { s: 's', m: 'min', h: 'h' }
const stopped = 'a worker of Sluice is stopped by whoever runs it: end its process with SIGTERM'
const slotted = 'the attempts at once of a worker of Sluice are set where it starts: --concurrency'
const queued = 'the queues of a worker of Sluice are set where it starts: --celery'
/** Requests that are refused, and what to do instead. */
const refusals: Readonly<Record<string, string>> = {
  shutdown: stopped,
  pool_restart: stopped,
  pool_grow: slotted,
  pool_shrink: slotted,
  autoscale: slotted,
  add_consumer: queued,
  cancel_consumer: queued,
  time_limit: 'the time limit of a task is its `timeout`, in the code of the task',
}

/** Listens as long as its broker is open. */
export class RemoteControl {
  readonly #options: RemoteControlOptions
  readonly #answers: Answers

  constructor(options: RemoteControlOptions) {
    const { names, queues, slots, time, totals, more } = options
    this.#options = options
    const refused = Object.entries(refusals).map(([method, error]) => [method, () => ({ error })] as const)
    this.#answers = {
      ping: () => ({ ok: 'pong' }),
      hello: () => ({ revoked: {}, clock: time.nextTime() }),
      clock: () => ({ clock: time.nextTime() }),
      registered: () => names,
      dump_tasks: () => names,
      active_queues: () => queues.map((name) => ({ name, routing_key: name, durable: true })),
      stats: () => ({
        pid: process.pid,
        clock: String(time.nextTime()),
        pool: { 'max-concurrency': slots },
        total: totals,
      }),
      revoke: ({ task_id: ids, terminate }) => this.#revoke(ids, terminate === true),
      terminate: ({ task_id: ids }) => this.#revoke(ids, true),
      rate_limit: (given) => this.#refuseRateLimit(given),
      ...Object.fromEntries(refused),
      ...more,
    }
  }

  /** Begins to listen. The errors are those of the broker. */
  async open(): Promise<void> {
    await this.#options.broker.listen((message) => this.#handleRequest(message))
  }

  async #handleRequest(message: WireMessage): Promise<void> {
    try {
      // Its `expires` is for answers alone, as with Celery's workers: the clocks of its sender and of this machine may differ.
      this.#options.time.recordTime(message.headers['clock'])
      const request = await readRequest(message)
      if (isMeant(request, this.#options.name)) await this.#obey(request)
    } catch (error) {
      const text = 'a request of Celery to its workers cannot be carried out; it is dropped'
      this.#options.log.warn(text, { err: error })
    }
  }

  async #obey({ method, arguments: given, ticket, replyTo }: ControlRequest): Promise<void> {
    const known = Object.hasOwn(this.#answers, method) ? this.#answers[method] : undefined
    const answer = (await known?.(given)) ?? { error: `a worker of Sluice does not know the request ${method}` }
    if (replyTo === undefined || ticket === undefined) return
    const reply = writeReply(this.#options.name, answer, { ticket, clock: this.#options.time.nextTime() })
    await this.#options.broker.reply(reply, { exchange: replyExchange, routingKey: replyTo })
  }

  async #revoke(ids: unknown, isTerminated: boolean): Promise<unknown> {
    const all = (Array.isArray(ids) ? ids : [ids]).filter((id) => typeof id === 'string' && !id.includes('\u0000'))
    await this.#options.revoke(all as string[], isTerminated)
    return { ok: isTerminated ? `terminate: ${all.join(', ')}` : `tasks ${all.join(', ')} flagged as revoked` }
  }

  /** Celery's rates hold for one worker, and would loosen, silently, what protects a vendor. */
  #refuseRateLimit({ task_name: task, rate_limit: rate }: Given): unknown {
    const { names, limitsOf } = this.#options
    if (typeof task !== 'string' || !names.includes(task)) return { error: 'unknown task' }
    const limits = limitsOf(task)
    if (limits?.length === 0) return { error: `the task "${task}" has no limit: give it one in its code` }
    const [, count, unit = 's'] = /^(\d+(?:\.\d+)?)(?:\/([smh]))?$/.exec(String(rate)) ?? []
    const wanted = count === undefined ? '<rate>' : `${count}/${units[unit]}`
    const which = limits === undefined ? 'limits' : `limits (${limits.join(', ')})`
    const command = `sluice limits set ${limits?.[0] ?? '<limit>'} --rate ${wanted} --reason '…'`
    return { error: `${which} hold for the whole fleet, and are set with: ${command}` }
  }
}
