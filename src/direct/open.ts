/** Opens a worker without a store, by options or by the environment. */
import { isRedis } from '../celery/connect.ts'
import { type Clock, systemClock } from '../core/clock.ts'
import { UsageError } from '../core/errors.ts'
import { type Duration, durationMs } from '../core/rate.ts'
import { env } from '../db/open.ts'
import type { RedisClient } from '../redis/client.ts'
import { openRedis } from '../redis/connect.ts'
import { sharingOf } from '../redis/sharing.ts'
import { type LogOptions, reportOf } from '../report/options.ts'
import type { AnyTask } from '../tasks/task.ts'
import { celeryPlaces, celeryRoutes } from '../worker/celery-work.ts'
import { type Labels, labelsOf } from '../worker/labels.ts'
import { checkWork, graceMsOf } from '../worker/options.ts'
import { openRabbit } from './rabbit-broker.ts'
import { openRedisBroker } from './redis-broker.ts'
import { DirectWorker } from './worker.ts'

/** Options of a worker without a store; see the fields. */
export interface DirectOptions extends LogOptions {
  /** Queues of Celery to execute. */
  celery: readonly string[]
  /** The broker of the producers, a RabbitMQ or a Redis; default `CELERY_BROKER_URL`, else `AMQP_URL`. */
  celeryBroker?: string | undefined
  /** The prefix of all keys of a broker in Redis: `global_keyprefix` of Celery's workers. Default: none. */
  keyPrefix?: string | undefined
  /** `visibility_timeout` of a broker in Redis: the same in all of its workers. Default '1h', as Celery's. */
  visibilityTimeout?: Duration | undefined
  /** The Redis that has the limits (docs/redis.md), needed if a task has one; default `REDIS_URL`. */
  redis?: string | RedisClient | undefined
  /** Prefix of every key in Redis; default `SLUICE_REDIS_PREFIX`, else `sluice:`. */
  redisPrefix?: string | undefined
  /** Where results go, as the producers' `result_backend`; default `CELERY_RESULT_BACKEND`, else a broker in Redis, else `rpc://`. */
  celeryResults?: string | undefined
  /** Attempts at once; 1 to 10,000, default 10. */
  concurrency?: number | undefined
  /**
   * Messages read ahead of acknowledgements for each slot, as Celery's `worker_prefetch_multiplier`; default 1, so that none waits
   * here while another worker has a free slot. At least 1, and for all slots at most 10,000.
   */
  prefetchMultiplier?: number | undefined
  /**
   * When a message is acknowledged: when its task has ended ('late', the default), or when it begins ('early'): then the task
   * of a killed worker is lost, a task may run for longer than the broker waits for an acknowledgement, and as many
   * messages as there are slots are read ahead beside those that run.
   */
  acks?: 'late' | 'early' | undefined
  /** How long running attempts may go on once the worker is to stop; default `SLUICE_GRACE`, else '25s'. */
  grace?: Duration | undefined
  /** Labels that limits may use as keys (docs/keys.md), in addition to SLUICE_LABELS; `host` and `ip` by default. */
  labels?: Labels | undefined
  /** Private addresses that every task may call. Default: `SLUICE_ALLOW_PRIVATE` (`a,b`), else none. */
  allowPrivate?: readonly string[] | undefined
  /** True: a task that has failed for good is also put into the queue `<queue>.parked`, with its error. Default false. */
  park?: boolean | undefined
  /** True: producers get the state STARTED. Default false. */
  trackStarted?: boolean | undefined
  /** Queues of tasks that follow one that ran here, by patterns of their names. Default: the queue of the call. */
  routes?: Readonly<Record<string, string>> | undefined
  /** True: sends events for Flower and `celery events` from the start. Default false: when a program of Celery wants them. */
  events?: boolean | undefined
  clock?: Clock | undefined
}

/** Most messages that a worker reads ahead of its slots. */
const prefetchMax = 10_000

/**
 * Starts a worker that executes what Celery producers send, and needs no PostgreSQL: it takes each grant itself, in Redis, and
 * what is denied waits on the broker (docs/celery-direct.md).
 * @throws UsageError SLUICE_NO_TASKS, SLUICE_NO_BROKER, SLUICE_NO_REDIS, SLUICE_NEEDS_STORE, SLUICE_NO_SUCH_LIMIT, SLUICE_BAD_REDIS,
 * SLUICE_BAD_OPTION, SLUICE_BAD_LABEL, SLUICE_BAD_URL, SLUICE_MISSING_PEER, SLUICE_BROKER_REFUSED. It waits for servers
 * that are away.
 */
