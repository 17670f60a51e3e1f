/** Events of Celery's workers and senders, which Flower shows. */
import { isRecord, writeJson } from './json.ts'
import { inJson, readBody, unreadableError, type WireMessage } from './wire.ts'

/** The exchange of events: a topic. */
export const eventExchange = 'celeryev'

/** One event: `task-sent`, `task-started`, `worker-heartbeat` and so on, with what belongs to it by Celery's names. */
export interface CeleryEvent {
  readonly type: string
  /** Name of the worker or sender, `celery@host`. */
  readonly hostname: string
  /** Wall time in ms since 1970. */
  readonly atMs: number
  /** Hours west of Greenwich of the sender's clock. */
  readonly utcOffset: number
  readonly pid: number
  /** The sender's logical time. */
  readonly clock: number
  readonly fields: Readonly<Record<string, unknown>>
}

/** Routing key of events: of one its type, of several `task.multi`. */
export function eventKey(events: readonly CeleryEvent[]): string {
  const [first, ...more] = events
  return more.length > 0 || first === undefined ? 'task.multi' : first.type.replaceAll('-', '.')
}

/** Writes events as one message; a single one is no list. */
export function writeEvents(events: readonly CeleryEvent[]): WireMessage {
  const all = events.map(({ type, hostname, atMs, utcOffset, pid, clock, fields }) => {
    return { ...fields, type, hostname, timestamp: atMs / 1_000, utcoffset: utcOffset, pid, clock }
  })
  const headers = { hostname: events[0]?.hostname ?? null }
  const body = Buffer.from(writeJson(all.length === 1 ? all[0] : all, 'an event'))
  return { ...inJson, deliveryMode: 1, headers, body }
}

/** Reads the events of a message. @throws SluiceError SLUICE_CELERY_MESSAGE */
export async function readEvents(message: WireMessage): Promise<CeleryEvent[]> {
  const found = await readBody(message)
  return (Array.isArray(found) ? found : [found]).map(eventOf)
}

function eventOf(found: unknown): CeleryEvent {
  if (!isRecord(found) || typeof found['type'] !== 'string') throw unreadableError('an event has no type')
  const { type, hostname, timestamp, utcoffset, pid, clock, ...fields } = found
  const number = (value: unknown) => (typeof value === 'number' ? value : 0)
  return {
    type,
    hostname: typeof hostname === 'string' ? hostname : '',
    atMs: number(timestamp) * 1_000,
    utcOffset: number(utcoffset),
    pid: number(pid),
    clock: number(clock),
    fields,
  }
}
