/** Records jobs: singly (coalesced while a flush is in flight), in bulk, or inside the caller's own transaction. */
import { SluiceError, StoreError, UsageError } from '../core/errors.ts'
import { reach } from '../core/probe.ts'
import { againMs } from '../core/retry.ts'
import type { Row } from '../db/db.ts'
import type { Sql, Store } from '../db/store.ts'
import { areAlike, discardParams, laneParams, type NewJob, sendLaneTypes, sendParams, sendTypes } from './row.ts'

export type { NewJob } from './row.ts'

const batchMax = 1000
const keySeconds = 86_400
const retryForMs = 10_000
/**
 * A statement of ours waits so long for what another, open transaction has sent: a key, an id, a job to be replaced. Then it
 * is given up and repeated, so that it holds no connection that the end of that transaction may need.
 */
const heldMs = 20
const ownTypes = 'text text uuid integer'

/** A job to be recorded, and whoever waits for that. `known`: an earlier try may have recorded it. */
interface Waiting {
  job: NewJob
  known: boolean
  resolve: (id: string) => void
  reject: (error: unknown) => void
}

/** A free slot of an idle worker in this process, kept for a job that is being sent. */
export interface KeptSlot {
  /** The parameters of `claim_at_send` before those of `send_lane`. */
  readonly params: readonly unknown[]
  /** Has the job begin, if this answer says that it is claimed, and frees the slot; undefined: there is no answer. To be called once. */
  take(row: Row | undefined): void
}

/** Sends jobs to one database. */
export class Outbox {
  /** Keeps a slot in this process for a job that is sent alone; undefined: none is free. */
  slotFor: (job: NewJob) => KeptSlot | undefined = () => undefined
  readonly #store: Store
  #waiting: Waiting[] = []
  #flushing: Promise<void> | undefined
  /** What may have to wait for somebody's transaction, by key or id, in order: tried one after the other, beside the rest. */
  readonly #lines = new Map<string, Waiting[]>()
  #walking: Promise<void> | undefined

  constructor(store: Store) {
    this.#store = store
  }

