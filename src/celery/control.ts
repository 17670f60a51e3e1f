/** Remote control of Celery workers (kombu's pidbox): requests to all or some workers, and their replies. */
import { isRecord, writeJson } from './json.ts'
import { readRecord, unreadable, type WireMessage } from './wire.ts'

/** The exchange of requests: each worker has a queue there. */
export const requestExchange = 'celery.pidbox'
/** The exchange of replies. */
export const replyExchange = 'reply.celery.pidbox'

/** A request to workers. */
export interface ControlRequest {
  /** `ping`, `stats`, `rate_limit`, `revoke` and so on. */
  readonly method: string
  readonly arguments: Readonly<Record<string, unknown>>
  /** Names of the workers that are meant, `celery@host`; undefined: all. */
  readonly destination: readonly string[] | undefined
  /** The replies are known by it; undefined: no reply is wanted. */
  readonly ticket: string | undefined
  /** Routing key of the replies. */
  readonly replyTo: string | undefined
}

/** Writes a request. @param at `clock`: the logical time; `expiresS`: wall time in s since 1970 after which no worker obeys */
export function writeRequest(request: ControlRequest, at: { clock: number; expiresS: number }): WireMessage {
  const { method, arguments: given, destination, ticket, replyTo } = request
  const reply = replyTo === undefined ? null : { exchange: replyExchange, routing_key: replyTo }
  const all = { method, arguments: given, destination: destination ?? null, pattern: null, matcher: null }
  const body = replyTo === undefined ? all : { ...all, ticket, reply_to: reply }
  return message(writeJson(body, `the request "${method}"`), { clock: at.clock, expires: at.expiresS }, 2)
}

/** Reads a request. @throws SluiceError SLUICE_CELERY_MESSAGE */
export async function readRequest(found: WireMessage): Promise<ControlRequest> {
  const { method, arguments: given, destination, ticket, reply_to: to } = await readRecord(found, 'a request')
  if (typeof method !== 'string') throw unreadable('a request has no method')
  return {
    method,
    arguments: isRecord(given) ? given : {},
    destination: Array.isArray(destination) ? destination.filter((one) => typeof one === 'string') : undefined,
    ticket: typeof ticket === 'string' ? ticket : undefined,
    replyTo: isRecord(to) && typeof to['routing_key'] === 'string' ? to['routing_key'] : undefined,
  }
}

/** Writes the reply of one worker. */
export function writeReply(worker: string, value: unknown, at: { ticket: string; clock: number }): WireMessage {
  return message(writeJson({ [worker]: value }, `the reply of ${worker}`), { ...at }, 1)
}

/** Reads a reply: the ticket of its request, and what each worker of it has answered. @throws SluiceError SLUICE_CELERY_MESSAGE */
export async function readReply(
  found: WireMessage,
): Promise<{ ticket: string | undefined; clock: number; workers: Record<string, unknown> }> {
  const { ticket, clock } = found.headers
  return {
    ticket: typeof ticket === 'string' ? ticket : undefined,
    clock: typeof clock === 'number' ? clock : 0,
    workers: await readRecord(found, 'a reply'),
  }
}

function message(text: string, headers: Record<string, unknown>, deliveryMode: 1 | 2): WireMessage {
  const json = { contentType: 'application/json', contentEncoding: 'utf-8' }
  return { ...json, deliveryMode, headers, body: Buffer.from(text) }
}
