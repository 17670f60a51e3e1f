/** The tasks of a service's handlers, one for each group, and where deliveries wait. */
import { codeOf, UsageError } from '../core/errors.ts'
import { hash64 } from '../core/hash.ts'
import { payloadBytesMax, payloadDepthMax } from '../core/payload.ts'
import { durationMs } from '../core/rate.ts'
import type { RetryOptions } from '../core/retry.ts'
import { systemClock } from '../core/clock.ts'
import { fieldOf, type Limit, limit } from '../limits/limit.ts'
import { bucketName } from '../limits/pool.ts'
import { withTaskCost } from '../tasks/cost.ts'
import { type AnyTask, task } from '../tasks/task.ts'
import type { Delivery } from './envelope.ts'
import { bad, type EventHandler, type GroupOptions, handlerFor, isHandler, runDelivery } from './handler.ts'
import { checkNameOf, regexOf } from './names.ts'

/** The work of a worker: tasks, and handlers of events. */
export type Work = AnyTask | EventHandler

/** A delivery has an envelope around a payload, whose own size and depth were checked when the event was emitted. */
const deliveryBounds = { bytesMax: payloadBytesMax + 8_192, depthMax: payloadDepthMax + 2 }

/** A group of a service: its task, and its handlers. */
export interface Group {
  readonly task: AnyTask
  readonly handlers: readonly EventHandler[]
}

/** Returns the tasks of a list. @throws UsageError SLUICE_BAD_TASK if it has something else than tasks and handlers */
export function tasksIn(work: readonly Work[]): AnyTask[] {
  const isTask = (each: unknown) => typeof (each as AnyTask | null | undefined)?.run === 'function'
  if (!Array.isArray(work) || !work.every((each) => isTask(each) || isHandler(each)))
    throw new UsageError(
      'SLUICE_BAD_TASK',
      'a worker takes a list of what task(…) and event.on(…) returned: [readContact]',
    )
  return work.filter((each): each is AnyTask => !isHandler(each))
}

/**
 * Returns the groups of the handlers in a list.
 * @throws UsageError SLUICE_NO_SERVICE if there are handlers, and the service has no name; SLUICE_BAD_HANDLER
 */
export function groupsOf(work: readonly Work[], service: string | undefined): Group[] {
  const handlers = work.filter(isHandler)
  if (handlers.length === 0) return []
  if (service === undefined) {
    const text =
      'handlers of events need the name of their service: `service: "billing"` of Sluice.open or sluice.config.ts, or SLUICE_SERVICE; without one, services would share their events instead of each getting all'
    throw new UsageError('SLUICE_NO_SERVICE', text)
  }
  checkNameOf('service', service)
  // A map, because a service may have thousands of handlers.
  const owners = new Map<string, number>()
  for (const each of handlers)
    for (const name of new Set([each.name, ...each.formerly])) owners.set(name, (owners.get(name) ?? 0) + 1)
  for (const { name, formerly } of handlers)
    if ((owners.get(name) ?? 0) > 1)
      throw bad(name, `two handlers of service "${service}" have this name, now or formerly; give one a \`name\``)
    else if (formerly.includes(name)) throw bad(name, 'it cannot be its own former name')
  const groups: Group[] = [...grouped(handlers, ({ group }) => group)].map(([group, own]) => {
    const made = groupOf(service, group, own)
    const home = (delivery: Delivery) => homeOf(own, delivery, groups)
    return { ...made, task: { ...made.task, inputBounds: deliveryBounds, homeOf: home } }
  })
  return groups
}

/** Groups handlers by a key; the order stays. */
export function grouped(handlers: readonly EventHandler[], keyOf: (one: EventHandler) => string) {
  const groups = new Map<string, EventHandler[]>()
  for (const each of handlers) {
    const known = groups.get(keyOf(each))
    if (known === undefined) groups.set(keyOf(each), [each])
    else known.push(each)
  }
  return groups
}

/** Returns the task of a delivery whose handler is in another group than these are. */
function homeOf(own: readonly EventHandler[], delivery: Delivery, groups: readonly Group[]): AnyTask | undefined {
  if (handlerFor(own, delivery) !== undefined) return undefined
  return groups.find(({ handlers }) => handlerFor(handlers, delivery) !== undefined)?.task
}

/** Returns tasks that the groups' handlers had before: their deliveries go to the present ones. */
export function oldTasksOf(names: readonly string[], groups: readonly Group[]): AnyTask[] {
  const present = new Set(groups.map(({ task: own }) => own.name))
  return names
    .filter((name) => !present.has(name))
    .map((name) => ({
      ...(task(name, {
        run: (delivery: Delivery, context) => runDelivery([], delivery, context, systemClock.wallMs()),
      }) as AnyTask),
      homeOf: (delivery: Delivery) => homeOf([], delivery, groups),
    }))
}

