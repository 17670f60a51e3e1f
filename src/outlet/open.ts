/** Opens a worker of a fleet that has no store, by options or by the environment. */
import { type Broker, openBroker } from '../amqp/broker.ts'
import { type Clock, systemClock } from '../core/clock.ts'
import { UsageError } from '../core/errors.ts'
import type { Duration } from '../core/rate.ts'
import type { Log } from '../core/log.ts'
import { checkSchema } from '../db/store.ts'
import { env } from '../db/open.ts'
import { tasksIn, type Work } from '../events/groups.ts'
import { isHandler } from '../events/handler.ts'
import { type LogOptions, reportOf } from '../report/options.ts'
import { Estimates } from '../tasks/estimate.ts'
import { type Routes, type Rule, Rulebook } from '../tasks/rule.ts'
import type { AnyTask } from '../tasks/task.ts'
import { givenLabels, type Labels } from '../worker/labels.ts'
import { checkWork, graceMsOf, type WorkOptions } from '../worker/options.ts'
import { TaskSet } from '../worker/task-set.ts'
import { AmqpWire } from './amqp-wire.ts'
import { BorrowedStore } from './borrowed-store.ts'
import { FleetWorker, nameFleet } from './fleet-worker.ts'

/** Options of a fleet's worker without a store; see the fields. */
export interface FleetOptions extends LogOptions {
  /** The RabbitMQ of the fleet; default `AMQP_URL`. */
  amqp?: string | undefined
  /** The schema of its dispatchers; default `SLUICE_SCHEMA`, else `sluice`. */
  schema?: string | undefined
  /** Attempts at once; 1 to 10,000, default 10. */
  concurrency?: number | undefined
  /** The queues of its dispatchers; default all. */
  queues?: readonly string[] | undefined
  /** The labels of its dispatchers, in addition to SLUICE_LABELS. */
  labels?: Labels | undefined
  /** How long running attempts may go on once the worker is to stop; default `SLUICE_GRACE`, else '25s'. */
  grace?: Duration | undefined
  /** The rules and routes of its dispatchers. */
  rules?: readonly Rule[] | undefined
  routes?: Routes | undefined
  /** Private addresses that every task may call. Default: `SLUICE_ALLOW_PRIVATE` (`a,b`), else none. */
  allowPrivate?: readonly string[] | undefined
  clock?: Clock | undefined
}

/**
 * Starts a worker that executes what a dispatcher of the same schema, queues and labels gives it, and needs no PostgreSQL: what its
 * attempts need of the store its dispatcher carries out (docs/fleets.md).
 * @throws UsageError SLUICE_NO_TASKS, SLUICE_NEEDS_STORE, SLUICE_NO_BROKER, SLUICE_BAD_OPTION, SLUICE_BAD_LABEL, SLUICE_BAD_SCHEMA, SLUICE_BAD_URL,
 * SLUICE_MISSING_PEER. It waits for a RabbitMQ that is away.
 */
export async function workInFleet(work: readonly Work[], options: FleetOptions = {}): Promise<FleetWorker> {
  const { concurrency = 10, queues, grace, clock = systemClock, schema = env('SLUICE_SCHEMA') ?? 'sluice' } = options
  checkSchema(schema)
  const own = localTasksOf(tasksIn(work))
  if (work.some(isHandler)) {
    const text =
      'a worker without a store handles no events: give it the DATABASE_URL of its dispatchers, or only tasks'
    throw new UsageError('SLUICE_NEEDS_STORE', text)
  }
  checkWork(own, { concurrency, queues, grace })
  const graceMs = graceMsOf(options)
  const labels = labelsOfFleet(own, options)
  // Only for its errors: nothing would close the broker after them.
  void new TaskSet(own, labels)
  const report = reportOf(options, clock)
  const lender = new BorrowedStore({ schema, clock, report })
  const { store } = lender
  const broker = await openFleet(options.amqp ?? env('AMQP_URL'), schema, report.log, true)
  const worker = new FleetWorker({
    store,
    lender,
    wire: new AmqpWire(broker),
    fleet: nameFleet(schema, queues, labels),
    tasks: own,
    labels,
    concurrency,
    graceMs,
    rulebook: new Rulebook(options.rules, options.routes, new Estimates(store)),
    allowPrivate: options.allowPrivate ?? env('SLUICE_ALLOW_PRIVATE')?.split(',') ?? [],
    peer: undefined,
    renew: async () => {},
    ended: () => broker.close(),
  })
  return startSafely(worker, () => worker.start())
}

/**
 * Connects to the RabbitMQ of a fleet.
 * @throws UsageError SLUICE_NO_BROKER, SLUICE_BAD_URL, SLUICE_MISSING_PEER; StoreError SLUICE_BROKER_UNREACHABLE
 */
export async function openFleet(
  url: string | undefined,
  schema: string,
  log: Log,
  isPatient: boolean,
): Promise<Broker> {
  if (url !== undefined) return openBroker({ url, name: `sluice ${schema}`, log, isPatient })
  throw new UsageError(
    'SLUICE_NO_BROKER',
    'a fleet needs a RabbitMQ: set AMQP_URL (amqp://user:password@host:5672/vhost), or the option `amqp`',
  )
}

/** The tasks that workers of ours execute; of a remote one its `onFailed`. @throws UsageError SLUICE_NO_TASKS */
export function localTasksOf(tasks: readonly AnyTask[]): readonly AnyTask[] {
  const own = tasks.flatMap((task) => (task.remote === undefined ? [task] : (task.onFailed ?? [])))
  if (own.length > 0 || tasks.length === 0) return own
  const text = 'all of these tasks are executed by Celery workers: run `sluice dispatch` in front of those'
  throw new UsageError('SLUICE_NO_TASKS', text)
}

/** Resolves to a worker that has started; one that fails to start is stopped. */
export async function startSafely<T extends { stop(): Promise<void> }>(
  worker: T,
  start: () => Promise<void>,
): Promise<T> {
  try {
    await start()
    return worker
  } catch (error) {
    await worker.stop().catch(() => {})
    throw error
  }
}

/**
 * Returns the labels that a dispatcher shares with its workers: those that were given. Each worker has its own host and
 * address, and a dispatcher claims before it knows the worker. @throws UsageError SLUICE_BAD_LABEL
 */
export function labelsOfFleet(
  tasks: readonly AnyTask[],
  { labels }: Pick<WorkOptions, 'labels'>,
): Readonly<Record<string, string>> {
  const given = givenLabels(labels)
  for (const { name, label } of tasks.flatMap(({ limits }) => limits))
    if (label !== undefined && !(label in given))
      throw new UsageError(
        'SLUICE_BAD_LABEL',
        `limit "${name}" is by the label "${label}": give it to a dispatcher and to all of its workers (--label ${label}=…), and have a dispatcher for each value`,
      )
  return given
}
