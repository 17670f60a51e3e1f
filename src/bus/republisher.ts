/** Publishes received messages again: as a later attempt, which waits in a queue, or into the archive. */
import type { Broker, Incoming } from '../amqp/broker.ts'
import { publishOrDeclare } from '../amqp/publish-errors.ts'
import type { Clock } from '../core/clock.ts'
import type { Log } from '../core/log.ts'
import type { Headers } from '../amqp/headers.ts'
import type { CloudEvent } from '../events/envelope.ts'
import { isTask } from './celery-message.ts'
import { copyOf, type Progress } from './message.ts'
import type { ServiceNames } from './names.ts'
import type { Source } from './source.ts'

/** A message that was received, and its event, if it could be read. */
export interface ReceivedEvent {
  readonly incoming: Pick<Incoming, 'body' | 'properties' | 'routingKey'>
  readonly event: CloudEvent | undefined
}

/** Why an event was given up. */
export interface Failure {
  readonly reason: string
  /** An error as JSON. */
  readonly error: string
}

/** The header of an archived message, with the reason, and the queue to which a replay sends it. */
const failureHeader = 'sluice-failure'

/** The content of that header. */
interface Kept {
  reason: string
  error: { message: string; code?: string }
  at: string
  queue: string
}

/** Reads that header. Messages that a quorum queue has given up, and messages of other programs, have none. */
export function failureOf(headers: Readonly<Record<string, unknown>>): Kept {
  const text = headers[failureHeader]
  if (typeof text === 'string') return keptOf(text)
  if (isTask({ headers: headers as Headers })) {
    const message = 'a worker in Python gave it up; its log has the error'
    return { reason: 'exhausted', error: { message }, at: new Date(0).toISOString(), queue: '' }
  }
  const first = headers['x-first-death-queue']
  const queue = typeof first === 'string' ? first : ''
  const message = 'RabbitMQ gave the message up: each worker that had it was lost'
  return { reason: 'crashed', error: { message }, at: new Date(0).toISOString(), queue }
}

function keptOf(text: string): Kept {
  try {
    const { reason, error, at, queue } = JSON.parse(text) as { [field in keyof Kept]?: unknown }
    const isOurs = [reason, (error as Kept['error'] | null)?.message, at, queue].every((one) => typeof one === 'string')
    if (isOurs && !Number.isNaN(Date.parse(at as string))) return { reason, error, at, queue } as Kept
  } catch {
    // It is not JSON, so another program wrote it.
  }
  return { reason: 'refused', error: { message: 'its header is not ours' }, at: new Date(0).toISOString(), queue: '' }
}

/** A step's queue is declared again after this time, in ms, because RabbitMQ deletes it if it is not used for an hour. */
const declareEveryMs = 600_000

/** Publishes for one service. */
export class Republisher {
  readonly names: ServiceNames
  readonly #broker: Broker
  readonly #clock: Clock
  readonly #log: Log
  readonly #steps = new Map<number, { declared: Promise<void>; atMs: number }>()

  constructor(options: { broker: Broker; names: ServiceNames; clock: Clock; log: Log }) {
    this.#broker = options.broker
    this.names = options.names
    this.#clock = options.clock
    this.#log = options.log
  }

  /** Returns a message to its queue after a delay, in ms; 0: at once. Resolves when that is confirmed. */
  async returnLater(
    { incoming, event }: ReceivedEvent,
    { queue, stepFor }: Pick<Source, 'queue' | 'stepFor'>,
    progress: Progress,
    delayMs: number,
  ): Promise<void> {
    const step = stepFor(delayMs)
    if (step === 0) return this.#broker.publish(copyOf(incoming, event, progress, { routingKey: queue }))
    await this.#declareStep(step)
    const { to, headers } = this.names.retryTo(step, queue, progress.type)
    const message = copyOf(incoming, event, progress, to, headers)
    // If the delay is shorter than the step, the message itself expires earlier.
    const expirationMs = Math.ceil(delayMs)
    const early = expirationMs < step ? { expirationMs } : {}
    const timed = { ...message, properties: { ...message.properties, ...early } }
    const declare = () => {
      this.#steps.delete(step)
      return this.#declareStep(step)
    }
    await publishOrDeclare(() => this.#broker.publish(timed), declare)
  }

  /** Puts a message into the archive, if there is one. Resolves when that is confirmed. */
  async archive(
    { incoming, event }: ReceivedEvent,
    queue: string,
    progress: Progress,
    failure: Failure,
  ): Promise<void> {
    const { reason, error } = failure
    const kept = {
      reason,
      error: JSON.parse(error) as unknown,
      at: new Date(this.#clock.wallMs()).toISOString(),
      queue,
    }
    const { archive, archiveTopology } = this.names
    if (archiveTopology === undefined)
      return this.#log.error('an event has failed for good, and there is no archive', { progress, failure: kept })
    const to = { routingKey: archive }
    const message = copyOf(incoming, event, progress, to, { [failureHeader]: JSON.stringify(kept) })
    await publishOrDeclare(
      () => this.#broker.publish(message),
      () => this.#broker.declare(archiveTopology),
    )
  }

  /** The queues in which retries of this process may wait. */
  get steps(): readonly string[] {
    return [...this.#steps.keys()].map((step) => this.names.step(step))
  }

  #declareStep(step: number): Promise<void> {
    const nowMs = this.#clock.monotonicMs()
    const known = this.#steps.get(step)
    if (known !== undefined && nowMs - known.atMs < declareEveryMs) return known.declared
    const declared = this.#broker.declare(this.names.stepTopology(step))
    this.#steps.set(step, { declared, atMs: nowMs })
    declared.catch(() => this.#steps.delete(step))
    return declared
  }
}
