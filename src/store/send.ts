/** Sends jobs: one by one (batched while a statement is in flight), in bulk, or inside the caller's own transaction. */
import { SluiceError, StoreError, UsageError, codeOf } from '../core/errors.ts'
import { countForStatement } from '../core/payload.ts'
import { reach } from '../core/test-points.ts'
import { retryPauseMs } from '../core/retry.ts'
import { repeatUntilAnswered } from '../db/repeat-request.ts'
import type { Row } from '../db/db.ts'
import type { Sql, Store } from '../db/store.ts'
import {
  areAlike,
  discardParams,
  isClaimedAtSend,
  laneParams,
  type NewJob,
  replacingTypes,
  sendLaneTypes,
  sendParams,
  sendTypes,
} from './row.ts'

export type { NewJob } from './row.ts'

const batchMax = 1000
const keySeconds = 86_400
/**
 * How long a statement waits for a lock of another open transaction: on an idempotency key, an id, or a job to replace.
 * Then it fails and is repeated, so that it does not occupy a connection that the other transaction may need for its end.
 */
const lockMs = 20
const ownTypes = 'text text uuid integer'

/** A job to be inserted, and the promise of its caller. `known`: an earlier try may have inserted it. */
interface Waiting {
  job: NewJob
  known: boolean
  resolve: (id: string) => void
  reject: (error: unknown) => void
}

/** A free slot of an idle worker in this process, reserved for a job that is being sent. */
export interface KeptSlot {
  /** The parameters of `engine.send_and_claim_job` that come before those of `engine.send_lane_jobs`. */
  readonly params: readonly unknown[]
  /** Starts the job if the reply shows that it was claimed, and else frees the slot; undefined: there is no reply. Call it once. */
  take(row: Row | undefined): void
}

/** Sends jobs to one database. */
export class Outbox {
  /** Reserves a slot in this process for a job that is sent alone; undefined: none is free. */
  slotFor: (job: NewJob) => KeptSlot | undefined = () => undefined
  readonly #store: Store
  #waiting: Waiting[] = []
  #flushing: Promise<void> | undefined
  /**
   * Jobs that may have to wait for another transaction, by idempotency key or id, in order. Each line is tried one batch
   * after the other, while all other jobs are sent as usual.
   */
  readonly #lines = new Map<string, Waiting[]>()
  #walking: Promise<void> | undefined

  constructor(store: Store) {
    this.#store = store
  }

