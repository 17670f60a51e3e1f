/** Reads messages of Celery producers from their queues, and sends a job for each. */
import type { Broker, Delivery } from '../amqp/broker.ts'
import type { Consumer } from '../amqp/consumer.ts'
import { inputOf } from '../celery/arguments.ts'
import { plainJson } from '../celery/json.ts'
import { readTask, type TaskMessage } from '../celery/task-message.ts'
import { received } from '../celery/transport.ts'
import { unreadable } from '../celery/wire.ts'
import { SluiceError, StoreError, UsageError } from '../core/errors.ts'
import { newId } from '../core/hash.ts'
import { encodePayload } from '../core/payload.ts'
import type { Store } from '../db/store.ts'
import type { RedisConnection } from '../redis/connect.ts'
import type { AnyTask, Sender } from '../tasks/task.ts'
import { type Call, callOf, revokedResult, timesOf } from './call.ts'
import { park, parkingOf } from './parking.ts'
import { RemoteControl } from './remote-control.ts'
import { Reporter } from './reporter.ts'

/** What it needs; see the fields. */
export interface AbsorberOptions {
  store: Store
  /** Its owner closes it, after `close`. */
  broker: Broker
  sender: Sender
  tasks: readonly AnyTask[]
  /** Celery's queues. */
  queues: readonly string[]
  /** Where results go; undefined: to the queues that the calls name (rpc). */
  redis: RedisConnection | undefined
  /** Attempts at once, which `celery inspect stats` shows. */
  slots: number
}

/** A message that can be carried out. */
interface Read {
  readonly delivery: Delivery
  readonly queue: string
  readonly message: TaskMessage
  readonly task: AnyTask
  /** JSON. */
  readonly call: string
}

/** Messages that are read ahead; a batch has as many at most. */
const prefetch = 500
const idMax = 255

/** Absorbs until it is stopped, and reports results until it is closed. */
export class Absorber {
  readonly #options: AbsorberOptions
  readonly #tasks: ReadonlyMap<string, AnyTask>
  readonly #reporter: Reporter
  readonly #control: RemoteControl
  readonly #consumers: Consumer[] = []
  #waiting: { delivery: Delivery; queue: string }[] = []
  #working: Promise<void> | undefined

