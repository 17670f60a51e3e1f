/** RabbitMQ as the transport of events: publishes them, confirmed. `consumer.ts` is the services' end. */
import { type Broker, openBroker } from '../amqp/broker.ts'
import { isUnrouted } from '../amqp/publish-errors.ts'
import type { Message } from '../amqp/publisher.ts'
import { systemClock } from '../core/clock.ts'
import { closedError, UsageError } from '../core/errors.ts'
import { idFrom } from '../core/hash.ts'
import { isPromise, type MaybePromise } from '../core/maybe-promise.ts'
import { payloadBytesMax, payloadDepthMax } from '../core/payload.ts'
import { Waiters } from '../core/waiters.ts'
import type { Store } from '../db/store.ts'
import type { TxLike } from '../db/tx.ts'
import type { EventArchive } from '../events/archive.ts'
import type { EventRecord } from '../events/catalogue.ts'
import { inBatches } from '../events/batches.ts'
import { OtherHandlers } from '../events/other-handlers.ts'
import type { EventRow } from '../events/row.ts'
import type { EventRows, ServiceLine, Transport } from '../events/transport.ts'
import { snooze } from '../tasks/outcome.ts'
import { type AnyTask, type Sender, task } from '../tasks/task.ts'
import { QueueArchive } from './archive.ts'
import { markRepeated, messageOf } from './message.ts'
import { celeryTopology, CeleryNames } from './celery-names.ts'
import { taskMessageOf } from './celery-message.ts'
import { unrouted } from '../events/names.ts'
import { eventsTopology, ServiceNames } from './names.ts'
import { type BusOptions, type BusSettings, busSettings } from './options.ts'
import { findEvent, listServices } from './overview.ts'
import { UnroutedEvents } from './unrouted.ts'

/** Parameters of `RabbitBus`; see the fields. */
export interface RabbitBusOptions {
  store: Store
  settings: BusSettings
  /** The URL of the broker. */
  amqp: string | undefined
  /** Sends the jobs that publish what was emitted in transactions. */
  sender: Pick<Sender, 'send' | 'sendMany'>
}

/** The task that publishes an event that was emitted in a transaction; it is tried for as long as a broker may be away. */
const relayName = 'events:relay'
const relayRetry = { attempts: 1000, base: '100ms', max: '10s' } as const

/** Its input has an envelope as text, in which each character may be escaped once more. */
const relayBounds = { bytesMax: 2 * payloadBytesMax + 16_384, depthMax: payloadDepthMax }

const settleMaxMs = 5_000
/** Events that are published in one turn of the event loop, at most. */
const turnRows = 250

/** Returns the bus that was chosen; undefined: the store carries events. @throws UsageError SLUICE_BAD_OPTION */
export function busOf(
  chosen: string | BusOptions | undefined,
  options: Omit<RabbitBusOptions, 'settings'>,
): RabbitBus | undefined {
  const settings = busSettings(chosen)
  return settings && new RabbitBus({ ...options, settings })
}

/** Returns the names of a service. */
export function namesOf(service: string, settings: BusSettings): ServiceNames {
  return settings.isCelery ? new CeleryNames(service, settings) : new ServiceNames(service, settings)
}

/** RabbitMQ as the transport of one process. */
export class RabbitBus implements Transport {
  readonly isStore = false
  readonly tasks: readonly AnyTask[]
  readonly settings: BusSettings
  /** What this process knows of the handlers of its service. */
  readonly others: OtherHandlers
  readonly #options: RabbitBusOptions
  readonly #relay: AnyTask
  /** Events that are not confirmed. */
  #underway = 0
  readonly #ends = new Waiters()
  #broker: Promise<Broker> | undefined
  /** The connection, once it is open. */
  #open: Broker | undefined
  #isClosed = false
  #unrouted = 0
  readonly #warned = new Set<string>()
  readonly #unroutedEvents: UnroutedEvents

  constructor(options: RabbitBusOptions) {
    this.#options = options
    this.settings = options.settings
    this.others = new OtherHandlers(options.store.log)
    this.#unroutedEvents = new UnroutedEvents(options.store.log)
    const relay = task(relayName, {
      retry: relayRetry,
      // An event that an earlier attempt may have published is published again.
      run: async (row: EventRow, { attempt, ambiguous }) => {
        const message = await this.#messageOf(row)
        await this.broker()
        // The first to connect learn it only now. Waiting for RabbitMQ they would take the slots of all other jobs.
        if (this.#isAway) throw snooze(0)
        return this.#publish(row.type, attempt > 1 || ambiguous ? markRepeated(message) : message)
      },
    }) as AnyTask
    this.#relay = { ...relay, inputBounds: relayBounds, isOpen: () => !this.#isAway }
    this.tasks = [this.#relay]
  }

  /** True if RabbitMQ takes nothing now. It is not known before the first connection. */
  get #isAway(): boolean {
    try {
      this.#open?.checkThere()
      return false
    } catch {
      return true
    }
  }

  /** True if RabbitMQ confirms events that no service gets. */
  get #keepsUnrouted(): boolean {
    return this.settings.archive !== undefined && !this.settings.isCelery
  }

  /** Events of this process that no queue took. With an archive RabbitMQ keeps these in a queue, and they count there. */
  get unrouted(): number {
    return this.#unrouted
  }

