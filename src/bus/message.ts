/** Writes an event as a message, and reads it: CloudEvents in JSON, with its history in a header. */
import type { Incoming } from '../amqp/broker.ts'
import type { Message, Properties } from '../amqp/publisher.ts'
import type { Known } from '../claim/claimed-job.ts'
import { UsageError } from '../core/errors.ts'
import { hash64, isId, newId } from '../core/hash.ts'
import type { CloudEvent } from '../events/envelope.ts'
import type { EventRow } from '../events/row.ts'
import { eventOfTask, retryHeaders, idOf, isTask } from './celery-message.ts'
import { again, eventsExchange } from './names.ts'

/** The parts of a message that were received. */
type Received = Pick<Incoming, 'body' | 'properties' | 'routingKey'>

/** The history of a message; a fresh one has none. */
export interface Progress extends Known {
  /** The routing key with which it was published. */
  readonly type: string
  /** The only handler that gets it; undefined: all that match. */
  readonly handler?: string
  /** How often it was put off because no process with its handler had it. */
  readonly strays: number
  /** Handlers that have left its queue, and to whose queues it was sent. */
  readonly elsewhere?: readonly string[]
  /** It was replayed from the archive, where it was put at this time (if that is known, else replayed); undefined: it was not. */
  readonly replayOf?: string
  /** Attempts before it was replayed; the others count those since then. */
  readonly earlier?: number
  /** How often it was sent on without a counted attempt that shows it: each copy has a higher number than the one before. */
  readonly copy?: number
}

const progressHeader = 'sluice-history'
const cloudEvents = 'application/cloudevents+json'

/** Returns the message of a fresh event. */
export function messageOf({ id, type, text }: EventRow): Message {
  const properties = { contentType: `${cloudEvents}; charset=utf-8`, messageId: id, type }
  return { exchange: eventsExchange, routingKey: type, body: Buffer.from(text), properties, again }
}

/** Returns a message with the header that it may have been published before. */
export function markRepeated(message: Message): Message {
  return { ...message, properties: { ...message.properties, headers: { ...message.properties?.headers, ...again } } }
}

/** Reads the history of a message. A header that other programs wrote counts as none. */
export function progressOf({ properties, routingKey }: Received): Progress {
  const headers: Record<string, unknown> = properties.headers ?? {}
  // A replica in Python leaves only this of an event's history when it tries the event again.
  const { retries } = isTask(properties as Properties) ? headers : {}
  const failed = Number.isSafeInteger(retries) && Number(retries) > 0 ? Number(retries) : 0
  const fresh: Progress = {
    type: routingKey,
    attempt: failed,
    failed,
    throttled: 0,
    crashes: 0,
    strays: 0,
    isDoubtful: Object.keys(again).some((name) => headers[name] === true),
  }
  const text = headers[progressHeader]
  if (typeof text !== 'string') return fresh
  try {
    const read = JSON.parse(text) as Progress
    const { elsewhere = [], handler = '', replayOf = '', copy = 0, earlier = 0 } = read
    const counts = [read.attempt, read.failed, read.throttled, read.crashes, read.strays, copy, earlier]
    const areCounts = counts.every((count) => Number.isSafeInteger(count) && count >= 0)
    const areTexts = [read.type, handler, replayOf].every((one) => typeof one === 'string')
    if (!areCounts || !areTexts || !Array.isArray(elsewhere)) return fresh
    // A newer Celery keeps our header, and counts only its own.
    const since = Math.max(0, failed - read.failed)
    const counted = { ...read, attempt: read.attempt + since, failed: read.failed + since }
    return fresh.isDoubtful ? { ...counted, isDoubtful: true } : counted
  } catch {
    return fresh
  }
}

/**
 * Returns a message for another queue, with its present history, and without the headers that servers and other
 * programs added. `event`: the event as it was read; a message without an envelope gets one, and one without an id an id.
 */
