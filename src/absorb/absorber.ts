/** Reads messages of Celery producers from their queues, and sends a job for each. */
import { hostname } from 'node:os'
import { inputOf } from '../celery/arguments.ts'
import { plainJson } from '../celery/json.ts'
import { hasChord, headOf, readTask, type TaskMessage } from '../celery/task-message.ts'
import { unreadableError } from '../celery/wire.ts'
import { SluiceError, StoreError, textOfError, codeOf } from '../core/errors.ts'
import { newId } from '../core/hash.ts'
import { countForStatement, encodePayload } from '../core/payload.ts'
import { isDataError } from '../claim/parking/parked.ts'
import type { Store } from '../db/store.ts'
import type { RedisConnection } from '../redis/connect.ts'
import type { SendOptions } from '../tasks/send-options.ts'
import { type AnyTask, tasksByName } from '../tasks/task.ts'
import type { DepthOptions } from '../worker/queue-depth.ts'
import { type Call, callOf, limitMsOf, revokedResult, timesOf, unknownTask } from './call.ts'
import type { CallInHand } from './inspection.ts'
import type { IncomingCall, CeleryBroker, Receiving } from './broker.ts'
import { logParked, park } from './parking.ts'
import { Presence } from './presence.ts'
import { Reporter } from './reporter.ts'
import { Results } from './results.ts'

/** Sends a job for a call, whose attempts take `limitMs` at most if its message has a time limit. */
export interface CallSender {
  send(task: AnyTask, input: unknown, options?: SendOptions<never>, limitMs?: number): Promise<string>
}

/** Parameters of `Absorber`; see the fields. */
export interface AbsorberOptions {
  store: Store
  /** Its owner closes it, after `close`. */
  broker: CeleryBroker
  sender: CallSender
  tasks: readonly AnyTask[]
  /** Celery's queues. */
  queues: readonly string[]
  /** Where results go; undefined: to the queues that the calls name (rpc). */
  redis: RedisConnection | undefined
  /** The queue of a task that follows another one and names none; undefined: that of the call. */
  queueOf(task: string): string | undefined
  /** Attempts at once, which `celery inspect stats` shows. */
  slots: number
  /** Attempts that run now. */
  running(): number
  alarms: DepthOptions['alarms']
  /** True: sends events from the start; else from when a program of Celery wants them. */
  events: boolean
  /** Producers get the state STARTED. */
  tracksStarted: boolean
}

/** A message that can be carried out. */
interface Read {
  readonly incoming: IncomingCall
  readonly message: TaskMessage
  readonly task: AnyTask
  /** JSON. */
  readonly call: string
}

/** The record of a call in the store. */
interface Recorded {
  id: string
  job: string | null
  known: boolean
  sent: boolean
  over: boolean
  revoked: boolean
}

const batchMax = 500
/** A batch of so many messages waits for no others. */
const batchEnough = 100
/** How long a smaller batch waits for more messages, as a multiple of the time that the batch before took; and the longest wait, in ms. */
const [gatherFactor, gatherMsMax] = [3, 50]
const idBytesMax = 255
/** Longest body that is read: an input and what follows are 256 KiB each at most, and Python writes up to six bytes for two. */
const bodyBytesMax = 2 * 2 ** 20
const retryMs = 1_000

/** Absorbs until it is stopped, and reports results until it is closed. */
export class Absorber {
  /** How many calls have become jobs here. */
  calls = 0
  readonly #options: AbsorberOptions
  readonly #tasks: ReadonlyMap<string, AnyTask>
  readonly #results: Results
  readonly #reporter: Reporter
  readonly #presence: Presence
  readonly #stop = new AbortController()
  #receiving: Receiving | undefined
  #waiting: IncomingCall[] = []
  #gatherEnd = new AbortController()
  #working: Promise<void> | undefined
  /** Batches and revocations that could not be recorded, and are tried again. */
  #unrecorded = 0

