/** Sends the results of calls whose jobs have ended, wherever they were executed, and the tasks that follow them. */
import type { Broker } from '../amqp/broker.ts'
import { resultKey, resultMessage, type TaskResult, writeResult } from '../celery/result.ts'
import { writeTime } from '../celery/time.ts'
import { publish } from '../celery/transport.ts'
import { writeTask } from '../celery/task-message.ts'
import { StoreError } from '../core/errors.ts'
import type { Store } from '../db/store.ts'
import type { RedisConnection } from '../redis/connect.ts'
import { type Call, type Ended, followersOf, resultOf } from './call.ts'

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
/** As Celery keeps results. */
const resultKeptS = '86400'

/** Looks until it is closed. */
export class Reporter {
  readonly #options: ReporterOptions
  readonly #end = new AbortController()
  #nudge = new AbortController()
  #looking: Promise<void> | undefined
  #prunedMs = -Infinity

  constructor(options: ReporterOptions) {
    this.#options = options
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
    await this.send(result, call)
    await this.#follow(id, call, result)
  }

  /** Sends a result to where the producer looks for it. */
  async send(result: TaskResult, { replyTo, ignoreResult, about }: Call): Promise<void> {
    const { broker, redis } = this.#options
    if (ignoreResult) return
    if (redis !== undefined) {
      const text = writeResult(result, { ...about, date_done: writeTime(this.#options.store.clock.wallMs()) })
      const key = resultKey(result.id)
      await redis.send('SETEX', [key, resultKeptS, text])
      await redis.send('PUBLISH', [key, text])
    } else if (replyTo !== null) {
      // The producer may be gone, and its queue with it.
      await publish(broker, resultMessage(result), { exchange: '', routingKey: replyTo, mandatory: false })
    }
  }

  async #follow(id: string, call: Call, result: TaskResult): Promise<void> {
    const { broker, store } = this.#options
    for (const { message, address } of followersOf(id, call, result)) {
      const wire = await writeTask(message, { nowMs: store.clock.wallMs() })
      try {
        await publish(broker, wire, address)
      } catch (error) {
        if ((error as { code?: string }).code !== 'SLUICE_BROKER_UNROUTED') throw error
        const about = { task: message.task, follows: id, queue: address.routingKey }
        store.log.error('a task that follows another one has no queue, and is dropped', about)
      }
    }
  }

  async #prune(): Promise<void> {
    const { store } = this.#options
    const nowMs = store.clock.monotonicMs()
    if (nowMs - this.#prunedMs < pruneMs) return
    this.#prunedMs = nowMs
    await store.run('absorb/delete_old_calls', [keptDays])
  }
}
