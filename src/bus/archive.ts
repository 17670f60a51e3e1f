/** The archive of a service on RabbitMQ: a queue that is read message by message. Messages that stay go back to their places. */
import type { GetMessage } from 'amqplib'
import { isUnrouted } from '../amqp/publish-errors.ts'
import type { Broker } from '../amqp/broker.ts'
import { type Clock, systemClock } from '../core/clock.ts'
import { UsageError } from '../core/errors.ts'
import { checkFields } from '../core/fields.ts'
import { durationMs, parseRate } from '../core/rate.ts'
import type { ArchivedEvent, ArchiveFilter, ArchiveOptions, EventArchive } from '../events/archive.ts'
import type { CloudEvent } from '../events/envelope.ts'
import { checkPattern, matches, unrouted } from '../events/names.ts'
import type { Properties } from '../amqp/publisher.ts'
import { idOf } from './celery-message.ts'
import { failureOf } from './republisher.ts'
import { copyOf, eventOf, isEnveloped, type Progress, progressOf } from './message.ts'
import { eventsExchange } from './names.ts'
import { QueueReader } from './queue-reader.ts'

/** The parameters of an archive: a connection, and the queue. */
export interface ArchiveContext {
  broker(): Promise<Broker>
  queue: string
  /** Where a message goes that another program has archived: see `ServiceNames`. */
  recovery?: string | undefined
  clock: Clock
  /** For how long a look keeps the messages that stay, in ms; default 10 min. */
  keptMs?: number
}

const listMost = 100
const textMax = 1_000
/** RabbitMQ closes a channel on which a message was not acknowledged for half an hour (`consumer_timeout`). */
const keptMsMost = 600_000
const fields = ['id', 'event', 'handler', 'reason', 'error', 'since', 'until']

/** The decision about a message of the archive: it stays, it goes, it stays and does not count, or the look ends. */
type Fate = 'stays' | 'goes' | 'skipped' | 'ends'

/** An archive. */
export class QueueArchive implements EventArchive {
  readonly #context: ArchiveContext

  constructor(context: ArchiveContext) {
    this.#context = context
  }

  async count(): Promise<number> {
    return this.#sizeOf(await this.#context.broker())
  }

  /** Its number of messages. @throws UsageError SLUICE_NO_ARCHIVE */
  async #sizeOf(broker: Broker): Promise<number> {
    const { queue } = this.#context
    const found = await broker.findQueue(queue)
    if (found !== undefined) return found.messageCount
    const text = `RabbitMQ has no queue "${queue}" in this virtual host: check the service's name and \`amqp\`; \`sluice events list\` lists the services`
    throw new UsageError('SLUICE_NO_ARCHIVE', text)
  }

  async list(filter: ArchiveFilter = {}, most = listMost): Promise<ArchivedEvent[]> {
    const found: ArchivedEvent[] = []
    if (most > 0) await this.each(filter, (archived) => found.push(archived) < most)
    return found
  }

  each(filter: ArchiveFilter, visit: (archived: ArchivedEvent) => unknown): Promise<number> {
    return this.#lookAtEach(filter, {}, async (archived) => ((await visit(archived)) === false ? 'ends' : 'stays'))
  }

  replay(filter: ArchiveFilter, options: ArchiveOptions = {}): Promise<number> {
    return this.#lookAtEach(filter, options, async (_, message) => {
      const found = progressOf(receivedOf(message))
      const { queue, at } = failureOf(message.properties.headers ?? {})
      const { queue: own, recovery } = this.#context
      const isNew = own === unrouted
      // Each replay is to differ from those before it.
      const replayOf = isNew || dateOf(at).getTime() > 0 ? at : new Date(this.#context.clock.wallMs()).toISOString()
      const counts = { attempt: 0, failed: 0, throttled: 0, crashes: 0, strays: 0, earlier: attemptsOf(found) }
      // Another number, because the copies of both rounds have the same numbers of attempts.
      const copy = (found.copy ?? 0) + 1
      const fresh = { ...found, ...counts, copy, isDoubtful: !isNew || found.isDoubtful, replayOf }
      const exchange = isNew ? eventsExchange : queue === '' ? recovery : undefined
      const to = exchange === undefined ? { routingKey: queue } : { exchange, routingKey: found.type }
      const again = copyOf(receivedOf(message), undefined, fresh, to)
      const broker = await this.#context.broker()
      return broker.publish(again).then(() => 'goes' as const, skipUnrouted)
    })
  }

  discard(filter: ArchiveFilter, options: ArchiveOptions = {}): Promise<number> {
    return this.#lookAtEach(filter, options, async () => 'goes')
  }

  /** Looks at each message that is there now, once. Resolves to how many matched. */
  async #lookAtEach(
    filter: ArchiveFilter,
    { rate, signal, onProgress }: ArchiveOptions,
    visit: (archived: ArchivedEvent, message: GetMessage) => Promise<Fate>,
  ): Promise<number> {
    const { queue, clock, keptMs = keptMsMost } = this.#context
    const isWanted = testOf(filter, clock.wallMs())
    const eachMs = rate === undefined ? 0 : parseRate(rate).windowUs / 1_000 / parseRate(rate).units
    const isOver = () => signal?.aborted === true
    const broker = await this.#context.broker()
    // If the queue is missing, the error of `get` would only name it.
    const most = await this.#sizeOf(broker)
    return broker.use(async (channel) => {
      const [startMs, startedMs] = [systemClock.monotonicMs(), clock.wallMs()]
      const reader = new QueueReader(channel, queue, keptMs)
      let done = 0
      for (let seen = 1; !isOver(); seen++) {
        const message = await reader.next()
        if (message === false) break
        const archived = archivedOf(message, startedMs, queue === unrouted)
        if (seen > most && isLater(message, archived, startedMs)) break
        if (!isWanted(archived)) continue
        const dueMs = startMs + done * eachMs - systemClock.monotonicMs()
        if (dueMs > 0) await reader.keepDuring(systemClock.sleep(dueMs, signal))
        if (isOver()) break
        if (!reader.hasLast) continue
        const fate = await reader.keepDuring(visit(archived, message))
        if (fate === 'skipped') continue
        if (fate === 'goes') reader.drop()
        done++
        onProgress?.({ done, seen })
        if (fate === 'ends') break
      }
      await reader.end()
      return done
    })
  }
}

