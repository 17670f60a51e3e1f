/** Sends tasks to Celery workers, and awaits their results. */
import { randomUUID } from 'node:crypto'
import { hostname } from 'node:os'
import { systemClock } from '../core/clock.ts'
import { UsageError } from '../core/errors.ts'
import { checkFields, present } from '../core/fields.ts'
import { type Log, silent } from '../core/log.ts'
import { type Duration, durationMs } from '../core/rate.ts'
import type { Carrier } from './carrier.ts'
import { isRedis, openCarrier } from './connect.ts'
import { isRecord } from './json.ts'
import { resultValue } from './result.ts'
import { redisResults, type Results, rpcResults } from './results.ts'
import { readSignature, type Signature } from './signature.ts'
import { blank, type TaskMessage, writeTask } from './task-message.ts'
import { readTime } from './time.ts'

/** How a producer connects. */
export interface ProducerOptions {
  /** URL of the workers' broker: RabbitMQ (`amqp://…`) or Redis (`redis://…`). Default: `AMQP_URL` of the environment. */
  broker?: string | undefined
  /** The prefix of all keys of a broker in Redis: the workers' `global_keyprefix`. Default: none. */
  keyPrefix?: string | undefined
  /**
   * Where the workers put results: `'rpc'` (their `result_backend = 'rpc://'`), the URL of a Redis (`redis://…`), or `'none'`.
   * Default `'rpc'`, and the broker's own Redis if that is the broker.
   */
  results?: string | undefined
  /** The queue for tasks that name none. Default `celery`, as Celery's own. */
  queue?: string | undefined
  /** Where the connection reports what happens to it. Default: nowhere. */
  log?: Log | undefined
}

/** How one task is sent. */
export interface DelayOptions {
  /** Named arguments. */
  kwargs?: Readonly<Record<string, unknown>> | undefined
  /** Id of the task. Default: a random UUID. */
  id?: string | undefined
  /** Queue of the workers. Default: the producer's. */
  queue?: string | undefined
  /** Exchange, with `queue` as the routing key. Default: the one in which that is the name of a queue. */
  exchange?: string | undefined
  /** It begins no sooner than after this time. A Celery worker holds the message in memory until then. */
  countdown?: Duration | undefined
  /** It begins no sooner than at this instant. */
  eta?: Date | undefined
  /** It is revoked if it has not begun after this time, or at this instant. */
  expires?: Duration | Date | undefined
  /**
   * From 0 to 255: higher first, in a queue that was declared with `x-max-priority`. In Redis 0 comes first, then from 3, from 6
   * and from 9 on. Default 0.
   */
  priority?: number | undefined
  /** Whole seconds after which the worker kills the task. */
  hardLimitS?: number | undefined
  /** Whole seconds after which the worker raises SoftTimeLimitExceeded in the task. */
  softLimitS?: number | undefined
  /** True: a success is not reported. Default false. */
  ignoreResult?: boolean | undefined
  /** Tasks that the worker sends after a success; each gets the result as its first argument, unless it is immutable. */
  link?: readonly Signature[] | undefined
  /**
   * Tasks for after a failure. A task of a single argument is sent, with the id of this task. A task of several arguments that
   * the worker knows runs at once inside of that worker, with Celery's request, the error and the traceback.
   */
  linkError?: readonly Signature[] | undefined
  /** Headers of your own. Celery before 5.3 loses them when the task sends itself again. */
  headers?: Readonly<Record<string, unknown>> | undefined
  /** True: the arguments are compressed with zlib. Default false. */
  compress?: boolean | undefined
}

/** How to wait for a result. */
export interface ResultOptions {
  /** Gives up after this time; the task may still run. Default 60 s. */
  within?: Duration | undefined
  /** Is called with each state that the worker reports, such as STARTED or RETRY, and with the last. */
  onState?: ((state: string) => void) | undefined
}

/** A task that the broker has. */
export interface SentTask {
  readonly id: string
  /**
   * Resolves to what the task has returned. Whole numbers beyond 2^53 are a bigint.
   * @throws CeleryTaskError SLUICE_CELERY_FAILED, SLUICE_CELERY_REVOKED; StoreError SLUICE_CELERY_LATE; UsageError
   * SLUICE_BAD_OPTION: no results are kept
   */
  result(options?: ResultOptions): Promise<unknown>
}

