/** The parts of the broker of Celery producers, RabbitMQ or Redis, that the absorber uses. */
import type { Address } from '../celery/carrier.ts'
import type { Traffic } from '../amqp/traffic.ts'
import type { WireMessage } from '../celery/wire.ts'
import type { DepthOptions } from '../worker/queue-depth.ts'

/** A message in hand. */
export interface IncomingCall {
  readonly queue: string
  readonly message: WireMessage
  /** It is not settled, and nobody else gets it meanwhile. */
  readonly isInHand: boolean
  /** Takes it off its queue. */
  ack(): unknown
  /** Puts it back. */
  requeue(): unknown
}

/** A subscription; it ends when the broker is closed. */
export interface Receiving {
  /** Receives no more; what is in hand stays in hand. */
  stop(): Promise<void>
}

/** The broker. All methods throw its errors. */
export interface CeleryBroker {
  /** Of two priorities the lower one comes first. */
  readonly lowerFirst: boolean
  /** What was sent, received and settled so far. */
  readonly traffic: Readonly<Traffic>
  /** Receives messages of queues. A queue that is not there is made, as Celery makes it. */
  consume(queues: readonly string[], onMessage: (incoming: IncomingCall) => void): Promise<Receiving>
  /** Sends a message that must not be lost; a queue that is not there is made. @throws StoreError SLUICE_BROKER_UNROUTED: no queue of an exchange takes it */
  send(message: WireMessage, address: Address): Promise<void>
  /** Sends what perhaps nobody wants any more. */
  reply(message: WireMessage, address: Address): Promise<void>
  /** Sends an event, by its routing key, to whoever watches Celery's workers. */
  announce(message: WireMessage, routingKey: string): Promise<void>
  /** Receives the requests to Celery's workers. `onRequest` reports its own errors. */
  listen(onRequest: (message: WireMessage) => unknown): Promise<void>
  /** Reads for an alarm how many messages wait in queues, until the signal is aborted; undefined: it does not. */
  watch?(options: Omit<DepthOptions, 'broker'>, signal: AbortSignal): Promise<void>
  close(): Promise<void>
}