  /**
   * Resolves to the connection, which is opened at the first call; a RabbitMQ that is away is waited for.
   * @throws UsageError SLUICE_NO_BROKER, SLUICE_BAD_URL, SLUICE_MISSING_PEER, SLUICE_BROKER_REFUSED; StoreError SLUICE_CLOSED
   */
  async broker(): Promise<Broker> {
    this.#broker ??= this.#connect().catch((error: unknown) => {
      this.#broker = undefined
      throw error
    })
    return this.#broker
  }

  add(row: EventRow): Promise<void> {
    return this.#publish(row.type, this.#messageOf(row))
  }

  async write(rows: EventRows, tx?: TxLike): Promise<number> {
    const { sender } = this.#options
    if (tx !== undefined) return inBatches(rows, (batch) => sender.sendMany(this.#relay, batch, { tx }), true)
    const broker = await this.broker()
    let [count, left] = [0, 0]
    let failure: { error: unknown } | undefined
    let wake: (() => void) | undefined
    const ended = (): void => void (--left === 0 && wake?.())
    const failed = (error: unknown): void => {
      failure ??= { error }
      ended()
    }
    /** Throws the error of the first event that failed. It goes before an error of the rows, which states that those before are emitted. */
    const end = async () => {
      if (left > 0) await new Promise<void>((resolve) => (wake = resolve))
      if (failure !== undefined) throw failure.error
    }
    try {
      for await (const row of rows) {
        // Otherwise nothing would be written before there is no more space: publishing yields only to promises.
        if (++count % turnRows === 0) await new Promise((resolve) => setImmediate(resolve))
        const made = this.#messageOf(row)
        const message = isPromise(made) ? await made : made
        let space = broker.waitForSpace(message.body.length)
        while (space !== undefined) {
          await space
          space = broker.waitForSpace(message.body.length)
        }
        if (failure !== undefined) break
        left++
        void this.#publish(row.type, message).then(ended, failed)
      }
    } finally {
      await end()
    }
    return count
  }

  /** The job that publishes it has the event's id, so that a known key returns that. A key of a job is shorter than one of an event. */
  once(row: EventRow, key: string, tx?: TxLike): Promise<string> {
    const idempotencyKey = idFrom(`${row.type} ${key}`)
    return this.#options.sender.send(this.#relay, row, { id: row.id, idempotencyKey, tx })
  }

  archiveOf(service: string): EventArchive | undefined {
    const { settings } = this
    if (settings.archive === undefined) return undefined
    const context = { broker: () => this.broker(), clock: this.#options.store.clock }
    if (service === unrouted) return new QueueArchive({ ...context, queue: service })
    const { archive: queue, recovery } = namesOf(service, settings)
    return new QueueArchive({ ...context, queue, recovery })
  }

  async services(): Promise<ServiceLine[]> {
    return listServices(await this.broker(), namesOf(unrouted, this.settings).exchange)
  }

  async find(id: string): Promise<EventRecord | undefined> {
    return findEvent(await this.broker(), this.#options.store.clock, id)
  }

  /** Resolves when the events that were added are confirmed, or have failed; after 5 s at the latest, if RabbitMQ is away. */
  async settled(): Promise<void> {
    const late = systemClock.sleep(settleMaxMs, undefined, false)
    await Promise.race([this.#ends.waitUntil(() => this.#underway === 0), late])
  }

  /** Closes the connection; events that wait for a confirmation have 5 s. */
  async close(): Promise<void> {
    this.#isClosed = true
    const broker = await this.#broker?.catch(() => undefined)
    await broker?.close()
  }

  #messageOf(row: EventRow): MaybePromise<Message> {
    return this.settings.isCelery ? taskMessageOf(row, this.#options.store.clock.wallMs()) : messageOf(row)
  }

  async #publish(type: string, made: MaybePromise<Message>): Promise<void> {
    this.#underway++
    try {
      const message = isPromise(made) ? await made : made
      const broker = this.#open ?? (await this.broker())
      await broker.publish(message)
      if (this.#keepsUnrouted) this.#lookAt(type, broker)
    } catch (error) {
      // Nobody has subscribed to it, which is no error of its emitter.
      if (!isUnrouted(error)) throw error
      this.#unrouted++
      if (this.#warned.has(type)) return
      this.#warned.add(type)
      this.#options.store.log.warn(`no service gets events ${type}: subscribe to them, or stop emitting them`)
    } finally {
      this.#underway--
      this.#ends.recheck()
    }
  }

  /** The emitter does not wait for the look, but a close does. */
  #lookAt(type: string, broker: Broker): void {
    const looked = this.#unroutedEvents.recordSent(type, broker)
    if (looked === undefined) return
    this.#underway++
    void looked.finally(() => {
      this.#underway--
      this.#ends.recheck()
    })
  }

  async #connect(): Promise<Broker> {
    const { amqp, store, settings } = this.#options
    if (this.#isClosed) throw closedError()
    if (amqp === undefined)
      throw new UsageError(
        'SLUICE_NO_BROKER',
        'events go over RabbitMQ: set AMQP_URL (amqp://user:password@host:5672/vhost), or the option `amqp`',
      )
    const topology = settings.isCelery ? celeryTopology : eventsTopology(settings.archive)
    const { schema, log } = store
    this.#open = await openBroker({ url: amqp, name: `sluice events ${schema}`, log, topology, isPatient: true })
    return this.#open
  }
}