/** Sends tasks to Celery workers. Each method resolves when the broker has the messages: RabbitMQ has confirmed, or Redis has answered. */
export interface Producer {
  /**
   * Sends one task.
   * @throws UsageError SLUICE_BAD_OPTION, SLUICE_BAD_PAYLOAD, SLUICE_BAD_DURATION; StoreError SLUICE_BROKER_UNROUTED: there is no
   * such queue, because no worker has ever served it (a queue in Redis always is); other errors of the broker
   */
  delay(task: string, args?: readonly unknown[], options?: DelayOptions): Promise<SentTask>
  /**
   * Sends tasks that run one after the other, each with the result of the one before; the options are those of the first. Returns the
   * last one. The errors are those of `delay`.
   */
  chain(tasks: readonly Signature[], options?: Omit<DelayOptions, 'kwargs'>): Promise<SentTask>
  /** Sends tasks that run side by side. If one cannot be sent, others may have been. The errors are those of `delay`. */
  group(tasks: readonly Signature[], options?: Omit<DelayOptions, 'id' | 'kwargs'>): Promise<SentTask[]>
  /**
   * Sends tasks that run side by side, and then, with the list of their results as its first argument, the one that follows. Returns
   * that one; if a member fails, it fails with a ChordError. The workers count the members in the Redis of their results.
   * @throws UsageError SLUICE_BAD_OPTION: there are no members, or the results are not in Redis; otherwise as `delay`
   */
  chord(
    tasks: readonly Signature[],
    then: Signature,
    options?: Omit<DelayOptions, 'id' | 'kwargs' | 'ignoreResult'>,
  ): Promise<SentTask>
  /** Waits for confirmations, and closes the connections. Results are not awaited any more. */
  close(): Promise<void>
}

/** How a task is sent that may be described by Celery's options. */
interface Sending extends DelayOptions {
  /** Where its result goes. Default: to this producer. */
  replyTo?: string | undefined
  /** The name that Celery's programs show. */
  shadow?: string | undefined
}

const withinUsualMs = 60_000
const optionNames = (
  'kwargs id queue exchange countdown eta expires priority hardLimitS softLimitS ignoreResult link linkError headers ' +
  'compress'
).split(' ')

/**
 * Connects to the broker of Celery workers.
 * @throws UsageError SLUICE_BAD_OPTION, SLUICE_BAD_URL, SLUICE_MISSING_PEER; StoreError SLUICE_BROKER_UNREACHABLE,
 * SLUICE_REDIS_UNREACHABLE
 */
export async function openProducer(options: ProducerOptions = {}): Promise<Producer> {
  checkFields('SLUICE_BAD_OPTION', 'openProducer', options, ['broker', 'keyPrefix', 'results', 'queue', 'log'])
  const { broker: url = process.env['AMQP_URL'] ?? '', keyPrefix: prefix, queue = 'celery', log = silent } = options
  const broker = await openCarrier({ url, prefix, name: 'sluice celery producer', log })
  try {
    const results = await resultsOf(options.results ?? (isRedis(url) ? url : 'rpc'), broker, log)
    return new CeleryProducer(broker, results, queue)
  } catch (error) {
    await broker.close()
    throw error
  }
}

async function resultsOf(kind: string, broker: Carrier, log: Log): Promise<Results | undefined> {
  if (kind === 'none') return undefined
  return kind === 'rpc' ? rpcResults(broker, log) : redisResults(kind)
}

class CeleryProducer implements Producer {
  readonly #broker: Carrier
  readonly #results: Results | undefined
  readonly #queue: string
  readonly #origin = `gen${process.pid}@${hostname()}`

  constructor(broker: Carrier, results: Results | undefined, queue: string) {
    this.#broker = broker
    this.#results = results
    this.#queue = queue
  }

  async delay(task: string, args: readonly unknown[] = [], options: DelayOptions = {}): Promise<SentTask> {
    checkNames(options)
    return this.#send(this.#createMessage(task, args, options), options)
  }

