/** Emits events to the store. Calls that arrive while a statement is under way share the next one. */
import { StoreError } from '../core/errors.ts'
import { countForStatement } from '../core/payload.ts'
import { repeatUntilAnswered } from '../db/repeat-request.ts'
import type { Sql, Store } from '../db/store.ts'
import type { TxLike } from '../db/tx.ts'
import { batchRows, inBatches } from './batches.ts'
import { emitOnce, emitRows, type EventRow } from './row.ts'
import type { EventRows, Transport } from './transport.ts'

interface Waiting {
  row: EventRow
  resolve: () => void
  reject: (error: unknown) => void
}

/** The store as the transport: emitting sends the jobs of all deliveries. */
export class EventOutbox implements Transport {
  readonly isStore = true
  readonly tasks = []
  readonly #store: Store
  readonly #within: (tx: TxLike) => Sql
  #waiting: Waiting[] = []
  #flushing: Promise<void> | undefined

  /** @param within returns the caller's transaction */
  constructor(store: Store, within: (tx: TxLike) => Sql) {
    this.#store = store
    this.#within = within
  }

  /** Emits one event; resolves once it is durable. */
  add(row: EventRow): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ row, resolve, reject })
      this.#flushing ??= this.#flush()
    })
  }

  async write(rows: EventRows, tx?: TxLike): Promise<number> {
    return inBatches(rows, (batch) => this.#insert(batch, tx), tx !== undefined)
  }

  once(row: EventRow, key: string, tx?: TxLike): Promise<string> {
    if (tx !== undefined) return emitOnce(this.#within(tx), row, key)
    return repeatUntilAnswered(this.#store.clock, () => emitOnce(this.#store, row, key))
  }

  /** Emits events in one statement. After a lost connection it is repeated: the events' ids make that safe. */
  #insert(rows: readonly EventRow[], tx?: TxLike): Promise<void> {
    if (tx !== undefined) return emitRows(this.#within(tx), rows)
    return repeatUntilAnswered(this.#store.clock, () => emitRows(this.#store, rows))
  }

  /** Resolves when all that was added so far is emitted, or has failed. */
  async settled(): Promise<void> {
    while (this.#flushing !== undefined) await this.#flushing
  }

  async #flush(): Promise<void> {
    // Wait one microtask, so that calls made together share a statement.
    await Promise.resolve()
    while (this.#waiting.length > 0) {
      const count = countForStatement(this.#waiting, batchRows, ({ row }) => row.text.length)
      await this.#settle(this.#waiting.splice(0, count))
    }
    this.#flushing = undefined
  }

  async #settle(items: readonly Waiting[]): Promise<void> {
    try {
      await this.#insert(items.map(({ row }) => row))
      for (const { resolve } of items) resolve()
    } catch (error) {
      if (items.length === 1 || error instanceof StoreError) for (const { reject } of items) reject(error)
      // The store rejected the batch: emit each alone, so that only the bad one fails.
      else for (const item of items) await this.#settle([item])
    }
  }
}
