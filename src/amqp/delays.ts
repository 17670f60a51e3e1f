/**
 * Lets messages wait on a RabbitMQ, in a fixed number of classic queues. A wait is written with base 4 in units of 50 ms; each
 * digit that is not zero is a stay in a queue of one time to live, so that no message waits behind one that is due
 * later. A message is in each queue once at most, so RabbitMQ never drops it as one that goes in circles.
 */
import type { Broker } from './broker.ts'
import type { Headers } from './headers.ts'
import type { Message } from './publisher.ts'
import type { Queue, Topology } from './topology.ts'

const unitMs = 50
const base = 4
const places = 9

/** The longest wait, in ms: some 3.6 h. */
export const delayMaxMs = unitMs * base ** places

const exchangeOf = (place: number) => `sluice.delay:${place}`
const headerOf = (place: number) => `sluice-delay-${place}`

/** The headers of a message that has waited begin with it. */
export const delayHeaderStart = 'sluice-delay-'

/**
 * Returns the queues of a digit's place. The last place also has a queue for zero, from which a message goes to the
 * queue that its routing key names.
 */
function queuesOf(place: number): { digit: number; queue: Queue }[] {
  const digits = Array.from({ length: base }, (_, digit) => digit).slice(place === 0 ? 0 : 1)
  return digits.map((digit) => {
    const ttlMs = place === 0 ? unitMs * (digit + 1) : unitMs * digit * base ** place
    const to = place === 0 ? '' : exchangeOf(place - 1)
    // Queues with other arguments have other names.
    const queue = {
      name: `sluice.delay:${place}:${ttlMs}`,
      arguments: { 'x-message-ttl': ttlMs, 'x-dead-letter-exchange': to },
    }
    return { digit, queue }
  })
}

/** The exchanges and queues in which messages wait: the same for all programs on a broker. */
export function delayTopology(): Topology {
  const all = Array.from({ length: places }, (_, place) => ({ place, queues: queuesOf(place) }))
  const digit = (place: number, value: number) => ({ 'x-match': 'all', [headerOf(place)]: String(value) })
  return {
    exchanges: all.map(({ place }) => ({ name: exchangeOf(place), type: 'headers' })),
    queues: all.flatMap(({ queues }) => queues.map(({ queue }) => queue)),
    bindings: all.flatMap(({ place, queues }) => {
      const stays = queues.map(({ digit: value, queue }) => {
        return { exchange: exchangeOf(place), to: { queue: queue.name }, arguments: digit(place, value) }
      })
      const passes = {
        exchange: exchangeOf(place),
        to: { exchange: exchangeOf(place - 1) },
        arguments: digit(place, 0),
      }
      return place === 0 ? stays : [...stays, passes]
    }),
  }
}

/** Returns where a message goes to wait, and its headers then. @param delayMs more than 0; the wait is up to a unit longer, and at most `delayMaxMs` */
export function routeDelayed(delayMs: number): { exchange: string; headers: Headers } {
  let rest = Math.min(base ** places, Math.max(1, Math.ceil(delayMs / unitMs))) - 1
  const digits: number[] = []
  do {
    digits.push(rest % base)
    rest = Math.floor(rest / base)
  } while (rest > 0)
  const headers = Object.fromEntries(digits.map((digit, place) => [headerOf(place), String(digit)]))
  return { exchange: exchangeOf(digits.length - 1), headers }
}

/**
 * Publishes a message to a queue after a delay, in ms; 0 or less: at once. The delay is up to 50 ms longer, or ends at
 * `delayMaxMs`. The topology has to be declared. Resolves when that is confirmed; the errors are those of `Broker.publish`.
 */
export function publishLater(
  broker: Pick<Broker, 'publish'>,
  message: Omit<Message, 'exchange' | 'routingKey'>,
  queue: string,
  delayMs: number,
): Promise<void> {
  if (!(delayMs > 0)) return broker.publish({ ...message, routingKey: queue })
  const { exchange, headers } = routeDelayed(delayMs)
  // Its own expiry would end each of its waits.
  const { expirationMs: _, ...properties } = message.properties ?? {}
  const all = { ...properties, headers: { ...properties.headers, ...headers } }
  return broker.publish({ ...message, exchange, routingKey: queue, properties: all })
}