  async chain(tasks: readonly Signature[], options: Omit<DelayOptions, 'kwargs'> = {}): Promise<SentTask> {
    checkSignatures('a chain', tasks)
    const [first, ...rest] = tasks
    if (first === undefined) throw new UsageError('SLUICE_BAD_OPTION', 'a chain has at least one task')
    checkNames(options)
    const reply = this.#results === undefined ? {} : { reply_to: this.#results.replyTo }
    const chain = rest.map((one) => ({ ...one, options: { ...reply, ...one.options, task_id: randomUUID() } }))
    const own = merged(sendingOf(first), options)
    const message = { ...this.#createMessage(first.task, first.args, own), chain }
    return this.#send(message, own, chain.at(-1)?.options.task_id)
  }

  async group(tasks: readonly Signature[], options: Omit<DelayOptions, 'id' | 'kwargs'> = {}): Promise<SentTask[]> {
    return this.#sendMembers(this.#createMembers(tasks, options, { groupId: randomUUID() }))
  }

  async chord(
    tasks: readonly Signature[],
    then: Signature,
    options: Omit<DelayOptions, 'id' | 'kwargs' | 'ignoreResult'> = {},
  ): Promise<SentTask> {
    checkSignatures('a chord', [tasks, then].flat())
    if (tasks.length === 0) throw new UsageError('SLUICE_BAD_OPTION', 'a chord has at least one task before the last')
    const results = this.#results
    if (results?.countChord === undefined) {
      const why = 'workers count the members of a chord in the Redis of their results'
      throw new UsageError(
        'SLUICE_BAD_OPTION',
        `${why}: open the producer with results: 'redis://…', and the workers with that`,
      )
    }
    const [id, groupId] = [randomUUID(), randomUUID()]
    const follows = { reply_to: results.replyTo, ...then.options, task_id: id }
    const members = this.#createMembers(tasks, options, { groupId, chord: { ...then, options: follows } })
    await results.countChord(groupId, tasks.length)
    results.expect(id)
    try {
      await this.#sendMembers(members)
    } catch (error) {
      results.forget(id)
      throw error
    }
    return this.#createSentTask(id, {})
  }

  /** Returns all messages, so that none is sent if one of them is refused. */
  #createMembers(
    tasks: readonly Signature[],
    options: DelayOptions,
    of: Pick<TaskMessage, 'groupId'> & Partial<Pick<TaskMessage, 'chord'>>,
  ): { message: TaskMessage; own: Sending }[] {
    checkSignatures('a group', tasks)
    checkNames(options)
    if (options.id !== undefined)
      throw new UsageError('SLUICE_BAD_OPTION', 'the tasks of a group have ids of their own: leave out id')
    return tasks.map((one, groupIndex) => {
      const own = merged(options, sendingOf(one))
      return { message: { ...this.#createMessage(one.task, one.args, own), ...of, groupIndex }, own }
    })
  }

  #sendMembers(members: readonly { message: TaskMessage; own: Sending }[]): Promise<SentTask[]> {
    return Promise.all(members.map(({ message, own }) => this.#send(message, own)))
  }

  async close(): Promise<void> {
    await this.#results?.close()
    await this.#broker.close()
  }

  #createMessage(task: string, args: readonly unknown[], options: Sending): TaskMessage {
    checkOptions(task, args, options)
    const { id = randomUUID(), kwargs = {}, link = [], linkError = [], headers = {}, expires } = options
    const nowMs = systemClock.wallMs()
    const at = (time: Duration | Date) => instantOf(time, nowMs)
    const eta = options.eta ?? options.countdown
    return {
      ...blank,
      id,
      task,
      args,
      kwargs,
      rootId: id,
      etaMs: eta === undefined ? undefined : at(eta),
      expiresMs: expires === undefined ? undefined : at(expires),
      hardLimitS: options.hardLimitS,
      softLimitS: options.softLimitS,
      ignoreResult: options.ignoreResult ?? false,
      shadow: options.shadow,
      replyTo: options.replyTo ?? this.#results?.replyTo,
      priority: options.priority ?? 0,
      origin: this.#origin,
      callbacks: link,
      errbacks: linkError,
      headers,
    }
  }

  /** `awaited`: the task whose result is wanted, if it is another one. */
  async #send(message: TaskMessage, options: DelayOptions, awaited = message.id): Promise<SentTask> {
    const { queue = this.#queue, exchange = '', compress = false } = options
    const wire = await writeTask(message, { nowMs: systemClock.wallMs(), compress })
    // The reply can be here before the confirmation.
    this.#results?.expect(awaited)
    try {
      await this.#broker.publish(wire, { exchange, routingKey: queue })
    } catch (error) {
      this.#results?.forget(awaited)
      throw error
    }
    return this.#createSentTask(awaited, options)
  }

  #createSentTask(id: string, { ignoreResult = false }: DelayOptions): SentTask {
    return {
      id,
      result: async ({ within = withinUsualMs, onState } = {}) => {
        if (this.#results === undefined || ignoreResult) {
          const why = ignoreResult ? 'it was sent with ignoreResult' : "the producer was opened with results: 'none'"
          throw new UsageError('SLUICE_BAD_OPTION', `task ${id} has no result, because ${why}`)
        }
        return resultValue(await this.#results.waitForLast(id, durationMs(within), onState))
      },
    }
  }
}

/** Options of a task, where others matter more; of `countdown` and `eta` one is given. */
function merged(options: Sending, more: Sending): Sending {
  const { countdown: _countdown, eta: _eta, ...others } = options
  const hasTime = more.countdown !== undefined || more.eta !== undefined
  return { ...(hasTime ? others : options), ...present(more) }
}

/** Returns how a task that is sent at once is sent, by Celery's names of the options. @throws UsageError SLUICE_BAD_OPTION */
function sendingOf({ task, kwargs, options }: Signature): Sending {
  const found: Sending & Record<string, unknown> = { kwargs }
  // As for tasks that follow, the routing key matters more than the queue.
  const queue = options['routing_key'] ?? options['queue']
  for (const [name, value] of Object.entries({ ...options, queue })) {
    const [own, read] = Object.hasOwn(sendings, name) ? (sendings[name] ?? []) : []
    if (own === undefined || read === undefined) {
      const text = `"${task}" has the option ${name}, which is not known for a task that is sent at once`
      throw new UsageError('SLUICE_BAD_OPTION', `${text}: it may have ${Object.keys(sendings).join(', ')}`)
    }
    if (value !== undefined && value !== null) found[own] = read(value)
  }
  return found
}

const same = (value: unknown) => value
const instant = (value: unknown) => (typeof value === 'string' ? new Date(readTime(value) ?? Number.NaN) : value)
const listed = (value: unknown) => [value].flat().map(readSignature)

/** Celery's options of a task that is sent, and ours. */
const sendings: Readonly<Record<string, readonly [name: string, read: (value: unknown) => unknown]>> = {
  queue: ['queue', same],
  routing_key: ['queue', same],
  exchange: ['exchange', same],
  countdown: ['countdown', (value) => Number(value) * 1_000],
  eta: ['eta', instant],
  expires: ['expires', (value) => (typeof value === 'number' ? value * 1_000 : instant(value))],
  priority: ['priority', same],
  time_limit: ['hardLimitS', same],
  soft_time_limit: ['softLimitS', same],
  ignore_result: ['ignoreResult', same],
  link: ['link', listed],
  link_error: ['linkError', listed],
  headers: ['headers', same],
  reply_to: ['replyTo', same],
  shadow: ['shadow', same],
  task_id: ['id', same],
  compression: ['compress', Boolean],
}

/** The end of the year 9999: Celery reads years of four digits. */
const lastMs = 253_402_300_799_999

/** @throws UsageError SLUICE_BAD_OPTION */
function instantOf(time: Duration | Date, nowMs: number): number {
  const ms = time instanceof Date ? time.getTime() : nowMs + durationMs(time)
  if (ms >= 0 && ms <= lastMs) return ms
  throw new UsageError('SLUICE_BAD_OPTION', 'countdown, eta and expires lead to an instant from 1970 to 9999')
}

function checkNames(options: DelayOptions): void {
  checkFields('SLUICE_BAD_OPTION', 'the options of a task', options, optionNames)
}

/** Plain JavaScript may give one task, or a list inside of a list, as Celery's programs do. */
function checkSignatures(what: string, found: unknown): void {
  if (Array.isArray(found) && found.every((one) => isRecord(one) && isRecord(one['options']))) return
  throw new UsageError('SLUICE_BAD_OPTION', `${what} takes a flat list of tasks, each made by signature(…)`)
}

function checkOptions(task: string, args: readonly unknown[], options: DelayOptions): void {
  const bad = (why: string) => new UsageError('SLUICE_BAD_OPTION', `"${task}": ${why}`)
  if (typeof task !== 'string' || task === '')
    throw new UsageError('SLUICE_BAD_OPTION', 'a task has no name: give the one that Celery knows')
  if (!Array.isArray(args)) throw bad("its arguments are a list: delay('add', [1, 2]); `kwargs` is an option")
  const { priority = 0, hardLimitS, softLimitS, countdown, eta, link = [], linkError = [] } = options
  checkSignatures(`link of "${task}"`, link)
  checkSignatures(`linkError of "${task}"`, linkError)
  if (!Number.isInteger(priority) || priority < 0 || priority > 255)
    throw bad(`priority is a whole number from 0 to 255, not ${priority}`)
  for (const [name, value] of Object.entries({ hardLimitS, softLimitS }))
    if (value !== undefined && !(Number.isInteger(value) && value >= 1))
      throw bad(`${name} is a whole number of seconds from 1 on, not ${value}`)
  if (countdown !== undefined && eta !== undefined) throw bad('give either countdown or eta')
}
