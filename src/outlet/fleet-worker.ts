/** A worker that executes the jobs that dispatchers give it over a broker. */
import { StoreClock } from '../core/clock.ts'
import { hash64 } from '../core/hash.ts'
import { marginsOf } from '../claim/definitions/margins.ts'
import { PatientStart } from '../amqp/patient-start.ts'
import type { Store } from '../db/store.ts'
import { Shutdown } from '../worker/shutdown.ts'
import { createAttemptParts } from '../worker/grant-source.ts'
import { LocalOutlet } from '../worker/local-outlet.ts'
import type { ExecutionOptions } from '../worker/options.ts'
import { TaskSet } from '../worker/task-set.ts'
import type { BorrowedStore } from './borrowed-store.ts'
import { Executor } from './executor.ts'
import type { Wire } from './wire.ts'

/** Parameters of `FleetWorker`; see the fields. */
export interface FleetWorkerOptions extends ExecutionOptions {
  wire: Wire
  fleet: string
  /** The name of its store (`nameStore`); if it has none, the store that it borrows, which is also `store`. */
  lender: string | BorrowedStore
  /** Called every 2 s: records that the definitions of this process's limits are alive. */
  renew(): Promise<void>
  /** Called when it has stopped. */
  ended(): Promise<void>
}

const renewMs = 2_000
/** How often a worker without a store tries to get ready, while there is no dispatcher. */
const readyMs = 250
/** How long a stopping worker waits until the ends of its attempts are recorded. */
const signOffMs = 10_000

/** One worker in this process. */
export class FleetWorker {
  readonly #options: FleetWorkerOptions
  readonly #local: LocalOutlet
  readonly #executor: Executor
  readonly #opening: PatientStart
  readonly #shutdown: Shutdown
  readonly #end = new AbortController()

  constructor(options: FleetWorkerOptions) {
    const { store, wire, fleet, lender, tasks, labels, graceMs, rulebook } = options
    const { clock, log } = store
    this.#options = options
    const taskSet = new TaskSet(tasks, labels)
    const local = new LocalOutlet({
      ...options,
      ...createAttemptParts({ ...options, storeClock: new StoreClock() }),
      taskSet,
      isPrompt: true,
      worker: () => this.#executor.id,
      changed() {},
    })
    const { tasks: few, threads } = local.threaded
    const margins = marginsOf(store)
    const limits = new Map(tasks.map((task) => [task.name, task.limits]))
    this.#local = local
    this.#executor = new Executor({
      wire,
      fleet,
      ...(typeof lender === 'string' ? { store: lender } : { borrowed: lender }),
      tasks: taskSet.describeTasks(rulebook).tasks,
      kinds: few.size === 0 ? [] : [{ tasks: [...few], slots: threads }],
      outlet: (reports) => local.outlet(reports),
      onLate: (name, ageMs) => margins.recordAge(limits.get(name) ?? [], ageMs, true),
      clock,
      log,
    })
    this.#opening = new PatientStart({ who: 'the worker', clock, log, start: () => this.#executor.open() })
    this.#shutdown = new Shutdown({
      store,
      graceMs,
      what: 'jobs',
      running: () => this.running,
      handBack: (reason) => this.#executor.abort(reason),
      signOff: () => this.#signOff(),
    })
  }

  /** Attempts under way. */
  get running(): number {
    return this.#executor.running
  }

  /** Handlers that go on though their attempt ended more than 5 s ago. */
  get stuck(): number {
    return this.#local.stuck
  }

  /** True if a dispatcher gives it jobs. */
  get isAttached(): boolean {
    return this.#executor.isAttached
  }

  /** Looks for a dispatcher, as soon as the broker is there, and takes jobs from it. */
  async start(): Promise<void> {
    const { rulebook, tasks, lender } = this.#options
    await this.#local.open(tasks, typeof lender === 'string')
    await this.#opening.begin()
    if (typeof lender !== 'string') void this.#getReady(lender)
    // Each by itself: one that is slow, or fails, holds up no other.
    void this.#repeat(() => this.#options.renew())
    void this.#repeat(() => this.#renewMargins())
    void this.#repeat(async () => rulebook.estimates?.write())
    void this.#repeat(() => this.#writeNotes())
  }

  /** Takes no more jobs, waits for the attempts under way, as long as its grace, and until their ends are recorded. */
  stop(): Promise<void> {
    return this.#shutdown.stop()
  }

  /** Stops at once: the signals of attempts under way abort, and their jobs go back to be tried elsewhere. */
  abort(): Promise<void> {
    return this.#shutdown.abort()
  }

  /** As `abort`, for a store that has ended for good. */
  abandon(): Promise<void> {
    return this.abort()
  }

  async #signOff(): Promise<void> {
    const { store, ended } = this.#options
    // A try that is under way ends when the broker is closed.
    void this.#opening.end()
    const late = new AbortController()
    const stopped = this.#executor.stop(late.signal)
    await this.#executor.waitUntilIdle()
    const cancel = store.clock.after(signOffMs, () => late.abort())
    await stopped
    cancel()
    this.#end.abort()
    // A borrowed store is closed with the executor.
    await this.#writeNotes()
    await this.#executor.close()
    await this.#local.close()
    await ended()
  }

  /** Takes jobs as soon as a dispatcher has made the margins of limits wide enough for this process. */
  async #getReady(lender: BorrowedStore): Promise<void> {
    const { store, tasks } = this.#options
    while (!lender.isReady && !this.#end.signal.aborted)
      try {
        await this.#local.waitUntilReady(tasks)
        lender.isReady = true
      } catch (error) {
        store.log.debug('a worker is not ready yet', { err: error })
        await store.clock.sleep(readyMs, this.#end.signal, false)
      }
  }

  /**
   * Reports what was measured. If that fails, a worker without a store makes sure that margins still allow for it before it takes
   * more jobs: others may assume that it has ended.
   */
  async #renewMargins(): Promise<void> {
    const { store, lender } = this.#options
    try {
      await marginsOf(store).renew()
    } catch (error) {
      if (typeof lender !== 'string' && lender.isReady) {
        lender.isReady = false
        void this.#getReady(lender)
      }
      throw error
    }
  }

  /** Writes, as any worker does, what its handlers need in the store, or have left for it. The store may be away. */
  async #repeat(write: () => Promise<unknown>): Promise<void> {
    const { clock, log } = this.#options.store
    for (;;) {
      await clock.sleep(renewMs, this.#end.signal, false)
      if (this.#end.signal.aborted) return
      await write().catch((error: unknown) => log.debug('a worker could not write to the store', { err: error }))
    }
  }

  async #writeNotes(): Promise<void> {
    await this.#local.notes.write(this.#options.store).catch(() => {})
  }
}

/**
 * Returns the name under which dispatchers and workers that serve the same queues and have the same labels find each other. Stores of
 * the same schema share it.
 */
export function nameFleet(
  schema: string,
  queues: readonly string[] | undefined,
  labels: Readonly<Record<string, string>>,
): string {
  const sorted = Object.entries(labels).toSorted(([a], [b]) => (a < b ? -1 : 1))
  return `sluice.${schema}.${hash64(JSON.stringify([queues?.toSorted() ?? null, sorted]))}`
}

/** Returns the name by which dispatchers and workers know that they have the same store. */
export async function nameStore(store: Store): Promise<string> {
  const [row] = await store.query<{ where: string }>(
    `select concat_ws('/', current_database(), split_part(identity, '/', 1)) as where from sluice.epoch`,
  )
  return row?.where ?? ''
}