  /** Records one job; resolves to its id once it is durable. Concurrent calls share a statement, without a timer. */
  add(job: NewJob): Promise<string> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ job, known: false, resolve, reject })
      this.#flushing ??= this.#flush()
    })
  }

  /**
   * Records a batch in one transaction, all or none, and then those that replace others, each in a statement of its own.
   * Resolves to the ids that hold (idempotency keys may name older jobs).
   */
  addAll(jobs: readonly NewJob[]): Promise<string[]> {
    return this.#addAll(jobs, { known: false, waits: true })
  }

  async #addAll(jobs: readonly NewJob[], how: Repeat): Promise<string[]> {
    if (jobs.length > 0 && jobs.every(({ key, discard }) => key === null && discard === null)) {
      await this.#again(how, (known) => this.#recordNow(jobs, known))
      return jobs.map(({ id }) => id)
    }
    const plain = jobs.filter(({ replaces }) => !replaces)
    const ids = new Map(jobs.map((job) => [job, job.id]))
    if (plain.length > 0) {
      const held = await this.#again(how, (known) =>
        this.#store.db.transaction((tx) => this.#write(this.#store.on(tx), plain, known, heldMs)),
      )
      plain.forEach((job, i) => ids.set(job, held[i] ?? job.id))
    }
    // Of one key the last would replace those before it. Left out, they leave one send to be known again by replace.
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
    const rows = await this.#again(how, (known) => {
      if (job.discard !== null) return users.call('replace', own, ownTypes, heldMs)
      const params = [...own, ...sendParams([job], known || job.given)]
      return this.#store.call('supersede', params, `${ownTypes} ${sendTypes}`, heldMs)
    })
    const id = idOf(rows[0]) ?? job.id
    if (job.discard !== null) await this.#again(how, () => discard(users, { ...job, id }))
    return id
  }

  /**
   * Records jobs with the statements of a transaction that the caller owns.
   * @throws UsageError SLUICE_BAD_OPTION for a job that replaces: until the commit it would hold the other from all workers
   */
  async write(sql: Sql, jobs: readonly NewJob[]): Promise<string[]> {
    if (jobs.some(({ replaces }) => replaces))
      throw new UsageError(
        'SLUICE_BAD_OPTION',
        '`replace` and `tx` do not go together: the job to be replaced would be held back, and its limits with it, until you commit; send without `tx` after the commit',
      )
    return this.#write(sql, jobs, false)
  }

  /** `known`: an earlier try may have recorded them; `lockMs`: of a transaction of ours, which is repeated when it meets another. */
  async #write(sql: Sql, jobs: readonly NewJob[], known: boolean, lockMs?: number): Promise<string[]> {
    const ids = new Map(jobs.map((job) => [job, job.id]))
    for (const task of new Set(jobs.filter((job) => job.key !== null).map((job) => job.task))) {
      const keyed = jobs.filter((job) => job.task === task && job.key !== null)
      const params = [task, keyed.map((job) => job.key), keyed.map((job) => job.id), keySeconds]
      const rows = await sql.call('keyed', params, 'text text[] uuid[] integer', lockMs)
      keyed.forEach((job, i) => ids.set(job, idOf(rows[i]) ?? job.id))
    }
    const fresh = jobs.filter((job) => ids.get(job) === job.id)
    for (const job of fresh) if (job.discard !== null) await discard(sql, job)
    const kept = fresh.filter(({ discard: by }) => by === null)
    if (kept.length > 0) await this.#record(sql, kept, known, false, lockMs)
    return jobs.map((job) => ids.get(job) ?? job.id)
  }

  /** Records these in a transaction of their own. A job alone begins at once, where a worker of this process idles and its limits allow it. */
  async #recordNow(jobs: readonly NewJob[], known: boolean): Promise<void> {
    const [job] = jobs
    const slot = known || jobs.length > 1 || !areAlike(jobs) || job === undefined ? undefined : this.slotFor(job)
    if (slot === undefined) return this.#record(this.#store, jobs, known, true, heldMs)
    let row: Row | undefined
    try {
      const params = [...slot.params, ...laneParams(jobs, true)]
      ;[row] = await this.#store.call('claim_at_send', params, `uuid bigint bigint ${sendLaneTypes}`)
    } catch (error) {
      slot.take(undefined)
      // The outcome is unknown. Any other error has undone all of it: what the limits fail by must not fail a send.
      if (error instanceof StoreError) throw error
      return this.#record(this.#store, jobs, known, true, heldMs)
    }
    slot.take(row)
  }

  /** Records these. `known`, `lockMs`: as above; `alone`: the statement is a transaction of its own. */
  async #record(sql: Sql, jobs: readonly NewJob[], known: boolean, alone: boolean, lockMs?: number): Promise<void> {
    if (!known && areAlike(jobs)) await sql.call('send_lane', laneParams(jobs, alone), sendLaneTypes)
    else await sql.call('send', sendParams(jobs, known || jobs.some((job) => job.given)), sendTypes, lockMs)
  }

  /** Resolves when everything that was added so far is settled. */
  async settled(): Promise<void> {
    while ((this.#flushing ?? this.#walking) !== undefined) await (this.#flushing ?? this.#walking)
  }

  async #flush(): Promise<void> {
    // One turn later, so that calls made together go together.
    await Promise.resolve()
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, batchMax)
      await reach('send.flush', batch.length)
      const isLined = ({ job }: Waiting) => job.replaces || this.#lines.has(lineOf(job))
      const free = batch.filter((item) => !isLined(item))
      this.#line(batch.filter(isLined))
      this.#line(await this.#settle(free))
    }
    this.#flushing = undefined
  }

  /** Puts these at the ends of their lines. */
  #line(items: readonly Waiting[]): void {
    for (const item of items) {
      const line = this.#lines.get(lineOf(item.job)) ?? []
      this.#lines.set(lineOf(item.job), [...line, item])
    }
    if (this.#lines.size > 0) this.#walking ??= this.#walk()
  }

  /** Tries the head of each line until none is left; pauses while all of them are held. */
  async #walk(): Promise<void> {
    const { clock } = this.#store
    for (let tries = 0; this.#lines.size > 0; tries++) {
      for (const name of this.#lines.keys()) {
        const line = this.#lines.get(name) ?? []
        const other = line.findIndex(({ job }) => job.replaces !== line[0]?.job.replaces)
        const head = line.slice(0, Math.min(batchMax, other < 0 ? line.length : other))
        const held = await this.#settle(head)
        if (held.length === 0) tries = 0
        const rest = [...held, ...(this.#lines.get(name) ?? []).slice(head.length)]
        if (rest.length > 0) this.#lines.set(name, rest)
        else this.#lines.delete(name)
      }
      if (this.#lines.size > 0 && tries > 0) await clock.sleep(againMs(tries, clock.random(), 50))
    }
    this.#walking = undefined
  }

  /** Records these; resolves to those that must wait for another's transaction, of whose keys and ids it is not known which it has. */
  async #settle(items: readonly Waiting[]): Promise<Waiting[]> {
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
      // A try before that may have been committed.
      const again = items.map((item) => ({ ...item, known: true }))
      const held = isHeld(error) ? again.filter(({ job }) => job.key !== null || job.given) : []
      if (held.length > 0) return [...held, ...(await this.#settle(again.filter((item) => !held.includes(item))))]
      const all: Waiting[] = []
      if (items.length === 1 || SluiceError.is(error)) items.forEach((item) => item.reject(error))
      // The store refused the batch: each alone, so that only the bad row fails.
      else for (const item of again) all.push(...(await this.#settle([item])))
      return all
    }
  }

  /** Repeats after a lost connection: the ids make that safe, whether or not the first try was committed. */
  async #again<T>({ known, waits }: Repeat, send: (known: boolean) => Promise<T>): Promise<T> {
    const { clock } = this.#store
    const until = clock.monotonicMs() + retryForMs
    for (let tries = 0; ; tries++) {
      try {
        return await send(known || tries > 0)
      } catch (error) {
        // At least once more: a half-open connection alone takes as long as we would try.
        const isLost = error instanceof StoreError && (tries === 0 || clock.monotonicMs() < until)
        if (!isLost && !(waits && isHeld(error))) throw error
        await clock.sleep(againMs(tries, clock.random(), 50))
      }
    }
  }
}

/** `known`: an earlier try may have recorded them; `waits`: until the transaction that has one of the keys or ids has ended. */
interface Repeat {
  known: boolean
  waits: boolean
}

/** True when a statement has waited for a lock as long as it may: it has changed nothing. */
function isHeld(error: unknown): boolean {
  return (error as { code?: unknown }).code === '55P03'
}

/** What a job may have in common with others. */
function lineOf({ id, task, key }: NewJob): string {
  return key === null ? id : `${task}\n${key}`
}

/** The id in a row's only column. It is read by place, because some connections change the column's name. */
function idOf(row: Row | undefined): string | undefined {
  return Object.values(row ?? {})[0] as string | undefined
}

/** Records a job that a rule does not want, in history. */
function discard(sql: Sql, job: NewJob): Promise<Row[]> {
  return sql.call('discard', discardParams(job), 'uuid text text integer text[] jsonb text jsonb')
}
