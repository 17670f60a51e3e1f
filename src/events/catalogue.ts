/** The catalogue of events: their publishers and handlers, and the deliveries of one event. */
import { isId } from '../core/hash.ts'
import type { Store } from '../db/store.ts'
import type { CloudEvent } from './envelope.ts'

/** A type of events. */
export interface EventLine {
  type: string
  /** The services that emit it, if their definitions are known; `service` is '' for a program without a name. */
  publishers: {
    service: string
    version: number | null
    description: string | null
    /** JSON Schema of the payload. */
    schema: Record<string, unknown> | null
  }[]
  subscribers: { service: string; handler: string; pattern: string }[]
  /** When the newest event that is kept was emitted. */
  lastAt: Date | null
  /** True if the newest event that is kept was delivered to nobody. */
  isUnrouted: boolean
}

/** A handler of a service. */
export interface HandlerLine {
  service: string
  handler: string
  pattern: string
  /** The task, and the queue, of its deliveries. */
  task: string
  queue: string
  /** It gets the events from then on. */
  since: Date
  /** False while earlier events are still delivered to it. */
  isCaughtUp: boolean
  /** True if a worker runs that has its group. */
  isLive: boolean
  /** When a process that has it last started, to the minute. */
  seenAt: Date
  /** How many deliveries wait for a retry, by the number of failures; of the 10,000 jobs that are due first. */
  retrying: Record<string, number>
  /** How many deliveries failed for good, of the newest 10,000 failed jobs. */
  archived: number
}

/** The record of an event: its deliveries. */
export interface EventRecord {
  /** Only the id and the type are known if RabbitMQ carried the event, and no queue has it any more. */
  event: Pick<CloudEvent, 'id' | 'type'> & Partial<CloudEvent>
  at: Date
  /** To how many handlers it was delivered when it was emitted. */
  routed: number
  deliveries: {
    service: string
    handler: string
    /** The id of the job; null: RabbitMQ carries the event. */
    job: string | null
    /** Null: the handler has not got it, or its job is no longer kept. */
    state: string | null
    reason: string | null
    attempt: number | null
    error: { message: string; code?: string } | null
  }[]
}

const lookMax = 10_000

/** Reads what the store knows about events. */
export class Catalogue {
  readonly #store: Store

  constructor(store: Store) {
    this.#store = store
  }

  /** Lists the types of events that are defined, subscribed to, or kept. */
  async list(): Promise<EventLine[]> {
    type Row = Pick<EventLine, 'type' | 'publishers' | 'subscribers'> & { last_at: Date | null; routed: number | null }
    const rows = await this.#store.run<Row>('events/read_catalogue')
    return rows.map(({ type, publishers, subscribers, last_at: lastAt, routed }) => ({
      type,
      publishers,
      subscribers,
      lastAt,
      isUnrouted: routed === 0,
    }))
  }

  /** Lists the handlers of all services, with how many deliveries of each wait for a retry or have failed for good. */
  async handlers(): Promise<HandlerLine[]> {
    type Row = Omit<HandlerLine, 'isCaughtUp' | 'isLive' | 'seenAt'> & {
      is_caught_up: boolean
      is_live: boolean
      seen_at: Date
    }
    const rows = await this.#store.run<Row>('events/read_services', [lookMax])
    return rows.map(({ is_caught_up: isCaughtUp, is_live: isLive, seen_at: seenAt, ...row }) => ({
      ...row,
      isCaughtUp,
      isLive,
      seenAt,
    }))
  }

  /** Returns the record of an event; undefined if it is not kept, or there is none with this id. */
  async show(id: string): Promise<EventRecord | undefined> {
    if (!isId(id)) return undefined
    const [row] = await this.#store.run<EventRecord>('events/read_event', [id])
    return row && { event: row.event, at: row.at, routed: row.routed, deliveries: row.deliveries }
  }

  /**
   * Ends the subscription of a handler, or of a whole service: it gets no further events. Deliveries that wait stay;
   * a process that has the handler in its code subscribes it again when it starts. Resolves to the handlers.
   */
  async remove(service: string, handler?: string): Promise<string[]> {
    const rows = await this.#store.run<{ handler: string }>('events/delete_subscriptions', [service, handler ?? null])
    return rows.map((row) => row.handler)
  }
}
