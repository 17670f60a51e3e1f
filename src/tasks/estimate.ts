/**
 * Estimates what jobs use, learned from what earlier jobs settled for: for each route (a task, a limit, and the value of
 * a field) the ratio to the declared cost. Workers record the ratios; senders read them.
 */
import type { Sql, Store } from '../db/store.ts'
import { type TxLike, within } from '../db/tx.ts'
import { declaredOf, type Expect } from '../limits/cost.ts'
import { fieldOf, type Limit } from '../limits/limit.ts'
import type { AnyTask } from './task.ts'

/** Ratios of a route that this process has observed and not written yet. */
interface Seen {
  task: string
  lim: string
  value: string
  /** Thousandths of the declared cost, the newest first. */
  ratios: number[]
}

/** The learned costs of one task. */
interface Known {
  readMs: number
  /** The learned cost of each limit and value, as a part of the declared cost. */
  shares: ReadonlyMap<string, number>
  /** The first read, which senders that know nothing yet wait for. */
  first: Promise<void> | undefined
}

/** With fewer ratios a job takes its declared cost. */
const samplesMin = 20
/** Number of ratios that are kept and used for a route. */
const samplesMax = 128
/** Most routes that are recorded between two writes. */
const routesMax = 1_000
const valueLengthMax = 200
/** How long what was read is used, in ms. */
const freshMs = 3_000
/** Longest wait of a send for the first read of its task, in ms. */
const patienceMs = 100

/** The estimates that one `Sluice` has learned. */
export class Estimates {
  readonly #store: Store
  readonly #known = new Map<string, Known>()
  readonly #seen = new Map<string, Seen>()

  constructor(store: Store) {
    this.#store = store
  }

  /**
   * Returns what is known about a task now; undefined: none of its costs is learned. Never rejects, and waits for the
   * store only if nothing has been read before.
   * @param tx the caller's transaction; used for reading if the engine has no other connection
   */
  async of(task: AnyTask, tx?: TxLike): Promise<Expect | undefined> {
    const limits = task.limits.filter((limit) => limit.learn !== undefined)
    if (limits.length === 0) return undefined
    const known = this.#known.get(task.name) ?? { readMs: -Infinity, shares: new Map(), first: undefined }
    this.#known.set(task.name, known)
    const nowMs = this.#store.clock.monotonicMs()
    if (nowMs - known.readMs > freshMs) {
      const isInside = tx !== undefined && this.#store.db.kind === 'pglite'
      const reading = this.#read(known, task.name, limits, isInside ? this.#store.on(within(tx)) : this.#store)
      // The transaction may end before a read in it that is not awaited.
      if (isInside || known.readMs === -Infinity) known.first = reading
      known.readMs = nowMs
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
      const rows = await from.run<Row>('tasks/read_learned_costs', [task, names, quantiles, samplesMin])
      known.shares = new Map(rows.map(({ lim, value, share }) => [keyOf(lim, value), Number(share)]))
    } catch (error) {
      this.#store.log.debug('the learned costs of jobs could not be read; the known ones stay in use', {
        task,
        err: error,
      })
    }
  }

  /**
   * Records that one grant of a job of this input really used this much. An attempt that used nothing teaches nothing.
   */
  recordUse(task: string, limit: Limit, input: unknown, used: number): void {
    const declared = this.#declared(limit, input)
    if (declared === 0 || used <= 0) return
    const value = routeOf(limit, input)
    const key = keyOf(task, limit.name, value)
    if (!this.#seen.has(key) && this.#seen.size >= routesMax) return
    const seen = this.#seen.get(key) ?? { task, lim: limit.name, value, ratios: [] }
    // More than the declared cost counts as the declared cost.
    seen.ratios.unshift(Math.min(1_000, Math.ceil((used * 1_000) / declared - 1e-6)))
    seen.ratios.splice(samplesMax)
    this.#seen.set(key, seen)
  }

  /**
   * Returns the declared cost, or 0 if a cost function that is not deterministic throws: no reason for an attempt to
   * fail.
   */
  #declared(limit: Limit, input: unknown): number {
    try {
      return declaredOf(limit, input)
    } catch (error) {
      this.#store.log.debug('the declared cost of a job can no longer be computed', {
        limit: limit.name,
        err: error,
      })
      return 0
    }
  }

  /**
   * Writes what was recorded since the last write, in one statement. Never rejects: what could not be written goes with
   * the next.
   */
  async write(): Promise<void> {
    const batch = [...this.#seen]
    if (batch.length === 0) return
    this.#seen.clear()
    try {
      await this.#store.call('learn_costs', [JSON.stringify(batch.map(([, seen]) => seen))])
    } catch (error) {
      this.#store.log.debug('what jobs used could not be recorded; it is tried again', { err: error })
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

/**
 * Returns the value that separates the routes of a limit: that of its field, or '' if that is no short text, number or
 * boolean.
 */
function routeOf({ learn }: Limit, input: unknown): string {
  const value = learn?.by === undefined ? undefined : fieldOf(input, learn.by)
  const text = typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean' ? `${value}` : ''
  return text.length <= valueLengthMax ? text : ''
}
