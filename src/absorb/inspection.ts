/** Answers the requests of `celery inspect` and Flower to a worker of ours. */
import { argumentsOfInput } from '../celery/arguments.ts'
import { reprOf, writeTime } from '../celery/time.ts'
import type { Call } from './call.ts'
import type { Answers } from './remote-control.ts'
import type { WorkerEvents } from './worker-events.ts'

/** Parameters of `Inspection`; see the fields. */
export interface InspectionOptions {
  /** Resolves to what it has: `active` runs here, `reserved` waits, `scheduled` is not due yet. */
  inHand(kind: 'active' | 'reserved' | 'scheduled'): Promise<readonly CallInHand[]> | readonly CallInHand[]
  /** Resolves to the ids of what was revoked. */
  revoked(): Promise<readonly string[]> | readonly string[]
  /** What this worker answers for Celery's `task_acks_late`: its messages are acknowledged when their tasks have ended. */
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
export interface CallInHand {
  readonly id: string
  readonly call: Pick<Call, 'queue' | 'task'>
  readonly task: string
  readonly input: unknown
  readonly priority: number
  readonly dueAt: Date | null
  readonly startedAt: Date | null
  /** Its message was not acknowledged yet. Default: it was. */
  readonly isUnacknowledged?: boolean
}

/** Returns the answers to questions, under all of Celery's names for them. */
export function inspection(options: InspectionOptions): Answers {
  const { name } = options
  const listInHand = (kind: 'active' | 'reserved') => async () =>
    (await options.inHand(kind)).map((one) => infoOf(one, name))
  const [active, reserved] = [listInHand('active'), listInHand('reserved')]
  const listScheduled = async () =>
    (await options.inHand('scheduled')).map((one) => ({
      eta: one.dueAt === null ? null : writeTime(one.dueAt.getTime()),
      priority: one.priority,
      request: infoOf({ ...one, startedAt: null }, name),
    }))
  const revoked = () => options.revoked()
  const readConf = () => confOf(options)
  const findTasks = async ({ ids: given }: Readonly<Record<string, unknown>>) => {
    const ids: readonly unknown[] = Array.isArray(given) ? given : [given]
    const all: Record<string, unknown> = {}
    for (const kind of ['active', 'reserved', 'scheduled'] as const)
      for (const one of await options.inHand(kind))
        if (ids.includes(one.id)) all[one.id] = [kind === 'scheduled' ? 'reserved' : kind, infoOf(one, name)]
    return all
  }
  return {
    active,
    reserved,
    scheduled: listScheduled,
    revoked,
    conf: readConf,
    query_task: findTasks,
    // Older names.
    dump_active: active,
    dump_reserved: reserved,
    dump_schedule: listScheduled,
    dump_revoked: revoked,
    dump_conf: readConf,
  }
}

function confOf({ queues, slots, events, tracksStarted, redis, acksLate }: InspectionOptions): object {
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
function infoOf(one: CallInHand, hostname: string): object {
  const { id, call, task, priority, startedAt } = one
  const { queue, task: sentAs } = call
  const { args, kwargs } = argumentsOfInput(one.input)
  return {
    id,
    name: sentAs ?? task,
    args: reprOf(args, true),
    kwargs: reprOf(kwargs),
    type: task,
    hostname,
    time_start: startedAt === null ? null : startedAt.getTime() / 1_000,
    acknowledged: one.isUnacknowledged !== true,
    delivery_info: { exchange: '', routing_key: queue, priority, redelivered: false },
    worker_pid: process.pid,
  }
}
