/** The exchanges and queues of events on RabbitMQ, with their names and arguments (docs/events-rabbitmq.md). */
import type { Headers } from '../amqp/headers.ts'
import type { Queue, Topology } from '../amqp/topology.ts'
import { unrouted } from '../events/names.ts'

/** All events: a topic exchange whose routing keys are types. */
export const eventsExchange = 'sluice.events'
/** Notes among the replicas of a service: a direct exchange whose routing keys are services. */
export const replicasExchange = 'sluice.replicas'
/** The header of a message that may have been published before. */
export const again = { 'sluice-again': true } as const
/** The header by which a retry finds the queue of its step. */
const stepHeader = 'sluice-step'

/** The options of a service's queues. */
export interface QueueOptions {
  /** Quorum queues, which are replicated, with dead-lettering at least once. */
  readonly isQuorum: boolean
  /** Bounds of the archive; undefined: failed events are not kept. */
  readonly archive: { readonly keepMs: number; readonly most: number } | undefined
  /** Names and messages of Celery-AMQP-Events. */
  readonly isCelery: boolean
}

/** How long beyond its own delay a queue may be unused before it is deleted; each use declares it again. */
const stepUnusedMs = 3_600_000
/** RabbitMQ's bound of times, in ms: some 49 days. */
export const timeMaxMs = 2 ** 32 - 1 - stepUnusedMs
/** Deliveries without a settlement after which a quorum queue dead-letters a message: only a worker that dies at each one gets there. */
const deliveryLimit = 100

/**
 * The part of a retry's wait that is random. A queue returns its messages in order, so a message waits behind another
 * for at most this part of the queue's delay.
 */
export const stepJitter = 0.1

const countMax = 1_000_000_000

/** Names and topology of one service. */
export class ServiceNames {
  readonly service: string
  readonly options: QueueOptions

  constructor(service: string, options: QueueOptions) {
    this.service = service
    this.options = options
  }

  /** Where events are published. */
  get exchange(): string {
    return eventsExchange
  }

  /** The exchange from which a message gets back to its queue by its type; undefined: only by the name of the queue. */
  get recovery(): string | undefined {
    return undefined
  }

  /** True if each pattern of a group has a queue of its own. */
  get hasOwnQueues(): boolean {
    return false
  }

  /**
   * A headers exchange: the header selects the step, and the routing key, the group's queue, stays. Each kind of queues has its own:
   * through one for both, a retry would go to the step of either kind.
   */
  get retryExchange(): string {
    return this.#kind(`sluice.retry:${this.service}`)
  }

  /** Messages whose worker was lost: each is delivered alone (suspects.ts). Declared when there is one. */
  get suspects(): string {
    return this.#kind(`sluice.suspects:${this.service}`)
  }

  /** The queue of suspects under earlier settings; undefined: there is none. */
  get formerSuspects(): string | undefined {
    return new ServiceNames(this.service, { ...this.options, isQuorum: !this.options.isQuorum }).suspects
  }

