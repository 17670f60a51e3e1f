/** Executes attempts in this process: the slots, and the things that handlers need. */
import type { Outlet, Reports } from '../claim/outlet.ts'
import type { OpeningReader } from '../gates/gates.ts'
import { Agents } from '../http/agent.ts'
import { warmClient } from '../http/warm.ts'
import type { Rulebook } from '../tasks/rule.ts'
import type { AnyTask } from '../tasks/task.ts'
import { GiveBackCounter } from './give-backs.ts'
import type { GrantSource, Surroundings } from './grant-source.ts'
import { NoteBook } from './notes.ts'
import { Slots } from './slots.ts'
import { StuckHandlers } from './stuck.ts'
import type { TaskSet } from './task-set.ts'
import { type Threads, threadsFor } from './threads.ts'

/** Parameters of `LocalOutlet`; see the fields. */
export interface LocalOutletOptions {
  store: Surroundings
  source: GrantSource
  /** Reads when hours open, for rules. */
  opens: OpeningReader
  taskSet: TaskSet
  /** Attempts at once. */
  concurrency: number
  rulebook: Rulebook
  /** Addresses beyond the public ones that every task may call. */
  allowPrivate: readonly string[]
  /** Attempts begin at once, and not in the next turn of the event loop. */
  isPrompt: boolean
  /** Returns the worker's id, for log lines. */
  worker(): string | undefined
  /** Called when there become too many stuck handlers, and when there no longer are. */
  changed(isTooMany: boolean): void
}

/** Executes attempts in this process. */
export class LocalOutlet {
  /** Attempts at once: fewer than wanted when all tasks run in threads, and there are fewer of those. */
  readonly slots: number
  /** The tasks that run in threads, and how many of their attempts run at once. */
  readonly threaded: { tasks: ReadonlySet<string>; threads: number }
  readonly notes = new NoteBook()
  readonly #options: LocalOutletOptions
  readonly #stuck: StuckHandlers
  readonly #threads: Threads | undefined
  readonly #agents: Agents

  constructor(options: LocalOutletOptions) {
    const { store, concurrency, taskSet, changed } = options
    const { clock, log } = store
    this.#options = options
    this.#agents = new Agents(options.allowPrivate)
    this.#stuck = new StuckHandlers({ clock, log, most: concurrency, changed })
    const { tasks, isAll } = taskSet.threaded()
    const threads = tasks.size > 0 ? threadsFor(concurrency, log) : undefined
    this.#threads = threads
    this.threaded = { tasks, threads: threads?.size ?? 0 }
    this.slots = isAll ? Math.min(concurrency, threads?.size ?? concurrency) : concurrency
  }

  /** Handlers that outlive their attempts. */
  get stuck(): number {
    return this.#stuck.count
  }

  /** Returns the outlet, which reports there. */
  outlet(reports: Reports): Outlet {
    const { store, source, opens, taskSet, rulebook, worker, isPrompt } = this.#options
    const own = { worker, notes: this.notes, patience: new GiveBackCounter(), opens }
    const common = { store, source, ...own, stuck: this.#stuck, threads: this.#threads, rulebook }
    const attempt = taskSet.attempts(common, this.#agents)
    const { slots, threaded } = this
    return new Slots({ slots, attempt, stuck: this.#stuck, clock: store.clock, isPrompt, threaded }, reports)
  }

  /** Makes everything ready that a first attempt would otherwise wait for. `waits`: also the source of its grants. */
  async open(tasks: readonly AnyTask[], waits = true): Promise<void> {
    await this.#threads?.open(tasks)
    await Promise.all([warmClient(this.#agents.of([])), waits && this.waitUntilReady(tasks)])
  }

  /** Resolves when the source of grants is ready for attempts of these tasks. */
  async waitUntilReady(tasks: readonly AnyTask[]): Promise<void> {
    await this.#options.source.waitUntilReady(tasks.flatMap(({ limits }) => limits))
  }

  /** Closes what attempts have used; none may be under way. */
  async close(): Promise<void> {
    await this.#agents.close()
    await this.#threads?.close()
  }
}
