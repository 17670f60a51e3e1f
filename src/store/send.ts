/** Records jobs: singly (coalesced while a flush is in flight), in bulk, or inside the caller's own transaction. */
import { SluiceError, StoreError, UsageError } from '../core/errors.ts'
import { hashed } from '../core/hash.ts'
import { reach } from '../core/probe.ts'
import { againMs } from '../core/retry.ts'
import type { Row } from '../db/db.ts'
import type { Sql, Store } from '../db/store.ts'

/** A job that has passed the door, as it is stored. */
export interface NewJob {
  id: string
  /** The caller chose the id, so that it may have been sent before. */
  given: boolean
  lane: string
  queue: string
  task: string
  priority: number
  weight: number
  fair: string | null
  /** `limit:key` or `limit`, for each limit of the task. */
  takes: string[] | null
  /** Units for each of `takes`, and what it adds to the turn of its fair key; null: all are 1. */
  costs: number[] | null
  /** JSON text. */
  input: string
  delayUs: number | null
  atUs: number | null
  tags: string[] | null
  key: string | null
  /** A job of this key that has not begun goes. */
  replaces: boolean
  /** So long it may wait for its first attempt. */
  waitUs: number | null
  /** Never tried again in doubt. */
  once: boolean
  /** The task that is sent when it fails. */
  onFailed: string | null
  /** What rules did to it; null: it has met none. */
  ruled: readonly unknown[] | null
  /** Why it is not to run at all. */
  discard: string | null
}

const batchMax = 1000
const keySeconds = 86_400
const retryForMs = 10_000

/** A job to be recorded, and whoever waits for that. */
interface Waiting {
  job: NewJob
  resolve: (id: string) => void
  reject: (error: unknown) => void
}

/** Sends jobs to one database. */
export class Outbox {
  readonly #store: Store
  #waiting: Waiting[] = []
  #replacing: Promise<void> = Promise.resolve()
  #flushing: Promise<void> | undefined

  constructor(store: Store) {
    this.#store = store
  }