  /** Sends one job; resolves to its id once it is durable. Calls while a statement is in flight share the next one. */
  add(job: NewJob): Promise<string> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ job, known: false, resolve, reject })
      this.#flushing ??= this.#flush()
    })
  }

  /**
   * Sends a batch in one transaction, all or none, and then the jobs that replace others, each in a statement of its own.
   * Resolves to the ids of the jobs; for a known idempotency key that is the older job's id.
   */
  addAll(jobs: readonly NewJob[]): Promise<string[]> {
    return this.#addAll(jobs, { known: false, waits: true })
  }

  async #addAll(jobs: readonly NewJob[], how: Repeat): Promise<string[]> {
    if (jobs.length > 0 && jobs.every(({ key, discard }) => key === null && discard === null)) {
      await this.#repeatUntilAnswered(how, (known) => this.#recordNow(jobs, known))
      return jobs.map(({ id }) => id)
    }
    const plain = jobs.filter(({ replaces }) => !replaces)
    const ids = new Map(jobs.map((job) => [job, job.id]))
    if (plain.length > 0) {
      const recorded = await this.#repeatUntilAnswered(how, (known) =>
        this.#store.db.transaction((tx) => this.#write(this.#store.on(tx), plain, known, lockMs)),
      )
      plain.forEach((job, i) => ids.set(job, recorded[i] ?? job.id))
    }
    // If several jobs have one key, only the last is sent, because it would replace the others anyway. With one send for
    // each key `engine.replace_job` can recognise a repetition.
    const replacing = jobs.filter(({ replaces }) => replaces)
    for (const job of new Map(replacing.map((each) => [lineOf(each), each])).values()) {
      const id = await this.#replace(job, how)
      for (const each of replacing) if (lineOf(each) === lineOf(job)) ids.set(each, id)
    }
    return jobs.map((job) => ids.get(job) ?? job.id)
  }

  async #replace(job: NewJob, how: Repeat): Promise<string> {
    const own = [job.task, job.key, job.id, keySeconds]
    const users = this.#store.on(this.#store.db)
    const rows = await this.#repeatUntilAnswered(how, (known) => {
      if (job.discard !== null) return users.call('replace_job', own, ownTypes, lockMs)
      const params = [job.key, keySeconds, ...sendParams([job], known, true)]
      return this.#store.call('send_replacing', params, replacingTypes, lockMs).catch(throwUsage)
    })
    const id = idOf(rows[0]) ?? job.id
    if (job.discard !== null) await this.#repeatUntilAnswered(how, () => discard(users, { ...job, id }))
    return id
  }

  /**
   * Sends jobs within a transaction of the caller.
   * @throws UsageError SLUICE_BAD_OPTION for a job that replaces another, whose row would stay locked until the commit
   */
  async write(sql: Sql, jobs: readonly NewJob[]): Promise<string[]> {
    if (jobs.some(({ replaces }) => replaces))
      throw new UsageError(
        'SLUICE_BAD_OPTION',
        '`replace` cannot be used with `tx`: it would lock the job to replace, and hold up its limits, until you commit; send without `tx` after the commit',
      )
    return this.#write(sql, jobs, false)
  }

  /** Inserts jobs. `known`: an earlier try may have inserted them; `lockMs`: how long to wait for a lock; undefined: for ever. */
  async #write(sql: Sql, jobs: readonly NewJob[], known: boolean, lockMs?: number): Promise<string[]> {
    const ids = new Map(jobs.map((job) => [job, job.id]))
    for (const task of new Set(jobs.filter((job) => job.key !== null).map((job) => job.task))) {
      const keyed = jobs.filter((job) => job.task === task && job.key !== null)
      const params = [task, keyed.map((job) => job.key), keyed.map((job) => job.id), keySeconds]
      const rows = await sql.call('take_idempotency_keys', params, 'text text[] uuid[] integer', lockMs)
      keyed.forEach((job, i) => ids.set(job, idOf(rows[i]) ?? job.id))
    }
    const fresh = jobs.filter((job) => ids.get(job) === job.id)
    for (const job of fresh) if (job.discard !== null) await discard(sql, job)
    const kept = fresh.filter(({ discard: by }) => by === null)
    if (kept.length > 0) await this.#record(sql, kept, known, false, lockMs)
    return jobs.map((job) => ids.get(job) ?? job.id)
  }

  /**
   * Inserts jobs in a transaction of their own. A single job is claimed in the same statement if a worker of this process
   * is idle and the limits allow it.
   */
  async #recordNow(jobs: readonly NewJob[], known: boolean): Promise<void> {
    const [job] = jobs
    const slot = known || jobs.length > 1 || job === undefined || !isClaimedAtSend(job) ? undefined : this.slotFor(job)
    if (slot === undefined) return this.#record(this.#store, jobs, known, true, lockMs)
    let row: Row | undefined
    try {
      const params = [...slot.params, ...laneParams(jobs, true)]
      ;[row] = await this.#store.call('send_and_claim_job', params, `uuid bigint bigint ${sendLaneTypes}`)
    } catch (error) {
      slot.take(undefined)
      // After a StoreError the outcome is unknown. Any other error has rolled the statement back: send the job without a
      // claim, because an error of a limit must not make a send fail.
      if (error instanceof StoreError) throw error
      return this.#record(this.#store, jobs, known, true, lockMs)
    }
    slot.take(row)
  }

  /** Inserts jobs in one statement. `known`, `lockMs`: as in `#write`; `alone`: the statement is a transaction of its own. */
  async #record(sql: Sql, jobs: readonly NewJob[], known: boolean, alone: boolean, lockMs?: number): Promise<void> {
    if (!known && areAlike(jobs)) await sql.call('send_lane_jobs', laneParams(jobs, alone), sendLaneTypes)
    else {
      await sql.call('send_jobs', sendParams(jobs, known, alone), sendTypes, lockMs).catch(throwUsage)
    }
  }

  /** Resolves when all jobs that were added so far are sent, or have failed. */
  async settled(): Promise<void> {
    while ((this.#flushing ?? this.#walking) !== undefined) await (this.#flushing ?? this.#walking)
  }

  async #flush(): Promise<void> {
    // Wait one microtask, so that calls made together share a statement.
    await Promise.resolve()
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(
        0,
        countForStatement(this.#waiting, batchMax, ({ job }) => job.input.length),
      )
      await reach('send.flush', batch.length)
      const isLined = ({ job }: Waiting) => job.replaces || this.#lines.has(lineOf(job))
      const free = batch.filter((item) => !isLined(item))
      this.#enqueue(batch.filter(isLined))
      this.#enqueue(await this.#sendBatch(free))
    }
    this.#flushing = undefined
  }

  /** Appends jobs to their lines. */
  #enqueue(items: readonly Waiting[]): void {
    for (const item of items) {
      const line = this.#lines.get(lineOf(item.job)) ?? []
      this.#lines.set(lineOf(item.job), [...line, item])
    }
    if (this.#lines.size > 0) this.#walking ??= this.#walk()
  }

  /** Tries the heads of all lines until no line is left; sleeps while all of them wait for other transactions. */
  async #walk(): Promise<void> {
    const { clock } = this.#store
    /** The lines whose head had to wait although nothing else was sent with it. */
    const stuck = new Set<string>()
    for (let tries = 0; this.#lines.size > 0; tries++) {
      if (await this.#tryOthers(stuck)) tries = 0
      const waiting = [...stuck]
      for (const name of waiting) {
        stuck.delete(name)
        if (await this.#try([name], stuck)) tries = 0
        // Between them, so that a line that came meanwhile waits for one of them at most.
        if (await this.#tryOthers(stuck)) tries = 0
      }
      if (this.#lines.size > 0 && tries > 0) await clock.sleep(retryPauseMs(tries, clock.random(), 50))
    }
    this.#walking = undefined
  }

  /** Tries the heads of all lines that are not stuck. Resolves to whether any was sent. */
  async #tryOthers(stuck: Set<string>): Promise<boolean> {
    const groups: string[][] = []
    const together: string[] = []
    for (const [name, [head]] of this.#lines) {
      if (stuck.has(name)) continue
      // Jobs that replace others have a statement each anyway.
      if (head?.job.replaces) groups.push([name])
      else together.push(name)
    }
    for (let from = 0; from < together.length; from += batchMax) groups.push(together.slice(from, from + batchMax))
    let isSent = false
    for (const names of groups) isSent = (await this.#try(names, stuck)) || isSent
    return isSent
  }

  /**
   * Sends the heads of these lines in one transaction. If that has to wait for another one, sends each half: mostly it is one
   * job that has to, or a moment has passed. Resolves to whether any was sent.
   * @param stuck receives the lines whose head had to wait alone
   */
  async #try(names: readonly string[], stuck: Set<string>): Promise<boolean> {
    const heads = names.map((name) => this.#headOf(name, Math.ceil(batchMax / names.length)))
    const waiting = new Map((await this.#sendBatch(heads.flat())).map((item) => [item.job, item]))
    for (const [i, name] of names.entries()) {
      const tried = heads[i]?.length ?? 0
      const line = (this.#lines.get(name) ?? []).flatMap((item, at) =>
        at < tried ? (waiting.get(item.job) ?? []) : item,
      )
      if (line.length > 0) this.#lines.set(name, line)
      else this.#lines.delete(name)
    }
    if (waiting.size === 0) return true
    if (names.length === 1) {
      for (const name of names) stuck.add(name)
      return false
    }
    const middle = Math.ceil(names.length / 2)
    const isSent = await this.#try(names.slice(0, middle), stuck)
    return (await this.#try(names.slice(middle), stuck)) || isSent
  }

  /** Returns what is next in a line, up to `most` jobs: all of them replace others, or none does. */
  #headOf(name: string, most: number): Waiting[] {
    const line = this.#lines.get(name) ?? []
    const other = line.findIndex(({ job }) => job.replaces !== line[0]?.job.replaces)
    return line.slice(0, Math.min(most, other < 0 ? line.length : other))
  }

  /**
   * Sends jobs. If another transaction holds a lock, resolves to all of them that have a key or a chosen id, because any of
   * these may be the one that has to wait.
   */
  async #sendBatch(items: readonly Waiting[]): Promise<Waiting[]> {
    if (items.length === 0) return []
    try {
      const known = items.some((item) => item.known)
      const ids = await this.#addAll(
        items.map((item) => item.job),
        { known, waits: false },
      )
      items.forEach((item, i) => item.resolve(ids[i] ?? item.job.id))
      return []
    } catch (error) {
      // An earlier try may have been committed.
      const again = items.map((item) => ({ ...item, known: true }))
      const waiting = isLockTimeout(error) ? again.filter(({ job }) => job.key !== null || job.given) : []
      if (waiting.length > 0)
        return [...waiting, ...(await this.#sendBatch(again.filter((item) => !waiting.includes(item))))]
      const all: Waiting[] = []
      const isOfAll = SluiceError.is(error) && !(error instanceof UsageError)
      if (items.length === 1 || isOfAll) items.forEach((item) => item.reject(error))
      // The store rejected the batch: send each job alone, so that only the bad one fails.
      else for (const item of again) all.push(...(await this.#sendBatch([item])))
      return all
    }
  }

  /** Calls `send`, and again after a lost connection; the jobs' ids make that safe. */
  #repeatUntilAnswered<T>({ known, waits }: Repeat, send: (known: boolean) => Promise<T>): Promise<T> {
    return repeatUntilAnswered(
      this.#store.clock,
      (tries) => send(known || tries > 0),
      (error) => waits && isLockTimeout(error),
    )
  }
}

/** `known`: an earlier try may have inserted the jobs; `waits`: repeat until the other transaction that holds a lock has ended. */
interface Repeat {
  known: boolean
  waits: boolean
}

/** Returns whether the error is a lock timeout; the statement has changed nothing. */
function isLockTimeout(error: unknown): boolean {
  return codeOf(error) === '55P03'
}

/** Throws the UsageError that the store's error is about (`engine.raise_error`), else the error itself. */
export function throwUsage(error: unknown): never {
  const [, code, text] = /^(SLUICE_[A-Z_]+): (.*)$/s.exec((error as Partial<Error>).message ?? '') ?? []
  if (code === undefined || text === undefined || SluiceError.is(error)) throw error
  throw new UsageError(code, text, { cause: error })
}

/** The line of a job: its idempotency key, or else its id. */
function lineOf({ id, task, key }: NewJob): string {
  return key === null ? id : `${task}\n${key}`
}

/** Reads the id in a row's only column, by position, because some connections change the column's name. */
function idOf(row: Row | undefined): string | undefined {
  return Object.values(row ?? {})[0] as string | undefined
}

/** Records a discarded job in history. */
function discard(sql: Sql, job: NewJob): Promise<Row[]> {
  return sql.call('discard_job', discardParams(job), 'uuid text text integer text[] jsonb text jsonb')
}
