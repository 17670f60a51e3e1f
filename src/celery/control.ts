/** Remote control of Celery workers (kombu's pidbox): requests to all or some workers, and their replies. */
import { isRecord, writeJson } from './json.ts'
import { inJson, readRecord, unreadableError, type WireMessage } from './wire.ts'

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
  /** Without a destination: only workers with such names are meant. `matcher`: `glob` (the default), or `pcre`. */
  readonly pattern?: { readonly text: string; readonly matcher: string } | undefined
  /** The replies are known by it; undefined: no reply is wanted. */
  readonly ticket: string | undefined
  /** Routing key of the replies. */
  readonly replyTo: string | undefined
}

/** Writes a request. @param at `clock`: the logical time; `expiresS`: wall time in s since 1970 until which replies are awaited */
export function writeRequest(request: ControlRequest, at: { clock: number; expiresS: number }): WireMessage {
  const { method, arguments: given, destination, ticket, replyTo } = request
  const reply = replyTo === undefined ? null : { exchange: replyExchange, routing_key: replyTo }
  const all = { method, arguments: given, destination: destination ?? null, pattern: null, matcher: null }
  const body = replyTo === undefined ? all : { ...all, ticket, reply_to: reply }
  return message(writeJson(body, `the request "${method}"`), { clock: at.clock, expires: at.expiresS }, 2)
}

/** Reads a request. @throws SluiceError SLUICE_CELERY_MESSAGE */
export async function readRequest(found: WireMessage): Promise<ControlRequest> {
  const {
    method,
    arguments: given,
    destination,
    ticket,
    reply_to: to,
    ...others
  } = await readRecord(found, 'a request')
  const { pattern, matcher } = others
  if (typeof method !== 'string') throw unreadableError('a request has no method')
  return {
    method,
    arguments: isRecord(given) ? given : {},
    destination: Array.isArray(destination) ? destination.filter((one) => typeof one === 'string') : undefined,
    pattern:
      typeof pattern === 'string' && pattern !== '' && typeof matcher === 'string' && matcher !== ''
        ? { text: pattern, matcher }
        : undefined,
    ticket: typeof ticket === 'string' ? ticket : undefined,
    replyTo: isRecord(to) && typeof to['routing_key'] === 'string' ? to['routing_key'] : undefined,
  }
}

/** True if a request is meant for the worker of this name. */
export function isMeant({ destination, pattern }: ControlRequest, name: string): boolean {
  if (destination !== undefined && destination.length > 0) return destination.includes(name)
  if (pattern === undefined) return true
  const { text, matcher } = pattern
  try {
    // Both of Python's begin at the beginning.
    return new RegExp(`^(?:${matcher === 'pcre' ? text : `${globOf(text)}$`})`, 'u').test(name)
  } catch {
    return false
  }
}

/** A glob as a regular expression: `*`, `?`, `[ab]`, `[!ab]`. */
function globOf(text: string): string {
  return text.replaceAll(/\[!?[^\]]+\]|[^]/gu, (part) => {
    if (part === '*') return '.*'
    if (part === '?') return '.'
    if (part.length > 1) return part.startsWith('[!') ? `[^${part.slice(2)}` : part
    return part.replaceAll(/[$()*+./?[\\\]^{|}]/g, '\\$&')
  })
}

/** Writes the reply of one worker. */
export function writeReply(worker: string, value: unknown, at: { ticket: string; clock: number }): WireMessage {
  return message(writeJson({ [worker]: value }, `the reply of ${worker}`), { ...at }, 1)
}

/** Reads a reply: the ticket of its request, and what each worker of it has answered. @throws SluiceError SLUICE_CELERY_MESSAGE */
export async function readReply(
  found: WireMessage,
): Promise<{ ticket: string | undefined; workers: Record<string, unknown> }> {
  const { ticket } = found.headers
  return { ticket: typeof ticket === 'string' ? ticket : undefined, workers: await readRecord(found, 'a reply') }
}

function message(text: string, headers: Record<string, unknown>, deliveryMode: 1 | 2): WireMessage {
  return { ...inJson, deliveryMode, headers, body: Buffer.from(text) }
}
