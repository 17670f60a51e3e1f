/** The options of `absorb`: the queues of Celery that a worker reads. */
import { UsageError } from '../core/errors.ts'
import { checkFields } from '../core/fields.ts'
import { fits } from '../core/pattern.ts'
import { type Duration, durationMs } from '../core/rate.ts'
import { env } from '../db/open.ts'

/** The queues of Celery that are read, and how they are read. */
export interface CeleryWork {
  /** Celery's queues. */
  queues: readonly string[]
  /**
   * True: events of this worker and its tasks are sent from the start, as by `celery worker -E`. Default false: once a program of
   * Celery wants them, as Flower does (`enable_events`).
   */
  events?: boolean | undefined
  /** True: producers see that an attempt has begun (`STARTED`), as with Celery's `task_track_started`. Default false. */
  trackStarted?: boolean | undefined
  /**
   * Queues of tasks that follow one that ran here, by patterns of their names, as Celery's `task_routes`; the first that
   * fits counts. Default: the queue of the call. A queue among the options of the task itself goes before.
   */
  routes?: Readonly<Record<string, string>> | undefined
  /** The prefix of all keys of a broker in Redis: `global_keyprefix` of its workers. Default: none. */
  keyPrefix?: string | undefined
  /** `visibility_timeout` of a broker in Redis: the same in all of its workers. Default '1h', as Celery's. */
  visibilityTimeout?: Duration | undefined
}

const fields = ['queues', 'events', 'trackStarted', 'routes', 'keyPrefix', 'visibilityTimeout']

/** Returns the options that a list of queues stands for. @throws UsageError SLUICE_BAD_OPTION, SLUICE_BAD_DURATION */
export function celeryWork(given: readonly string[] | CeleryWork): CeleryWork {
  const work = Array.isArray(given) ? { queues: given as readonly string[] } : (given as CeleryWork)
  const bad = (why: string) => new UsageError('SLUICE_BAD_OPTION', `celery: ${why}`)
  if (typeof given !== 'object') throw bad("it is a list of queues, such as ['celery'], or an object with `queues`")
  checkFields('SLUICE_BAD_OPTION', '`celery`', work, fields)
  const { queues, events = false, trackStarted = false, routes = {}, keyPrefix = '', visibilityTimeout } = work
  if (!Array.isArray(queues) || queues.length === 0) throw bad('`queues` is a list of at least one queue')
  for (const queue of queues as unknown[])
    if (typeof queue !== 'string' || queue === '' || Buffer.byteLength(queue) > 200)
      throw bad('each queue is a name of 1 to 200 bytes')
  if (typeof events !== 'boolean' || typeof trackStarted !== 'boolean')
    throw bad('`events` and `trackStarted` are true or false')
  celeryRoutes(routes)
  if (typeof keyPrefix !== 'string') throw bad('`keyPrefix` is a text')
  if (visibilityTimeout !== undefined && durationMs(visibilityTimeout) < 1_000)
    throw bad('`visibilityTimeout` is a second at least')
  return work
}

/** Returns the function that finds the queue of a task that follows another one. @throws UsageError SLUICE_BAD_OPTION */
export function celeryRoutes(routes: Readonly<Record<string, string>>): (task: string) => string | undefined {
  const bad = () => new UsageError('SLUICE_BAD_OPTION', "celery: `routes` is an object such as { 'shop.*': 'sync' }")
  if (typeof routes !== 'object' || routes === null || Array.isArray(routes)) throw bad()
  const all = Object.entries<unknown>(routes).map(([pattern, queue]) => {
    if (typeof queue !== 'string' || queue === '') throw bad()
    return { pattern, queue }
  })
  return (task) => all.find(({ pattern }) => fits(pattern, task))?.queue
}

/** Returns the URLs of the broker of Celery producers and of the results of Celery's tasks: from options, else the environment. */
export function celeryPlaces(
  { celeryBroker, celeryResults }: { celeryBroker?: string | undefined; celeryResults?: string | undefined },
  amqp: string | undefined,
): { celeryBroker: string | undefined; celeryResults: string | undefined } {
  return {
    celeryBroker: celeryBroker ?? env('CELERY_BROKER_URL') ?? amqp,
    celeryResults: celeryResults ?? env('CELERY_RESULT_BACKEND'),
  }
}
