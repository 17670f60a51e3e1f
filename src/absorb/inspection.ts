/** Answers the requests of `celery inspect` and Flower to a worker of ours. */
import { argumentsOf } from '../celery/arguments.ts'
import { reprOf, writeTime } from '../celery/time.ts'
import type { Call } from './call.ts'
import type { WorkerEvents } from './worker-events.ts'

/** Parameters of `Inspection`; see the fields. */
export interface InspectionOptions {
  /** Resolves to what it has: `active` runs here, `reserved` waits, `scheduled` is not due yet. */
  inHand(kind: 'active' | 'reserved' | 'scheduled'): Promise<readonly InHand[]> | readonly InHand[]
  /** Resolves to the ids of what was revoked. */
  revoked(): Promise<readonly string[]> | readonly string[]
  /** Messages are acknowledged when they have ended. */
  acksLate: boolean
  /** Celery's name of this worker. */
  name: string
  queues: readonly string[]
  slots: number
  events: WorkerEvents
  tracksStarted: boolean
  /** Undefined: results go over rpc. */
  redis: object | undefined
}

/** A call that has no result yet. */
export interface InHand {
  readonly id: string
  readonly call: Pick<Call, 'queue' | 'task'>
  readonly task: string
  readonly input: unknown
  readonly priority: number
  readonly dueAt: Date | null
  readonly startedAt: Date | null
}

type Given = Readonly<Record<string, unknown>>

/** Answers questions, by Celery's names of them. */
export class Inspection {
  readonly #options: InspectionOptions
  readonly #answers: Readonly<Record<string, (given: Given) => unknown>>

  constructor(options: InspectionOptions) {
    this.#options = options
    const inHand = (kind: 'active' | 'reserved') => async () =>
      (await options.inHand(kind)).map((one) => this.#infoOf(one))
    const scheduled = async () => (await options.inHand('scheduled')).map((one) => this.#plannedOf(one))
    this.#answers = {
      conf: () => this.#conf(),
      active: inHand('active'),
      reserved: inHand('reserved'),
      scheduled,
      revoked: () => options.revoked(),
      query_task: ({ ids }) => this.#query(Array.isArray(ids) ? ids : [ids]),
    }
  }

  /** Returns the answer to a question; undefined: it is none of Celery's, or one that is not answered here. */
  answer(method: string, given: Given): unknown {
    const name = aliases[method] ?? method
    return Object.hasOwn(this.#answers, name) ? this.#answers[name]?.(given) : undefined
  }

  #conf(): object {
    const { queues, slots, events, tracksStarted, redis, acksLate } = this.#options
    return {
      task_queues: queues,
      worker_concurrency: slots,
      worker_send_task_events: events.isOn,
      task_track_started: tracksStarted,
      task_acks_late: acksLate,
      result_backend: redis === undefined ? 'rpc://' : 'redis://',
      accept_content: ['json'],
      task_serializer: 'json',
      result_serializer: 'json',
      timezone: 'UTC',
      enable_utc: true,
    }
  }

  /** A call as `Request.info` of Celery has it; arguments are texts, cut short. */
  #infoOf({ id, call, task, input, priority, startedAt }: InHand): Record<string, unknown> {
    const { queue, task: sentAs } = call
    const { args, kwargs } = sentArguments(input)
    return {
      id,
      name: sentAs ?? task,
      args: reprOf(args, true),
      kwargs: reprOf(kwargs),
      type: task,
      hostname: this.#options.name,
      time_start: startedAt === null ? null : startedAt.getTime() / 1_000,
      acknowledged: !this.#options.acksLate,
      delivery_info: { exchange: '', routing_key: queue, priority, redelivered: false },
      worker_pid: process.pid,
    }
  }

  #plannedOf(one: InHand): object {
    const eta = one.dueAt === null ? null : writeTime(one.dueAt.getTime())
    return { eta, priority: one.priority, request: this.#infoOf({ ...one, startedAt: null }) }
  }

  async #query(ids: readonly unknown[]): Promise<Record<string, unknown>> {
    const found: Record<string, unknown> = {}
    for (const kind of ['active', 'reserved', 'scheduled'] as const)
      for (const one of await this.#options.inHand(kind))
        if (ids.includes(one.id)) found[one.id] = [kind === 'scheduled' ? 'reserved' : kind, this.#infoOf(one)]
    return found
  }
}

/** The arguments with which a job of this input was sent: both kinds may be there (`inputOf`). */
function sentArguments(input: unknown): ReturnType<typeof argumentsOf> {
  const { args, kwargs } = argumentsOf(input)
  const { args: positional, ...named } = kwargs
  return Array.isArray(positional) ? { args: positional, kwargs: named } : { args, kwargs }
}

/** Older names of questions. */
const aliases: Readonly<Record<string, string>> = {
  dump_active: 'active',
  dump_reserved: 'reserved',
  dump_schedule: 'scheduled',
  dump_revoked: 'revoked',
  dump_conf: 'conf',
}