/**
 * Returns whether a message was archived after a look had begun. Other looks may have given messages back to the front
 * meanwhile, so their number does not show it; clocks of workers may be behind, so what was replayed counts as later.
 */
function isLater(message: GetMessage, { at }: ArchivedEvent, startedMs: number): boolean {
  return at.getTime() > startedMs || progressOf(receivedOf(message)).replayOf !== undefined
}

/** A message of another program, or for a queue that is gone, cannot be replayed, and must not hold up the others. */
function skipUnrouted(error: unknown): 'skipped' {
  if (isUnrouted(error)) return 'skipped'
  throw error
}

/** Returns a message as it was read. */
export const receivedOf = ({ content: body, properties, fields: { routingKey } }: GetMessage) => ({
  body,
  properties,
  routingKey,
})

function archivedOf(message: GetMessage, nowMs: number, isUnrouted: boolean): ArchivedEvent {
  const received = receivedOf(message)
  const progress = progressOf(received)
  const kept = failureOf(message.properties.headers ?? {})
  let event: CloudEvent | null = null
  try {
    event = eventOf(received, progress, { takesPlain: true, nowMs })
  } catch {
    // The reason for that is recorded.
  }
  const lost = { reason: 'unrouted', error: { message: 'no service gets it' }, at: event?.time ?? kept.at }
  const { reason, error, at } = isUnrouted ? lost : kept
  const ownId = isEnveloped(message.properties.contentType) ? event?.id : undefined
  return {
    id: ownId ?? idOf(message.properties as Properties) ?? null,
    type: event?.type ?? progress.type,
    handler: progress.handler ?? null,
    attempt: attemptsOf(progress),
    reason,
    error,
    at: dateOf(at),
    event,
    text: event === null ? message.content.subarray(0, textMax).toString() : null,
  }
}

/** Returns how many attempts there were, in all rounds. */
const attemptsOf = ({ attempt, earlier = 0 }: Progress) => attempt + earlier

/** Returns a time; 1970 for a text that is none, as another program may have written it into an event. */
export function dateOf(text: string): Date {
  const date = new Date(text)
  return Number.isNaN(date.getTime()) ? new Date(0) : date
}

/** @throws UsageError SLUICE_BAD_FILTER */
function testOf(filter: ArchiveFilter, nowMs: number): (archived: ArchivedEvent) => boolean {
  checkFields('SLUICE_BAD_FILTER', 'a filter of archived events', filter, fields, {
    rate: 'in the second argument, `{ rate }`',
  })
  const { id, event, handler, reason, error, since, until } = filter
  if (event !== undefined) checkPattern(event)
  const atMs = (time: ArchiveFilter['since']) => {
    if (time === undefined) return undefined
    const ms = time instanceof Date ? time.getTime() : nowMs - durationMs(time)
    if (!Number.isNaN(ms)) return ms
    throw new UsageError('SLUICE_BAD_FILTER', 'a filter of archived events has a time that is not a valid Date')
  }
  const [sinceMs = -Infinity, untilMs = Infinity] = [atMs(since), atMs(until)]
  const part = error?.toLowerCase()
  return (archived) =>
    (id === undefined || archived.id === id) &&
    (event === undefined || matches(event, archived.type)) &&
    (handler === undefined || archived.handler === handler) &&
    (reason === undefined || archived.reason === reason) &&
    (part === undefined || archived.error.message.toLowerCase().includes(part)) &&
    archived.at.getTime() >= sinceMs &&
    archived.at.getTime() < untilMs
}
