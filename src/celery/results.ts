/** Waits for results of Celery workers: as messages (rpc), or in Redis. */
import { randomUUID } from 'node:crypto'
import { systemClock } from '../core/clock.ts'
import { StoreError } from '../core/errors.ts'
import { span } from '../core/figures.ts'
import type { Log } from '../core/log.ts'
import type { RedisConnection } from '../redis/connect.ts'
import type { Carrier } from './carrier.ts'
import { callRedis } from './redis-call.ts'
import { openPlace } from './redis-transport.ts'
import { chordKey, isExpired, isFinal, readResult, resultKeptS, resultKey, type TaskResult, unread } from './result.ts'

/** Where a producer finds results. */
export interface Results {
  /** Queue that workers send results to, if their result backend is rpc. */
  readonly replyTo: string
  /** Results of this task will be wanted. */
  expect(id: string): void
  /** They will not be, or not any more. */
  forget(id: string): void
  /**
   * Calls `notify` at each result of a task from now on, until it is forgotten; states that follow quickly may be left out. Where
   * results are messages that are kept, each is kept until `notify` has resolved.
   */
  watch(id: string, notify: (result: TaskResult) => unknown): void
  /**
   * Reads the results of another producer, too, which is silent; the returned function ends that. Those of tasks that are not
   * watched here stay for others, and for that producer, which may come back.
   * @param onGap called whenever they may have been lost unread, unless `watchGaps` reports that
   */
  adopt(replyTo: string, onGap?: () => void): Promise<() => Promise<void>>
  /**
   * Resolves to the last result of a task. `onState` is called at each one before it, and at the last; it rejects with what
   * that throws.
   * @throws StoreError SLUICE_CELERY_LATE
   */
  waitForLast(id: string, withinMs: number, onState?: (state: string) => void): Promise<TaskResult>
  /** False while results cannot be read, though workers may report some. */
  readonly canRead: boolean
  /** Calls `notify` whenever results may have been lost unread: the Redis or the queue that has them is away, or back. */
  watchGaps(notify: () => void): void
  /** Lets workers count the members of a chord; undefined: they cannot. */
  readonly countChord?: (groupId: string, members: number) => Promise<void>
  close(): Promise<void>
}

/** For how many tasks, the newest ones, unread results are kept. */
const kept = 10_000
const pollEveryMs = 50
/** A Redis that has not answered for so long is silent; that its connection is lost is noticed later. */
const silentMs = 3_000

/** The reports about the tasks that were sent. */
class Board {
  readonly #tasks = new Map<string, { newest?: TaskResult; watchers: Set<(result: TaskResult) => unknown> }>()
  #cause: Error | undefined

