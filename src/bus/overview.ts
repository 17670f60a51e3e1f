/**
 * An overview of the services on RabbitMQ that needs no store: entries name the queues of services, whose messages are
 * counted.
 */
import type { Broker } from '../amqp/broker.ts'
import type { Clock } from '../core/clock.ts'
import { idMs, isId } from '../core/hash.ts'
import { matches, unrouted } from '../events/names.ts'
import type { EventRecord } from '../events/catalogue.ts'
import type { ServiceLine } from '../events/transport.ts'
import { dateOf, QueueArchive } from './archive.ts'
import { type Entry, entriesOf } from './entries.ts'
import { isLast, namesIn } from './message.ts'
import { findInReplicas } from './replicas.ts'

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

/** Looks for an event in archives, among retries, among unrouted events, and among the replicas that may have handled it. */
export async function findEvent(broker: Broker, clock: Clock, id: string): Promise<EventRecord | undefined> {
  const look = async (queue: string | null) => {
    if (queue === null || (await broker.findQueue(queue)) === undefined) return []
    return new QueueArchive({ broker: async () => broker, queue, clock }).list({ id })
  }
  const lost = await look(unrouted)
  let event: EventRecord['event'] | null | undefined = lost[0]?.event
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
  const known = await knowledgeOf(broker, entries, id)
  event ??= known[0] && { id, type: known[0].type }
  if (event === undefined || event === null) return undefined
  const { type, time } = event
  const isFound = new Set(deliveries.map(({ service, handler }) => `${service} ${handler}`))
  for (const [name, state] of statesOf(known, entries)) {
    const [service = '', handler = ''] = name.split(' ')
    if (isFound.has(name) || isFound.has(`${service} *`)) continue
    deliveries.push({ service, handler, job: null, state, attempt: null, reason: null, error: null })
  }
  const routed = entries.flatMap(({ handlers }) => handlers).filter(({ pattern }) => matches(pattern, type)).length
  const at = time === undefined && isId(id) ? new Date(idMs(id)) : dateOf(time ?? '')
  return { event, at, routed, deliveries }
}

/** What a replica knows of a message. */
interface Knowledge extends ReturnType<typeof namesIn> {
  service: string
  state: 'running' | 'done' | 'sent on'
}

/** Returns what the replicas of all services know of an event. */
async function knowledgeOf(broker: Broker, entries: readonly Entry[], id: string): Promise<Knowledge[]> {
  let replicas = 0
  for (const { handlers } of entries) {
    const queues = new Set(handlers.map(({ queue }) => queue))
    const sizes = await Promise.all([...queues].map((queue) => sizeOf(broker, queue)))
    replicas += Math.max(0, ...sizes.map(({ consumerCount }) => consumerCount))
  }
  const answers = await findInReplicas(broker, { services: entries.map(({ service }) => service), id, replicas })
  return answers.flatMap(({ service, handled, inHand }) => [
    ...inHand.map((key) => ({ service, ...namesIn(key), state: 'running' as const })),
    ...handled.map((key) => ({
      service,
      ...namesIn(key),
      state: isLast(key) ? ('done' as const) : ('sent on' as const),
    })),
  ])
}

/** Returns what became of an event in handlers, by service and handler; nothing for a handler that tries it later. */
function statesOf(known: readonly Knowledge[], entries: readonly Entry[]): Map<string, 'running' | 'done'> {
  const states = new Map<string, 'running' | 'done'>()
  const of = (service: string, handler: string) =>
    known.filter((one) => one.service === service && one.handler === handler).map(({ state }) => state)
  for (const { service, handlers } of entries)
    for (const { handler, pattern, queue } of handlers) {
      const all = known.filter((one) => one.service === service && one.queue === queue && matches(pattern, one.type))
      const own = of(service, handler)
      const found = own.length > 0 ? own : all.filter((one) => one.handler === '').map(({ state }) => state)
      if (found.includes('done')) states.set(`${service} ${handler}`, 'done')
      else if (found.includes('running')) states.set(`${service} ${handler}`, 'running')
    }
  return states
}

type Size = NonNullable<Awaited<ReturnType<Broker['findQueue']>>>

async function sizeOf(broker: Broker, queue: string): Promise<Size> {
  return (await broker.findQueue(queue)) ?? { messageCount: 0, consumerCount: 0 }
}
