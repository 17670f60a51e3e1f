/** `sluice work` without a store: executes what Celery producers send (--direct), or what a dispatcher gives (--broker). */
import { UsageError } from '../core/errors.ts'
import { refuseSluice } from '../default-sluice.ts'
import { type DirectOptions, workDirectly, workInFleet, type WorkOptions } from '../index.ts'
import { loadedFiles, needCode } from './config.ts'
import { many } from './output.ts'
import { celeryPlaces, celeryWork } from '../worker/celery-work.ts'
import { type Settings, unlessIn } from './settings.ts'
import { listenForStop, type Stop, surviveStrays } from './stop.ts'

/**
 * Executes what a dispatcher gives, until Ctrl-C or SIGTERM. @throws UsageError SLUICE_NEEDS_STORE, and what `workInFleet` throws
 */
export async function workWithDispatcher(
  settings: Settings,
  file: string | undefined,
  options: WorkOptions,
): Promise<void> {
  const { out, amqp, schema, config } = settings
  const { stop, tasks, handlers } = await load(settings, file)
  const { rules, routes, allowPrivate } = config.fields
  const { queues, concurrency = 10, grace, labels } = options
  const where = { amqp, schema, queues, concurrency, grace, labels, rules, routes }
  const text =
    'this worker has no store, so its handlers can send no jobs, emit no events, and take from no limit: give it the DATABASE_URL of its dispatchers'
  refuseSluice(new UsageError('SLUICE_NEEDS_STORE', text))
  const worker = await workInFleet([...tasks, ...handlers], {
    ...where,
    log: out.log,
    allowPrivate: unlessIn('SLUICE_ALLOW_PRIVATE', allowPrivate),
  })
  const names = tasks.flatMap(({ name, remote }) => (remote === undefined ? [name] : []))
  const on = queues === undefined ? '' : `, queues ${queues.join(', ')}`
  out.log.info(
    `waiting for a dispatcher to send ${names.join(', ')}, without a store (no DATABASE_URL)${on}, ${concurrency} at once`,
  )
  await endOnSignal(worker, 'running job', stop, settings, grace)
}

/**
 * Works until Ctrl-C or SIGTERM. @param how options of `workDirectly` that only such a worker has
 * @throws UsageError SLUICE_NEEDS_STORE, and what `workDirectly` throws
 */
export async function workWithoutStore(
  settings: Settings,
  file: string | undefined,
  chosen: WorkOptions,
  how: Pick<DirectOptions, 'park' | 'acks' | 'prefetchMultiplier'>,
): Promise<void> {
  const { out, amqp, redis } = settings
  const { stop, tasks, handlers, schedules } = await load(settings, file)
  const { celery: of, queues, rate, ...options } = chosen
  const { queues: celery = [], ...reading } = of === undefined ? {} : celeryWork(of)
  if (queues !== undefined || rate !== undefined)
    throw new UsageError('SLUICE_BAD_OPTION', 'a worker without a store has no --queues and no --rate: give --celery')
  refuseStored(settings, { handlers: handlers.length, schedules: schedules.length })
  const { allowPrivate, redisPrefix } = settings.config.fields
  const worker = await workDirectly(tasks, {
    ...options,
    ...reading,
    ...how,
    celery,
    log: out.log,
    celeryBroker: celeryPlaces({}, amqp).celeryBroker,
    redis,
    redisPrefix: unlessIn('SLUICE_REDIS_PREFIX', redisPrefix),
    allowPrivate: unlessIn('SLUICE_ALLOW_PRIVATE', allowPrivate),
  })
  const names = tasks.map((task) => task.name).join(', ')
  out.log.info(
    `executing ${names} from Celery's ${many(celery.length, 'queue')} ${celery.join(', ')}, without a store, ${options.concurrency ?? 10} at once`,
  )
  await endOnSignal(worker, 'message', stop, settings, options.grace)
}

/** Listens for a request to end, and loads the tasks. */
async function load({ config, out }: Settings, file: string | undefined) {
  const stop = listenForStop()
  surviveStrays(out.log, stop)
  const loading = needCode(config, file).finally(() => process.send?.({ files: loadedFiles() }))
  return { stop, ...(await loading) }
}

/** Resolves when the worker has stopped, on a request to end. @param what it has in hand */
async function endOnSignal(
  worker: { running: number; stop(): Promise<void>; abort(): Promise<void> },
  what: string,
  stop: Stop,
  { out }: Settings,
  grace: string | number = '25s',
): Promise<void> {
  await stop.first
  out.log.info(`stopping: ${many(worker.running, what)} in hand, ${grace} at most`)
  const given = stop.second.then(() => worker.abort())
  given.catch(() => {})
  await worker.stop()
  out.log.info('stopped')
}

/** Rejects what only a store carries out: it would be left out in silence. @throws UsageError SLUICE_NEEDS_STORE */
function refuseStored({ config }: Settings, { handlers, schedules }: { handlers: number; schedules: number }): void {
  const { rules = [] } = config.fields
  const found = [
    [rules.length, 'rule'],
    [handlers, 'handler of events'],
    [schedules, 'schedule'],
  ] as const
  const one = found.find(([count]) => count > 0)
  if (one === undefined) return
  throw new UsageError(
    'SLUICE_NEEDS_STORE',
    `the files have ${many(one[0], one[1])}, which only a worker with a store carries out: leave --direct out, or give --tasks and --config without`,
  )
}
