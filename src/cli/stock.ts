/**
 * Checks the stock Celery workers behind dispatchers, for `sluice doctor`: their pools and prefetch beside what tasks declare, and
 * whether they report their calls.
 */
import { systemClock } from '../core/clock.ts'
import { openControl } from '../celery/remote.ts'
import { env } from '../db/open.ts'
import type { LimitLine } from '../operations/limit-line.ts'
import { Limits } from '../operations/limits.ts'
import { reportingIn, taskItems } from '../remote/reporting.ts'
import { placesOf } from '../tasks/remote.ts'
import type { Finding } from './finding.ts'
import { many } from './output.ts'
import { has, type StorageAt } from './storage.ts'

/** The capacity of all workers of one queue. */
interface Pool {
  workers: number
  slots: number
  /** Messages that they take ahead, those that they execute included. */
  prefetch: number
}

const answerMs = 1_500

/** Compares the workers of the queues that remote tasks name with their `slots`; undefined: there are no remote tasks. */
export async function stock({ sql }: StorageAt, amqp: string | undefined): Promise<Finding | undefined> {
  if (amqp === undefined || !(await has(sql, 'limit_def'))) return undefined
  const tasks = await sql.run<KnownTask>('operations/read_tasks')
  const declared = declaredIn(await new Limits(sql, systemClock).list(), tasks)
  if (declared.length === 0) return undefined
  const control = await openControl({ broker: amqp })
  try {
    const readStats = () => control.request('stats', {}, { within: answerMs })
    // Workers of one name share a queue in RabbitMQ, and get its requests by turns.
    const [stats, again, once, queues, registered] = await Promise.all([
      readStats(),
      readStats(),
      readStats(),
      control.request('active_queues', {}, { within: answerMs }),
      control.request('registered', { taskinfoitems: taskItems }, { within: answerMs }),
    ])
    const lacks = lacksIn(tasks, registered, queues, env('CELERY_RESULT_BACKEND') ?? 'rpc://')
    return judged(declared, poolsIn(stats, queues), { shared: sharedIn([stats, again, once]), lacks })
  } finally {
    await control.close()
  }
}

/** A row of `operations/read_tasks`. */
interface KnownTask {
  name: string
  queue: string | null
  /** The name that the task has now; null: this one. */
  currently: string | null
  /** True: Celery workers execute it. */
  remote: boolean | null
  workers: readonly unknown[] | null
  waits: boolean
}

/** Returns the slots that are declared of the queues of tasks. The name of a limit does not show each queue's name. */
export function declaredIn(
  limits: readonly Pick<LimitLine, 'name' | 'numbers'>[],
  tasks: readonly Pick<KnownTask, 'queue'>[],
): { queue: string; slots: number }[] {
  const places = new Map(limits.map(({ name, numbers: { concurrency } }) => [name, concurrency]))
  return [...new Set(tasks.map(({ queue }) => queue))].flatMap((queue) => {
    const slots = queue === null ? undefined : places.get(placesOf(queue))
    return queue === null || slots === undefined ? [] : [{ queue, slots }]
  })
}

/**
 * Returns why a queue gets no jobs of a task, by queue: a worker lacks the task, or does not report its calls. Workers in Node may
 * serve a queue of the same name. A task that no dispatcher has, and of which no job waits, belongs to earlier code: its record stays.
 * @param backend where dispatchers read results
 */
export function lacksIn(
  tasks: readonly KnownTask[],
  registered: Record<string, unknown>,
  queues: Record<string, unknown>,
  backend: string,
): Map<string, string> {
  const all = new Map<string, string>()
  const current = tasks.filter(
    ({ currently, remote, workers, waits }) => remote === true && currently === null && (workers !== null || waits),
  )
  for (const [worker, one] of Object.entries(registered)) {
    if (!Array.isArray(one)) continue
    const reporting = reportingIn(one, backend)
    for (const queue of servedIn(queues[worker]))
      for (const { name } of current.filter((task) => task.queue === queue && !reporting.tasks.has(task.name))) {
        const fault = reporting.faults.get(name)
        const lack = fault === undefined ? 'lacks the task' : `does not report its calls: set ${fault}`
        all.set(queue, `gets no jobs of ${name}, because ${worker} ${lack}`)
      }
  }
  return all
}

function servedIn(answer: unknown): string[] {
  return (Array.isArray(answer) ? (answer as { name?: unknown }[]) : []).map(({ name }) => String(name))
}

/** Returns the names with which several processes have answered. */
export function sharedIn(answers: readonly Record<string, unknown>[]): string[] {
  const pidIn = (one: unknown) => (one as { pid?: unknown } | undefined)?.pid
  return Object.keys(answers[0] ?? {}).filter(
    (name) => new Set(answers.flatMap((all) => pidIn(all[name]) ?? [])).size > 1,
  )
}

/** Sums what workers have answered, by the queues that they serve. */
export function poolsIn(stats: Record<string, unknown>, queues: Record<string, unknown>): Map<string, Pool> {
  const pools = new Map<string, Pool>()
  for (const [worker, one] of Object.entries(stats)) {
    const { pool, prefetch_count: prefetch } = (one ?? {}) as {
      pool?: Record<string, unknown>
      prefetch_count?: unknown
    }
    for (const name of servedIn(queues[worker])) {
      const sum = pools.get(name) ?? { workers: 0, slots: 0, prefetch: 0 }
      pools.set(name, {
        workers: sum.workers + 1,
        slots: sum.slots + (Number(pool?.['max-concurrency']) || 0),
        prefetch: sum.prefetch + (Number(prefetch) || 0),
      })
    }
  }
  return pools
}

/** Judges each queue: what has to be changed, and where. @param more `shared`: names that several workers have; `lacks`: `lacksIn` */
export function judged(
  declared: readonly { queue: string; slots: number }[],
  pools: ReadonlyMap<string, Pool>,
  { shared = [], lacks }: { shared?: readonly string[]; lacks?: ReadonlyMap<string, string> } = {},
): Finding {
  const findings = declared.map(({ queue, slots }) => {
    const pool = pools.get(queue)
    if (pool === undefined) return { isOk: false, text: `queue "${queue}" has no Celery worker that answers` }
    const lack = lacks?.get(queue)
    if (lack !== undefined) return { isOk: false, text: `queue "${queue}" ${lack}` }
    const has = `queue "${queue}": ${many(pool.workers, 'Celery worker')} with ${many(pool.slots, 'slot')}`
    if (pool.slots !== slots)
      return {
        isOk: false,
        text: `${has}, but its tasks declare ${slots}: the smaller number counts; correct \`slots\``,
      }
    if (pool.prefetch > pool.slots)
      return {
        isOk: false,
        text: `${has}, and ${pool.prefetch} messages taken at once: jobs wait in full workers; set worker_prefetch_multiplier = 1`,
      }
    return { isOk: true, text: has }
  })
  for (const name of shared) {
    const text = `several Celery workers have the name ${name}, so each looks as if it started anew, and jobs in their queues count as crashed: give each a name of its own (-n one@%h)`
    findings.push({ isOk: false, text })
  }
  return {
    status: findings.every(({ isOk }) => isOk) ? 'ok' : 'warn',
    text: findings.map(({ text }) => text).join('; '),
  }
}
