/** The parts of a broker that the client of Celery's workers uses. */
import type { WireMessage } from './wire.ts'

/** Where a message goes; `exchange` empty: the routing key is the name of a queue. */
export interface Address {
  exchange: string
  routingKey: string
}

/** A queue of this program's own, which ends with it. */
export interface Inbox {
  queue: string
  /** The direct exchange that takes messages with this routing key to it. Default: they are sent to its name. */
  binding?: { exchange: string; routingKey: string }
  /**
   * True: a message goes only when `onMessage` has resolved; until then another reader may get it. If it resolves to false, the
   * message goes back to the queue for other readers, soon. Default false.
   */
  isKept?: boolean
  /** Called, where messages are kept, whenever they begin to arrive, and when they no longer do. */
  onAttached?: (isAttached: boolean) => void
}

/** A broker through which messages of the codec go. */
export interface Carrier {
  /**
   * Resolves when the broker has the message.
   * @throws StoreError SLUICE_BROKER_UNROUTED: no queue takes it; other errors of the broker
   */
  publish(message: WireMessage, address: Address): Promise<void>
  /**
   * Sends a message to all that listen to a fanout exchange; perhaps nobody does. The errors are those of the broker.
   * @param routingKey in Redis: what those that listen to a part of it want; default empty
   */
  broadcast(message: WireMessage, exchange: string, routingKey?: string): Promise<void>
  /** Makes a queue, passes what arrives in it to `onMessage`, which reports its own errors, and resolves to what ends that. */
  receive(inbox: Inbox, onMessage: (message: WireMessage) => unknown): Promise<() => Promise<void>>
  /** Closes the connections, and ends what `receive` began. */
  close(): Promise<void>
}
