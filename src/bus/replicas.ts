/**
 * Notes among the replicas of a service. A RabbitMQ that was killed forgets acknowledgements, and brings these messages to any
 * replica; and so it does with those of a lost connection. So each replica reports to the others what it has handled, because the
 * replica may be killed together with RabbitMQ. And a replica that gets such a message looks among the others, of which one may have
 * it in hand.
 */
import { randomUUID } from 'node:crypto'
import type { ConsumeMessage } from 'amqplib'
import type { Broker, Incoming } from '../amqp/broker.ts'
import type { Consumer } from '../amqp/consumer.ts'
import { type Clock, systemClock } from '../core/clock.ts'
import { UsageError } from '../core/errors.ts'
import type { Log } from '../core/log.ts'
import type { Known } from './messages-in-hand.ts'
import { replicasExchange, type ServiceNames } from './names.ts'

/** Parameters of `Replicas`; see the fields. */
export interface ReplicasOptions {
  broker: Broker
  names: ServiceNames
  clock: Clock
  log: Log
  /** Returns what this process knows of the message with that key. */
  look(key: string): Known
  /** Called with the key of a message that another replica has handled. */
  learn(key: string): void
  /** Returns the keys of an event's messages that this process knows. */
  find(id: string): { handled: string[]; inHand: string[] }
}

/** A message between replicas. */
interface Note {
  /** The queue of its sender. */
  from: string
  /** The number of the question, which its answer repeats. */
  n: number
  /** The keys of a question: none to learn which replicas there are. */
  keys?: string[]
  /** Keys of messages that its sender has handled. */
  handled?: string[]
  /** Those of the question that the sender of the answer has in hand. */
  inHand?: string[]
  /** True if its sender answers no more. */
  isLast?: boolean
  /** The id of an event: a question of a program that is no replica, for all keys of its messages. */
  event?: string
}

/** A question that is open. */
interface Question {
  readonly n: number
  readonly keys: Set<string>
  readonly handled: Set<string>
  readonly inHand: Set<string>
  /** The replicas that have not answered. */
  readonly silent: Set<string>
  readonly answered: Promise<void>
  readonly close: () => void
}

/**
 * For how long a replica may be silent, in ms, and how long one that starts may not know the others. After a restart of RabbitMQ they
 * connect again within some 1 s.
 */
const patienceMs = 2_000
/** Time between two questions about a message that another replica has in hand, in ms. */
const repeatMs = 1_000
/** For how long a replica collects what it reports, in ms, for each of the others: so each reads a hundred such notes a second. */
const reportMs = 10
/** For how long a note may wait until it is sent, and until it is read, in ms: a later answer is of no use. */
const withinMs = 5_000
/** Stands for those that are not known yet, and never answers. */
const stranger = ''

/** The other replicas of a service, as one process knows them. */
export class Replicas {
  readonly #options: ReplicasOptions
  readonly #queue: string
  /** The queues of those that live, as far as is known. */
  readonly #others = new Set<string>()
  /** From then on it knows all of them, in monotonic ms. */
  #knowsFromMs = Infinity
  readonly #questions = new Map<number, Question>()
  /** The question that is to be sent next. */
  #next: Question | undefined
  #count = 0
  /** What was not reported. */
  #unreported: string[] = []
  #consumer: Promise<Consumer> | undefined

  constructor(options: ReplicasOptions) {
    this.#options = options
    this.#queue = `${replicasExchange}:${options.names.service}:${randomUUID()}`
  }

