/**
 * An overview of the services on RabbitMQ that needs no store: entries name the queues of services, whose messages are
 * counted.
 */
import type { Broker } from '../amqp/broker.ts'
import type { Clock } from '../core/clock.ts'
import { matches, unrouted } from '../events/names.ts'
import type { EventRecord } from '../events/catalogue.ts'
import type { ServiceLine } from '../events/transport.ts'
import { dateOf, QueueArchive } from './archive.ts'
import { entriesOf } from './entries.ts'

/** Lists the services, with what is in their queues. @param exchange where their events are published */
export async function listServices(broker: Broker, exchange: string): Promise<ServiceLine[]> {
  const lines: ServiceLine[] = []
  const sizes = new Map<string, Size>()
  for (const { service, at, handlers, steps, archive } of await entriesOf(broker)) {
    const line: ServiceLine = { service, at: new Date(at), exchange, handlers: [], retrying: [], archived: null }
    for (const { handler, pattern, queue } of handlers) {
      // A service may have thousands of handlers in one queue.
      const size = sizes.get(queue) ?? (await sizeOf(broker, queue))
      sizes.set(queue, size)
      line.handlers.push({ handler, pattern, queue, waiting: size.messageCount, isLive: size.consumerCount > 0 })
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

/** Looks for an event in archives, among retries, and among unrouted events. A handled event leaves no trace. */
export async function findEvent(broker: Broker, clock: Clock, id: string): Promise<EventRecord | undefined> {
  const look = async (queue: string | null) => {
    if (queue === null || (await broker.findQueue(queue)) === undefined) return []
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
  return { event, at: dateOf(time), routed, deliveries }
}

type Size = NonNullable<Awaited<ReturnType<Broker['findQueue']>>>

async function sizeOf(broker: Broker, queue: string): Promise<Size> {
  return (await broker.findQueue(queue)) ?? { messageCount: 0, consumerCount: 0 }
}
