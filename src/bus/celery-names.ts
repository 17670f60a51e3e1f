/** The exchanges and queues of Celery-AMQP-Events, which services in Python have (docs/events-rabbitmq.md). */
import type { Topology } from '../amqp/topology.ts'
import { ServiceNames } from './names.ts'

/** All events: a topic exchange whose routing keys are types. */
export const celeryExchange = 'events'

/** Where events are published. Others declare it so too, so it has no alternate exchange. */
export const celeryTopology: Topology = { exchanges: [{ name: celeryExchange, type: 'topic' }] }

/** The steps of a retry double, from 1 s on. */
const leastMs = 1_000
const levels = 10

/** Names and topology of one service, as Celery-AMQP-Events has them. */
export class CeleryNames extends ServiceNames {
  override get exchange(): string {
    return celeryExchange
  }

  override get hasOwnQueues(): boolean {
    return true
  }

  override get archive(): string {
    return `${this.service}:archived`
  }

  override get suspects(): string {
    return `${this.service}:suspects`
  }

  override get formerSuspects(): undefined {
    return undefined
  }

  override get recovery(): string {
    return `${this.service}:recover`
  }

  /** A queue is of one type or pattern, whatever the group. */
  override group(_group: string, _isOrdered: boolean, [pattern = '']: readonly string[]): string {
    return `${this.service}.${pattern}`
  }

  override formerGroups(): string[] {
    return []
  }

  override groupTopology(queue: string, _isOrdered: boolean, patterns: readonly string[]): Topology {
    const [routingKey = ''] = patterns
    const first = this.stepTopology(leastMs)
    const from = (exchange: string) => ({ exchange, to: { queue }, routingKey })
    return {
      exchanges: [{ name: this.recovery, type: 'topic' }, ...(first.exchanges ?? [])],
      queues: [{ name: queue, arguments: { 'x-dead-letter-exchange': this.step(leastMs) } }, ...(first.queues ?? [])],
      bindings: [from(this.exchange), from(this.recovery), ...(first.bindings ?? [])],
    }
  }

  /** Returns the step that is nearest to a delay. */
  override stepFor(delayMs: number): number {
    if (delayMs <= 0) return 0
    const level = Math.round(Math.log2(delayMs / leastMs))
    return leastMs * 2 ** Math.min(levels - 1, Math.max(0, level))
  }

  override step(delayMs: number): string {
    const level = Math.log2(delayMs / leastMs)
    return `${this.service}:retry${level === 0 ? '' : `.${level}`}`
  }

  override stepTopology(delayMs: number): Topology {
    const name = this.step(delayMs)
    const own = { 'x-message-ttl': delayMs, 'x-dead-letter-exchange': this.recovery }
    return {
      exchanges: [
        { name: this.recovery, type: 'topic' },
        { name, type: 'fanout' },
      ],
      queues: [{ name, arguments: own }],
      bindings: [{ exchange: name, to: { queue: name } }],
    }
  }

  /** The routing key stays that of the event, by which the queue is found again. */
  override retryTo(delayMs: number, _queue: string, type: string) {
    return { to: { exchange: this.step(delayMs), routingKey: type }, headers: {} }
  }

  override get archiveTopology(): Topology | undefined {
    const { archive: bounds } = this.options
    if (bounds === undefined) return undefined
    const name = this.archive
    const own = { 'x-message-ttl': bounds.keepMs, 'x-max-length': bounds.most, 'x-queue-mode': 'lazy' }
    return {
      exchanges: [{ name, type: 'fanout' }],
      queues: [{ name, arguments: own }],
      bindings: [{ exchange: name, to: { queue: name } }],
    }
  }
}