export async function workDirectly(tasks: readonly AnyTask[], options: DirectOptions): Promise<DirectWorker> {
  const { celery: queues, keyPrefix = '', visibilityTimeout = '1h', acks = 'late' } = options
  const { clock = systemClock, concurrency = 10, prefetchMultiplier = 1 } = options
  checkWork(tasks, { celery: { queues, keyPrefix, visibilityTimeout }, concurrency })
  if (!['late', 'early'].includes(acks))
    throw new UsageError('SLUICE_BAD_OPTION', `\`acks\` is "${acks}"; it must be late or early`)
  if (!Number.isInteger(prefetchMultiplier) || prefetchMultiplier < 1 || prefetchMultiplier * concurrency > prefetchMax)
    throw new UsageError(
      'SLUICE_BAD_OPTION',
      `\`prefetchMultiplier\` is ${String(prefetchMultiplier)}; it must be a whole number from 1 on, and times \`concurrency\` at most ${prefetchMax} (0, which Celery takes for no bound, is refused)`,
    )
  const labels = await labelsOf(options.labels)
  for (const task of tasks) checkTask(task, labels)
  const graceMs = graceMsOf(options)
  const { prefix } = sharingOf(options)
  const hasLimits = tasks.some(({ limits }) => limits.length > 0)
  const redis = hasLimits ? openRedis(options.redis ?? env('REDIS_URL')) : undefined
  if (hasLimits && redis === undefined)
    throw new UsageError(
      'SLUICE_NO_REDIS',
      'these tasks have limits, whose grants a worker without a store takes in Redis: set REDIS_URL (redis://host:6379/0), or the option `redis`',
    )
  const { celeryBroker: url, celeryResults } = celeryPlaces(options, env('AMQP_URL'))
  if (url === undefined)
    throw new UsageError(
      'SLUICE_NO_BROKER',
      'the tasks of Celery producers come from a broker: set CELERY_BROKER_URL (amqp://user:password@host:5672/vhost, or redis://host:6379/0), or the option `celeryBroker`',
    )
  const place = celeryResults ?? (isRedis(url) ? url : 'rpc://')
  const results = place === 'rpc://' ? undefined : openRedis(place)
  const report = reportOf(options, clock)
  const { log } = report
  const visibleAfterMs = durationMs(visibilityTimeout)
  const broker = isRedis(url)
    ? await openRedisBroker({ url, prefix: keyPrefix, log, visibleAfterMs, clock })
    : await openRabbit(url, log)
  const close = async () => void (await Promise.all([broker.close(), redis?.close(), results?.close()]))
  let worker: DirectWorker | undefined
  try {
    await Promise.all([redis?.load(), results?.load()])
    worker = new DirectWorker({
      tasks,
      queues,
      broker,
      redis,
      prefix,
      results,
      concurrency,
      prefetchMultiplier,
      acksEarly: acks === 'early',
      graceMs,
      labels,
      allowPrivate: options.allowPrivate ?? env('SLUICE_ALLOW_PRIVATE')?.split(',') ?? [],
      parks: options.park === true,
      queueOf: celeryRoutes(options.routes ?? {}),
      tracksStarted: options.trackStarted === true,
      sendsEvents: options.events === true,
      clock,
      report,
      ended: close,
    })
    await worker.start()
    return worker
  } catch (error) {
    await (worker === undefined ? close() : worker.stop())
    throw error
  }
}

/** @throws UsageError SLUICE_NEEDS_STORE: the task needs what only a store has; SLUICE_BAD_LABEL: the worker lacks a label */
function checkTask({ name, limits, remote }: AnyTask, labels: Labels): void {
  const refuse = (why: string): never => {
    throw new UsageError('SLUICE_NEEDS_STORE', `task "${name}" ${why}: run it with a DATABASE_URL`)
  }
  if (remote !== undefined) refuse('is executed by Celery workers, to which a dispatcher has to give it')
  for (const limit of limits) {
    if (limit.pool !== undefined) refuse(`takes from the pool "${limit.name}", whose members the store chooses`)
    if (limit.adaptive !== undefined) refuse(`has the limit "${limit.name}", whose rate the store finds out (adaptive)`)
    if (limit.label !== undefined && labels[limit.label] === undefined) {
      const text = `task "${name}" has the limit "${limit.name}" by the label "${limit.label}", which this worker lacks: give it one, \`labels: { ${limit.label}: '…' }\``
      throw new UsageError('SLUICE_BAD_LABEL', text)
    }
    if (limit.share !== undefined) refuse(`has the limit "${limit.name}", whose shares the store divides`)
  }
}
