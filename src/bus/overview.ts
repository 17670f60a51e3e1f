/**
 * What is known of services on RabbitMQ without their stores: each leaves an entry in one queue when it starts, by which others find its
 * queues, and count what is in them.
 */
import type { Broker } from '../amqp/broker.ts'
import type { Clock } from '../core/clock.ts'
import { matches } from '../events/names.ts'
import type { EventRecord } from '../events/catalogue.ts'
import type { ServiceLine } from '../events/transport.ts'
import { QueueArchive } from './archive.ts'
import { type ServiceNames, unrouted } from './names.ts'
import type { Source } from './source.ts'
import { absent } from './suspects.ts'

/** The queue with the entries of all services. */
export const directory = 'sluice.services'
const topology = { queues: [{ name: directory, arguments: { 'x-max-length': 10_000 } }] }

/** The entry of a service. The one that started last decides. */
interface Entry {
  service: string
  at: string
  handlers: { handler: string; pattern: string; queue: string }[]
  steps: { stepMs: number; queue: string }[]
  archive: string | null
}

/** Returns the entry of a service with these groups. */
export function entryOf(names: ServiceNames, sources: readonly Source[], clock: Clock): Entry {
  const steps = new Map(sources.flatMap((each) => each.steps).map((stepMs) => [names.step(stepMs), stepMs]))
  return {
    service: names.service,
    at: new Date(clock.wallMs()).toISOString(),
    handlers: sources.flatMap(({ handlers, queue }) =>
      handlers.map(({ name: handler, pattern }) => ({ handler, pattern, queue })),
    ),
    steps: [...steps].map(([queue, stepMs]) => ({ stepMs, queue })),
    archive: names.archiveTopology === undefined ? null : names.archive,
  }
}

/** Leaves the entry of a service, in place of its earlier ones. */
export async function leaveEntry(broker: Broker, entry: Entry): Promise<void> {
  await broker.declare(topology)
  await broker.use(async (channel) => {
    for (;;) {
      const message = await channel.get(directory)
      if (message === false) break
      const other = read(message.content)
      if (other === undefined || other.service === entry.service) channel.ack(message)
    }
    channel.nackAll(true)
    await channel.checkQueue(directory)
  })
  await broker.publish({ routingKey: directory, body: Buffer.from(JSON.stringify(entry)) })
}

/** Lists the services, with what is in their queues. */
export async function listServices(broker: Broker): Promise<ServiceLine[]> {
  const lines: ServiceLine[] = []
  for (const { service, at, handlers, steps, archive } of await entriesOf(broker)) {
    const line: ServiceLine = { service, at: new Date(at), handlers: [], retrying: [], archived: null }
    for (const { handler, pattern, queue } of handlers) {
      const { messageCount, consumerCount } = await sizeOf(broker, queue)
      line.handlers.push({ handler, pattern, queue, waiting: messageCount, isLive: consumerCount > 0 })
    }
    for (const { stepMs, queue } of steps) {
      const { messageCount: count } = await sizeOf(broker, queue)
      if (count > 0) line.retrying.push({ stepMs, count })
    }
    if (archive !== null) line.archived = (await sizeOf(broker, archive)).messageCount
    lines.push(line)
  }
  return lines
}

/** Looks for an event in archives, among retries, and among those that nobody gets. What was handled leaves nothing. */
export async function findEvent(broker: Broker, clock: Clock, id: string): Promise<EventRecord | undefined> {
  const look = async (queue: string | null) => {
    if (queue === null || (await broker.use((channel) => channel.checkQueue(queue)).catch(absent)) === undefined)
      return []
    return new QueueArchive({ broker: async () => broker, queue, clock }).list({ id })
  }
  const lost = await look(unrouted)
  let event = lost[0]?.event
  const deliveries: EventRecord['deliveries'] = []
  const entries = await entriesOf(broker)
  for (const { service, steps, archive } of entries) {
    const place = async (queue: string | null, state: string, isFailed: boolean) => {
      for (const one of await look(queue)) {
        event ??= one.event
        const { attempt, reason, error } = one
        const why = isFailed ? { reason, error } : { reason: 'retry', error: null }
        deliveries.push({ service, handler: one.handler ?? '*', job: null, state, attempt, ...why })
      }
    }
    await place(archive, 'failed', true)
    for (const { queue } of steps) await place(queue, 'scheduled', false)
  }
  if (event === undefined || event === null) return undefined
  const { type, time } = event
  const routed = entries.flatMap(({ handlers }) => handlers).filter(({ pattern }) => matches(pattern, type)).length
  return { event, at: new Date(time), routed, deliveries }
}

async function entriesOf(broker: Broker): Promise<Entry[]> {
  const found = new Map<string, Entry>()
  const walk = broker.use(async (channel) => {
    for (;;) {
      const message = await channel.get(directory)
      if (message === false) break
      const entry = read(message.content)
      if (entry !== undefined && !((found.get(entry.service)?.at ?? '') > entry.at)) found.set(entry.service, entry)
    }
    channel.nackAll(true)
    await channel.checkQueue(directory)
  })
  await walk.catch(absent)
  return [...found.values()].toSorted((one, other) => (one.service < other.service ? -1 : 1))
}

/** What strangers put there is no entry. */
function read(body: Buffer): Entry | undefined {
  try {
    const entry = JSON.parse(body.toString()) as Partial<Entry> | null
    const isEntry = typeof entry?.service === 'string' && typeof entry.at === 'string' && Array.isArray(entry.handlers)
    return isEntry && Array.isArray(entry.steps) ? (entry as Entry) : undefined
  } catch {
    return undefined
  }
}

async function sizeOf(broker: Broker, queue: string): Promise<{ messageCount: number; consumerCount: number }> {
  const size = await broker.use((channel) => channel.checkQueue(queue)).catch(absent)
  return size ?? { messageCount: 0, consumerCount: 0 }
}
