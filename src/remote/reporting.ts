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
 * @param registered what it answers to `registered`, where its environment counts, too
 * @param backend where results are read: `rpc://`, or the URL of a Redis
 */
export function reportingIn(registered: readonly unknown[], backend: string): Reporting {
  const all = registered.map(String).map((text) => ({
    task: text.split(' ')[0] ?? '',
    fault: faultIn(text, backend),
  }))
  return {
    tasks: new Set(all.flatMap(({ task, fault }) => (fault === undefined ? [task] : []))),
    faults: new Map(all.flatMap(({ task, fault }) => (fault === undefined ? [] : [[task, fault]]))),
  }
}

/** Returns what has to be set for a task: `name [attribute=value …]`. A backend that is not Celery's own is not judged. */
function faultIn(text: string, backend: string): string | undefined {
  if (!/\[.*\btrack_started=True\b/.test(text)) return 'task_track_started = True'
  if (/\[.*\bignore_result=True\b/.test(text)) return 'task_ignore_result = False'
  const isRpc = backend === 'rpc://'
  const [, kind] = /\[.*\bbackend=<celery\.backends\.(\w+)\./.exec(text) ?? []
  if (kind === undefined || kind === (isRpc ? 'rpc' : 'redis')) return undefined
  return `result_backend = ${isRpc ? "'rpc://'" : "'redis://…'"}`
}

/**
 * Returns true if a worker's settings name another database of a Redis than `backend`, or other keys. That is not certain, because
 * they do not show its environment, which overrides them. Its name of the server may be another.
 * @param conf what it answers to `conf`: new names, or old ones, which are also those of Django
 */
export function seemsOtherBackend(conf: unknown, backend: string): boolean {
  if (backend === 'rpc://' || !isRecord(conf)) return false
  const get = (name: string) => conf[name] ?? conf[`CELERY_${name.toUpperCase()}`]
  const options = get('result_backend_transport_options')
  if (isRecord(options) && options['global_keyprefix']) return true
  const db = databaseIn(String(get('result_backend')))
  return db !== undefined && db !== addressOf(backend).db
}

/** Returns the database that a URL names, as Celery reads it; undefined: it is not the URL of a Redis. */
function databaseIn(url: string): number | undefined {
  try {
    return addressOf(url.replace(/([^:/])\/+/g, '$1/')).db
  } catch {
    return undefined
  }
}
