/**
 * What jobs are expected to use, learned from what earlier ones said they had really used: for each route (a task, a limit,
 * and the value of a field) the ratio to the declared cost. Workers note the ratios; whoever sends looks them up.
 */
import type { Sql, Store } from '../db/store.ts'
import { type TxLike, within } from '../db/tx.ts'
import { declaredOf, type Expect } from '../limits/cost.ts'
import { fieldOf, type Limit } from '../limits/limit.ts'
import type { AnyTask } from './task.ts'

/** What this process has seen of a route and not written yet. */
interface Seen {
  task: string
  lim: string
  value: string
  /** Thousandths of the declared cost, the newest first. */
  ratios: number[]
}

/** What is known of a task. */
interface Known {
  askedMs: number
  /** By limit and value. */
  shares: ReadonlyMap<string, number>
  /** The look that those who know nothing yet wait for. */
  first: Promise<void> | undefined
}

/** With fewer ratios a job costs what is declared. */
const samplesMin = 20
/** Of the ratios that are kept of a route: as many decide. */
const samplesMax = 128
/** Routes that are noted between two writes. */
const routesMax = 1_000
const valueLengthMax = 200
/** So long what was looked up is used. */
const freshMs = 3_000
/** So long a send waits for the first look at its task, and no longer. */
const patienceMs = 100

/** What one Sluice has learned. */
export class Estimates {
  readonly #store: Store
  readonly #known = new Map<string, Known>()
  readonly #seen = new Map<string, Seen>()

  constructor(store: Store) {
    this.#store = store
  }

  /**
   * What is known of a task now; undefined: none of its costs is learned. Never rejects, and waits for the store only when
   * nothing was looked up before.
   * @param tx of the caller; where the engine has no other connection it is asked
   */
  async of(task: AnyTask, tx?: TxLike): Promise<Expect | undefined> {
    const limits = task.limits.filter((limit) => limit.learn !== undefined)
    if (limits.length === 0) return undefined
    const known = this.#known.get(task.name) ?? { askedMs: -Infinity, shares: new Map(), first: undefined }
    this.#known.set(task.name, known)
    const nowMs = this.#store.clock.monotonicMs()
    if (nowMs - known.askedMs > freshMs) {
      const isInside = tx !== undefined && this.#store.db.kind === 'pglite'
      const reading = this.#read(known, task.name, limits, isInside ? this.#store.on(within(tx)) : this.#store)
      // A transaction may be over when nobody waits for what was asked in it.
      if (isInside || known.askedMs === -Infinity) known.first = reading
      known.askedMs = nowMs
    }
    if (known.first !== undefined) {
      await Promise.race([known.first, this.#store.clock.sleep(patienceMs, undefined, false)])
      known.first = undefined
    }
    return (limit, input) => known.shares.get(keyOf(limit.name, routeOf(limit, input)))
  }

  async #read(known: Known, task: string, limits: readonly Limit[], from: Sql): Promise<void> {
    const names = limits.map(({ name }) => name)
    const quantiles = limits.map(({ learn }) => learn?.quantile)
    try {
      type Row = { lim: string; value: string; share: number }
      const rows = await from.run<Row>('tasks/learned', [task, names, quantiles, samplesMin])
      known.shares = new Map(rows.map(({ lim, value, share }) => [keyOf(lim, value), Number(share)]))
    } catch (error) {
      this.#store.log.debug('what jobs cost could not be looked up; what is known goes on', {
        task,
        error: String(error),
      })
    }
  }

  /** One grant of a job of this input really used so much. Of an attempt that used nothing there is nothing to learn. */
  saw(task: string, limit: Limit, input: unknown, used: number): void {
    const declared = this.#declared(limit, input)
    if (declared === 0 || used <= 0) return
    const value = routeOf(limit, input)
    const key = keyOf(task, limit.name, value)
    if (!this.#seen.has(key) && this.#seen.size >= routesMax) return
    const seen = this.#seen.get(key) ?? { task, lim: limit.name, value, ratios: [] }
    // More than the declared costs as much as that.
    seen.ratios.unshift(Math.min(1_000, Math.ceil((used * 1_000) / declared - 1e-6)))
    seen.ratios.splice(samplesMax)
    this.#seen.set(key, seen)
  }

  /** 0 where a function that is not the same each time gives none: no reason for an attempt to fail. */
  #declared(limit: Limit, input: unknown): number {
    try {
      return declaredOf(limit, input)
    } catch (error) {
      this.#store.log.debug('the declared cost of a job is not what it was', {
        limit: limit.name,
        error: String(error),
      })
      return 0
    }
  }

  /** Writes what was seen since the last time, in one statement. Never rejects: what could not be written is with the next. */
  async write(): Promise<void> {
    const batch = [...this.#seen]
    if (batch.length === 0) return
    this.#seen.clear()
    try {
      await this.#store.call('learn', [JSON.stringify(batch.map(([, seen]) => seen))])
    } catch (error) {
      this.#store.log.debug('what jobs used could not be noted; it is tried again', { error: String(error) })
      for (const [key, seen] of batch) {
        const newer = this.#seen.get(key)?.ratios ?? []
        this.#seen.set(key, { ...seen, ratios: [...newer, ...seen.ratios].slice(0, samplesMax) })
      }
    }
  }
}

function keyOf(...parts: readonly string[]): string {
  return parts.join('\u001f')
}

/** What tells routes of one limit apart: what stands at its field; '' for what is no short text, number or boolean. */
function routeOf({ learn }: Limit, input: unknown): string {
  const value = learn?.by === undefined ? undefined : fieldOf(input, learn.by)
  const text = typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean' ? `${value}` : ''
  return text.length <= valueLengthMax ? text : ''
}
