/** A group as the bus has it: its queue, and its task with retries in steps. */
import type { Topology } from '../amqp/topology.ts'
import { delayMs } from '../core/retry.ts'
import type { Group } from '../events/groups.ts'
import type { EventHandler } from '../events/handler.ts'
import type { AnyTask } from '../tasks/task.ts'
import type { ServiceNames } from './names.ts'

/** A group, and the queue that is its own. */
export interface Source {
  /** As in the store, where deliveries of groups with limits wait. */
  readonly home: AnyTask
  /** As it runs here. */
  readonly task: AnyTask
  readonly handlers: readonly EventHandler[]
  readonly queue: string
  /** Those that it has had with other settings. */
  readonly formerQueues: readonly string[]
  readonly topology: Topology
  /** The waits before retries, in ms. */
  readonly steps: ReadonlySet<number>
}

/** Returns the source of a group. */
export function sourceOf({ task: home, handlers }: Group, names: ServiceNames): Source {
  const { group = '' } = handlers[0] ?? {}
  const isOrdered = handlers.some(({ order }) => order !== undefined)
  const { homeOf: _, ...own } = home
  const retry = { ...home.retry, isStepped: true }
  const patterns = handlers.map(({ pattern }) => pattern)
  const steps = Array.from({ length: retry.attempts - 1 }, (__, n) => delayMs(n + 1, retry, 1))
  return {
    home,
    task: { ...own, retry },
    handlers,
    queue: names.group(group, isOrdered),
    formerQueues: names.formerGroups(group, isOrdered),
    topology: names.groupTopology(group, isOrdered, patterns),
    steps: new Set(steps),
  }
}
