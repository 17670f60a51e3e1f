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
import { LogicalTime } from './logical-time.ts'
import type { ProducerOptions } from './producer.ts'

/** The answer of each worker, by its name (`celery@host`). */
export type Answers = Record<string, unknown>

/** The workers that are meant, and how long to wait for them. */
export interface RequestOptions {
  /** Names of workers, `celery@host`. Default: all that are there. */
  workers?: readonly string[] | undefined
  /**
   * How long answers are awaited. With `workers` or `answers` it ends as soon as so many have answered; otherwise nobody knows how
   * many there are. Default 1 s.
   */
  within?: Duration | undefined
  /** Number of answers to wait for. Default: as many as `workers`. */
  answers?: number | undefined
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
    options?: RequestOptions & { terminate?: boolean | undefined; signal?: string | undefined },
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
export async function openControl(
  options: Pick<ProducerOptions, 'broker' | 'keyPrefix' | 'log'> = {},
): Promise<Control> {
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
  const key = randomUUID()
  const waiting = new Map<string, (workers: Answers) => void>()
  const time = new LogicalTime()
  const binding = { exchange: replyExchange, routingKey: key }
  await broker.receive({ queue: `${key}.${replyExchange}`, binding }, async (message) => {
    try {
      time.recordTime(message.headers['clock'])
      const { ticket = '', workers } = await readReply(message)
      waiting.get(ticket)?.(workers)
    } catch (error) {
      log.warn('an answer of a Celery worker is left out', { err: error })
    }
  })
  const request: Control['request'] = async (method, given = {}, options = {}) => {
    checkFields('SLUICE_BAD_OPTION', 'a request to workers', options, ['workers', 'within', 'answers'])
    const { workers, within = withinUsualMs, answers: wanted = workers?.length ?? Infinity } = options
    const withinMs = durationMs(within)
    const ticket = randomUUID()
    const message = writeRequest(
      { method, arguments: given, destination: workers, ticket, replyTo: key },
      { clock: time.nextTime(), expiresS: (systemClock.wallMs() + withinMs) / 1_000 },
    )
    const answers: Answers = {}
    const enough = new AbortController()
    waiting.set(ticket, (more) => {
      Object.assign(answers, more)
      if (Object.keys(answers).length >= wanted) enough.abort()
    })
    try {
      // Without any worker the message goes nowhere, and there are no answers.
      await broker.broadcast(message, requestExchange)
      await systemClock.sleep(withinMs, enough.signal)
    } finally {
      waiting.delete(ticket)
    }
    return answers
  }
  return {
    request,
    async rateLimit(task, rate, options) {
      if (!/^\d+(\.\d+)?(\/[smh])?$/.test(String(rate))) {
        const text = `"${rate}" is no rate of a Celery worker: write for example '10/m', '5/s' or '100/h'`
        throw new UsageError('SLUICE_BAD_RATE', text)
      }
      return request('rate_limit', { task_name: task, rate_limit: rate }, options)
    },
    async revoke(ids, { terminate = false, signal = 'SIGTERM', ...options } = {}) {
      return request('revoke', { task_id: ids, terminate, signal }, options)
    },
  }
}
