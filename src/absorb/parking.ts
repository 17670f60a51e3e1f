/** Messages that are put aside, with the reason. */
import type { Broker, Delivery } from '../amqp/broker.ts'
import { publish, received } from '../celery/transport.ts'

/** The queue of messages of a queue that cannot be carried out. */
export function parkingOf(queue: string): string {
  return `${queue}.parked`
}

/** Puts a copy of a message aside. Resolves when that is confirmed; the errors are those of the broker. */
export async function park(broker: Broker, delivery: Delivery, queue: string, reason: string): Promise<void> {
  const wire = received(delivery)
  const headers = { ...wire.headers, 'x-sluice-reason': reason.slice(0, 1_000) }
  // Somebody may have deleted it.
  await broker.declare({ queues: [{ name: parkingOf(queue) }] })
  await publish(broker, { ...wire, headers }, { exchange: '', routingKey: parkingOf(queue) })
}
