/**
 * What services on RabbitMQ leave about themselves in one queue when they start: others find their queues by it, and a service what
 * earlier processes of its own have bound.
 */
import type { Channel } from 'amqplib'
import type { Broker } from '../amqp/broker.ts'
import { type Clock, systemClock } from '../core/clock.ts'
import type { ServiceNames } from './names.ts'
import type { Source } from './source.ts'
import { absent } from './suspects.ts'

/** A handler in a queue, bound by its pattern. */
export interface Placing {
  handler: string
  pattern: string
  queue: string
}

/** A handler that was left out, or put elsewhere, at a time. */
export interface FormerPlacing extends Placing {
  leftAt: string
}

/** The entry of a service. The one that started last decides. */
export interface Entry {
  service: string
  at: string
  handlers: Placing[]
  /** Those of earlier or other processes that are not among these handlers. */
  former: FormerPlacing[]
  steps: { stepMs: number; queue: string }[]
  archive: string | null
}

/** The queue with the entries of all services. */
export const directory = 'sluice.services'
const topology = { queues: [{ name: directory, arguments: { 'x-max-length': 10_000 } }] }
/** Exists while somebody goes through that queue, whose messages others do not see meanwhile. */
const lock = 'sluice.services.lock'
const lockEveryMs = 20
const formerMost = 1_000

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
    former: placings.former.slice(0, formerMost),
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
export async function replaceEntry(
  broker: Broker,
  service: string,
  replace: (earlier: Entry | undefined) => Promise<Entry>,
): Promise<void> {
  await broker.declare(topology)
  await alone(broker, async () => {
    const entry = await replace((await readAll(broker)).get(service))
    await broker.publish({ routingKey: directory, body: Buffer.from(JSON.stringify(entry)) })
    await broker.use(async (channel) => {
      for (;;) {
        const message = await channel.get(directory)
        if (message === false) break
        const other = read(message.content)
        if (other === undefined || (other.service === service && other.at !== entry.at)) channel.ack(message)
      }
      channel.nackAll(true)
      await channel.checkQueue(directory)
    })
  })
}

/** Returns the entries of all services, by name. */
export async function entriesOf(broker: Broker): Promise<Entry[]> {
  const found = await alone(broker, () => readAll(broker))
  return [...found.values()].toSorted((one, other) => (one.service < other.service ? -1 : 1))
}

async function readAll(broker: Broker): Promise<Map<string, Entry>> {
  const found = new Map<string, Entry>()
  const walk = broker.use(async (channel) => {
    for (;;) {
      const message = await channel.get(directory)
      if (message === false) break
      const entry = read(message.content)
      if (entry !== undefined && !((found.get(entry.service)?.at ?? '') > entry.at)) found.set(entry.service, entry)
    }
    channel.nackAll(true)
    await channel.checkQueue(directory)
  })
  await walk.catch(absent)
  return found
}

/** What this process does alone on each connection, in turn. */
const turns = new WeakMap<Broker, Promise<unknown>>()

/** Does something while nobody else does, in this process or another. */
function alone<T>(broker: Broker, act: () => Promise<T>): Promise<T> {
  const turn = (turns.get(broker) ?? Promise.resolve()).then(() => whileLocked(broker, act))
  turns.set(
    broker,
    turn.catch(() => {}),
  )
  return turn
}

/** An exclusive queue belongs to one connection, and is deleted with it. */
async function whileLocked<T>(broker: Broker, act: () => Promise<T>): Promise<T> {
  while (!(await broker.use(tryLock).then(() => true, isLocked)))
    await systemClock.sleep(lockEveryMs * (0.5 + systemClock.random()))
  try {
    return await act()
  } finally {
    await broker.use((channel) => channel.deleteQueue(lock)).catch(() => {})
  }
}

const tryLock = (channel: Channel) => channel.assertQueue(lock, { exclusive: true, durable: false })

/** Returns false for the error that another connection has the lock. @throws any other error */
function isLocked(error: unknown): false {
  const resourceLocked = 405
  const { cause } = error as { cause?: { code?: unknown } }
  if (cause?.code !== resourceLocked) throw error
  return false
}

/** What strangers put there is no entry. */
function read(body: Buffer): Entry | undefined {
  try {
    const { former, ...entry } = JSON.parse(body.toString()) as Partial<Entry>
    const isEntry = typeof entry.service === 'string' && typeof entry.at === 'string' && Array.isArray(entry.handlers)
    if (!isEntry || !Array.isArray(entry.steps)) return undefined
    return { ...(entry as Entry), former: Array.isArray(former) ? former : [] }
  } catch {
    return undefined
  }
}
