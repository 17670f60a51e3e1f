/** Checks an event that is emitted, and makes its row. */
import type { Clock } from '../core/clock.ts'
import { UsageError } from '../core/errors.ts'
import { checkFields } from '../core/fields.ts'
import { isRecentId, newId } from '../core/hash.ts'
import { isPromise, type MaybePromise } from '../core/maybe-promise.ts'
import { encodePayload } from '../core/payload.ts'
import type { Sql } from '../db/store.ts'
import { throwUsage } from '../store/send.ts'
import { conform } from '../tasks/admit.ts'
import { type AnyEvent, anything, type EmitOptions } from './event.ts'

/** An event as `engine.emit_event` takes it. */
export interface EventRow {
  id: string
  type: string
  /** The envelope, as JSON. */
  text: string
}

/** Emits these in one statement. The errors are those of the store. @throws UsageError SLUICE_BAD_ID */
export async function emitRows(sql: Pick<Sql, 'call'>, rows: readonly EventRow[]): Promise<void> {
  const [first] = rows
  if (first !== undefined && rows.length === 1) {
    await sql.call('emit_event', [first.id, first.type, first.text, true], 'uuid text text boolean').catch(throwUsage)
    return
  }
  // Text instead of arrays: quoting takes longer than all the rest, and ids and types need none.
  const list = (column: 'id' | 'type') => `{${rows.map((row) => row[column]).join(',')}}`
  const params = [list('id'), list('type'), rows.map(({ text }) => text).join('\n'), true]
  await sql.call('emit_events', params, 'uuid[] text[] text boolean').catch(throwUsage)
}

/**
 * Emits an event unless one of its type was emitted with this key within 24 h. Returns the id of the event that was.
 * The errors are those of the store. @throws UsageError SLUICE_BAD_ID
 */
export async function emitOnce(sql: Pick<Sql, 'call'>, row: EventRow, key: string): Promise<string> {
  const params = [row.id, row.type, row.text, key, true]
  const [found] = await sql
    .call<{ emit_once: string }>('emit_once', params, 'uuid text text text boolean')
    .catch(throwUsage)
  return found?.emit_once ?? row.id
}

function checkId(id: unknown, clock: Clock): string {
  if (typeof id === 'string' && isRecentId(id, clock)) return id.toLowerCase()
  throw new UsageError(
    'SLUICE_BAD_ID',
    `"${String(id)}" is no UUIDv7 made within a day of now; leave out \`id\`, or use one made by \`newId()\``,
  )
}

/**
 * Returns the row of an event; a promise only if its schema is asynchronous.
 * @throws UsageError SLUICE_INVALID_INPUT, SLUICE_BAD_PAYLOAD, SLUICE_PAYLOAD_TOO_LARGE, SLUICE_BAD_ID, SLUICE_BAD_OPTION
 */
export function eventRow(
  event: AnyEvent,
  payload: unknown,
  options: EmitOptions,
  by: { source: string; clock: Clock },
): MaybePromise<EventRow> {
  const what = `payload of "${event.name}"`
  const data = encodePayload(payload, what)
  checkFields('SLUICE_BAD_OPTION', 'an emit', options, ['tx', 'id', 'idempotencyKey', 'subject'])
  const { subject, idempotencyKey: key } = options
  const nowMs = by.clock.wallMs()
  const id = options.id === undefined ? newId() : checkId(options.id, by.clock)
  if (
    subject !== undefined &&
    !(typeof subject === 'string' && /^[^\u0000]{1,512}$/u.test(subject) && subject.isWellFormed())
  )
    throw new UsageError('SLUICE_BAD_OPTION', 'subject: a text of 1 to 512 characters, without \\u0000')
  if (key !== undefined && !(typeof key === 'string' && /^[^\u0000]{1,400}$/u.test(key) && key.isWellFormed()))
    throw new UsageError('SLUICE_BAD_OPTION', 'idempotencyKey: a text of 1 to 400 characters, without \\u0000')
  const head = {
    specversion: '1.0',
    id,
    source: by.source,
    type: event.name,
    subject,
    time: new Date(nowMs).toISOString(),
    datacontenttype: 'application/json',
    schemaversion: event.version,
  }
  const row = { id, type: event.name, text: `${JSON.stringify(head).slice(0, -1)},"data":${data}}` }
  if (event.schema === anything) return row
  // The schema sees what handlers will see: the stored form.
  const checked = conform(event.schema, JSON.parse(data), what)
  return isPromise(checked) ? checked.then(() => row) : row
}
