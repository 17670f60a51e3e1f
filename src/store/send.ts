/** Records jobs: singly (coalesced while a flush is in flight), in bulk, or inside the caller's own transaction. */
import type { Clock } from '../core/clock.ts'
import { SluiceError, StoreError, UsageError } from '../core/errors.ts'
import { reach } from '../core/probe.ts'
import { againMs } from '../core/retry.ts'
import type { Db, Queryable, Row } from '../db/db.ts'
import { engineSchema } from '../db/migrate.ts'
import { fromText } from '../db/tx.ts'
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

/** A job to be recorded, and whoever waits for that. `known`: an earlier try may have recorded it. */
interface Waiting {
  job: NewJob
  known: boolean
  resolve: (id: string) => void
  reject: (error: unknown) => void
}

/** Sends jobs to one database. */
export class Outbox {
  readonly #db: Db
  readonly #clock: Clock
  readonly #sendSql: string
  readonly #sendLaneSql: string
  readonly #keyedSql: string
  readonly #ownSendSql: string
  readonly #ownKeyedSql: string
  readonly #replaceSql: string
  readonly #supersedeSql: string
  readonly #discardSql: string
  #waiting: Waiting[] = []
  #flushing: Promise<void> | undefined
  /** What may have to wait for somebody's transaction, by key or id, in order: tried one after the other, beside the rest. */
  readonly #lines = new Map<string, Waiting[]>()
  #walking: Promise<void> | undefined

  constructor(db: Db, clock: Clock, schema: string) {
    this.#db = db
    this.#clock = clock
    this.#sendSql = `select ${engineSchema(schema)}.send(${fromText(sendTypes)}) as id`
    this.#sendLaneSql = `select ${engineSchema(schema)}.send_lane(${fromText(sendLaneTypes)})`
    this.#keyedSql = `select ${engineSchema(schema)}.keyed(${fromText('text text[] uuid[] integer')}) as id`
    const patience = ` from set_config('lock_timeout', '${heldMs}', true)`
    this.#ownSendSql = this.#sendSql + patience
    this.#ownKeyedSql = this.#keyedSql + patience
    this.#supersedeSql = `select ${engineSchema(schema)}.supersede(${fromText(`text text uuid integer ${sendTypes}`)}) as id${patience}`
    this.#replaceSql = `select ${engineSchema(schema)}.replace(${fromText('text text uuid integer')}) as id${patience}`
    this.#discardSql = `select ${engineSchema(schema)}.discard(${fromText('uuid text text integer text[] jsonb text jsonb')}) as id`
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
      await this.#again(how, (known) => {
        const { name, sql, params } = this.#sending(jobs, known, true)
        return this.#db.call(name, sql, params)
      })
      return jobs.map(({ id }) => id)
    }
    const plain = jobs.filter(({ replaces }) => !replaces)
    const ids = new Map(jobs.map((job) => [job, job.id]))
    if (plain.length > 0) {
      const held = await this.#again(how, (known) => this.#db.transaction((tx) => this.#write(tx, plain, known, true)))
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
    const rows = await this.#again(how, (known) =>
      job.discard === null
        ? this.#db.call<Row>('replace', this.#supersedeSql, [...own, ...sendParams([job], known || job.given)])
        : this.#db.query(this.#replaceSql, own),
    )
    const id = idOf(rows[0]) ?? job.id
    if (job.discard !== null)
      await this.#again(how, () => this.#db.query(this.#discardSql, discardParams({ ...job, id })))
    return id
  }

  /**
   * Records jobs with the statements of a transaction that the caller owns.
   * @throws UsageError SLUICE_BAD_OPTION for a job that replaces: until the commit it would hold the other from all workers
   */
  async write(tx: Queryable, jobs: readonly NewJob[]): Promise<string[]> {
    if (jobs.some(({ replaces }) => replaces))
      throw new UsageError(
        'SLUICE_BAD_OPTION',
        '`replace` and `tx` do not go together: the job to be replaced would be held back, and its limits with it, until you commit; send without `tx` after the commit',
      )
    return this.#write(tx, jobs, false, false)
  }

  /** `known`: an earlier try may have recorded them; `own`: the transaction is ours, and is repeated when it meets another. */
  async #write(tx: Queryable, jobs: readonly NewJob[], known: boolean, own: boolean): Promise<string[]> {
    const ids = new Map(jobs.map((job) => [job, job.id]))
    for (const task of new Set(jobs.filter((job) => job.key !== null).map((job) => job.task))) {
      const keyed = jobs.filter((job) => job.task === task && job.key !== null)
      const rows = await tx.query(own ? this.#ownKeyedSql : this.#keyedSql, [
        task,
        keyed.map((job) => job.key),
        keyed.map((job) => job.id),
        keySeconds,
      ])
      keyed.forEach((job, i) => ids.set(job, idOf(rows[i]) ?? job.id))
    }
    const fresh = jobs.filter((job) => ids.get(job) === job.id)
    await this.#record(tx, fresh, known)
    return jobs.map((job) => ids.get(job) ?? job.id)
  }

  async #record(tx: Queryable, jobs: readonly NewJob[], known: boolean): Promise<void> {
    for (const job of jobs) if (job.discard !== null) await tx.query(this.#discardSql, discardParams(job))
    const kept = jobs.filter(({ discard }) => discard === null)
    if (kept.length === 0) return
    const { sql, params } = this.#sending(kept, known, false)
    await tx.query(sql, params)
  }

  /** The statement that records these. `known`: an earlier try may have recorded them; `alone`: it is a transaction of its own. */
  #sending(jobs: readonly NewJob[], known: boolean, alone: boolean): { name: string; sql: string; params: unknown[] } {
    if (!known && areAlike(jobs)) return { name: 'sendLane', sql: this.#sendLaneSql, params: laneParams(jobs, alone) }
    return {
      name: 'send',
      sql: alone ? this.#ownSendSql : this.#sendSql,
      params: sendParams(jobs, known || jobs.some((job) => job.given)),
    }
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
      if (this.#lines.size > 0 && tries > 0) await this.#clock.sleep(againMs(tries, this.#clock.random(), 50))
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
    const until = this.#clock.monotonicMs() + retryForMs
    for (let tries = 0; ; tries++) {
      try {
        return await send(known || tries > 0)
      } catch (error) {
        // At least once more: a half-open connection alone takes as long as we would try.
        const isLost = error instanceof StoreError && (tries === 0 || this.#clock.monotonicMs() < until)
        if (!isLost && !(waits && isHeld(error))) throw error
        await this.#clock.sleep(againMs(tries, this.#clock.random(), 50))
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

/** Of a row's only column, whose name some connections change. */
function idOf(row: Row | undefined): string | undefined {
  return Object.values(row ?? {})[0] as string | undefined
}
