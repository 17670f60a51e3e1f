/** Puts limits in force: each once a process, and not two different ones under one name. */
import type { Clock } from '../core/clock.ts'
import { UsageError } from '../core/errors.ts'
import type { Db, Queryable } from '../db/db.ts'
import { fromText } from '../db/tx.ts'
import { inWords, type Limit } from '../limits/limit.ts'
import { isTransient } from './claim.ts'

/** A definition that meets a deadlock or a lock time-out is tried again for so long. */
const defineMs = 10_000

/** The limits that this process has met. */
export class Definitions {
  readonly #db: Db
  readonly #clock: Clock
  readonly #inSchema: (sql: string) => string
  readonly #met = new Map<string, Limit>()
  readonly #defined = new Map<string, Promise<void>>()

  constructor(db: Db, clock: Clock, inSchema: (sql: string) => string) {
    this.#db = db
    this.#clock = clock
    this.#inSchema = inSchema
  }

  /** Puts these in force, in transactions of their own. @throws UsageError SLUICE_LIMIT_CONFLICT */
  async define(limits: readonly Limit[]): Promise<void> {
    this.#meet(limits)
    await Promise.all(
      limits.map((limit) => {
        const known = this.#defined.get(limit.name)
        if (known !== undefined) return known
        const defining = this.#define(limit)
        this.#defined.set(limit.name, defining)
        defining.catch(() => this.#defined.delete(limit.name))
        return defining
      }),
    )
  }

  /** Puts these in force with a transaction of the caller, which may be rolled back. @throws UsageError SLUICE_LIMIT_CONFLICT */
  async defineIn(tx: Queryable, limits: readonly Limit[]): Promise<void> {
    this.#meet(limits)
    for (const limit of limits) await defineLimit(tx, limit, this.#inSchema)
  }

  /** Of two definitions under one name the first would hold for the jobs of both, and nobody would be told. */
  #meet(limits: readonly Limit[]): void {
    for (const limit of limits) {
      const met = this.#met.get(limit.name)
      if (met === limit) continue
      if (met !== undefined && inWords(met) !== inWords(limit)) {
        throw new UsageError(
          'SLUICE_LIMIT_CONFLICT',
          `limit "${limit.name}" is defined in two ways in this process: ${inWords(met)}; and ${inWords(limit)}. Define it once and import it where it is needed, or give one of them another name`,
        )
      }
      this.#met.set(limit.name, limit)
    }
  }

  async #define(limit: Limit): Promise<void> {
    const untilMs = this.#clock.monotonicMs() + defineMs
    for (;;) {
      try {
        await defineLimit(this.#db, limit, this.#inSchema)
        return
      } catch (error) {
        if (!isTransient(error) || this.#clock.monotonicMs() > untilMs) throw error
        await this.#clock.sleep(50 + this.#clock.random() * 100)
      }
    }
  }
}

/** Makes a definition the one in force (define.sql); one that is in force already is left alone. */
export async function defineLimit(
  db: Queryable,
  limit: Limit,
  inSchema: (sql: string) => string = (sql) => sql,
): Promise<void> {
  const { name, rules, grantUs, transitUs, classic, keyed, path, label, pool } = limit
  const keys = {
    ...(label === undefined ? {} : { label }),
    ...(pool === undefined ? {} : { pool: pool.map(({ key }) => key) }),
  }
  const column = (field: 'drain' | 'weight' | 'room' | 'slotUs' | 'spanUs') => rules.map((rule) => String(rule[field]))
  await db.query(
    inSchema(`select sluice.define_v1(${fromText('text jsonb bigint[] bigint[] bigint[] bigint[] bigint[] bigint')})`),
    [
      name,
      JSON.stringify({ rules, grantUs, transitUs, classic, keyed, path: path ?? null, ...keys }),
      column('drain'),
      column('weight'),
      column('room'),
      column('slotUs'),
      column('spanUs'),
      String(grantUs),
    ],
  )
}
