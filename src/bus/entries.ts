/**
 * The entries that services on RabbitMQ write into one queue when they start. By these others find their queues, and a service
 * finds what its earlier processes have bound.
 */
import { randomUUID } from 'node:crypto'
import type { ConsumeMessage } from 'amqplib'
import type { Broker } from '../amqp/broker.ts'
import { type Clock, systemClock } from '../core/clock.ts'
import type { Message } from '../amqp/publisher.ts'
import { isUnrouted } from '../amqp/publish-errors.ts'
import { StoreError } from '../core/errors.ts'
import type { ServiceNames } from './names.ts'
import type { Source } from './source.ts'

/** A handler in a queue, bound by its pattern. */
export interface Placing {
  handler: string
  pattern: string
  queue: string
}

/** A handler that was removed, or moved to another queue, and when. */
export interface FormerPlacing extends Placing {
  leftAt: string
}

/** The entry of a service. The last one in the queue decides: the clocks of processes may differ. */
export interface Entry {
  service: string
  at: string
  handlers: Placing[]
  /** Handlers of earlier or other processes that are not among these. */
  former: FormerPlacing[]
  steps: { stepMs: number; queue: string }[]
  archive: string | null
}

/** The queue with the entries of all services. Only one program at a time gets what is there; the others wait in line. */
export const directory = 'sluice.services'
const topology = {
  queues: [{ name: directory, arguments: { 'x-max-length': 10_000, 'x-single-active-consumer': true } }],
}
const formerMost = 1_000
/** How often a program that waits in line publishes a mark of its own, in ms; an older mark of another program counts as left behind. */
const markEveryMs = 5_000
const markMaxMs = 600_000

/** Returns the entry of a service with these groups. @param placings where its handlers are and were; see `Entry` */
export function entryOf(
  names: ServiceNames,
  sources: readonly Source[],
  placings: { handlers: readonly Placing[]; former: readonly FormerPlacing[] },
  clock: Clock,
): Entry {
  const steps = new Map(sources.flatMap((each) => each.steps).map((stepMs) => [names.step(stepMs), stepMs]))
  return {
    service: names.service,
    at: new Date(clock.wallMs()).toISOString(),
    handlers: [...placings.handlers],
    // The handlers that left first are left out.
    former: placings.former.toSorted((one, other) => (one.leftAt > other.leftAt ? -1 : 1)).slice(0, formerMost),
    steps: [...steps].map(([queue, stepMs]) => ({ stepMs, queue })),
    archive: names.archiveTopology === undefined ? null : names.archive,
  }
}

/** Returns where the handlers of groups are. */
export function placingsOf(sources: readonly Source[]): Placing[] {
  return sources.flatMap(({ handlers, queue }) =>
    handlers.map(({ name: handler, pattern }) => ({ handler, pattern, queue })),
  )
}

/** Puts an entry in the place of the service's earlier one, which `replace` gets; nobody else reads or writes entries meanwhile. */
export function replaceEntry(
  broker: Broker,
  service: string,
  replace: (earlier: Entry | undefined) => Promise<Entry>,
): Promise<void> {
  return visit(broker, async (entries, line) => {
    const entry = await replace(newest(entries).get(service))
    // Another program may be in front meanwhile.
    line.check()
    await line.put({ routingKey: directory, body: Buffer.from(JSON.stringify(entry)) })
    return entries.filter((each) => each.service === service)
  })
}

/** Returns the entries of all services, by name. */
export async function entriesOf(broker: Broker): Promise<Entry[]> {
  let found: Entry[] = []
  await visit(broker, async (entries) => {
    found = [...newest(entries).values()]
    return []
  })
  return found.toSorted((one, other) => (one.service < other.service ? -1 : 1))
}

function newest(entries: readonly Entry[]): Map<string, Entry> {
  return new Map(entries.map((entry) => [entry.service, entry]))
}

