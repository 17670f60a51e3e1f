/** A group on the bus: its queue, and its task with retries in steps. */
import type { Topology } from '../amqp/topology.ts'
import { UsageError } from '../core/errors.ts'
import { delayMs } from '../core/retry.ts'
import { type Group, grouped } from '../events/groups.ts'
import type { EventHandler } from '../events/handler.ts'
import { overlap, regexOf } from '../events/names.ts'
import type { AnyTask } from '../tasks/task.ts'
import { stepJitter, type ServiceNames } from './names.ts'

/** A group, and the queue that is its own. */
export interface Source {
  /** The group's task in the store, where deliveries of groups with limits wait. */
  readonly home: AnyTask
  /** The group's task as it runs here. */
  readonly task: AnyTask
  readonly handlers: readonly EventHandler[]
  /** Its handler has an `order`. */
  readonly isOrdered: boolean
  readonly queue: string
  /** The queues that it has had with other settings. */
  readonly formerQueues: readonly string[]
  readonly topology: Topology
  /** The steps of its backoff, in ms. */
  readonly steps: readonly number[]
  /** Returns the step whose queue holds a retry for this delay; both in ms. */
  readonly stepFor: (delayMs: number) => number
}

/**
 * Returns the sources of groups.
 * @throws UsageError SLUICE_BAD_HANDLER: with Celery's names, `order`, and patterns of one service that match the same type
 */
export function sourcesOf(groups: readonly Group[], names: ServiceNames): Source[] {
  if (!names.hasOwnQueues) return groups.map((group) => sourceOf(group, taskOf(group), names))
  const all = groups.flatMap(({ handlers }) => handlers)
  const ordered = all.find(({ order }) => order !== undefined)
  if (ordered !== undefined) throw bad(ordered, 'with `celery: true` handlers have no `order`')
  // A type is compared with patterns only, because a service may have thousands of types.
  const open = all.filter(({ pattern }) => regexOf(pattern) !== undefined)
  const firsts = new Map(all.toReversed().map((each) => [each.pattern, each]))
  for (const { name, pattern, group } of all) {
    const meets = regexOf(pattern) === undefined ? [firsts.get(pattern) ?? [], open].flat() : all
    const other = meets.find((one) => overlap(one.pattern, pattern) && (one.pattern !== pattern || one.group !== group))
    if (other !== undefined)
      throw bad(
        { name },
        `with \`celery: true\` no other handler in another queue may get its events: "${other.name}" has the pattern ${other.pattern}`,
      )
  }
  return groups.flatMap((group) => {
    const task = taskOf(group)
    const same = grouped(group.handlers, ({ pattern }) => pattern)
    return [...same.values()].map((handlers) => sourceOf({ ...group, handlers }, task, names))
  })
}

function bad({ name }: Pick<EventHandler, 'name'>, why: string): UsageError {
  return new UsageError('SLUICE_BAD_HANDLER', `handler "${name}": ${why}`)
}

/** Returns the task of a group as it runs here. */
function taskOf({ task: home }: Group): AnyTask {
  const { homeOf: _, ...own } = home
  return { ...own, retry: { ...home.retry, jitter: stepJitter } }
}

/** Returns the source of a group, or of some of its handlers. */
function sourceOf({ task: home, handlers }: Group, task: AnyTask, names: ServiceNames): Source {
  const { group = '' } = handlers[0] ?? {}
  const isOrdered = handlers.some(({ order }) => order !== undefined)
  const { retry } = task
  const patterns = handlers.map(({ pattern }) => pattern)
  const steps = new Set(Array.from({ length: retry.attempts - 1 }, (_, n) => delayMs(n + 1, retry, 1)))
  const queue = names.group(group, isOrdered, patterns)
  return {
    home,
    task,
    handlers,
    isOrdered,
    queue,
    formerQueues: names.formerGroups(group, isOrdered),
    topology: names.groupTopology(queue, isOrdered, patterns),
    steps: [...new Set([...steps].map((ms) => names.stepFor(ms, steps)))].filter((ms) => ms > 0),
    stepFor: (ms) => names.stepFor(ms, steps),
  }
}
