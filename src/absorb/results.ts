/** Sends results to the producers of Celery that wait for them, and the tasks that follow a result. */
import { callScript } from '../celery/redis-call.ts'
import { resultKey, resultKeptS, resultMessage, type TaskResult, writeResult } from '../celery/result.ts'
import { type Signature, tasksIn } from '../celery/signature.ts'
import { type TaskMessage, writeTask } from '../celery/task-message.ts'
import { writeTime } from '../celery/time.ts'
import type { Clock } from '../core/clock.ts'
import { isUnrouted } from '../amqp/publish-errors.ts'
import { StoreError } from '../core/errors.ts'
import type { Log } from '../core/log.ts'
import { scripts } from '../generated/lua.ts'
import { Script } from '../redis/client.ts'
import type { RedisConnection } from '../redis/connect.ts'
import {
  type Call,
  callOf,
  chordFollowers,
  type Follower,
  followersOf,
  type Part,
  chordPartsOf,
  refusedResult,
  type Replies,
  repliesOf,
} from './call.ts'
import { Chords } from './chord.ts'
import type { CeleryBroker } from './broker.ts'
import { runOnRedis } from './redis-command.ts'

/** Parameters of `Results`; see the fields. */
export interface ResultsOptions {
  clock: Clock
  log: Log
  broker: CeleryBroker
  /** Where results go; undefined: to the queues that the calls name (rpc). */
  redis: RedisConnection | undefined
  /** The queue of a task that follows another one and names none; undefined: that of the call. */
  queueOf(task: string): string | undefined
}

/** The way of results to their producers. The errors of its methods are those of the broker, or of Redis. */
export class Results {
  readonly #options: ResultsOptions
  readonly #chords: Chords | undefined
  readonly #set = new Script(scripts['absorb/set_result'] ?? '')

  constructor(options: ResultsOptions) {
    this.#options = options
    this.#chords = options.redis === undefined ? undefined : new Chords(options.redis)
  }

  /** Returns false for a call whose result nobody waits for, and that nothing follows. */
  isAwaited({ ignoreResult, replyTo, callbacks, errbacks, chain, chord }: Call): boolean {
    const isReplied = !ignoreResult && (replyTo !== null || this.#options.redis !== undefined)
    return isReplied || chord !== undefined || callbacks.length + errbacks.length + chain.length > 0
  }

  /** Sends the last result of a call, and what follows it. */
  async finish(call: Call, result: TaskResult): Promise<void> {
    // All of it is repeated when a part cannot be sent; only what follows would then be executed twice.
    for (const { result: each, to } of repliesOf(call, result)) await this.send(each, to)
    for (const part of chordPartsOf(call, result)) await this.#count(part, call)
    await this.follow(result.id, call, result)
  }

  /** Sends the result of a task that cannot be carried out. A result that cannot be sent, either, is left out. */
  async refuse(message: TaskMessage, queue: string, cause: unknown): Promise<void> {
    await this.finish(callOf(message, queue), refusedResult(message, cause)).catch((error: unknown) => {
      // No result can have such an id, for example.
      if (error instanceof StoreError) throw error
      const about = { task: message.task, id: message.id, err: error }
      this.#options.log.warn('the producer of a task that cannot be carried out gets no result', about)
    })
  }

  /** Sends a result to where the producer looks for it. */
  async send(result: TaskResult, { replyTo, ignoreResult, about }: Replies): Promise<void> {
    const { broker, redis, clock } = this.#options
    if (ignoreResult) return
    if (redis !== undefined) {
      const text = writeResult(result, { ...about, date_done: writeTime(clock.wallMs()) })
      const key = resultKey(result.id)
      await runOnRedis(() => callScript(redis, this.#set, [key], [resultKeptS, text], key))
    } else if (replyTo !== null) await broker.reply(resultMessage(result), { exchange: '', routingKey: replyTo })
  }

  /** Sends the tasks that follow a call with this result. A task that cannot be sent is logged, and has failed. */
  async follow(id: string, call: Call, result: TaskResult): Promise<void> {
    for (const one of followersOf(id, call, result, this.#options.clock.wallMs())) await this.#follow(id, one)
  }

  async #follow(id: string, { message, address: own, isAddressed, begins = [] }: Follower): Promise<void> {
    const { broker, clock, log, queueOf } = this.#options
    for (const chord of begins) await this.#chords?.begin(chord)
    const queue = isAddressed ? undefined : queueOf(message.task)
    const address = queue === undefined ? own : { ...own, routingKey: queue }
    try {
      await broker.send(await writeTask(message, { nowMs: clock.wallMs() }), address)
    } catch (error) {
      if (error instanceof StoreError && !isUnrouted(error)) throw error
      const about = { task: message.task, follows: id, queue: address.routingKey, err: error }
      log.error('a task that follows another one cannot be sent, and is dropped', about)
      await this.refuse(message, address.routingKey, error)
    }
  }

  /** Counts a member of a chord, and sends the last task after the last member. */
  async #count(part: Part, call: Call): Promise<void> {
    const { result, body } = part
    // Nobody counts, so the member was refused.
    if (this.#chords === undefined) return this.#failAll(body, result)
    const outcome = await this.#chords.add(part)
    if (outcome === undefined) return
    for (const one of chordFollowers(part, call, outcome, this.#options.clock.wallMs()))
      await this.#follow(result.id, one)
    if ('error' in outcome) await this.#failAll(body, { ...result, state: 'FAILURE', value: outcome.error })
    await this.#chords.end(part)
  }

  /** Reports a failure as that of the last task of a chord, and of what follows it. */
  async #failAll(body: Signature, { id: parentId, state, value }: TaskResult): Promise<void> {
    if (state === 'SUCCESS') return
    for (const { options } of tasksIn(body)) {
      const { task_id: id, reply_to: replyTo } = options
      if (typeof id !== 'string') continue
      const to = { replyTo: typeof replyTo === 'string' ? replyTo : null, ignoreResult: false }
      await this.send({ id, state, value, traceback: undefined }, { ...to, about: { parent_id: parentId } })
    }
  }
}