  constructor(options: AbsorberOptions) {
    this.#options = options
    const { store, broker, tasks, running, redis, tracksStarted } = options
    const { clock, log } = store
    this.#tasks = tasksByName(tasks)
    const results = (this.#results = new Results({ clock, log, broker, redis, queueOf: options.queueOf }))
    const presence = (this.#presence = new Presence({
      ...options,
      clock,
      log,
      running,
      tasks: this.#tasks,
      acksLate: false,
      inHand: (kind) => this.#findInHand(kind),
      revoked: async () => (await store.run<{ id: string }>('absorb/find_revoked_calls')).map(({ id }) => id),
      revoke: (ids, isTerminated) => this.#revoke(ids, isTerminated),
    }))
    const { name, events } = presence
    this.#reporter = new Reporter({ store, results, events, name, tracksStarted })
  }

  /** Begins to read. @throws the errors of the broker */
  async start(): Promise<void> {
    const { broker, queues, events, alarms } = this.#options
    this.#reporter.start()
    await this.#presence.open(events)
    this.#receiving = await broker.consume(queues, (incoming) => this.#takeMessage(incoming))
    const { clock, log } = this.#options.store
    void broker.watch?.({ queues, alarms, clock, log }, this.#stop.signal)
  }

  /** Reads no more; resolves when what was read is sent, or given back because the store is away. */
  async stop(): Promise<void> {
    await this.#receiving?.stop()
    this.#stop.abort()
    this.#gatherEnd.abort()
    await this.#working
  }

  /** Sends the results of what has ended. */
  async close(): Promise<void> {
    await this.stop()
    await this.#reporter.close()
    await this.#presence.close()
  }

  /** However long the store is away, because a program of Celery sends its request once. */
  async #revoke(ids: readonly string[], isTerminated: boolean): Promise<void> {
    const { store } = this.#options
    const record = () => store.run('absorb/revoke_calls', [ids, isTerminated])
    await this.#insist(record, (error) => isPoison(error) || this.#stop.signal.aborted)
    this.#reporter.wake()
  }

  async #findInHand(kind: string): Promise<CallInHand[]> {
    type Row = { id: string; call: string; task: string; input: string | null; priority: number } & Times
    type Times = { due_at: Date | null; dispatched_at: Date | null }
    const { store } = this.#options
    const rows = await store.run<Row>('absorb/find_calls_in_hand', [kind, hostname(), process.pid])
    return rows.map(({ call, input, due_at: dueAt, dispatched_at: startedAt, ...own }) => {
      const given: unknown = input === null ? undefined : JSON.parse(input)
      return { ...own, call: JSON.parse(call) as Call, input: given, dueAt, startedAt }
    })
  }

  #takeMessage(incoming: IncomingCall): void {
    this.#waiting.push(incoming)
    if (this.#waiting.length >= batchEnough) this.#gatherEnd.abort()
    this.#working ??= this.#work()
  }

  async #work(): Promise<void> {
    // Messages that have arrived with the first one belong to its batch.
    await new Promise((resolve) => setImmediate(resolve))
    const { clock } = this.#options.store
    while (this.#waiting.length > 0) {
      const sinceMs = clock.monotonicMs()
      await this.#absorbAll(this.#waiting.splice(0, batchMax))
      await this.#gather(Math.min(gatherMsMax, (clock.monotonicMs() - sinceMs) * gatherFactor))
    }
    this.#working = undefined
  }

  /** Waits for messages: so many ms, or until there are enough. Otherwise each process of a busy fleet would record them one by one. */
  async #gather(ms: number): Promise<void> {
    if (this.#waiting.length >= batchEnough || this.#stop.signal.aborted) return
    this.#gatherEnd = new AbortController()
    await this.#options.store.clock.sleep(ms, this.#gatherEnd.signal)
  }

  /** Absorbs a batch, however long the store or the broker is away: a queue may count how often a message went back. */
  async #absorbAll(batch: IncomingCall[]): Promise<void> {
    let left = batch
    const absorb = () => this.#absorb((left = left.filter(({ isInHand }) => isInHand)))
    await this.#insist(absorb, () => false).catch(() => {
      for (const incoming of left) incoming.requeue()
    })
  }

  /** Tries until it succeeds. @throws an error that is hopeless; once this is to stop, any error */
  async #insist(record: () => Promise<unknown>, isHopeless: (error: unknown) => boolean): Promise<void> {
    const { clock, log } = this.#options.store
    let isUnrecorded = false
    try {
      for (;;)
        try {
          return void (await record())
        } catch (error) {
          if (isHopeless(error)) throw error
          // However much waits, an outage has one warning, and a line at its end.
          if (!isUnrecorded && this.#unrecorded++ === 0)
            log.warn('what programs of Celery send or revoke cannot be recorded now; it is tried again', { err: error })
          isUnrecorded = true
          await clock.sleep(retryMs, this.#stop.signal)
          if (this.#stop.signal.aborted) throw error
        }
    } finally {
      if (isUnrecorded && --this.#unrecorded === 0 && !this.#stop.signal.aborted)
        log.info('nothing that programs of Celery send or revoke waits to be recorded any more')
    }
  }

  async #absorb(batch: readonly IncomingCall[]): Promise<void> {
    const all: Read[] = []
    // One after the other, so that a batch of large messages is not unpacked at once.
    for (const incoming of batch) {
      const read = await this.#read(incoming)
      if (read !== undefined) all.push(read)
    }
    while (all.length > 0) await this.#record(all.splice(0, countForRecord(all)))
  }

  async #record(some: readonly Read[]): Promise<void> {
    const ids = some.map(({ message }) => message.id)
    const jobs = some.map(() => newId())
    const calls = some.map(({ call }) => call)
    const rows = await this.#options.store.run<Recorded>('absorb/record_calls', [ids, jobs, calls])
    const known = new Map(rows.map((row) => [row.id, row]))
    const settled = await Promise.allSettled(some.map((one) => this.#send(one, known.get(one.message.id))))
    this.#reporter.wake()
    for (const one of settled) if (one.status === 'rejected') throw one.reason
  }

  /** Reads a message. What cannot be carried out is parked. */
  async #read(incoming: IncomingCall): Promise<Read | undefined> {
    const wire = incoming.message
    let message: TaskMessage | undefined
    try {
      message = await readTask(wire, { bytesMax: bodyBytesMax, chords: true })
      const { task: name, id } = message
      const task = this.#tasks.get(name)
      if (Buffer.byteLength(id) > idBytesMax) throw unreadableError(`its id is longer than ${idBytesMax} bytes`)
      encodePayload(id, 'the id')
      if (task === undefined) throw unknownTask(name)
      if (this.#options.redis === undefined && hasChord(message))
        throw unreadableError(
          'it belongs to a chord, whose members are counted only in Redis: set CELERY_RESULT_BACKEND to one',
        )
      const call = encodePayload(plainJson(callOf(message, incoming.queue)), 'what follows the task')
      return { incoming, message, task, call }
    } catch (error) {
      await this.#park(incoming, error, message ?? (await headOf(wire, bodyBytesMax)))
      return undefined
    }
  }

  async #send({ incoming, message, task }: Read, row: Recorded | undefined): Promise<void> {
    const { sender, store, broker } = this.#options
    const call = callOf(message, incoming.queue)
    if (row?.revoked === true) {
      await this.#endUnsent(message, call, 'revoked')
      return void incoming.ack()
    }
    // Another process is recording it in this moment: tried again, it is known.
    if (typeof row?.job !== 'string')
      throw new StoreError('SLUICE_STORE_UNREACHABLE', `the call ${message.id} is not visible yet`)
    if (row.over || row.sent) return void incoming.ack()
    const times = timesOf(message, store.clock.wallMs())
    try {
      if (times === undefined) await this.#endUnsent(message, call, 'expired')
      else {
        const priority = broker.lowerFirst ? -message.priority : message.priority
        const ranked = message.priority === 0 ? {} : { priority }
        await sender.send(task, inputOf(message), { id: row.job, ...times, ...ranked }, limitMsOf(message))
      }
    } catch (error) {
      if (!isPoison(error)) throw error
      await this.#park(incoming, error, message)
      return this.#end(message.id)
    }
    if (times === undefined) await this.#end(message.id)
    else if (!row.known) {
      this.calls++
      this.#presence.events.sendReceived(message)
    }
    incoming.ack()
  }

  /** Reports a call that does not become a job. */
  async #endUnsent(message: TaskMessage, call: Call, why: string): Promise<void> {
    const result = revokedResult(message.id, why)
    await this.#results.finish(call, result)
    this.#presence.events.sendReceived(message)
    this.#presence.events.sendEnd(result, { task: message.task, startedMs: null, endedMs: null })
  }

  /** Records that the producer has its result. */
  async #end(id: string): Promise<void> {
    await this.#options.store.run('absorb/report_calls', [[id], [0], [true]])
  }

  /** Puts a message aside, with the reason, and reports that to its producer. */
  async #park(incoming: IncomingCall, cause: unknown, message: TaskMessage | undefined): Promise<void> {
    const { broker, store } = this.#options
    const reason = textOfError(cause)
    // First, because this is repeated until all of it has succeeded, and a result may come twice.
    if (message !== undefined) await this.#results.refuse(message, incoming.queue, cause)
    const parked = await park({ broker, log: store.log }, incoming.message, incoming.queue, reason)
    logParked(store.log, incoming.queue, parked, message, reason)
    incoming.ack()
  }
}

/** Returns how many of the first messages one statement records. A second message with the same id waits until its call is known. */
function countForRecord(all: readonly Read[]): number {
  const ids = new Set<string>()
  const again = all.findIndex(({ message: { id } }) => ids.has(id) || !ids.add(id))
  return countForStatement(again < 0 ? all : all.slice(0, again), batchMax, ({ call }) => call.length)
}

/** True for an error that the message itself has caused: trying again cannot help. */
function isPoison(error: unknown): boolean {
  if (SluiceError.is(error)) return !(error instanceof StoreError)
  const code = codeOf(error)
  const isOfDatabase = typeof code === 'string' && /^[0-9A-Z]{5}$/.test(code)
  return isOfDatabase ? isDataError(error) : true
}
