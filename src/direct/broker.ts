/** The broker of Celery producers, RabbitMQ or Redis, as a worker without a store uses it. */
import type { CeleryBroker } from '../absorb/broker.ts'
import type { Incoming as AmqpIncoming } from '../amqp/broker.ts'
import type { WireMessage } from '../celery/wire.ts'

/** A message in hand. */
export interface Incoming extends Pick<AmqpIncoming, 'body' | 'properties' | 'isRedelivered' | 'isInHand'> {
  /** True: `sendLater` has sent nothing, because another worker has the message by now. */
  readonly isElsewhere?: boolean
  /** Takes it off the queue. */
  ack(): unknown
  /** Puts it back to its queue, as one that was delivered. */
  reject(how: { requeue: true }): unknown
}

/** What a worker receives; see the fields. */
export interface Receiving {
  /** A queue that is not there is made, as Celery makes it. */
  queues: readonly string[]
  /** Most messages in hand. */
  prefetch: number
  /** Aborted when it shall receive no more. */
  signal: AbortSignal
  take(incoming: Incoming, queue: string): void
}

/** A broker. All methods throw the errors of RabbitMQ, or of Redis. */
export interface DirectBroker {
  /** The same broker for all but the worker's own messages: results, tasks that follow, requests to workers, and events. */
  readonly celery: CeleryBroker
  /** Connects, makes what messages wait in, and receives. May be repeated if it fails. */
  receive(receiving: Receiving): Promise<void>
  setPrefetch(prefetch: number): unknown
  /** Receives no more; what is in hand can still be settled. */
  stop(): Promise<void>
  /** Resolves when the server has carried out all acknowledgements so far. */
  flush(): Promise<void>
  /**
   * Sends a copy of a message in hand to its queue, after a delay in ms, of `delayMaxMs` at most; 0 or less: at once. Resolves when that
   * is confirmed; the message itself has to be acknowledged then. May be repeated if it fails.
   */
  sendLater(incoming: Incoming, copy: WireMessage, queue: string, ms: number): Promise<void>
  close(): Promise<void>
}