  /** The tasks that somebody waits for. */
  get watched(): string[] {
    return [...this.#tasks].filter(([, { watchers }]) => watchers.size > 0).map(([id]) => id)
  }

  expect(id: string): void {
    this.#tasks.set(id, { watchers: new Set() })
    if (this.#tasks.size <= kept) return
    for (const [oldest, { watchers }] of this.#tasks) if (watchers.size === 0) return void this.#tasks.delete(oldest)
  }

  forget(id: string): void {
    this.#tasks.delete(id)
  }

  watch(id: string, notify: (result: TaskResult) => unknown): void {
    this.#tasks.set(id, { watchers: new Set([notify]) })
  }

  has(id: string): boolean {
    return this.#tasks.has(id)
  }

  /** Resolves when those who watch it are done with it. */
  async post(result: TaskResult): Promise<void> {
    const task = this.#tasks.get(result.id)
    if (task === undefined) return
    const { newest } = task
    if (newest !== undefined && isFinal(newest.state) && !isExpired(newest)) return
    task.newest = result
    await Promise.all([...task.watchers].map((watcher) => watcher(result)))
  }

  /** The results cannot be read now, for this reason. */
  recordFailure(cause: Error | undefined): void {
    this.#cause = cause
  }

  waitForLast(id: string, withinMs: number, onState?: (state: string) => void): Promise<TaskResult> {
    const task = this.#tasks.get(id) ?? { watchers: new Set() }
    this.#tasks.set(id, task)
    return new Promise((resolve, reject) => {
      const stopWatching = () => {
        disarm()
        task.watchers.delete(watcher)
      }
      const watcher = (result: TaskResult) => {
        try {
          onState?.(result.state)
        } catch (error) {
          stopWatching()
          return reject(error as Error)
        }
        if (!isFinal(result.state)) return
        stopWatching()
        resolve(result)
      }
      const disarm = systemClock.after(withinMs, () => {
        task.watchers.delete(watcher)
        reject(lateError(id, withinMs, task.newest, this.#cause))
      })
      task.watchers.add(watcher)
      if (task.newest !== undefined) watcher(task.newest)
    })
  }
}

function lateError(id: string, withinMs: number, newest: TaskResult | undefined, away: Error | undefined): StoreError {
  const cause = newest?.state === unread ? (newest.value as Error) : away
  const state = newest === undefined ? 'no worker has reported anything' : `its last state is ${newest.state}`
  const why = cause === undefined ? '' : ` (${cause.message})`
  const text =
    `Celery task ${id} had no result within ${span(withinMs)}: ${state}${why}. It may still run. Check that a worker ` +
    'serves its queue, and that the result backend of the worker is the one that this producer reads'
  return new StoreError('SLUICE_CELERY_LATE', text, cause === undefined ? undefined : { cause })
}

/** How a producer reads results. */
export interface Reading {
  /** Where workers send results, and the name of the producer. Default: a name of its own. */
  replyTo?: string
  /** True: a result stays in its queue until those who watch it are done with it. Default false. */
  isKept?: boolean
}

const ownName = () => `sluice.celery.${randomUUID()}`

/** Reads a report about a task. If it cannot be read, it still shows that the worker has had the task. */
function readReport(id: string | undefined, text: string): TaskResult {
  try {
    return readResult(text)
  } catch (error) {
    return { id: id ?? '', state: unread, value: error, traceback: undefined }
  }
}

/** Results that workers with `result_backend = 'rpc://'` send to a queue of this producer. */
export async function rpcResults(
  broker: Carrier,
  log: Log,
  { replyTo = ownName(), isKept = false }: Reading = {},
): Promise<Results> {
  const board = new Board()
  let canRead = true
  let gap = () => {}
  const receive = (queue: string, onAttached: (isAttached: boolean) => void, isShared = false) =>
    broker.receive({ queue, isKept, onAttached }, async ({ body, correlationId: id }) => {
      const result = readReport(id, body.toString())
      if (result.state === unread) log.warn('a reply of a Celery worker cannot be read', { id, err: result.value })
      if (isShared && !board.has(result.id)) return false
      await board.post(result)
      return true
    })
  const close = await receive(replyTo, (isAttached) => {
    // Its queue may have been deleted, with what was in it.
    if (isAttached !== canRead) gap()
    canRead = isAttached
  })
  return {
    replyTo,
    get canRead() {
      return canRead
    },
    expect: (id) => board.expect(id),
    forget: (id) => board.forget(id),
    watch: (id, notify) => board.watch(id, notify),
    watchGaps: (notify) => void (gap = notify),
    adopt: (queue, onGap) => receive(queue, (isAttached) => (isAttached ? undefined : onGap?.()), true),
    waitForLast: (id, withinMs, onState) => board.waitForLast(id, withinMs, onState),
    close,
  }
}

/** Results that workers with `result_backend = 'redis://…'` put there. */
export async function redisResults(url: string, { replyTo = ownName() }: Reading = {}): Promise<Results> {
  return new RedisResults(await openPlace(url), replyTo)
}

class RedisResults implements Results {
  /** Celery always names a queue; messages for one that does not exist are dropped. */
  readonly replyTo: string
  readonly #redis: RedisConnection
  readonly #board = new Board()
  #isPolling = false
  #isAway = false
  /** When the reading that is under way began, in monotonic ms. */
  #readingMs: number | undefined
  #isClosed = false
  #gap: () => void = () => {}

  constructor(redis: RedisConnection, replyTo: string) {
    this.#redis = redis
    this.replyTo = replyTo
  }

  expect(id: string): void {
    this.#board.expect(id)
  }

  forget(id: string): void {
    this.#board.forget(id)
  }

  watch(id: string, notify: (result: TaskResult) => unknown): void {
    this.#board.watch(id, notify)
    if (!this.#isPolling) void this.#poll()
  }

  get canRead(): boolean {
    return !this.#isAway && systemClock.monotonicMs() - (this.#readingMs ?? Infinity) < silentMs
  }

  watchGaps(notify: () => void): void {
    this.#gap = notify
  }

  /** They are found by the ids of the tasks. */
  async adopt(): Promise<() => Promise<void>> {
    return async () => {}
  }

  waitForLast(id: string, withinMs: number, onState?: (state: string) => void): Promise<TaskResult> {
    const found = this.#board.waitForLast(id, withinMs, onState)
    if (!this.#isPolling) void this.#poll()
    return found
  }

  async countChord(groupId: string, members: number): Promise<void> {
    await callRedis(this.#redis, 'SETEX', [chordKey(groupId, '.s'), resultKeptS, String(members)])
  }

  async close(): Promise<void> {
    this.#isClosed = true
    await this.#redis.close()
  }

  /** Reads the tasks that somebody waits for, again and again; and, while Redis is away, until it is back. */
  async #poll(): Promise<void> {
    this.#isPolling = true
    const seen = new Map<string, string>()
    for (
      let ids = this.#board.watched;
      (ids.length > 0 || this.#isAway) && !this.#isClosed;
      ids = this.#board.watched
    ) {
      const watched = new Set(ids)
      for (const id of seen.keys()) if (!watched.has(id)) seen.delete(id)
      this.#readingMs = systemClock.monotonicMs()
      // Without a task no report is found, but Redis is.
      await Promise.all((ids.length > 0 ? ids : ['']).map((id) => this.#read(id, seen))).then(
        () => this.#recordReach(undefined),
        (error: Error) => this.#recordReach(error),
      )
      this.#readingMs = undefined
      await systemClock.sleep(pollEveryMs)
    }
    this.#isPolling = false
  }

  /** @param failure why they could not be read; undefined: they were */
  #recordReach(failure: Error | undefined): void {
    this.#board.recordFailure(failure)
    const isAway = failure !== undefined
    // What a worker wrote meanwhile, or just before, may be gone with a Redis that was restarted, or has expired.
    if (isAway !== this.#isAway) this.#gap()
    this.#isAway = isAway
  }

  async #read(id: string, seen: Map<string, string>): Promise<void> {
    const text = await this.#redis.send('GET', [resultKey(id)])
    if (typeof text !== 'string' || text === seen.get(id)) return
    seen.set(id, text)
    // They are not awaited, because those who watch a result may take long.
    void this.#board.post(readReport(id, text)).catch((error: Error) => this.#board.recordFailure(error))
  }
}
