/** Inspects and controls Celery workers. */
import { randomUUID } from 'node:crypto'
import { systemClock } from '../core/clock.ts'
import { UsageError } from '../core/errors.ts'
import { checkFields } from '../core/fields.ts'
import { type Log, silent } from '../core/log.ts'
import { type Duration, durationMs } from '../core/rate.ts'
import type { Carrier } from './carrier.ts'
import { openCarrier } from './connect.ts'
import { readReply, replyExchange, requestExchange, writeRequest } from './control.ts'

/** The answer of each worker, by its name (`celery@host`). */
export type Answers = Record<string, unknown>

/** The workers that are meant, and how long to wait for them. */
export interface RequestOptions {
  /** Names of workers, `celery@host`. Default: all that are there. */
  workers?: readonly string[]
  /**
   * How long answers are awaited. With `workers` or `answers` it ends as soon as so many have answered; otherwise nobody knows how
   * many there are. Default 1 s.
   */
  within?: Duration
  /** Number of answers to wait for. Default: as many as `workers`. */
  answers?: number
}

/** Inspects and controls Celery workers. */
export interface Control {
  /**
   * Sends a request by Celery's name of it, and resolves to the answers: `ping`, `stats`, `active`, `reserved`, `scheduled`,
   * `registered`, `active_queues`, `revoked`, `conf`, `time_limit`, `add_consumer`, `shutdown` and so on. A worker that does not know
   * it answers `{ error }`.
   */
  request(method: string, given?: Readonly<Record<string, unknown>>, options?: RequestOptions): Promise<Answers>
  /**
   * Sets what each worker may start of a task, apart from all others: `'10/m'`, `'5/s'`, `'100/h'`, or a number a second; 0: no limit.
   * @throws UsageError SLUICE_BAD_RATE: workers end with an error at another unit
   */
  rateLimit(task: string, rate: string | number, options?: RequestOptions): Promise<Answers>
  /** Keeps tasks from starting; with `terminate` also ends them while they run, by `signal` (default SIGTERM). */
  revoke(
    ids: string | readonly string[],
    options?: RequestOptions & { terminate?: boolean; signal?: string },
  ): Promise<Answers>
  /** Closes the connections. */
  close(): Promise<void>
}

const withinUsualMs = 1_000

/**
 * Connects to the broker of Celery workers.
 * @param options `broker`, `keyPrefix`, `log`: as for `openProducer`
 * @throws UsageError SLUICE_BAD_URL, SLUICE_MISSING_PEER; StoreError SLUICE_BROKER_UNREACHABLE, SLUICE_REDIS_UNREACHABLE
 */
export async function openControl(options: { broker?: string; keyPrefix?: string; log?: Log } = {}): Promise<Control> {
  checkFields('SLUICE_BAD_OPTION', 'openControl', options, ['broker', 'keyPrefix', 'log'])
  const { broker: url = process.env['AMQP_URL'] ?? '', keyPrefix: prefix, log = silent } = options
  const broker = await openCarrier({ url, prefix, name: 'sluice celery control', log })
  try {
    const control = await controlOver(broker, log)
    return { ...control, close: () => broker.close() }
  } catch (error) {
    await broker.close()
    throw error
  }
}

/** Inspects and controls the workers of a broker that is open, and that its owner closes. */
export async function controlOver(broker: Carrier, log: Log): Promise<Omit<Control, 'close'>> {
  const control = new RemoteControl(broker, log)
  await control.open()
  return {
    request: (method, given, options) => control.request(method, given, options),
    rateLimit: (task, rate, options) => control.rateLimit(task, rate, options),
    revoke: (ids, options) => control.revoke(ids, options),
  }
}

class RemoteControl implements Omit<Control, 'close'> {
  readonly #broker: Carrier
  readonly #log: Log
  readonly #key = randomUUID()
  readonly #waiting = new Map<string, (workers: Answers) => void>()
  /** Celery's logical time. */
  #clock = 0

  constructor(broker: Carrier, log: Log) {
    this.#broker = broker
    this.#log = log
  }

  /** Makes a queue for answers. */
  async open(): Promise<void> {
    const binding = { exchange: replyExchange, routingKey: this.#key }
    await this.#broker.receive({ queue: `${this.#key}.${replyExchange}`, binding }, async (message) => {
      try {
        const { ticket = '', clock, workers } = await readReply(message)
        this.#clock = Math.max(this.#clock, clock)
        this.#waiting.get(ticket)?.(workers)
      } catch (error) {
        this.#log.warn('an answer of a Celery worker is left out', { err: error })
      }
    })
  }

  async request(
    method: string,
    given: Readonly<Record<string, unknown>> = {},
    options: RequestOptions = {},
  ): Promise<Answers> {
    checkFields('SLUICE_BAD_OPTION', 'a request to workers', options, ['workers', 'within', 'answers'])
    const { workers, within = withinUsualMs, answers: wanted = workers?.length ?? Infinity } = options
    const withinMs = durationMs(within)
    const ticket = randomUUID()
    this.#clock++
    const message = writeRequest(
      { method, arguments: given, destination: workers, ticket, replyTo: this.#key },
      { clock: this.#clock, expiresS: (systemClock.wallMs() + withinMs) / 1_000 },
    )
    const answers: Answers = {}
    const enough = new AbortController()
    this.#waiting.set(ticket, (more) => {
      Object.assign(answers, more)
      if (Object.keys(answers).length >= wanted) enough.abort()
    })
    try {
      // Without any worker the message goes nowhere, and there are no answers.
      await this.#broker.broadcast(message, requestExchange)
      await systemClock.sleep(withinMs, enough.signal)
    } finally {
      this.#waiting.delete(ticket)
    }
    return answers
  }

  async rateLimit(task: string, rate: string | number, options?: RequestOptions): Promise<Answers> {
    if (!/^\d+(\.\d+)?(\/[smh])?$/.test(String(rate))) {
      const text = `"${rate}" is no rate of a Celery worker: write for example '10/m', '5/s' or '100/h'`
      throw new UsageError('SLUICE_BAD_RATE', text)
    }
    return this.request('rate_limit', { task_name: task, rate_limit: rate }, options)
  }

  async revoke(
    ids: string | readonly string[],
    {
      terminate = false,
      signal = 'SIGTERM',
      ...options
    }: RequestOptions & { terminate?: boolean; signal?: string } = {},
  ): Promise<Answers> {
    return this.request('revoke', { task_id: ids, terminate, signal }, options)
  }
}
