/** Handlers of events, and the tasks that run them: one for each group of a service. */
import type { StandardSchemaV1 } from '@standard-schema/spec'
import { AttemptError, isMeantToThrow, SluiceError, UsageError } from '../core/errors.ts'
import { checkFields } from '../core/fields.ts'
import { isResponse } from '../core/payload.ts'
import { type Duration, durationMs } from '../core/rate.ts'
import type { RetryOptions } from '../core/retry.ts'
import type { Limit } from '../limits/limit.ts'
import { conform } from '../tasks/admit.ts'
import type { Context } from '../tasks/context.ts'
import type { CostedLimit } from '../tasks/cost.ts'
import { snooze } from '../tasks/outcome.ts'
import type { CloudEvent, Delivery } from './envelope.ts'
import { checkNameOf, checkPattern, matches } from './names.ts'

/** The context that a handler gets besides the payload. */
export interface EventContext extends Context {
  /** The event with its envelope. */
  readonly event: CloudEvent
  /** True if this handler may have got the event before: an earlier attempt that counts, or a replay. */
  readonly redelivered: boolean
}

/** A handler. Its return value is ignored, except that an error counts as thrown, and a response is checked. */
export type HandlerFunction<Payload> = (payload: Payload, context: EventContext) => unknown

/** Options of handlers that hold for a whole group. */
export interface GroupOptions<Payload> {
  /** Limits that each attempt must fit, with keys and costs from the payload. */
  limits?: readonly (Limit<Payload> | CostedLimit<Payload>)[] | undefined
  /** Default: as for tasks; `SLUICE_EVENT_RETRIES` sets the number of retries for all handlers without this option. */
  retry?: RetryOptions | undefined
  /** Time for one attempt. Default 10 min. */
  timeout?: Duration | undefined
  /** The queue of its deliveries; default `default`. */
  queue?: string | undefined
  /** Deliveries that run at once, in the whole fleet. Default: no bound. */
  concurrency?: number | undefined
  /** Private addresses that `ctx.fetch` may call, as for a task. */
  allowPrivate?: readonly string[] | undefined
}

/** Options of a handler; see the fields. */
export interface HandlerOptions<Payload> extends GroupOptions<Payload> {
  /**
   * Names the handler in its service: each handler of an event gets a delivery of its own. Default: the event, or the
   * pattern.
   */
  name?: string | undefined
  /** Names that it had before. It continues their subscriptions, and runs their deliveries. */
  formerly?: readonly string[] | undefined
  /**
   * Handlers of one group share a class, limits and the options above. Default: `main`; for a handler with such options
   * a group of its own, with its name.
   */
  group?: string | undefined
  /** The field path of a key: events with the same key run one at a time, in order; retries do not hold up others. */
  order?: string | undefined
  /**
   * From when on a new handler gets events: a time, or how long ago, as far as they are kept. Default: from the first event after
   * its service has started with it.
   */
  since?: Duration | Date | undefined
}

/** A handler that was defined. */
export interface EventHandler {
  readonly kind: 'sluice.handler'
  readonly name: string
  readonly formerly: readonly string[]
  /** A type, or a pattern of types. */
  readonly pattern: string
  readonly schema: StandardSchemaV1
  readonly group: string
  readonly options: GroupOptions<never>
  readonly order: string | undefined
  readonly since: Duration | Date | undefined
  run(delivery: Delivery, context: Context): Promise<unknown>
}

const groupFields = ['limits', 'retry', 'timeout', 'queue', 'concurrency', 'allowPrivate'] as const
const fields = [...groupFields, 'name', 'formerly', 'group', 'order', 'since']

/** Options for any payload; a task checks its limits. */
type AnyOptions = Omit<HandlerOptions<never>, 'limits'> & { limits?: readonly unknown[] | undefined }

/** The group of handlers without options. */
const mainGroup = 'main'

