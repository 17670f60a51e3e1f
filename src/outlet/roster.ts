/** The workers of a dispatcher, and the jobs that it has given to each. It sends no messages and reads no clock. */
import type { ClaimedJob } from '../claim/claimed-job.ts'
import type { Executor } from '../claim/finish/attempt-report.ts'
import type { Kind } from '../claim/outlet.ts'
import type { Capacity } from './messages.ts'

/** A job given to a worker. */
export interface GivenJob {
  readonly job: ClaimedJob
  /** After this time of the dispatcher's clock the worker does not take it any more. */
  readonly arriveByMs: number
  /** An announcement of the worker has named the job. */
  isAnnounced: boolean
  /** It is reported as begun. */
  isBegun: boolean
  /** Its attempt is to be stopped. */
  isStopped: boolean
}

const none: Capacity = { stint: null, slots: 0, tasks: [], kinds: [] }

/** One worker. */
export class RosterWorker {
  readonly id: string
  /** Where it runs, as far as it has announced that. */
  by: Executor | undefined
  /** The jobs that it was given, by key. */
  readonly jobs = new Map<string, GivenJob>()
  /** Jobs whose end is being recorded, by key. */
  readonly ending = new Map<string, ClaimedJob>()
  /** Keys of jobs whose end is recorded, which the worker has still to be sent. */
  recorded: string[] = []
  /** The number of its newest announcement. */
  n = 0
  /** How long it has been silent, while it was reachable. */
  silentMs = 0
  /** The last stint in which it took jobs, some of which it may still have. Null: it never took any. */
  lastStint: string | null = null
  /** The time since which the store knows of its present stint. A worker gets no job that was claimed before. */
  #sinceMs = Infinity
  #capacity = none
  #tasksText = ''

  constructor(id: string) {
    this.id = id
  }

  /** The stint in which it takes jobs; null: it takes none. */
  get stint(): string | null {
    return this.#capacity.stint
  }

  /** Records that the store will know of its stint before any claim after `nowMs`. */
  enlist(nowMs: number): void {
    this.#sinceMs = Math.min(this.#sinceMs, nowMs)
  }

  /** Returns whether it may be given a job that was claimed at this time. */
  mayTake(claimedMs: number): boolean {
    return this.#sinceMs <= claimedMs
  }

  /** Attempts at once. */
  get slots(): number {
    return this.#capacity.slots
  }

  /** Sets what it can take. Returns whether its tasks, or their kinds, have changed. */
  setCapacity({ stint, slots, tasks, kinds }: Capacity): boolean {
    if (stint !== this.stint) this.#sinceMs = Infinity
    this.lastStint = stint ?? this.lastStint
    this.#capacity = { stint, slots, tasks, kinds }
    const text = JSON.stringify([tasks, kinds])
    if (text === this.#tasksText) return false
    this.#tasksText = text
    return true
  }

  /** Gives it no more jobs until its next announcement. */
  stopGiving(): void {
    this.#capacity = { ...this.#capacity, slots: 0 }
  }

  /** How many more attempts can begin. */
  free(): number {
    return Math.max(0, this.#capacity.slots - this.jobs.size)
  }

  /** How many more attempts of a task can begin. */
  room(task: string): number {
    const free = this.#capacity.tasks.includes(task) ? this.free() : 0
    const kind = this.#capacity.kinds.find(({ tasks }) => tasks.includes(task))
    if (kind === undefined || free === 0) return free
    let busy = 0
    for (const { job } of this.jobs.values()) if (kind.tasks.includes(job.task)) busy++
    return Math.max(0, Math.min(free, kind.slots - busy))
  }

  /** Returns a name for the slots that a task needs here. Tasks with the same name share them. */
  kindOf(task: string): string {
    const { tasks, kinds } = this.#capacity
    return tasks.includes(task) ? `${this.id} ${kinds.findIndex((kind) => kind.tasks.includes(task))}` : ''
  }
}

/** All workers of one dispatcher. */
export class Roster {
  readonly #workers = new Map<string, RosterWorker>()
  readonly #tasks: readonly string[]
  #kinds: readonly Kind[] | undefined

  /** @param tasks the tasks that the dispatcher claims */
  constructor(tasks: readonly string[]) {
    this.#tasks = tasks
  }

  get workers(): readonly RosterWorker[] {
    return [...this.#workers.values()]
  }

  find(id: string): RosterWorker | undefined {
    return this.#workers.get(id)
  }

  /** Records what a worker can take, which may be a new worker. */
  setCapacity(id: string, capacity: Capacity): RosterWorker {
    const worker = this.#workers.get(id) ?? new RosterWorker(id)
    this.#workers.set(id, worker)
    if (worker.setCapacity(capacity)) this.#kinds = undefined
    return worker
  }

  remove(worker: RosterWorker): void {
    this.#workers.delete(worker.id)
    this.#kinds = undefined
  }

  /** Attempts at once. */
  slots(): number {
    let all = 0
    for (const { slots } of this.#workers.values()) all += slots
    return all
  }

  /** How many more attempts can begin. */
  free(): number {
    let all = 0
    for (const worker of this.#workers.values()) all += worker.free()
    return all
  }

  /** Returns the worker with the most room for a job claimed at this time; undefined: no worker has any. */
  choose(task: string, claimedMs: number): RosterWorker | undefined {
    let best: RosterWorker | undefined
    let most = 0
    for (const worker of this.#workers.values()) {
      const room = worker.room(task)
      if (room > most && worker.mayTake(claimedMs)) [best, most] = [worker, room]
    }
    return best
  }

  /**
   * Returns the tasks, grouped by the workers and slots that can take them. Tasks that no worker has are a kind
   * without slots.
   */
  kinds(): readonly Kind[] {
    return (this.#kinds ??= this.#groupTasks())
  }

  #groupTasks(): Kind[] {
    const kinds = new Map<string, Set<string>>()
    for (const task of this.#tasks) {
      const where = this.workers.map((worker) => worker.kindOf(task)).join()
      const kind = kinds.get(where) ?? new Set()
      kinds.set(where, kind.add(task))
    }
    const room = (task: string) => this.workers.reduce((all, worker) => all + worker.room(task), 0)
    return [...kinds.values()].map((tasks) => ({ tasks, free: () => room([...tasks][0] ?? '') }))
  }
}