/** Does something with all entries, while nobody else has them. Those that `act` resolves to are deleted. */
async function visit(broker: Broker, act: (entries: Entry[], line: Line) => Promise<readonly Entry[]>): Promise<void> {
  await broker.declare(topology)
  await broker.use(async (channel) => {
    const kept: { message: ConsumeMessage; entry: Entry | undefined }[] = []
    const line = new Line(broker)
    channel.on('close', () => line.end())
    await channel.consume(directory, (message) => {
      if (message === null) return line.end()
      const entry = read(message.content)
      if (entry !== undefined || !line.isOthers(message.content)) kept.push({ message, entry })
    })
    await line.waitUntilFront()
    const gone = new Set(
      await act(
        kept.flatMap(({ entry }) => (entry === undefined ? [] : [entry])),
        line,
      ),
    )
    for (const { message, entry } of kept) if (entry === undefined || gone.has(entry)) channel.ack(message)
    // The end of the channel returns the other entries at once, so that the next program in line sees all of them.
  })
}

/**
 * The place of one program in the line. It publishes marks into the queue: only the program in front receives messages, so a program
 * that receives a mark of its own is in front.
 */
class Line {
  readonly #broker: Broker
  readonly #id = randomUUID()
  #marks = 0
  #last = 0
  #wake: () => void = () => {}
  #isOver = false

  constructor(broker: Broker) {
    this.#broker = broker
  }

  /** Resolves when it is in front, and has received all entries. */
  async waitUntilFront(): Promise<void> {
    while (this.#last === 0) await this.#publishMark()
    // Entries that the program before it published come after those.
    for (const mark = this.#marks; this.#last <= mark;) await this.#publishMark()
  }

  /** Returns whether this is a mark of another program that may still wait. */
  isOthers(body: Buffer): boolean {
    const { mark, n, at } = readMark(body)
    if (mark !== this.#id) return systemClock.wallMs() - Number(at) < markMaxMs
    this.#last = Math.max(this.#last, Number(n))
    this.#wake()
    return false
  }

  /** Its channel is over, or the queue was deleted. */
  end(): void {
    this.#isOver = true
    this.#wake()
  }

  async #publishMark(): Promise<void> {
    const n = ++this.#marks
    const came = new Promise<void>((resolve) => (this.#wake = resolve))
    const body = Buffer.from(JSON.stringify({ mark: this.#id, n, at: systemClock.wallMs() }))
    await this.put({ routingKey: directory, body, properties: { persistent: false } })
    if (this.#last < n) await Promise.race([came, systemClock.sleep(markEveryMs, undefined, false)])
    this.check()
  }

  /** Publishes to the queue. @throws as `check` */
  async put(message: Message): Promise<void> {
    try {
      await this.#broker.publish(message)
    } catch (error) {
      if (!isUnrouted(error)) throw error
      this.end()
      this.check()
    }
  }

  /** @throws StoreError SLUICE_BROKER_UNREACHABLE: it has lost its place */
  check(): void {
    if (this.#isOver)
      throw new StoreError('SLUICE_BROKER_UNREACHABLE', `the queue ${directory} could not be read to its end`)
  }
}

function readMark(body: Buffer): { mark?: unknown; n?: unknown; at?: unknown } {
  try {
    return Object(JSON.parse(body.toString())) as { mark?: unknown }
  } catch {
    return {}
  }
}

/** A message of another program is no entry. What is not understood of an entry, which a later release may have written, is left out. */
function read(body: Buffer): Entry | undefined {
  try {
    const { former, ...entry } = JSON.parse(body.toString()) as Partial<Entry>
    const isEntry = typeof entry.service === 'string' && typeof entry.at === 'string' && Array.isArray(entry.handlers)
    if (!isEntry || !Array.isArray(entry.steps)) return undefined
    const place = ['handler', 'pattern', 'queue']
    return {
      ...(entry as Entry),
      handlers: withTexts(entry.handlers, place),
      former: withTexts(former, [...place, 'leftAt']),
      steps: withTexts(entry.steps, ['queue']),
    }
  } catch {
    return undefined
  }
}

/** Returns the objects of a list that have texts in these fields. */
function withTexts<T>(list: readonly T[] | undefined, fields: readonly string[]): T[] {
  const has = (one: T) => fields.every((field) => typeof (one as Record<string, unknown> | null)?.[field] === 'string')
  return Array.isArray(list) ? list.filter(has) : []
}
