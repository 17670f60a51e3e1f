/** Events: typed functions that services emit, and handle. Defining one stores nothing. */
import type { StandardSchemaV1 } from '@standard-schema/spec'
import { UsageError } from '../core/errors.ts'
import { checkFields } from '../core/fields.ts'
import type { TxLike } from '../db/tx.ts'
import type { Sendable } from '../tasks/send-options.ts'
import { type EventHandler, handlerOf, type HandlerFunction, type HandlerOptions } from './handler.ts'
import { checkType } from './names.ts'

/** Options of an event; see the fields. */
export interface EventOptions {
  /** The version of the payload's schema, a whole number from 1; handlers see it as `schemaversion`. Default: none. */
  version?: number | undefined
  /** For the catalogue. */
  description?: string | undefined
  /** JSON Schema of the payload, for the catalogue. Default: what the schema itself gives (Zod, ArkType, …). */
  jsonSchema?: Readonly<Record<string, unknown>> | undefined
}

/** Options of one `emit`. */
export interface EmitOptions {
  /**
   * Your own open transaction on the same database (docs/transactions.md): the event is emitted when it commits, and not
   * when it rolls back.
   */
  tx?: TxLike | undefined
  /**
   * The event's id, a UUIDv7 made within a day of now. Default: a new one. Through the store an id is emitted once: again it changes
   * nothing, and no event of another type may have it. Over RabbitMQ a service may handle an id again that is emitted again.
   */
  id?: string | undefined
  /**
   * 1 to 400 characters. A second emit of this event with the same key within 24 h emits nothing, and returns the id of the first: a
   * handler that is tried again emits once with `idempotencyKey: event.id`. Over RabbitMQ a job publishes it, as with `tx`.
   */
  idempotencyKey?: string | undefined
  /** The subject of the event; 1 to 512 characters. */
  subject?: string | undefined
}

/** An event. */
export interface Event<Input = unknown, Output = Input> {
  readonly name: string
  readonly schema: StandardSchemaV1<Input, Output>
  readonly version: number | undefined
  readonly description: string | undefined
  readonly jsonSchema: Readonly<Record<string, unknown>> | undefined
  /**
   * Emits it, and returns its id; resolves once it is durable (with `tx`: once it is written). Each service that
   * subscribed to it gets it.
   * @throws UsageError SLUICE_INVALID_INPUT, SLUICE_BAD_PAYLOAD, SLUICE_PAYLOAD_TOO_LARGE, SLUICE_BAD_ID,
   * SLUICE_BAD_OPTION: nothing is emitted
   * @throws StoreError SLUICE_STORE_UNREACHABLE: the outcome is unknown; repeat with the same `id`
   */
  emit(payload: Input, options?: EmitOptions): Promise<string>
  /**
   * Emits one event for each payload, in order, and resolves to their number. The first bad payload, and the first event that cannot
   * be emitted, stop it.
   */
  emitMany(payloads: Sendable<Input>, options?: Pick<EmitOptions, 'tx'>): Promise<number>
  /**
   * Returns a handler of this event, to be given to `sluice.work`, or exported from the file of `sluice work`.
   * @throws UsageError SLUICE_BAD_HANDLER
   */
  on(handler: HandlerFunction<Output>, options?: HandlerOptions<Output>): EventHandler
}

/** Any event, whatever its payload. */
// oxlint-disable-next-line typescript/no-explicit-any -- an event both takes and gives its payload
export type AnyEvent = Event<any, any>

/** Emits events. */
export interface Emitter {
  emit(event: AnyEvent, payload: unknown, options: EmitOptions): Promise<string>
  emitMany(event: AnyEvent, payloads: Sendable<unknown>, options: Pick<EmitOptions, 'tx'>): Promise<number>
}

let provider: (() => Emitter | Promise<Emitter>) | undefined

/** Sets what `event.emit` uses. Called by the wiring. */
export function provideEmitter(next: () => Emitter | Promise<Emitter>): void {
  provider = next
}

async function emitter(): Promise<Emitter> {
  if (provider !== undefined) return provider()
  const text = 'there is no Sluice to emit to: import from "sluice" (not from its parts)'
  throw new UsageError('SLUICE_NOT_CONFIGURED', text)
}

// oxlint-disable-next-line typescript/no-explicit-any -- without a schema nothing is known of the payload
type AnyJson = StandardSchemaV1<any>
/** The schema of events that give none: any JSON. */
export const anything: AnyJson = { '~standard': { version: 1, vendor: 'sluice', validate: (value) => ({ value }) } }

/**
 * Defines an event.
 * @param name its type: words of a-z, A-Z, 0-9, `_`, `-`, separated by dots, up to 100 characters: `demo.number.even`
 * @param schema any Standard Schema (Zod, Valibot, ArkType, …), checked at `emit` and before each handler. Default: any JSON
 * @throws UsageError SLUICE_BAD_EVENT
 */
export function event<Schema extends StandardSchemaV1 = AnyJson>(
  name: string,
  schema?: Schema,
  options: EventOptions = {},
): Event<StandardSchemaV1.InferInput<Schema>, StandardSchemaV1.InferOutput<Schema>> {
  checkType(name)
  checkFields('SLUICE_BAD_EVENT', `event "${name}"`, options, ['version', 'description', 'jsonSchema'])
  const { version, description, jsonSchema } = options
  if (schema !== undefined && typeof schema?.['~standard']?.validate !== 'function')
    throw new UsageError('SLUICE_BAD_EVENT', `event "${name}": its schema is a Standard Schema (Zod, Valibot, …)`)
  if (version !== undefined && !(Number.isInteger(version) && version >= 1 && version < 1e9))
    throw new UsageError('SLUICE_BAD_EVENT', `event "${name}": its version is a whole number from 1`)
  const self: AnyEvent = {
    name,
    schema: schema ?? anything,
    version,
    description,
    jsonSchema,
    emit: async (payload, emitOptions = {}) => (await emitter()).emit(self, payload, emitOptions),
    emitMany: async (payloads, emitOptions = {}) => (await emitter()).emitMany(self, payloads, emitOptions),
    on: (handler, handlerOptions) => handlerOf(name, self.schema, handler, handlerOptions),
  }
  return self
}

/**
 * Returns a handler of all events whose types match a pattern: `*` stands for one word, and `#`, as the last word, for
 * any number of words. Payloads are not checked.
 * @throws UsageError SLUICE_BAD_HANDLER
 * @example export const audit = on('demo.#', (payload, { event }) => record(event), { name: 'audit' })
 */
export function on(pattern: string, handler: HandlerFunction<unknown>, options?: HandlerOptions<never>): EventHandler {
  return handlerOf(pattern, anything, handler, options)
}