  constructor(options: AbsorberOptions) {
    this.#options = options
    this.#tasks = new Map(
      options.tasks.flatMap((task) => [task.name, ...(task.formerly ?? [])].map((name) => [name, task])),
    )
    this.#reporter = new Reporter(options)
    this.#control = new RemoteControl({
      ...options,
      log: options.store.log,
      names: [...this.#tasks.keys()],
      revoke: (ids) => this.#revoke(ids),
    })
  }

  /** Begins to read. A queue that no program of Celery has declared yet is made as Celery makes it. @throws the errors of the broker */
  async start(): Promise<void> {
    const { broker, queues } = this.#options
    this.#reporter.start()
    await this.#control.open()
    for (const queue of queues) {
      await broker
        .use((channel) => channel.checkQueue(queue))
        .catch((error: unknown) => {
          if (!(error instanceof UsageError)) throw error
          return broker.declare({ queues: [{ name: queue }] })
        })
      const onMessage = (delivery: Delivery) => this.#received(delivery, queue)
      this.#consumers.push(await broker.consume(queue, { prefetch }, onMessage))
    }
  }

  /** Reads no more; resolves when what was read is sent. */
  async stop(): Promise<void> {
    await Promise.all(this.#consumers.map((consumer) => consumer.cancel()))
    await this.#working
  }

  /** Sends the results of what has ended. */
  async close(): Promise<void> {
    await this.stop()
    await this.#reporter.close()
  }

  async #revoke(ids: readonly string[]): Promise<void> {
    const { store } = this.#options
    const rows = await store.run<{ job: string }>('absorb/find_called_jobs', [ids])
    for (const { job } of rows) await store.call('cancel_job', [job, 'revoked by a program of Celery'])
  }

  #received(delivery: Delivery, queue: string): void {
    this.#waiting.push({ delivery, queue })
    this.#working ??= this.#work()
  }

  async #work(): Promise<void> {
    // What has arrived with the first message belongs to its batch.
    await new Promise((resolve) => setImmediate(resolve))
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, prefetch)
      try {
        await this.#absorb(batch)
      } catch (error) {
        const { clock, log } = this.#options.store
        log.warn('messages of Celery producers cannot be recorded now, and go back to their queue', { err: error })
        await clock.sleep(1_000)
        for (const { delivery } of batch) delivery.reject({ requeue: true })
      }
    }
    this.#working = undefined
  }

  async #absorb(batch: readonly { delivery: Delivery; queue: string }[]): Promise<void> {
    const { store } = this.#options
    const found = await Promise.all(batch.map(({ delivery, queue }) => this.#read(delivery, queue)))
    const all = found.filter((one) => one !== undefined)
    if (all.length === 0) return
    const ids = all.map(({ message }) => message.id)
    const jobs = all.map(() => newId())
    const calls = all.map(({ call }) => call)
    const rows = await store.run<{ id: string; job: string | null; over: boolean }>('absorb/record_calls', [
      ids,
      jobs,
      calls,
    ])
    const known = new Map(rows.map((row) => [row.id, row]))
    await Promise.all(all.map((one) => this.#send(one, known.get(one.message.id))))
    this.#reporter.wake()
  }

  /** Reads a message. What cannot be carried out is parked. */
  async #read(delivery: Delivery, queue: string): Promise<Read | undefined> {
    let message: TaskMessage | undefined
    try {
      message = await readTask(received(delivery))
      const task = this.#tasks.get(message.task)
      if (task === undefined) throw new UsageError('SLUICE_NO_SUCH_TASK', `no worker here has a task "${message.task}"`)
      if (message.id.length > idMax) throw unreadable(`its id is longer than ${idMax} characters`)
      encodePayload(message.id, 'the id')
      const call = encodePayload(plainJson(callOf(message, queue)), 'what follows the task')
      return { delivery, queue, message, task, call }
    } catch (error) {
      await this.#park(delivery, queue, error, message)
      return undefined
    }
  }

  async #send(read: Read, row: { job: string | null; over: boolean } | undefined): Promise<void> {
    const { sender, store } = this.#options
    const { delivery, message, task, queue } = read
    // Another process is recording it in this moment.
    if (typeof row?.job !== 'string') return void delivery.reject({ requeue: true })
    if (row.over) return void delivery.ack()
    const times = timesOf(message, store.clock.wallMs())
    try {
      if (times === undefined) await this.#over(message.id, callOf(message, queue))
      else {
        const { priority } = message
        const ranked = priority === 0 ? {} : { priority }
        await sender.send(task as never, inputOf(message) as never, { id: row.job, ...times, ...ranked } as never)
      }
      delivery.ack()
    } catch (error) {
      if (!SluiceError.is(error) || error instanceof StoreError) throw error
      await this.#park(delivery, queue, error, message)
      await store.run('absorb/end_calls', [[message.id]])
    }
  }

  /** Its time to begin was over when it was read. */
  async #over(id: string, call: Call): Promise<void> {
    await this.#reporter.results.send(revokedResult(id, 'expired'), call)
    await this.#options.store.run('absorb/end_calls', [[id]])
  }

  /** Puts a message aside, with the reason, and reports that to its producer. */
  async #park(delivery: Delivery, queue: string, cause: unknown, message: TaskMessage | undefined): Promise<void> {
    const { broker, store } = this.#options
    const reason = cause instanceof Error ? cause.message : String(cause)
    // First, because this is repeated until all of it has succeeded, and a result may come twice.
    if (message !== undefined) {
      const result = { id: message.id, state: 'FAILURE', value: cause, traceback: undefined }
      await this.#reporter.results.send(result, callOf(message, queue))
    }
    await park(broker, delivery, queue, reason)
    const about = { queue, parked: parkingOf(queue), task: message?.task, id: message?.id, reason }
    store.log.error('a message of a Celery producer cannot be carried out, and is parked', about)
    delivery.ack()
  }
}