/** Defines a handler. @throws UsageError SLUICE_BAD_HANDLER */
export function handlerOf(
  pattern: string,
  schema: StandardSchemaV1,
  handle: HandlerFunction<never>,
  given: AnyOptions = {},
): EventHandler {
  const { name = checkPattern(pattern), formerly = [], order, since } = given
  checkFields('SLUICE_BAD_HANDLER', `handler "${name}"`, given, fields)
  for (const each of [name, ...formerly]) checkNameOf('handler', each)
  if (typeof handle !== 'function') throw bad(name, 'it is no function')
  if (order !== undefined && (typeof order !== 'string' || !/^[^.\u0000]+(\.[^.\u0000]+)*$/.test(order)))
    throw bad(name, '`order` is the field path of a key, such as account.id')
  if (order !== undefined && given.group !== undefined)
    throw bad(name, '`order` gives it a group of its own; leave out `group`')
  const chosen = groupFields.filter((field) => given[field] !== undefined)
  const isOwn = order !== undefined || (given.group === undefined && chosen.length > 0)
  const group = given.group ?? (isOwn ? name.toLowerCase().replaceAll('*', 'any').replaceAll('#', 'all') : mainGroup)
  checkNameOf('group', group)
  if (since instanceof Date ? !Number.isFinite(since.getTime()) : since !== undefined && !(durationMs(since) >= 0))
    throw bad(name, '`since` is a time, or how long ago')
  return {
    kind: 'sluice.handler',
    name,
    formerly: [...formerly],
    pattern,
    schema,
    group,
    options: Object.fromEntries(chosen.map((field) => [field, given[field]])) as GroupOptions<never>,
    order,
    since,
    async run({ event, again }, context) {
      const { value } = await payloadOf(name, schema, event)
      const result: unknown = await handle(value as never, inContext(event, again === true, context))
      // `return fail(…)` and `return fetch(url)` are for the attempt; nothing else that a handler returns is kept.
      return isMeantToThrow(result) || isResponse(result) ? result : undefined
    },
  }
}

/** Checks the payload, which an event of another version may have otherwise. @throws AttemptError SLUICE_EVENT_REFUSED, for good */
async function payloadOf(name: string, schema: StandardSchemaV1, event: CloudEvent): Promise<{ value: unknown }> {
  try {
    return await conform(schema, event.data, `payload of "${event.type}"`)
  } catch (cause) {
    if (!SluiceError.is(cause)) throw cause
    const version = event.schemaversion === undefined ? '' : ` (version ${event.schemaversion})`
    const text = `handler "${name}" refused the event${version}: ${cause.message}`
    throw new AttemptError('SLUICE_EVENT_REFUSED', text, { retryable: false, cause })
  }
}

function inContext(event: CloudEvent, isAgain: boolean, context: Context): EventContext {
  const own = { event, redelivered: isAgain || context.attempt > 1 || context.ambiguous }
  return Object.create(context, Object.getOwnPropertyDescriptors(own)) as EventContext
}

/** Returns the handler that a delivery is for. */
export function handlerFor(handlers: readonly EventHandler[], { handler: name, event }: Delivery) {
  const found = handlers.find((each) => each.name === name || each.formerly.includes(name))
  return found !== undefined && matches(found.pattern, event.type) ? found : undefined
}

const waitMs = { least: 1_000, most: 60_000 }

/**
 * Runs a delivery with the handler that it is for. In a deploy an old process may get one for a handler that it does not
 * have: it gives it back, uncalled, and for longer the older the delivery is.
 */
export async function runDelivery(
  handlers: readonly EventHandler[],
  delivery: Delivery,
  context: Context,
  nowMs: number,
): Promise<unknown> {
  const { handler: name, event } = delivery
  const found = handlerFor(handlers, delivery)
  if (found !== undefined) return found.run(delivery, context)
  const ageMs = nowMs - context.job.createdAt.getTime()
  context.log.warn(`this process has no handler "${name}" of events ${event.type}; another one may have it`)
  throw snooze(Math.min(waitMs.most, Math.max(waitMs.least, Math.round(ageMs / 4))))
}

/** Returns an error about a handler. */
export function bad(name: string, why: string): UsageError {
  return new UsageError('SLUICE_BAD_HANDLER', `handler "${name}": ${why}`)
}

/** Recognises a handler by its shape, because a file may have used another copy of this package. */
export function isHandler(value: unknown): value is EventHandler {
  return typeof value === 'object' && value !== null && (value as { kind?: unknown }).kind === 'sluice.handler'
}
