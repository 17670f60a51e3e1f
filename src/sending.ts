/** Sends jobs to one store: together with what other callers send at the same time, or in a caller's transaction. */
import type { Definitions } from './claim/definitions/define.ts'
import type { Sql, Store } from './db/store.ts'
import { type TxLike, within } from './db/tx.ts'
import { type NewJob, Outbox } from './store/send.ts'
import { admit, checkTask, withLimit } from './tasks/admit.ts'
import type { Rulebook } from './tasks/rule.ts'
import { type SendRowsOptions, type Sent, sendRows } from './tasks/send-rows.ts'
import type { Sendable, SendOptions } from './tasks/send-options.ts'
import type { AnyTask, Given, Task } from './tasks/task.ts'

/** Parameters of `Sending`; see the fields. */
export interface SendingOptions {
  store: Store
  /** True if the store is the embedded engine. */
  isEmbedded: boolean
  definitions: Definitions
  rulebook: Rulebook
}

/** Sends jobs; see `Sluice`, whose methods of the same names check that it is open. */
export class Sending {
  /** Writes jobs that are sent without a transaction. */
  readonly outbox: Outbox
  readonly #options: SendingOptions

  constructor(options: SendingOptions) {
    this.#options = options
    this.outbox = new Outbox(options.store)
  }

  /** Sends a job; resolves to its id. @param limitMs the longest time of an attempt that its message allows */
  async send(task: AnyTask, input: unknown, options: SendOptions<never> = {}, limitMs?: number): Promise<string> {
    const { store, definitions, rulebook } = this.#options
    const tx = this.within(options)
    const job = withLimit(await admit(task, input, options, store.clock, rulebook), limitMs)
    if (!definitions.isDefined(task.limits)) await this.#defineFor(task, tx)
    if (tx === undefined) return this.outbox.add(job)
    const [id] = await this.outbox.write(tx, [job])
    return id ?? job.id
  }

  /** Sends a job for each row of a stream. */
  async sendRows<Input, Row, Result>(
    task: Task<Input, Result>,
    rows: Sendable<Row>,
    options: SendRowsOptions<Row, Given<Input>, Result>,
  ): Promise<Sent> {
    const { store, rulebook } = this.#options
    const tx = this.within(options)
    await this.#defineFor(task, tx)
    const write = (batch: NewJob[]) => (tx === undefined ? this.outbox.addAll(batch) : this.outbox.write(tx, batch))
    return sendRows(task, rows, options, { clock: store.clock, rulebook, write })
  }

  /** Puts the limits of these tasks in force. */
  async define(tasks: readonly AnyTask[]): Promise<void> {
    await this.#options.definitions.define(tasks.flatMap((task) => task.limits))
  }

  /** Returns the caller's transaction; undefined: there is none. @throws if the call stands in one of the store and does not name it */
  within(options: { tx?: TxLike | undefined }): Sql | undefined {
    const { store } = this.#options
    // Plain JavaScript may give null, which `admit` refuses.
    const { tx } = options ?? {}
    if (tx !== undefined) return store.on(within(tx))
    store.db.checkOutside('`send` without `tx`')
    return undefined
  }

  /**
   * Defines a task's limits in a transaction of its own, so that a long one of the caller does not hold up other processes
   * that define them. The embedded engine has no second transaction, so there it uses the caller's, which may be rolled back.
   */
  async #defineFor(task: AnyTask, tx: Sql | undefined): Promise<void> {
    checkTask(task)
    if (tx === undefined || !this.#options.isEmbedded) return this.define([task])
    return this.#options.definitions.defineIn(tx, task.limits)
  }
}
