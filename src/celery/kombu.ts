/** The keys of Celery in a Redis that is its broker: kombu's messages, lists, bindings and channels. */
import type { Address } from './carrier.ts'
import { isRecord, readJson, writeJson } from './json.ts'
import { unreadableError, type WireMessage } from './wire.ts'

/** Between the parts of a name. */
const separator = '\u0006\u0016'
/** The least priorities of the lists of a queue, in the order in which they are read: 0 comes first. */
const steps = [0, 3, 6, 9]

/** The messages that a worker holds, by tag. */
export const heldKey = 'unacked'
/** The tags of them, by the wall time in s at which each was taken. */
export const heldIndexKey = 'unacked_index'
/** The list of a queue for messages of a priority; undefined: 0. */
export function listOf(queue: string, priority = 0): string {
  const step = steps.findLast((one) => one <= priority) ?? 0
  return step === 0 ? queue : `${queue}${separator}${step}`
}

/** All lists of a queue, in the order in which they are read. */
export const listsOf = (queue: string): string[] => steps.map((step) => listOf(queue, step))

/** The key of the bindings of an exchange. */
export const bindingsKey = (exchange: string): string => `_kombu.binding.${exchange}`

/** The channel of a fanout exchange in a database. */
export const channelOf = (exchange: string, db: number): string => `/${db}.${exchange}`

/** Writes the binding of a queue to a direct exchange. */
export const writeBinding = (routingKey: string, queue: string): string => [routingKey, '', queue].join(separator)

/** The queues that an exchange, direct or topic, takes a message to. */
export function boundQueues(bindings: readonly string[], routingKey: string): string[] {
  const all = bindings.map((one) => one.split(separator))
  const taken = all.filter(([key, pattern = '']) =>
    pattern === '' ? key === routingKey : matchesPattern(pattern, routingKey),
  )
  return [...new Set(taken.map(([, , queue = '']) => queue))].filter((queue) => queue !== '')
}

/** A pattern of kombu's is a regular expression, in which only what is written for `*` and `#` has a meaning. */
function matchesPattern(pattern: string, routingKey: string): boolean {
  try {
    return new RegExp(pattern).test(routingKey)
  } catch {
    return false
  }
}

/** Writes a message. @param tag unique among all messages; `isPythons`: as of `writeJson` */
export function writeEnvelope(
  message: WireMessage,
  { exchange, routingKey }: Address,
  tag: string,
  isPythons = false,
): string {
  const { body, contentType, contentEncoding, headers, correlationId, replyTo, deliveryMode, expiration } = message
  const properties = {
    correlation_id: correlationId,
    reply_to: replyTo,
    delivery_mode: deliveryMode,
    expiration,
    delivery_info: { exchange, routing_key: routingKey },
    priority: message.priority ?? 0,
    body_encoding: 'base64',
    delivery_tag: tag,
  }
  const all = { 'content-encoding': contentEncoding, 'content-type': contentType, headers, properties }
  return writeJson({ body: body.toString('base64'), ...all }, 'a message', isPythons)
}

/** Reads a message. @throws SluiceError SLUICE_CELERY_MESSAGE */
export function readEnvelope(text: string): { message: WireMessage; isRedelivered: boolean } {
  const found = parseObject(text)
  const { body, properties, headers = {} } = found
  if (typeof body !== 'string' || !isRecord(properties) || !isRecord(headers))
    throw unreadableError('it has no body, or its properties or headers have the wrong form')
  const plain = (value: unknown) => (typeof value === 'string' ? value : undefined)
  const { delivery_mode: mode, priority } = properties
  const message: WireMessage = {
    contentType: plain(found['content-type']),
    contentEncoding: plain(found['content-encoding']),
    correlationId: plain(properties['correlation_id']),
    replyTo: plain(properties['reply_to']),
    deliveryMode: mode === 1 || mode === 2 ? mode : undefined,
    priority: Number.isInteger(priority) ? Number(priority) : undefined,
    expiration: plain(properties['expiration']),
    headers,
    body: properties['body_encoding'] === 'base64' ? Buffer.from(body, 'base64') : Buffer.from(body),
  }
  const info = properties['delivery_info']
  return { message, isRedelivered: isRecord(info) && info['redelivered'] === true }
}

/** The same message, marked as one that was delivered before. @throws SluiceError SLUICE_CELERY_MESSAGE */
export function markRedelivered(text: string): string {
  const found = parseObject(text)
  const { headers, properties } = found
  const { delivery_info: info, ...others } = isRecord(properties) ? properties : {}
  const marked = { ...others, delivery_info: { ...(isRecord(info) ? info : {}), redelivered: true } }
  const more = { headers: { ...(isRecord(headers) ? headers : {}), redelivered: true }, properties: marked }
  return writeJson({ ...found, ...more }, 'a message', true)
}

/** Reads a message that a worker holds: its text, and where it was. @throws SluiceError SLUICE_CELERY_MESSAGE */
export function readHeld(text: string): { text: string; address: Address } {
  const found = readJsonOf(text)
  const [message, exchange = '', routingKey] = Array.isArray(found) ? (found as unknown[]) : []
  if (!isRecord(message) || typeof exchange !== 'string' || typeof routingKey !== 'string')
    throw unreadableError('what a worker holds is no list of a message, an exchange and a routing key')
  return { text: writeJson(message, 'a message', true), address: { exchange, routingKey } }
}

function parseObject(text: string): Record<string, unknown> {
  const found = readJsonOf(text)
  if (isRecord(found)) return found
  throw unreadableError('it is no message of kombu')
}

function readJsonOf(text: string): unknown {
  try {
    return readJson(text)
  } catch (error) {
    throw unreadableError('it is no JSON', error)
  }
}