  /** Begins to answer, and learns which others there are. May be repeated if it fails. */
  async open(): Promise<void> {
    const { broker, names } = this.#options
    await broker.declare({
      exchanges: [{ name: replicasExchange, type: 'direct' }],
      queues: [{ name: this.#queue, durable: false, exclusive: true, autoDelete: true }],
      bindings: [{ exchange: replicasExchange, to: { queue: this.#queue }, routingKey: names.service }],
    })
    const onAttached = (isAttached: boolean) => isAttached && this.#announce()
    const options = { prefetch: 1, noAck: true, onAttached }
    this.#consumer ??= broker.consume(this.#queue, options, (incoming) => this.#receive(incoming))
    await this.#consumer.catch((error: unknown) => {
      this.#consumer = undefined
      throw error
    })
  }

  /** Answers no more. */
  async close(): Promise<void> {
    const consumer = await this.#consumer
    if (consumer === undefined) return
    await consumer.cancel()
    // Otherwise their next questions would wait for it.
    this.#send({ n: 0, handled: this.#unreported.splice(0), isLast: true })
  }

  /** Reports to the others that this process has handled the message with this key. */
  report(key: string): void {
    if (this.#others.size === 0 || this.#unreported.push(key) > 1) return
    this.#options.clock.after(reportMs * this.#others.size, () => {
      if (this.#unreported.length > 0) this.#send({ n: 0, handled: this.#unreported.splice(0) })
    })
  }

  /**
   * Resolves to what the others know of the message with this key. While one has it in hand, and `isWanted`, the question is repeated.
   */
  async look(key: string, isWanted: () => boolean): Promise<Known> {
    for (;;) {
      if (this.#others.size === 0 && this.#knowsAll) return undefined
      const { answered, handled, inHand } = this.#inquire(key)
      await answered
      if (handled.has(key)) return 'handled'
      if (!inHand.has(key)) return undefined
      await this.#options.clock.sleep(repeatMs, undefined, false)
      if (!isWanted()) return 'in hand'
    }
  }

  get #knowsAll(): boolean {
    return this.#options.clock.monotonicMs() >= this.#knowsFromMs
  }

  #announce(): void {
    this.#knowsFromMs = Math.min(this.#knowsFromMs, this.#options.clock.monotonicMs() + patienceMs)
    this.#send({ n: 0, keys: [] })
  }

  /** One question is for all messages that arrive together. */
  #inquire(key: string): Question {
    if (this.#next === undefined) {
      let close = () => {}
      const answered = new Promise<void>((resolve) => (close = resolve))
      const empty = { keys: new Set<string>(), handled: new Set<string>(), inHand: new Set<string>() }
      const silent = new Set(this.#knowsAll ? this.#others : [...this.#others, stranger])
      const question = { n: ++this.#count, ...empty, silent, answered, close }
      this.#next = question
      this.#questions.set(question.n, question)
      setImmediate(() => {
        this.#next = undefined
        this.#send({ n: question.n, keys: [...question.keys] })
        this.#options.clock.after(patienceMs, () => this.#giveUp(question))
      })
    }
    this.#next.keys.add(key)
    return this.#next
  }

  /** Those that are still silent are gone, or their answers were late or lost: these answer the question which replicas there are. */
  #giveUp({ n, silent, close }: Question): void {
    if (this.#questions.delete(n)) {
      for (const each of silent) this.#others.delete(each)
      this.#send({ n: 0, keys: [] })
    }
    close()
  }

  #receive({ body, properties }: Pick<Incoming, 'body' | 'properties'>): void {
    const { from, n, keys, handled = [], inHand = [], isLast = false, event } = read(body)
    if (event !== undefined) return this.#send({ n, ...this.#options.find(event) }, String(properties.replyTo))
    if (from === '' || from === this.#queue) return
    for (const key of handled) this.#options.learn(key)
    if (isLast) return this.#forget(from)
    this.#others.add(from)
    if (keys !== undefined) return this.#answer(from, n, keys)
    const question = this.#questions.get(n)
    if (question === undefined) return
    for (const key of handled) question.handled.add(key)
    for (const key of inHand) question.inHand.add(key)
    this.#waitForOthers(question, from)
  }

  #forget(other: string): void {
    this.#others.delete(other)
    for (const question of this.#questions.values()) this.#waitForOthers(question, other)
  }

  /** Waits no longer for `from`, and ends the question if it need not wait for the others. */
  #waitForOthers({ n, keys, handled, silent, close }: Question, from: string): void {
    silent.delete(from)
    if (silent.size > 0 && [...keys].some((key) => !handled.has(key))) return
    this.#questions.delete(n)
    close()
  }

  #answer(to: string, n: number, keys: readonly string[]): void {
    const of = (known: Known) => keys.filter((key) => this.#options.look(key) === known)
    this.#send({ n, handled: of('handled'), inHand: of('in hand') }, to)
    // It has not got the questions of before it was there.
    if (keys.length > 0) return
    for (const question of this.#questions.values())
      if (question !== this.#next && question.silent.has(to))
        this.#send({ n: question.n, keys: [...question.keys] }, to)
  }

  /** A note that is lost counts as silence. */
  #send(note: Omit<Note, 'from'>, to?: string): void {
    const { broker, names, log } = this.#options
    const address = to === undefined ? { exchange: replicasExchange, routingKey: names.service } : { routingKey: to }
    const body = Buffer.from(JSON.stringify({ from: this.#queue, ...note }))
    const properties = { persistent: false, expirationMs: withinMs }
    broker
      .publish({ ...address, body, properties, mandatory: false, withinMs })
      .catch((error: unknown) => log.debug('a note to other replicas was not sent', { err: error }))
  }
}

/** The server's own name for the channel of a question: no queue is declared for the answers. */
const replyTo = 'amq.rabbitmq.reply-to'

/**
 * Looks for an event among all replicas of services. Resolves to what each knows of its messages, when so many have answered, or after 2 s.
 * @throws StoreError SLUICE_BROKER_UNREACHABLE
 */
export async function findInReplicas(
  broker: Broker,
  { services, id, replicas }: { services: readonly string[]; id: string; replicas: number },
): Promise<{ service: string; handled: string[]; inHand: string[] }[]> {
  const answers: { service: string; handled: string[]; inHand: string[] }[] = []
  if (replicas === 0) return answers
  const found = broker.use(async (channel) => {
    let end = () => {}
    const ended = new Promise<void>((resolve) => (end = resolve))
    const add = (message: ConsumeMessage | null) => {
      const { from, handled = [], inHand = [] } = read(message?.content ?? Buffer.of())
      const [, service = ''] = from.split(':')
      if (answers.push({ service, handled, inHand }) >= replicas) end()
    }
    await channel.consume(replyTo, add, { noAck: true })
    const body = Buffer.from(JSON.stringify({ event: id }))
    for (const service of services) channel.publish(replicasExchange, service, body, { replyTo, expiration: withinMs })
    await Promise.race([ended, systemClock.sleep(patienceMs)])
  })
  await found.catch((error: unknown) => {
    // No replica has ever been there.
    if (!(error instanceof UsageError)) throw error
  })
  return answers
}

/** Reads a note; `from` is '' for a message of another program. */
function read(body: Buffer): Note {
  const none = { from: '', n: 0 }
  try {
    const {
      from,
      n,
      keys,
      handled = [],
      inHand = [],
      isLast = false,
      event,
    } = JSON.parse(body.toString()) as { [field in keyof Note]?: unknown }
    if (typeof event === 'string') return { ...none, event }
    const lists = [keys ?? [], handled, inHand]
    const areKeys = lists.every((list) => Array.isArray(list) && list.every((key) => typeof key === 'string'))
    if (typeof from !== 'string' || typeof n !== 'number' || !areKeys) return none
    return { from, n, ...(keys === undefined ? {} : { keys }), handled, inHand, isLast: isLast === true } as Note
  } catch {
    return none
  }
}
