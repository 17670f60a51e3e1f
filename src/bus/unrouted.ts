/** Warns the emitter of events that no service gets: RabbitMQ keeps them, and confirms them as it does any other. */
import type { Broker } from '../amqp/broker.ts'
import { StoreError } from '../core/errors.ts'
import type { Log } from '../core/log.ts'
import { matches, unrouted } from '../events/names.ts'
import { entriesOf } from './entries.ts'

/** Looks at each type once, after its first event. */
export class UnroutedEvents {
  readonly #log: Log
  readonly #known = new Set<string>()
  /** Types that are still to be looked at. */
  #fresh: string[] = []
  #looking: Promise<void> | undefined

  constructor(log: Log) {
    this.#log = log
  }

  /** RabbitMQ has confirmed an event of this type. Returns a promise that resolves after the look; undefined: none is needed. */
  recordSent(type: string, broker: Broker): Promise<void> | undefined {
    if (this.#known.has(type)) return undefined
    this.#known.add(type)
    this.#fresh.push(type)
    this.#looking ??= this.#look(broker)
    return this.#looking
  }

  async #look(broker: Broker): Promise<void> {
    let types: string[] = []
    try {
      while (this.#fresh.length > 0) {
        types = this.#fresh.splice(0)
        await this.#warn(broker, types)
      }
    } catch (error) {
      // Their next events are looked at again, unless that would be refused each time.
      if (error instanceof StoreError) for (const type of [...types, ...this.#fresh.splice(0)]) this.#known.delete(type)
      this.#log.debug('it is not known whether services get what was emitted', { err: error })
    } finally {
      this.#looking = undefined
    }
  }

  async #warn(broker: Broker, types: readonly string[]): Promise<void> {
    const { messageCount } = await broker.use((channel) => channel.checkQueue(unrouted))
    // Mostly all events have a queue, and the entries need not be read.
    if (messageCount === 0) return
    const patterns = (await entriesOf(broker)).flatMap(({ handlers }) => handlers.map(({ pattern }) => pattern))
    for (const type of types)
      if (!patterns.some((pattern) => matches(pattern, type)))
        this.#log.warn(
          `no service is known that gets events ${type}: subscribe to them, or stop emitting them; \`sluice events archive list ${unrouted}\` shows those that RabbitMQ keeps, and \`replay\` publishes them once more`,
        )
  }
}