function groupOf(service: string, group: string, handlers: EventHandler[]): Group {
  const { limits = [], retry, timeout, queue, concurrency, allowPrivate } = optionsOf(group, handlers)
  const order = handlers.find((each) => each.order !== undefined)?.order
  if (order !== undefined && handlers.length > 1)
    throw bad(
      handlers[0]?.name ?? '',
      `group "${group}" has several handlers, and one of them has \`order\`, which needs a group of its own`,
    )
  const own = [
    ...(concurrency === undefined ? [] : [limit(limitName(service, group, 'places'), { concurrency })]),
    ...(order === undefined ? [] : [orderOf(limitName(service, group, 'order'), handlers[0]?.name ?? '', order)]),
  ]
  const made = task(`events:${service}:${group}`, {
    limits: [...limits, ...own].map((each) => ofPayload(withTaskCost(each as Limit))) as never,
    retry: { ...retriesFromEnv(), ...retry },
    ...(timeout === undefined ? {} : { timeout }),
    ...(queue === undefined ? {} : { queue }),
    ...(allowPrivate === undefined ? {} : { allowPrivate }),
    run: (delivery: Delivery, context) => runDelivery(handlers, delivery, context, systemClock.wallMs()),
  }) as AnyTask
  if (order !== undefined && bucketsOf(made) === undefined)
    throw bad(
      handlers[0]?.name ?? '',
      '`order` goes only with limits whose keys are field paths and whose cost is 1: others are decided too late to keep the order',
    )
  return { task: made, handlers }
}

/** Returns the limit that lets the events of one key run one at a time; nobody has defined it, so its errors name the handler. */
function orderOf(name: string, handler: string, order: string): Limit {
  const own = limit(name, { concurrency: 1, by: order as never }) as Limit
  const keyOf = (data: unknown) => {
    try {
      return own.keyOf(data as never)
    } catch (error) {
      if (codeOf(error) !== 'SLUICE_MISSING_KEY') throw error
      const text = `handler "${handler}" has the order "${order}", and this payload has no string, number or boolean there`
      throw new UsageError('SLUICE_MISSING_KEY', text, { cause: error })
    }
  }
  return { ...own, keyOf } as Limit
}

/** Returns the options of a group, which one or more of its handlers give. */
function optionsOf(group: string, handlers: readonly EventHandler[]): GroupOptions<never> {
  const all: Record<string, unknown> = {}
  for (const { name, options } of handlers)
    for (const [field, value] of Object.entries(options)) {
      if (field in all && all[field] !== value && JSON.stringify(all[field]) !== JSON.stringify(value))
        throw bad(name, `another handler of group "${group}" has another \`${field}\`; give it once`)
      all[field] = value
    }
  return all
}

function limitName(service: string, group: string, what: string): string {
  const name = `events.${service}.${group}.${what}`
  return name.length <= 63 ? name : `events.${BigInt.asUintN(64, BigInt(hash64(name))).toString(16)}`
}

function retriesFromEnv(): RetryOptions {
  const text = process.env['SLUICE_EVENT_RETRIES']
  if (text === undefined || text === '') return {}
  if (/^\d{1,3}$/.test(text)) return { attempts: Number(text) + 1 }
  const message = `SLUICE_EVENT_RETRIES is "${text}"; it must be a whole number from 0 to 999`
  throw new UsageError('SLUICE_BAD_OPTION', message)
}

/** Returns a limit that reads its key and cost from the payload of a delivery. */
function ofPayload(own: Limit): Limit {
  const { cost } = own
  const dataOf = (input: unknown) => (input as Delivery).event.data
  return {
    ...own,
    keyOf: (input: unknown) => own.keyOf(dataOf(input) as never),
    ...(typeof cost === 'string' ? { cost: (input: unknown) => fieldOf(dataOf(input), cost) as number } : {}),
    ...(typeof cost === 'function' ? { cost: (input: unknown) => cost(dataOf(input) as never) } : {}),
  } as Limit
}

/** Returns the buckets that deliveries need, with the paths of their keys in the envelope; undefined: only code can compute them. */
function bucketsOf({ limits, share, weight }: AnyTask): { names: string[]; paths: (string | null)[] } | undefined {
  const isPlain = ({ cost, learn, share: own, keyed, path, weights }: Limit) =>
    cost === 1 && learn === undefined && own === undefined && weights.size === 0 && (!keyed || path !== undefined)
  if (share !== undefined || weight !== undefined || !limits.every(isPlain)) return undefined
  return {
    names: limits.map((each) => bucketName(each, undefined)),
    paths: limits.map(({ path, keyed }) => (keyed && path !== undefined ? `data.${path}` : null)),
  }
}

/** Returns the handlers of groups as `engine.subscribe_handlers` takes them. */
export function subscriptionsOf(groups: readonly Group[], queueOf: (task: AnyTask) => string): unknown[] {
  return groups.flatMap(({ task: own, handlers }) => {
    const buckets = bucketsOf(own)
    const isKeyed = buckets?.paths.some((path) => path !== null) === true
    return handlers.map(({ name, formerly, pattern, since }) => {
      const regex = regexOf(pattern)
      return {
        handler: name,
        formerly,
        pattern,
        ...(regex === undefined ? { type: pattern } : { regex }),
        task: own.name,
        queue: queueOf(own),
        ...(buckets === undefined ? {} : { bucket_text: buckets.names.join('\u001f') }),
        ...(isKeyed ? { path_list: buckets?.paths } : {}),
        ...(since instanceof Date
          ? { since_at: since.toISOString() }
          : since === undefined
            ? {}
            : { since_ms: durationMs(since) }),
      }
    })
  })
}