export function copyOf(
  { body: given, properties: found }: Received,
  event: CloudEvent | undefined,
  progress: Progress,
  to: { exchange?: string; routingKey: string },
  more: NonNullable<Properties['headers']> = {},
): Message {
  const isOfTask = isTask(found as Properties)
  const isPlain = event !== undefined && !isOfTask && !isEnveloped(found.contentType)
  const body = isPlain ? Buffer.from(JSON.stringify(event)) : given
  const properties = isPlain ? { ...found, contentType: cloudEvents, messageId: event.id } : found
  const { contentType, contentEncoding, type, timestamp, appId, correlationId } = properties as Properties
  // From now on it keeps its id. The publisher would give it one that other messages have, too.
  const { messageId = isOfTask ? undefined : (event?.id ?? newId()) } = properties as Properties
  const known = { contentType, contentEncoding, messageId, type, timestamp, appId, correlationId }
  const own = Object.fromEntries(Object.entries(known).filter(([, value]) => value !== undefined))
  const kept = isOfTask ? retryHeaders(found as Properties, progress.failed) : {}
  const headers = { ...kept, [progressHeader]: JSON.stringify(progress), ...more }
  return { ...to, body, properties: { ...own, headers }, again }
}

/**
 * Reads the event of a message. `takesPlain`: JSON without an envelope is an event whose type is the routing key.
 * @throws UsageError SLUICE_EVENT_REFUSED: it is no event
 */
export function eventOf(
  { body, properties }: Received,
  { type }: Progress,
  { takesPlain, nowMs }: { takesPlain: boolean; nowMs: number },
): CloudEvent {
  const { contentType, contentEncoding, messageId } = properties as Properties
  if (contentEncoding !== undefined && !/^(utf-?8|identity)$/i.test(contentEncoding))
    throw refusedError(`its encoding is ${contentEncoding}`)
  const [kind = ''] = String(contentType ?? 'application/json').split(';')
  const isEnvelope = isEnveloped(contentType)
  const isOfTask = isTask(properties as Properties)
  if (isOfTask && (properties as Properties).headers?.['compression'])
    throw refusedError('its arguments are compressed: emit it without task_compression')
  if (!isEnvelope && !isOfTask && !(takesPlain && /[/+]json$/i.test(kind.trim())))
    throw refusedError(
      `its content type is ${kind}${takesPlain ? '' : ', and messages without an envelope are refused here'}`,
    )
  let value: unknown
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(body)
    const asTask = () => eventOfTask(text, properties as Properties, timeOf(properties as Properties, nowMs))
    value = isOfTask && !isEnvelope ? asTask() : JSON.parse(text)
  } catch (cause) {
    throw refusedError(
      isOfTask ? `it is no task that can be read: ${String(cause)}` : `it is not JSON in UTF-8: ${String(cause)}`,
    )
  }
  // Each level takes two characters at least.
  if (body.length > 2 * levelsMax && isDeeper(value, levelsMax))
    throw refusedError(`it is nested deeper than ${levelsMax} levels`)
  if (isEnvelope) return envelopeOf(value)
  if (isOfTask) return value as CloudEvent
  return {
    specversion: '1.0',
    id: messageId ?? newId(),
    source: '/plain',
    type,
    time: timeOf(properties as Properties, nowMs),
    datacontenttype: 'application/json',
    data: value,
  }
}

/** Functions that call themselves for each level, as those that write JSON, fail some thousand levels deep. */
const levelsMax = 500

function isDeeper(value: unknown, levels: number): boolean {
  if (typeof value !== 'object' || value === null) return false
  return levels === 0 || Object.values(value).some((one) => isDeeper(one, levels - 1))
}

