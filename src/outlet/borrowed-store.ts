/** The store of a worker that has none: its dispatcher runs the statements that attempts need, and answers (lending.ts). */
import { type Clock } from '../core/clock.ts'
import { SluiceError, StoreError, UsageError } from '../core/errors.ts'
import { newId } from '../core/hash.ts'
import { version } from '../core/version.ts'
import type { Db } from '../db/db.ts'
import { type Sql, type Store, storeOn } from '../db/store.ts'
import type { Report } from '../report/report.ts'
import { answerMs, type Offer, type StatementResult, type ToRun } from './messages.ts'

/** A statement whose result is awaited. */
interface Awaited {
  resolve(rows: unknown[]): void
  reject(error: Error): void
}

/** A store without a connection of its own. */
export class BorrowedStore {
  readonly store: Store
  /** Attempts may begin: the margins of limits allow for this process. */
  isReady = false
  readonly #awaited = new Map<string, Awaited>()
  /** Sends a statement to a dispatcher. */
  #send: ((statement: ToRun) => Promise<void>) | undefined
  /** The store of its first dispatcher: it executes jobs of no other. */
  #lender: string | undefined
  /** What was wrong with other offers, as far as it was logged. */
  readonly #logged = new Set<string>()

  constructor({ schema, clock, report }: { schema: string; clock: Clock; report: Report }) {
    const run = <R>(name: string, args: readonly unknown[] = []) =>
      this.#run({ id: newId(), name, args }) as Promise<R[]>
    const sql: Sql = { call: run, run, query: needsStore }
    this.store = { ...storeOn(noDb, { schema, clock, report }), ...sql, on: () => sql }
  }

  /** @param send sends a statement to a dispatcher; it rejects if none will receive it */
  connect(send: (statement: ToRun) => Promise<void>): void {
    this.#send = send
  }

  /** Returns whether the worker may take jobs of this dispatcher: of one store only, and of its own release. */
  accepts(offer: Offer): boolean {
    const { log } = this.store
    if (offer.store === undefined) return false
    if (offer.version !== version) {
      const text =
        'a dispatcher of another release offers jobs; a worker without a store takes none, because the statements of releases differ'
      if (this.#isNew(offer.version)) log.warn(text, { own: version, other: offer.version })
      return false
    }
    this.#lender ??= offer.store
    if (offer.store === this.#lender) return true
    const text =
      'dispatchers of two stores offer jobs; this worker takes those of the first: give each store a virtual host of its own, or a schema of another name'
    if (this.#isNew(offer.store)) log.error(text, { dispatcher: offer.from, first: this.#lender, other: offer.store })
    return false
  }

  /** Takes the result of a statement. */
  receive({ id, rows, error }: StatementResult): void {
    const awaited = this.#awaited.get(id)
    if (error === undefined) awaited?.resolve(rows ?? [])
    else awaited?.reject(errorOf(error))
  }

  /** Nothing is answered any more. */
  close(): void {
    this.#send = undefined
    for (const { reject } of this.#awaited.values()) reject(awayError('the worker has stopped'))
  }

  #isNew(what: string): boolean {
    return this.#logged.size < this.#logged.add(what).size
  }

  /** @throws StoreError SLUICE_STORE_UNREACHABLE: it may have run; what the dispatcher's store throws */
  async #run(statement: ToRun): Promise<unknown[]> {
    const { clock } = this.store
    const send = this.#send
    if (send === undefined) throw awayError('the worker has stopped')
    let cancel = () => {}
    try {
      return await new Promise<unknown[]>((resolve, reject) => {
        this.#awaited.set(statement.id, { resolve, reject })
        cancel = clock.after(answerMs, () => reject(awayError('no dispatcher answers')))
        send(statement).catch((error: unknown) => reject(awayError('no dispatcher is there', error)))
      })
    } finally {
      cancel()
      this.#awaited.delete(statement.id)
    }
  }
}

/** Returns the error of a store elsewhere: one of ours, or one with PostgreSQL's code. A store closed there is away here. */
function errorOf({ code, message, isAway }: NonNullable<StatementResult['error']>): Error {
  if (isAway) return new StoreError('SLUICE_STORE_UNREACHABLE', message)
  if (code.startsWith('SLUICE_')) return new SluiceError(code, message)
  return Object.assign(new Error(message), { code })
}

function awayError(why: string, cause?: unknown): StoreError {
  const text = `${why}, and this worker has no store of its own; a dispatcher runs the statements of its attempts`
  return new StoreError('SLUICE_STORE_UNREACHABLE', text, { cause })
}

/** @throws UsageError SLUICE_NEEDS_STORE */
async function needsStore(): Promise<never> {
  throw new UsageError('SLUICE_NEEDS_STORE', 'this worker has no store: give it the DATABASE_URL of its dispatchers')
}

/** A database that is not there. */
const noDb: Db = {
  kind: 'pg',
  where: 'the dispatcher',
  ended: new Promise(() => {}),
  query: needsStore,
  script: needsStore,
  call: needsStore,
  transaction: needsStore,
  checkOutside() {},
  listen: needsStore,
  listening: () => false,
  async close() {},
}
