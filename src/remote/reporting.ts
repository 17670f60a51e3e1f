/** Whether a stock worker reports its calls where this dispatcher reads results, by what it answers about itself. Pure. */
import { isRecord } from '../celery/json.ts'
import { addressOf } from '../redis/address.ts'

/** The attributes of tasks by which `reportingIn` judges. */
export const taskItems = ['track_started', 'ignore_result', 'backend']

/** The tasks of a worker that report, and of the others the setting that each lacks. */
export interface Reporting {
  readonly tasks: ReadonlySet<string>
  readonly faults: ReadonlyMap<string, string>
}

/**
 * Judges each task of a worker. A call without reports would look like one that was not made: it would be repeated, and its units
 * refunded.
 * @param registered what it answers to `registered` @param conf to `conf`, which matters for results in Redis
 * @param backend where results are read: `rpc://`, or the URL of a Redis
 */
export function reportingIn(registered: readonly unknown[], conf: unknown, backend: string): Reporting {
  const place = isElsewhere(conf, backend) ? elsewhere : undefined
  const all = registered.map(String).map((text) => ({
    task: text.split(' ')[0] ?? '',
    fault: faultIn(text, backend) ?? place,
  }))
  return {
    tasks: new Set(all.flatMap(({ task, fault }) => (fault === undefined ? [task] : []))),
    faults: new Map(all.flatMap(({ task, fault }) => (fault === undefined ? [] : [[task, fault]]))),
  }
}

const elsewhere =
  'result_backend, without global_keyprefix, to the Redis database that CELERY_RESULT_BACKEND names here'

/** Returns what has to be set for a task: `name [attribute=value …]`. A backend that is not Celery's own is not judged. */
function faultIn(text: string, backend: string): string | undefined {
  if (!/\[.*\btrack_started=True\b/.test(text)) return 'task_track_started = True'
  if (/\[.*\bignore_result=True\b/.test(text)) return 'task_ignore_result = False'
  const isRpc = backend === 'rpc://'
  const [, kind] = /\[.*\bbackend=<celery\.backends\.(\w+)\./.exec(text) ?? []
  if (kind === undefined || kind === (isRpc ? 'rpc' : 'redis')) return undefined
  return `result_backend = ${isRpc ? "'rpc://'" : "'redis://…'"}`
}

/** True if a worker's results are in another database of Redis, or under other keys. Its name of the server may be another. */
function isElsewhere(conf: unknown, backend: string): boolean {
  if (backend === 'rpc://' || !isRecord(conf)) return false
  const { result_backend: theirs, result_backend_transport_options: options } = conf
  if (isRecord(options) && options['global_keyprefix']) return true
  const [, db] = /^rediss?:\/\/[^/?#]*(?:\/(\d*))?/.exec(String(theirs)) ?? [undefined, undefined]
  return /^rediss?:/.test(String(theirs)) && Number(db ?? 0) !== addressOf(backend).db
}
