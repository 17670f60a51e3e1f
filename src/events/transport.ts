/** The interface of what carries events to services: the store (`outbox.ts`), or a broker (`bus/`). */
import type { TxLike } from '../db/tx.ts'
import type { AnyTask } from '../tasks/task.ts'
import type { EventArchive } from './archive.ts'
import type { EventRecord } from './catalogue.ts'
import type { EventRow } from './row.ts'

/** A service as a transport knows it. */
export interface ServiceLine {
  service: string
  /** When a process of it last started. */
  at: Date
  /** The exchange of which its queues have bindings. */
  exchange: string
  /** `waiting`: events in the queue of its group, those in hand included; `isLive`: somebody takes them. */
  handlers: { handler: string; pattern: string; queue: string; waiting: number; isLive: boolean }[]
  /** How many events wait for a retry in the queue of each step of the backoffs. */
  retrying: { stepMs: number; count: number }[]
  /** Events that failed for good; null: they are not kept. */
  archived: number | null
}

/** Events in order. */
export type EventRows = AsyncIterable<EventRow> | Iterable<EventRow>

/** Carries events. Each event that it has taken is delivered to every service that subscribed to it. */
export interface Transport {
  /** True if the store delivers: then handlers are subscribed there. */
  readonly isStore: boolean
  /** The tasks that its workers run besides those of users. */
  readonly tasks: readonly AnyTask[]
  /** Takes one event; resolves once it is durable. Calls at the same time may share a way. */
  add(row: EventRow): Promise<void>
  /**
   * Takes events in order, as fast as they can be made durable; resolves to their number once all are. With `tx`: they are
   * emitted when that commits. If the rows end with an error, those before it are emitted.
   */
  write(rows: EventRows, tx?: TxLike): Promise<number>
  /**
   * Takes one event, unless one of its type was taken with this key within 24 h; resolves to the id of the event that was, once that is
   * durable. With `tx`: as for `write`.
   */
  once(row: EventRow, key: string, tx?: TxLike): Promise<string>
  /** Returns a service's archive; undefined: failed events are failed jobs. */
  archiveOf?(service: string): EventArchive | undefined
  /** Lists the services that it knows; undefined: the store does. */
  services?(): Promise<ServiceLine[]>
  /** Returns what it knows of an event; undefined: nothing. */
  find?(id: string): Promise<EventRecord | undefined>
  /** Resolves when what was added so far is durable, or has failed. */
  settled(): Promise<void>
}