  /** Records one job; resolves to its id once it is durable. Concurrent calls share a statement, without a timer. */
  add(job: NewJob): Promise<string> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ job, resolve, reject })
      this.#flushing ??= this.#flush().finally(() => (this.#flushing = undefined))
    })
  }

  /**
   * Records a batch in one transaction, all or none, and then those that replace others, each in a statement of its own.
   * Resolves to the ids that hold (idempotency keys may name older jobs).
   * @param known an earlier try may have recorded them
   */
  async addAll(jobs: readonly NewJob[], known = false): Promise<string[]> {
    if (jobs.length > 0 && jobs.every(({ key, discard }) => key === null && discard === null)) {
      await this.#again(known, (again) => this.#record(this.#store, jobs, again, true))
      return jobs.map(({ id }) => id)
    }
    const plain = jobs.filter(({ replaces }) => !replaces)
    const ids = new Map(jobs.map((job) => [job, job.id]))
    if (plain.length > 0) {
      const held = await this.#again(known, (again) =>
        this.#store.db.transaction((tx) => this.write(this.#store.on(tx), plain, again)),
      )
      plain.forEach((job, i) => ids.set(job, held[i] ?? job.id))
    }
    // Of one key the last would replace those before it. Left out, they leave one send to be known again by replace.
    const replacing = jobs.filter(({ replaces }) => replaces)
    for (const job of new Map(replacing.map((each) => [keyOf(each), each])).values()) {
      const id = await this.#replace(job, known)
      for (const each of replacing) if (keyOf(each) === keyOf(job)) ids.set(each, id)
    }
    return jobs.map((job) => ids.get(job) ?? job.id)
  }

  async #replace(job: NewJob, known: boolean): Promise<string> {
    const own = [job.task, job.key, job.id, keySeconds]
    const users = this.#store.on(this.#store.db)
    const rows = await this.#again(known, (again) =>
      job.discard === null
        ? this.#store.call('supersede', [...own, ...sendParams([job], again || job.given)], `${ownTypes} ${sendTypes}`)
        : users.call('replace', own, ownTypes),
    )
    const id = idOf(rows[0]) ?? job.id
    if (job.discard !== null) await this.#again(known, () => discard(users, { ...job, id }))
    return id
  }

  /**
   * Records jobs with the statements of a transaction that the caller owns.
   * @throws UsageError SLUICE_BAD_OPTION for a job that replaces: until the commit it would hold the other from all workers
   */
  async write(sql: Sql, jobs: readonly NewJob[], known = false): Promise<string[]> {
    if (jobs.some(({ replaces }) => replaces))
      throw new UsageError(
        'SLUICE_BAD_OPTION',
        '`replace` and `tx` do not go together: the job to be replaced would be held back, and its limits with it, until you commit; send without `tx` after the commit',
      )
    const ids = new Map(jobs.map((job) => [job, job.id]))
    for (const task of new Set(jobs.filter((job) => job.key !== null).map((job) => job.task))) {
      const keyed = jobs.filter((job) => job.task === task && job.key !== null)
      const params = [task, keyed.map((job) => job.key), keyed.map((job) => job.id), keySeconds]
      const rows = await sql.call('keyed', params, 'text text[] uuid[] integer')
      keyed.forEach((job, i) => ids.set(job, idOf(rows[i]) ?? job.id))
    }
    const fresh = jobs.filter((job) => ids.get(job) === job.id)
    for (const job of fresh) if (job.discard !== null) await discard(sql, job)
    const kept = fresh.filter(({ discard: by }) => by === null)
    if (kept.length > 0) await this.#record(sql, kept, known, false)
    return jobs.map((job) => ids.get(job) ?? job.id)
  }

  /** Records these. `known`: an earlier try may have recorded them; `alone`: the statement is a transaction of its own. */
  async #record(sql: Sql, jobs: readonly NewJob[], known: boolean, alone: boolean): Promise<void> {
    if (!known && areAlike(jobs)) await sql.call('send_lane', laneParams(jobs, alone), sendLaneTypes)
    else await sql.call('send', sendParams(jobs, known || jobs.some((job) => job.given)), sendTypes)
  }

  /** Resolves when everything that was added so far is settled. */
  async settled(): Promise<void> {
    while (this.#flushing !== undefined) await this.#flushing
    await this.#replacing
  }

  async #flush(): Promise<void> {
    // One turn later, so that calls made together go together.
    await Promise.resolve()
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, batchMax)
      await reach('send.flush', batch.length)
      // Who replaces may have to wait for somebody's transaction: beside the others, one after the other.
      const groups = new Map<string, Waiting[]>()
      for (const item of batch.filter(({ job }) => job.replaces))
        groups.set(keyOf(item.job), [...(groups.get(keyOf(item.job)) ?? []), item])
      for (const group of groups.values()) this.#replacing = this.#replacing.then(() => this.#settle(group))
      await this.#settle(batch.filter(({ job }) => !job.replaces))
    }
  }

  async #settle(items: readonly Waiting[]): Promise<void> {
    if (items.length === 0) return
    try {
      const ids = await this.addAll(items.map((item) => item.job))
      items.forEach((item, i) => item.resolve(ids[i] ?? item.job.id))
    } catch (error) {
      if (items.length === 1 || SluiceError.is(error)) items.forEach((item) => item.reject(error))
      // The store refused the batch: each alone, so that only the bad row fails. A try before that may have been committed.
      else
        for (const item of items)
          await this.addAll([item.job], true).then((ids) => item.resolve(ids[0] ?? item.job.id), item.reject)
    }
  }

  /** Repeats after a lost connection: the ids make that safe, whether or not the first try was committed. `known`: there was one before. */
  async #again<T>(known: boolean, send: (known: boolean) => Promise<T>): Promise<T> {
    const { clock } = this.#store
    const until = clock.monotonicMs() + retryForMs
    for (let tries = 0; ; tries++) {
      try {
        return await send(known || tries > 0)
      } catch (error) {
        // At least once more: a half-open connection alone takes as long as we would try.
        if (!(error instanceof StoreError) || (tries > 0 && clock.monotonicMs() > until)) throw error
        await clock.sleep(againMs(tries, clock.random(), 50))
      }
    }
  }
}

