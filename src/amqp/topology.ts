/** Exchanges, queues and bindings: declared once, and again on each new connection. */
import type { Channel } from 'amqplib'
import { UsageError } from '../core/errors.ts'
import type { Log } from '../core/log.ts'
import { typeHeaders, type Headers } from './headers.ts'
import { causeOf, refusalOf, type Session } from './session.ts'

/** An exchange. */
export interface Exchange {
  name: string
  type: 'direct' | 'topic' | 'fanout' | 'headers'
  /** Outlives a restart of the server. Default true. */
  durable?: boolean
  arguments?: Headers
}

/** A queue. */
export interface Queue {
  name: string
  /** Outlives a restart of the server. Default true. */
  durable?: boolean
  /** Is deleted with its last consumer. Default false. */
  autoDelete?: boolean
  /** Belongs to this broker's consuming connection, and is deleted with it. Default false. */
  exclusive?: boolean
  arguments?: Headers
}

/** A route from an exchange to a queue, or to another exchange. */
export interface Binding {
  exchange: string
  to: { queue: string } | { exchange: string }
  /** Default empty. */
  routingKey?: string
  arguments?: Headers
}

/** Objects of the server; declared in this order, exchanges first. */
export interface Topology {
  exchanges?: readonly Exchange[]
  queues?: readonly Queue[]
  bindings?: readonly Binding[]
}

/** One object that is declared. */
interface Step {
  /** For messages. */
  what: string
  isExclusive: boolean
  isExchange: boolean
  /** It needs those before it, and no other binding. */
  isBinding: boolean
  declare(channel: Channel): Promise<unknown>
  /** Declares it without an answer; undefined: an answer is needed. */
  post?: ((channel: Channel) => void) | undefined
  /** The server closed the whole connection because of it: it is not declared again. */
  isFatal?: boolean
}

/** The objects that have been declared, to declare them again. */
export class Declarations {
  readonly #steps = new Map<string, Step>()
  readonly #log: Log

  constructor(log: Log) {
    this.#log = log
  }

  /** True if a topology has queues that belong to the consuming connection. */
  static isExclusive({ queues = [] }: Topology): boolean {
    return queues.some(({ exclusive }) => exclusive)
  }

  /**
   * Declares objects on a connection, and remembers them. `isConsuming`: on the consuming connection, to which exclusive queues
   * belong; they are left out on the other one. @throws UsageError SLUICE_BROKER_REFUSED
   */
  async declare(topology: Topology, session: Session, isConsuming: boolean): Promise<void> {
    const steps = stepsOf(topology)
    await run(
      session,
      steps.filter((step) => isConsuming || !step.isExclusive),
      (error) => {
        throw error
      },
    )
    this.#remember(steps)
  }

  /** Remembers objects without a connection: they are declared on the next one. */
  remember(topology: Topology): void {
    this.#remember(stepsOf(topology))
  }