function envelopeOf(value: unknown): CloudEvent {
  const event = value as Partial<CloudEvent> | null
  if (typeof event !== 'object' || event === null) throw refusedError('its envelope is no object')
  if (event.specversion !== '1.0') throw refusedError(`its specversion is ${String(event.specversion)}, not 1.0`)
  for (const name of ['id', 'source', 'type'] as const)
    if (typeof event[name] !== 'string' || event[name] === '') throw refusedError(`its envelope has no ${name}`)
  if ('data_base64' in event) throw refusedError('its data are not JSON (data_base64)')
  return { data: null, ...event } as CloudEvent
}

/**
 * Returns the key of a message: its place, and its chain: all messages that one event becomes for one handler (or, before it is divided,
 * for its group) until it is replayed. What a message is sent on as has a higher place in the chain. Undefined: it cannot be recognised.
 */
export function keyOf(
  queue: string,
  incoming: Incoming,
  { type, handler = '', attempt, earlier = 0, copy = 0, replayOf = '' }: Progress,
): string | undefined {
  const properties = incoming.properties as Properties
  const id = idOf(properties)
  // A retry of Python's without our history may belong to any replay of its event.
  const isOfAnyReplay = isTask(properties) && attempt > 0 && properties.headers?.[progressHeader] === undefined
  if (id === undefined || isOfAnyReplay) return undefined
  // Other programs may give all of their messages the same id.
  const own = hasOwnId(incoming, id) ? '' : hash64(incoming.body.toString('latin1'))
  const chain = [queue, handler, type, id, own, replayOf].map(encode).join(' ')
  return `${attempt + earlier + copy} ${chain}`
}

/** Returns a text without the character that separates the fields of a key. */
const encode = (text: string) => text.replaceAll('%', '%25').replaceAll(' ', '%20')
const decode = (text: string) => text.replaceAll('%20', ' ').replaceAll('%25', '%')

/** Returns the key of the last place in a chain. */
export const lastOf = (key: string) => `Infinity ${partsOf(key).chain}`

/** True for the key of the last place in a chain. */
export const isLast = (key: string) => partsOf(key).place === Infinity

/** Returns the key that a message for all handlers of its queue has in the chain of one of them. */
export const keyFor = (key: string, handler: string) => {
  const [place, queue, , ...rest] = key.split(' ')
  return [place, queue, encode(handler), ...rest].join(' ')
}

/** Returns what a key names: the event, by its id and type, the queue, and the handler, which is '' for all handlers of the queue. */
export function namesIn(key: string): { queue: string; handler: string; type: string; id: string } {
  const [, queue = '', handler = '', type = '', id = ''] = key.split(' ').map(decode)
  return { queue, handler, type, id }
}

/** Returns whether a key is that of a message of the event with this id. */
export const isOf = (key: string, id: string) => key.split(' ')[4] === encode(id)

/** Returns the parts of a key. */
export function partsOf(key: string): { chain: string; place: number } {
  const at = key.indexOf(' ')
  return { chain: key.slice(at + 1), place: Number(key.slice(0, at)) }
}

/**
 * True for a message whose id names its event. What others put around an envelope may have another id, and an id that is not of our
 * form may be that of other events, too: of another source, or after a counter began anew.
 */
function hasOwnId({ properties, body }: Pick<Received, 'properties' | 'body'>, id: string): boolean {
  if (isTask(properties as Properties)) return true
  return isId(id) && isEnveloped(properties.contentType) && body.includes(`"${id}"`)
}

/** True for the content type of a CloudEvent. */
export function isEnveloped(contentType: unknown): boolean {
  return String(contentType).split(';')[0]?.trim().toLowerCase() === cloudEvents
}

function timeOf({ timestamp }: Properties, nowMs: number): string {
  const time = new Date(Number(timestamp ?? nowMs / 1_000) * 1_000)
  return (Number.isNaN(time.getTime()) ? new Date(nowMs) : time).toISOString()
}

function refusedError(why: string): UsageError {
  return new UsageError('SLUICE_EVENT_REFUSED', `the message is no event: ${why}`)
}
