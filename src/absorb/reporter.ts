/** Sends the results of calls whose jobs have ended, wherever they were executed, and the tasks that follow them. */
import type { Broker } from '../amqp/broker.ts'
import { StoreError } from '../core/errors.ts'
import type { Store } from '../db/store.ts'
import type { RedisConnection } from '../redis/connect.ts'
import { type Call, type Ended, resultOf } from './call.ts'
import { Results } from './results.ts'

/** What it needs; see the fields. */
export interface ReporterOptions {
  store: Store
  broker: Broker
  /** Where results go; undefined: to the queues that the calls name (rpc). */
  redis: RedisConnection | undefined
}

interface EndedCall extends Ended {
  last: string | null
  id: string | null
  call: string
}

/** A broker's message is delivered again within this many days, or never. */
const keptDays = 30
const lookMs = 50
const idleMs = 500
const awayMs = 1_000
const portion = 1_000
const pruneMs = 3_600_000

/** Looks until it is closed. */
export class Reporter {
  readonly results: Results
  readonly #options: ReporterOptions
  readonly #end = new AbortController()
  #nudge = new AbortController()
  #looking: Promise<void> | undefined
  #prunedMs = -Infinity

  constructor(options: ReporterOptions) {
    this.#options = options
    const { store, broker, redis } = options
    this.results = new Results({ clock: store.clock, log: store.log, broker, redis })
  }

  start(): void {
    this.#looking ??= this.#run()
  }

  /** Calls were recorded, which may end soon. */
  wake(): void {
    this.#nudge.abort()
  }

  /** Sends what has ended by now, if it can. */
  async close(): Promise<void> {
    this.#end.abort()
    this.#nudge.abort()
    await this.#looking
    await this.#look().catch(() => {})
  }

  async #run(): Promise<void> {
    const { clock, log } = this.#options.store
    let isAway = false
    for (let ms = lookMs; !this.#end.signal.aborted;) {
      const sinceMs = clock.monotonicMs()
      try {
        // Less and less often, while none ends.
        ms = (await this.#look()) ? lookMs : Math.min(idleMs, ms * 1.2)
        await this.#prune()
        isAway = false
      } catch (error) {
        if (!isAway) log.warn('results for Celery producers cannot be sent now; it is tried again', { err: error })
        isAway = true
        ms = awayMs
      }
      // Looking through a large backlog takes a while: at most a quarter of the time.
      await clock.sleep((clock.monotonicMs() - sinceMs) * 3, this.#end.signal)
      await clock.sleep(ms, isAway ? this.#end.signal : this.#nudge.signal)
      if (!this.#nudge.signal.aborted) continue
      this.#nudge = new AbortController()
      ms = lookMs
    }
  }

  /** Looks at all calls without a result; returns whether some have ended. */
  async #look(): Promise<boolean> {
    const { store } = this.#options
    let count = 0
    for (let after: string | null = '0'; ;) {
      const rows: EndedCall[] = await store.run<EndedCall>('absorb/find_ended_calls', [after, portion])
      after = rows[0]?.last ?? null
      if (after === null) return count > 0
      const ended = rows.filter(({ id }) => id !== null)
      count += ended.length
      if (ended.length > 0) await this.#report(ended)
    }
  }

  /** In one transaction, so that of several processes one reports; it commits when the brokers have everything. */
  async #report(ended: readonly EndedCall[]): Promise<void> {
    const { store } = this.#options
    const byId = new Map(ended.map((one) => [one.id ?? '', one]))
    await store.db.transaction(async (tx) => {
      const rows = await store.on(tx).run<{ id: string }>('absorb/end_calls', [[...byId.keys()]])
      await Promise.all(
        rows.map(async ({ id }) => {
          const one = byId.get(id)
          if (one === undefined) return
          await this.#reportOne(id, one).catch((error: unknown) => {
            if (error instanceof StoreError) throw error
            store.log.error('a result for a Celery producer cannot be written, and is left out', { id, err: error })
          })
        }),
      )
    })
  }

  async #reportOne(id: string, ended: EndedCall): Promise<void> {
    const call = JSON.parse(ended.call) as Call
    const result = resultOf(id, ended)
    await this.results.send(result, call)
    await this.results.follow(id, call, result)
  }

  async #prune(): Promise<void> {
    const { store } = this.#options
    const nowMs = store.clock.monotonicMs()
    if (nowMs - this.#prunedMs < pruneMs) return
    this.#prunedMs = nowMs
    await store.run('absorb/delete_old_calls', [keptDays])
  }
}
