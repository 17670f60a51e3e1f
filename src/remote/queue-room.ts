/** How many more jobs can be sent to the queues of stock workers, in all and by task. */
import type { Kind } from '../claim/outlet.ts'
import type { AnyTask } from '../tasks/task.ts'
import { queueOf, type Sent } from './sent.ts'
import type { StockWorkers } from './stock-workers.ts'

/** Parameters of `QueueRoom`; see the fields. */
export interface QueueRoomOptions {
  /** Tasks that stock workers execute. */
  tasks: readonly AnyTask[]
  workers: Pick<StockWorkers, 'slots' | 'hasTask'>
  /** Returns the jobs that take up a slot. */
  sent(): Iterable<Pick<Sent, 'queue'>>
}

/** Room in queues. */
export class QueueRoom {
  readonly #options: QueueRoomOptions
  readonly #queues: ReadonlySet<string>
  #kinds: readonly Kind[] | undefined

  constructor(options: QueueRoomOptions) {
    this.#options = options
    this.#queues = new Set(options.tasks.map(queueOf))
  }

  /** Slots of all queues. */
  get slots(): number {
    return [...this.#queues].reduce((sum, queue) => sum + this.#slotsOf(queue), 0)
  }

  /** Returns how many more jobs the queues can take whose workers have a task. */
  free(): number {
    const open = new Set(this.#options.tasks.filter((task) => this.#has(task)).map(queueOf))
    return [...open].reduce((sum, queue) => sum + this.#freeSlotsOf(queue), 0)
  }

  /** The tasks by queue. Tasks that not all workers of their queue have are a kind without room. */
  get kinds(): readonly Kind[] {
    return (this.#kinds ??= this.#groupTasks())
  }

  /** The workers have changed. */
  forgetKinds(): void {
    this.#kinds = undefined
  }

  #slotsOf(queue: string): number {
    const declared = this.#options.tasks.find((task) => queueOf(task) === queue)?.remote?.slots
    return Math.min(declared ?? Infinity, this.#options.workers.slots(queue))
  }

  #freeSlotsOf(queue: string): number {
    let busy = 0
    for (const sent of this.#options.sent()) if (sent.queue === queue) busy++
    return Math.max(0, this.#slotsOf(queue) - busy)
  }

  #has(task: AnyTask): boolean {
    return this.#options.workers.hasTask(queueOf(task), task.name)
  }

  #groupTasks(): Kind[] {
    const open = new Map<string, Set<string>>()
    const closed = new Set<string>()
    for (const task of this.#options.tasks) {
      const queue = queueOf(task)
      if (this.#has(task)) open.set(queue, (open.get(queue) ?? new Set()).add(task.name))
      else closed.add(task.name)
    }
    const kinds: Kind[] = [...open].map(([queue, tasks]) => ({ tasks, free: () => this.#freeSlotsOf(queue) }))
    return closed.size === 0 ? kinds : [...kinds, { tasks: closed, free: () => 0 }]
  }
}