  /**
   * Declares again: `shared`, all but exclusive queues; `own`, exclusive queues, and the exchanges that they need; `all`. What the
   * server refuses now is logged, and left out. Rejects if the connection is lost.
   */
  async repeat(session: Session, which: 'shared' | 'own' | 'all'): Promise<void> {
    const isWanted = ({ isExclusive, isExchange }: Step) =>
      which === 'all' || (which === 'shared' ? !isExclusive : isExclusive || isExchange)
    const steps = [...this.#steps.values()].filter((step) => !step.isFatal && isWanted(step))
    await run(session, steps, (error) => this.#log.error(error.message))
  }

  #remember(steps: readonly Step[]): void {
    for (const step of steps) this.#steps.set(step.what, step)
  }
}

function stepsOf({ exchanges = [], queues = [], bindings = [] }: Topology): Step[] {
  const exclusive = new Set(queues.filter((queue) => queue.exclusive).map(({ name }) => name))
  return [
    ...exchanges.map(({ name, type, arguments: given = {}, ...options }) => ({
      what: `the exchange "${name}"`,
      isExclusive: false,
      isExchange: true,
      isBinding: false,
      declare: (channel: Channel) => channel.assertExchange(name, type, { ...options, arguments: typeHeaders(given) }),
    })),
    ...queues.map(({ name, arguments: given = {}, ...options }) => ({
      what: `the queue "${name}"`,
      isExclusive: exclusive.has(name),
      isExchange: false,
      isBinding: false,
      declare: (channel: Channel) => channel.assertQueue(name, { ...options, arguments: typeHeaders(given) }),
    })),
    ...bindings.map(({ exchange, to, routingKey = '', arguments: given = {} }) => {
      const target = 'queue' in to ? `queue "${to.queue}"` : `exchange "${to.exchange}"`
      const how = [exchange, routingKey, typeHeaders(given)] as const
      return {
        what: `the binding of ${target} to the exchange "${exchange}" by "${routingKey}" ${JSON.stringify(how[2])}`,
        isExclusive: 'queue' in to && exclusive.has(to.queue),
        isExchange: false,
        isBinding: true,
        declare: (channel: Channel) =>
          'queue' in to ? channel.bindQueue(to.queue, ...how) : channel.bindExchange(to.exchange, ...how),
        post: (channel: Channel) => sendBinding(channel, to, { routingKey, arguments: how[2] }, exchange),
      }
    }),
  ]
}

/** How many channels declare bindings at a time, of which a service may have thousands; each takes a part of this many, at least. */
const channelsMax = 8
const partMin = 32

/** Carries out the steps in order, bindings last. */
async function run(session: Session, steps: readonly Step[], refused: (error: UsageError) => void): Promise<void> {
  await runOn(
    session,
    steps.filter(({ isBinding }) => !isBinding),
    refused,
  )
  const bindings = steps.filter(({ isBinding }) => isBinding)
  const channels = Math.min(channelsMax, Math.ceil(bindings.length / partMin))
  const part = (channel: number) => bindings.filter((_, at) => at % channels === channel)
  await Promise.all(Array.from({ length: channels }, (_, channel) => runPart(session, part(channel), refused)))
}

/** Carries out bindings, with one answer for all of them. If one is refused, each is tried by itself, which finds it. */
async function runPart(
  session: Session,
  bindings: readonly Step[],
  refused: (error: UsageError) => void,
): Promise<void> {
  if (bindings.some(({ post }) => post === undefined)) return runOn(session, bindings, refused)
  const channel = await openChannel(session)
  try {
    for (const { post } of bindings) post?.(channel)
    // The server carries out the commands of a channel in order.
    await channel.prefetch(1)
  } catch {
    // Later connections wait for answers, too, because one of these bindings may have ended this one.
    for (const step of bindings) step.post = undefined
    return runOn(session, bindings, refused)
  }
  channel.close().catch(() => {})
}

/** A method of amqplib's channel that its types do not show: it sends a command and expects no answer. */
interface Inside {
  sendImmediately(command: number, fields: object): void
}

/** AMQP's numbers of the commands. */
const queueBind = 0x32_00_14
const exchangeBind = 0x28_00_1e

/** Sends a binding without an answer. An answer costs a round trip, and a fifth of the server's time for a binding. */
function sendBinding(
  channel: Channel,
  to: Binding['to'],
  how: { routingKey: string; arguments: object },
  from: string,
): void {
  const { sendImmediately } = channel as unknown as Inside
  const common = { ticket: 0, nowait: true, ...how }
  if ('queue' in to) sendImmediately.call(channel, queueBind, { ...common, queue: to.queue, exchange: from })
  else sendImmediately.call(channel, exchangeBind, { ...common, destination: to.exchange, source: from })
}

/** Carries out steps in order. A refusal closes its channel, so the steps after it get another one. */
async function runOn(session: Session, steps: readonly Step[], refused: (error: UsageError) => void): Promise<void> {
  let channel: Channel | undefined
  for (const step of steps) {
    channel ??= await openChannel(session)
    try {
      await step.declare(channel)
    } catch (error) {
      channel = undefined
      const isClosed = refusalOf(error) === undefined
      // Without a code the connection was closed, not a channel. Its end has the code, if there is one.
      const cause = await causeOf(error, session)
      if (refusalOf(cause) === undefined) throw cause
      step.isFatal = isClosed
      refused(new UsageError('SLUICE_BROKER_REFUSED', `RabbitMQ refuses ${step.what}: ${cause.message}`, { cause }))
      if (isClosed) throw cause
    }
  }
  channel?.close().catch(() => {})
}

/** Opens a channel. The errors of a channel reach those who wait for its answers. */
async function openChannel(session: Session): Promise<Channel> {
  const channel = await session.model.createChannel()
  channel.on('error', () => {})
  return channel
}
