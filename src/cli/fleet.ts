/** Checks fleets, for `sluice doctor` and `sluice status`: their dispatchers, workers, and queues in RabbitMQ. */
import { type Broker, openBroker } from '../amqp/broker.ts'
import { controlOver } from '../celery/remote.ts'
import { carrierOver } from '../celery/transport.ts'
import { silent } from '../core/log.ts'
import { ok, warn, type Finding } from './finding.ts'
import { many } from './output.ts'
import { has, type StorageAt } from './storage.ts'

/** More messages than this wait for one worker only if it reads more slowly than they are sent. */
const depthMax = 1_000
const queuesMax = 200

/** Looks at the dispatchers of the store and, where a broker is known, at the queues of their workers; undefined: there are none. */
export async function fleet({ sql }: StorageAt, amqp: string | undefined): Promise<Finding | undefined> {
  if (!(await has(sql, 'worker'))) return undefined
  const rows = await sql.query<{ stints: string[] }>('select stints from sluice.worker where stints is not null')
  if (rows.length === 0) return undefined
  // The others are the names of dispatchers in front of Celery workers.
  const workers = rows.flatMap(({ stints }) => stints.filter((stint) => stint.includes('.worker.')))
  const queues = workers.map((stint) => stint.slice(0, stint.lastIndexOf('.')))
  const text = `${many(rows.length, 'dispatcher')} for ${many(queues.length, 'worker')}`
  const isElsewhere = rows.some(({ stints }) => stints.length > 0)
  const lonely = `${text}: start some (\`sluice work --broker\`)`
  if (amqp === undefined) {
    if (queues.length === 0) return isElsewhere ? ok(text) : warn(lonely)
    return ok(`${text}; AMQP_URL, not set here, would show their queues`)
  }
  const broker = await openBroker({ url: amqp, name: 'sluice status', log: silent }).catch((error: Error) => error)
  if (broker instanceof Error) return warn(`${text}; ${broker.message}`)
  try {
    const celery = await readCeleryQueues(sql)
    if (queues.length === 0 && celery.length === 0 && !isElsewhere) return warn(lonely)
    return await judged(text, broker, queues.slice(0, queuesMax), celery)
  } finally {
    await broker.close()
  }
}

/** Returns the queues of Celery workers that tasks name, at most 200. */
async function readCeleryQueues(sql: StorageAt['sql']): Promise<string[]> {
  type Row = { queue: string | null; currently: string | null; remote: boolean | null }
  const tasks = (await sql.run<Row>('operations/read_tasks')).filter(({ remote }) => remote === true)
  const queues = tasks.flatMap(({ queue, currently }) => (queue === null || currently !== null ? [] : [queue]))
  return [...new Set(queues)].slice(0, queuesMax)
}

/** How long answers of workers are awaited, in ms. */
const answerMs = 1_000

/**
 * Counts the messages that workers hold unacknowledged, by the routing key with which they were sent, by default the name of the queue:
 * RabbitMQ itself does not show that over AMQP. Celery's workers, and ours that read Celery's queues, answer. Undefined:
 * none has answered.
 */
async function readUnacknowledged(broker: Broker): Promise<Map<string, number> | undefined> {
  const control = await controlOver(carrierOver(broker), silent)
  const kinds = ['active', 'reserved', 'scheduled']
  const all = await Promise.all(kinds.map((kind) => control.request(kind, {}, { within: answerMs })))
  const answers = all.flatMap((one) => Object.values(one))
  if (answers.length === 0) return undefined
  const counts = new Map<string, number>()
  for (const one of answers.filter((answer) => Array.isArray(answer)).flat() as CallOfWorker[]) {
    const { acknowledged, delivery_info: from } = one?.request ?? one ?? {}
    const queue = from?.routing_key
    if (acknowledged === false && queue !== undefined) counts.set(queue, (counts.get(queue) ?? 0) + 1)
  }
  return counts
}

/** A call as a worker of Celery shows it; one that waits for its time is `request`. */
interface CallOfWorker {
  acknowledged?: boolean
  delivery_info?: { routing_key?: string }
  request?: Omit<CallOfWorker, 'request'>
}

/** @param celery queues of Celery workers, which others fill, too */
async function judged(
  text: string,
  broker: Broker,
  queues: readonly string[],
  celery: readonly string[],
): Promise<Finding> {
  let [messages, idle, missing, deep] = [0, 0, 0, 0]
  for (const queue of queues) {
    const found = await broker.findQueue(queue).catch(() => undefined)
    messages += found?.messageCount ?? 0
    if (found === undefined) missing++
    else if (found.consumerCount === 0) idle++
    if ((found?.messageCount ?? 0) > depthMax) deep++
  }
  const depth = [`${many(messages, 'message')} in their queues`]
  // A request needs rights that a user who only looks may lack.
  const held = celery.length === 0 ? undefined : await readUnacknowledged(broker).catch(() => null)
  for (const queue of celery) {
    const found = await broker.findQueue(queue).catch(() => undefined)
    if (found?.consumerCount === 0) idle++
    if (found === undefined) continue
    const shown = held === undefined ? 'no worker answers' : `${held?.get(queue) ?? 0} unacknowledged at workers`
    const inHand = held === null ? 'what workers hold is unknown' : shown
    depth.push(`${many(found.messageCount, 'message')} in "${queue}" (${inHand})`)
  }
  const faults = [
    ...(missing > 0 ? [`${many(missing, 'worker')} without a queue: ended or disconnected, and not given up yet`] : []),
    ...(idle > 0 ? [`${many(idle, 'queue')} without a consumer`] : []),
    ...(deep > 0 ? [`${many(deep, 'queue')} with more than ${depthMax} messages: their workers read too slowly`] : []),
  ]
  return { status: faults.length === 0 ? 'ok' : 'warn', text: [`${text}; ${depth.join(', ')}`, ...faults].join('; ') }
}