  get suspectsTopology(): Topology {
    // Losses are counted here, and each is another delivery.
    return { queues: [this.#queue(this.suspects, this.options.isQuorum ? { 'x-delivery-limit': countMax } : {})] }
  }

  get archive(): string {
    return this.#kind(`sluice.archive:${this.service}`)
  }

  /** The queue of a group. What differs in its arguments differs in its name. */
  group(group: string, isOrdered: boolean, _patterns: readonly string[] = []): string {
    return this.#kind(`sluice.events:${this.service}:${group}${isOrdered ? ':ordered' : ''}`)
  }

  /** The queues that a group has had with other settings. */
  formerGroups(group: string, isOrdered: boolean): string[] {
    const { service, options } = this
    const all = [true, false].flatMap((isQuorum) => {
      const names = new ServiceNames(service, { ...options, isQuorum })
      return [names.group(group, true), names.group(group, false)]
    })
    return all.filter((name) => name !== this.group(group, isOrdered))
  }

  /** The queue of a group, bound to the types that its handlers match. */
  groupTopology(name: string, isOrdered: boolean, patterns: readonly string[]): Topology {
    // The same without an archive, because RabbitMQ refuses a queue that exists with other arguments: until there is one, RabbitMQ keeps
    // what it gives up in the queue.
    const poison = { 'x-delivery-limit': deliveryLimit, ...deadLetter(this.archive), ...atLeastOnce }
    const single = isOrdered ? { 'x-single-active-consumer': true } : {}
    return {
      exchanges: [{ name: this.retryExchange, type: 'headers' }],
      queues: [this.#queue(name, { ...single, ...(this.options.isQuorum ? poison : {}) })],
      bindings: patterns.map((routingKey) => ({ exchange: eventsExchange, to: { queue: name }, routingKey })),
    }
  }

  /**
   * Returns the step for a delay: one of the retry's, if it is at most a tenth longer, else the delay rounded up to two digits, so that
   * there are few queues.
   */
  stepFor(delayMs: number, steps: ReadonlySet<number>): number {
    const ms = Math.min(timeMaxMs, Math.ceil(delayMs))
    if (ms <= 0) return 0
    const known = [...steps].filter((step) => ms <= step && ms >= Math.floor(step * (1 - stepJitter)))
    if (known.length > 0) return Math.min(...known)
    const unit = 10 ** Math.max(0, Math.floor(Math.log10(ms)) - 1)
    return Math.min(timeMaxMs, Math.ceil(ms / unit) * unit)
  }

  /** Returns where a message waits for a step, after which it is in that queue again. `type`: the event's type. */
  retryTo(
    delayMs: number,
    queue: string,
    _type: string,
  ): { to: { exchange: string; routingKey: string }; headers: Headers } {
    return { to: { exchange: this.retryExchange, routingKey: queue }, headers: { [stepHeader]: String(delayMs) } }
  }

  /** The queue of a delay. */
  step(delayMs: number): string {
    return this.#kind(`sluice.retry:${this.service}:${delayMs}`)
  }

  /** The queue in which retries wait for `delayMs`, and from which they go straight back to the queue that they are for. */
  stepTopology(delayMs: number): Topology {
    const name = this.step(delayMs)
    const own = {
      'x-message-ttl': delayMs,
      'x-dead-letter-exchange': '',
      'x-expires': delayMs + stepUnusedMs,
      ...(this.options.isQuorum ? atLeastOnce : {}),
    }
    const binding = { 'x-match': 'all', [stepHeader]: String(delayMs) }
    return {
      queues: [this.#queue(name, own)],
      bindings: [{ exchange: this.retryExchange, to: { queue: name }, arguments: binding }],
    }
  }

  /** The archive; undefined: there is none. */
  get archiveTopology(): Topology | undefined {
    const { archive } = this.options
    if (archive === undefined) return undefined
    const { isQuorum } = this.options
    const bounds = {
      'x-message-ttl': archive.keepMs,
      'x-max-length': archive.most,
      // Each look at an archive delivers its messages; RabbitMQ 4 would drop them after the 20th.
      ...(isQuorum ? { 'x-delivery-limit': countMax } : {}),
    }
    return { queues: [this.#queue(this.archive, bounds)] }
  }

  #kind(name: string): string {
    return this.options.isQuorum ? `${name}:quorum` : name
  }

  #queue(name: string, own: Queue['arguments']): Queue {
    return { name, arguments: { ...(this.options.isQuorum ? { 'x-queue-type': 'quorum' } : {}), ...own } }
  }
}

const atLeastOnce = { 'x-dead-letter-strategy': 'at-least-once', 'x-overflow': 'reject-publish' }
const deadLetter = (queue: string) => ({ 'x-dead-letter-exchange': '', 'x-dead-letter-routing-key': queue })

/** Where events are published. `archive`: the bounds of what nobody gets; undefined: it is counted by its publisher only. */
export function eventsTopology(archive: QueueOptions['archive']): Topology {
  const bounds = { 'x-message-ttl': 7 * 86_400_000, 'x-max-length': 10_000 }
  return {
    exchanges: [
      { name: unrouted, type: 'fanout' },
      { name: eventsExchange, type: 'topic', arguments: { 'alternate-exchange': unrouted } },
    ],
    ...(archive === undefined
      ? {}
      : {
          queues: [{ name: unrouted, arguments: bounds }],
          bindings: [{ exchange: unrouted, to: { queue: unrouted } }],
        }),
  }
}