const keyOf = ({ task, key }: NewJob) => `${task}\n${key}`

/** Of a row's only column, whose name some connections change. */
function idOf(row: Row | undefined): string | undefined {
  return Object.values(row ?? {})[0] as string | undefined
}

const ownTypes = 'text text uuid integer'
const sendTypes =
  'bigint[] text[] text[] integer[] integer[] text[] text[] uuid[] integer[] text bigint[] bigint[] text[] text[] boolean'

/** The parameters of `send`, of `sendTypes`: one element per lane, then one per job. */
function sendParams(jobs: readonly NewJob[], known: boolean): unknown[] {
  const lanes: NewJob[] = []
  const position = new Map<string, number>()
  const lane = jobs.map((job) => {
    let at = position.get(job.lane)
    if (at === undefined) position.set(job.lane, (at = lanes.push(job)))
    return at
  })
  const column = <T>(rows: (T | null)[]): (T | null)[] | null => (rows.every((value) => value === null) ? null : rows)
  return [
    lanes.map((job) => job.lane),
    lanes.map((job) => job.queue),
    lanes.map((job) => job.task),
    lanes.map((job) => job.priority),
    lanes.map((job) => job.weight),
    lanes.map((job) => job.fair),
    lanes.map((job) => job.takes?.join('\u001f') ?? null),
    idsOf(jobs),
    `{${lane.join(',')}}`,
    linesOf(jobs),
    column(jobs.map((job) => job.delayUs)),
    column(jobs.map((job) => job.atUs)),
    column(jobs.map((job) => job.tags?.join('\u001f') ?? null)),
    column(jobs.map(extra)),
    known,
  ]
}

const sendLaneTypes = 'bigint bigint text text integer integer text text uuid[] text boolean'

/** True when they are of one lane and have nothing but an input, as almost all have: `send_lane` takes them. */
function areAlike(jobs: readonly NewJob[]): boolean {
  const lane = jobs[0]?.lane
  return jobs.every(
    (job) =>
      job.lane === lane &&
      !job.given &&
      job.delayUs === null &&
      job.atUs === null &&
      job.tags === null &&
      extra(job) === null,
  )
}

/** Neither ids nor lines of JSON need what lists of texts do, and what takes longer than all else: quotes. */
const idsOf = (jobs: readonly NewJob[]) => `{${jobs.map((job) => job.id).join(',')}}`
const linesOf = (jobs: readonly NewJob[]) => jobs.map((job) => job.input).join('\n')

/** The parameters of `send_lane`, of `sendLaneTypes`. */
function laneParams(jobs: readonly NewJob[], alone: boolean): unknown[] {
  const { lane, queue, task, priority, weight, fair, takes } = jobs[0] as NewJob
  return [
    classOf(queue, task, takes),
    lane,
    queue,
    task,
    priority,
    weight,
    fair,
    takes?.join('\u001f') ?? null,
    idsOf(jobs),
    linesOf(jobs),
    alone,
  ]
}

/** As `class_id` computes it; null: it may depend on labels, whose order only the store knows. */
function classOf(queue: string, task: string, takes: readonly string[] | null): string | null {
  return takes?.some((bucket) => bucket.includes('@')) ? null : hashed(`${queue}\u001f${task}`)
}

/** What few jobs have. */
function extra({ waitUs, once, onFailed, ruled, costs }: NewJob): string | null {
  if (waitUs === null && !once && onFailed === null && ruled === null && costs === null) return null
  return JSON.stringify({
    costs: costs ?? undefined,
    waitUs: waitUs ?? undefined,
    once: once || undefined,
    onFailed: onFailed ?? undefined,
    ruled: ruled ?? undefined,
  })
}

/** Records a job that a rule does not want, in history. */
function discard(sql: Sql, { id, task, queue, priority, tags, input, discard: by, ruled }: NewJob): Promise<Row[]> {
  const params = [id, task, queue, priority, tags, input, by, JSON.stringify(ruled)]
  return sql.call('discard', params, 'uuid text text integer text[] jsonb text jsonb')
}
