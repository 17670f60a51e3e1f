/** `sluice work --direct`: executes what Celery producers send, without a store. */
import { UsageError } from '../core/errors.ts'
import { type DirectOptions, workDirectly, type WorkOptions } from '../index.ts'
import { loadedFiles, needCode } from './config.ts'
import { many } from './output.ts'
import { celeryPlaces, celeryWork } from '../worker/celery-work.ts'
import { type Settings, unlessIn } from './settings.ts'
import { listenForStop, surviveStrays } from './stop.ts'

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
  const stop = listenForStop()
  surviveStrays(out.log, stop)
  const loading = needCode(settings.config, file).finally(() => process.send?.({ files: loadedFiles() }))
  const { tasks, handlers, schedules } = await loading
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
  await stop.first
  out.log.info(`stopping: ${many(worker.running, 'message')} in hand, ${options.grace ?? '25s'} at most`)
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
