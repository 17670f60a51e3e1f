/** Operations on many jobs: they are read in pages and changed in portions, each a short transaction. */
import { systemClock } from '../core/clock.ts'
import { codeOf, StoreError, UsageError } from '../core/errors.ts'
import { parseRate, type Rate } from '../core/rate.ts'
import type { Row } from '../db/db.ts'
import type { Sql } from '../db/store.ts'
import { reasonOf } from '../gates/gates.ts'
import type { FunctionName } from '../generated/sql.ts'
import { asOfNow, type JobFilter, type Search, searchOf, type State, unfinished } from './filter.ts'

/** Progress of a bulk operation. */
export interface BulkProgress {
  /** Jobs changed so far. */
  done: number
  /** Jobs read so far, whether or not the filter matches them. */
  seen: number
}

/** How to run a bulk operation; see the fields. */
export interface BulkOptions {
  /** Allows a filter that matches every job; without it such a filter is rejected. */
  all?: boolean | undefined
  /** Called after each portion. */
  onProgress?: ((progress: BulkProgress) => void) | undefined
  /** Changes at most this many jobs in such a time, evenly. Default: no bound. */
  rate?: Rate | undefined
  /** Stops between portions: what is done stays done, and the call resolves. */
  signal?: AbortSignal | undefined
}

/** Checks why jobs are ended: their records keep it. @throws UsageError SLUICE_BAD_OPTION */
export function checkReason(reason: unknown): string {
  return reasonOf(reason, (why) => new UsageError('SLUICE_BAD_OPTION', why))
}

/** How many jobs a filter matches. */
export interface Counted {
  count: number
  /** False: `count` is a lower bound; counting stopped beyond 10,000 matches, or after reading 200,000 jobs. */
  isExact: boolean
}

/** How much a page reads of each job. */
type Form = 'id' | 'line' | 'whole'

interface Page {
  hits: Row[]
  seen: number
}

/** The pages to read; see operations/page_jobs.sql. */
interface PageWalk {
  isDown: boolean
  form: Form
  /** Jobs read for the first page; later pages read more, up to `scanMax`. */
  scan: number
  from?: string | undefined
  last?: string | undefined
}

/** A bulk operation: which states it accepts, and what it does to a portion. */
interface Act {
  /** Past tense, for messages. */
  name: string
  states: readonly State[]
  /** Resolves to how many of these jobs it changed. */
  run: (ids: string[], states: readonly State[]) => Promise<number>
}

/** No job has this id. */
const noId = '00000000-0000-0000-0000-000000000000'
const waits: readonly State[] = ['scheduled', 'waiting']
const inHand: readonly State[] = ['dispatched', 'running']
const scanMax = 5_000
const countMax = 10_000
const lookMax = 200_000
/** Jobs in one portion: about 20 ms of the server's time. */
const portion = 500
/** Whole jobs in one page: each may have half a megabyte. */
const wholeMax = 100

/** Reads and changes many jobs of one database. */
export class Bulk {
  readonly #sql: Sql

  constructor(sql: Sql) {
    this.#sql = sql
  }

  /** Reads the rows of a list, newest first. */
  async list(filter: JobFilter, most: number, before: string | undefined): Promise<Row[]> {
    const found: Row[] = []
    const walk = { isDown: true, form: 'line', scan: most, from: before } as const
    for await (const { hits } of this.#pages(await this.#search(filter), walk)) {
      found.push(...hits)
      if (found.length >= most) break
    }
    return found.slice(0, most)
  }

  /** Reads whole rows, oldest first, up to the job that was the newest when it began. */
  async *stream(filter: JobFilter): AsyncGenerator<Row> {
    const search = await this.#search(filter)
    const last = await this.#newest(search)
    if (last === undefined) return
    for await (const { hits } of this.#pages(search, { isDown: false, form: 'whole', scan: wholeMax, last }))
      yield* hits
  }

  /** See `asOfNow`. */
  asOfNow(filter: JobFilter): Promise<JobFilter> {
    return asOfNow(this.#ago, filter)
  }

  /** Counts the jobs that the filter matches, up to a bound. */
  async count(filter: JobFilter): Promise<Counted> {
    let [count, looked] = [0, 0]
    for await (const { hits, seen } of this.#pages(await this.#search(filter), {
      isDown: true,
      form: 'id',
      scan: scanMax,
    })) {
      count += hits.length
      looked += seen
      if (count > countMax || looked >= lookMax) return { count: Math.min(count, countMax), isExact: false }
    }
    return { count, isExact: true }
  }

  /** Gives failed jobs another round of attempts; with the state `scheduled`: lets retries begin now. */
  async retry(filter: JobFilter, options: BulkOptions): Promise<number> {
    const { state = 'failed' } = filter
    const isScheduled = [state].flat().includes('scheduled')
    if (isScheduled && [state].flat().includes('failed')) {
      const text =
        'failed jobs and scheduled ones are not retried together: retry those of one state, and then the others'
      throw new UsageError('SLUICE_BAD_FILTER', text)
    }
    return this.#changeMatching({ ...filter, state }, options, {
      name: 'retried',
      states: [isScheduled ? 'scheduled' : 'failed'],
      run: (ids) => (isScheduled ? this.retryScheduled(ids) : this.retryFailed(ids)),
    })
  }

  /** Gives these failed jobs another round of attempts. */
  async retryFailed(ids: string[]): Promise<number> {
    return (await this.#ids('retry_failed', [ids])).length
  }

  /** Lets those of these jobs that wait for another attempt begin now. */
  retryScheduled(ids: string[]): Promise<number> {
    return this.#changeOneByOne(ids, (some) => this.#ids('retry_scheduled', [some]))
  }

  /** Cancels failed jobs, so that nobody retries them. */
  async discard(filter: JobFilter, reason: string, options: BulkOptions): Promise<number> {
    checkReason(reason)
    return await this.#changeMatching({ ...filter, state: filter.state ?? 'failed' }, options, {
      name: 'discarded',
      states: ['failed'],
      run: async (ids) => (await this.#ids('discard_failed', [ids, reason])).length,
    })
  }

  /**
   * Cancels an unfinished job, if it is in one of these states; default: in any. @throws StoreError
   * SLUICE_STORE_UNREACHABLE: also if another transaction has locked it
   */
  async cancelId(id: string, reason: string, states: readonly State[] = unfinished): Promise<boolean> {
    checkReason(reason)
    const text = 'the job was not cancelled, because another transaction has locked it: end that one, or try again'
    const cancelling = this.#sql.call<{ cancel_job: boolean }>('cancel_job', [id, reason, states])
    const [row] = await cancelling.catch((error: unknown) => {
      throw codeOf(error) === '55P03' ? new StoreError('SLUICE_STORE_UNREACHABLE', text, { cause: error }) : error
    })
    return row?.cancel_job ?? false
  }

  /**
   * Cancels unfinished jobs; the running ones one by one, because ending an attempt takes locks that others wait for. A job that
   * another transaction has locked holds up no other; its error comes at the end.
   */
  async cancel(filter: JobFilter, reason: string, options: BulkOptions): Promise<number> {
    checkReason(reason)
    let locked: StoreError | undefined
    const count = await this.#changeMatching(filter, options, {
      name: 'cancelled',
      states: unfinished,
      run: async (ids, states) => {
        const gone = new Set(await this.#ids('cancel_waiting_jobs', [ids, states, reason]))
        let done = gone.size
        for (const id of ids.filter((each) => !gone.has(each))) {
          const isDone = inHand.some((state) => states.includes(state))
            ? await this.cancelId(id, reason, states).catch((error: unknown) => {
                if (codeOf((error as Error).cause) !== '55P03') throw error
                locked = error as StoreError
              })
            : (await this.#ids('cancel_waiting_jobs', [[id], states, reason])).length > 0
          if (isDone === true) done++
        }
        return done
      },
    })
    if (locked !== undefined) throw locked
    return count
  }

  /** Changes the priority of jobs that wait or are scheduled. */
  reprioritise(filter: JobFilter, priority: number, options: BulkOptions): Promise<number> {
    return this.#changeMatching(filter, options, {
      name: 'reprioritised',
      states: waits,
      run: (ids, states) => this.reprioritiseIds(ids, priority, states),
    })
  }

  /** Changes the priority of these jobs. */
  reprioritiseIds(ids: string[], priority: number, states = waits): Promise<number> {
    return this.#changeOneByOne(ids, (some) => this.#ids('move_jobs', [some, states, priority]))
  }

  /** Moves jobs that wait or are scheduled from one key of a limit to another. */
  rekey({ name, from, to }: { name: string; from: string; to: string }, options: BulkOptions): Promise<number> {
    return this.#changeMatching({ state: waits, limit: name, key: from }, options, {
      name: 'rekeyed',
      states: waits,
      run: (ids, states) =>
        this.#changeOneByOne(ids, (some) => this.#ids('move_jobs', [some, states, null, name, from, to])),
    })
  }

  /** Changes jobs together. Those that are locked are skipped, and then changed one by one, waiting for their locks. */
  async #changeOneByOne(ids: string[], call: (some: string[]) => Promise<string[]>): Promise<number> {
    const changed = new Set(await call(ids))
    let done = changed.size
    if (ids.length === 1) return done
    for (const id of ids.filter((each) => !changed.has(each))) done += (await call([id])).length
    return done
  }

  async #changeMatching(filter: JobFilter, options: BulkOptions, act: Act): Promise<number> {
    const states = filter.state === undefined ? act.states : [filter.state].flat()
    if (states.some((state) => !act.states.includes(state))) {
      throw new UsageError(
        'SLUICE_BAD_FILTER',
        `jobs that are ${states.join(' or ')} cannot be ${act.name}; only ${act.states.join(', ')} ones can`,
      )
    }
    const search = await this.#search(filter, act.states)
    if (!search.isNarrow && (act.states.length === 1 || filter.state === undefined) && options.all !== true) {
      throw new UsageError(
        'SLUICE_EMPTY_FILTER',
        'the filter matches every job: narrow it, or confirm that you mean all of them (`all: true`; on the command line --all)',
      )
    }
    const { most, eachMs } = paceOf(options.rate)
    const progress: BulkProgress = { done: 0, seen: 0 }
    const last = await this.#newest(search)
    if (last === undefined) return 0
    let waitMs = 0
    for await (const { hits, seen } of this.#pages(search, { isDown: false, form: 'id', scan: scanMax, last })) {
      const ids = hits.map((row) => row['id'] as string)
      for (let at = 0; at === 0 || at < ids.length; at += most) {
        const some = ids.slice(at, at + most)
        if (some.length > 0 && waitMs > 0) await systemClock.sleep(waitMs, options.signal)
        if (options.signal?.aborted) return progress.done
        if (some.length > 0) {
          progress.done += await act.run(some, states)
          waitMs = some.length * eachMs
        }
        if (at + most >= ids.length) progress.seen += seen
        options.onProgress?.({ ...progress })
      }
    }
    return progress.done
  }

  /** Reads page after page, by id, so that no job is read twice; nothing is locked or open between pages. */
  async *#pages(search: Search, walk: PageWalk): AsyncGenerator<Page> {
    let { from, scan } = walk
    for (;;) {
      const rows = await this.#page(search, { ...walk, from, scan })
      const end = rows.at(-1)
      if (end === undefined) return
      from = end['id'] as string
      yield { hits: rows.filter((row) => row['hit']), seen: Number(end['nth']) }
      if (walk.form !== 'whole') scan = Math.min(scanMax, scan * 4)
    }
  }

  #page({ table, fields }: Search, { isDown, from, last, scan, form }: PageWalk): Promise<Row[]> {
    return this.#sql.call('page_jobs', [table, JSON.stringify(fields), isDown, from ?? null, last ?? null, scan, form])
  }

  /** Reads the id of the newest job, where an operation ends however many jobs are sent meanwhile. */
  async #newest(search: Search): Promise<string | undefined> {
    const [row] = await this.#page(search, { isDown: true, form: 'id', scan: 1 })
    return row?.['id'] as string | undefined
  }

  async #search(filter: JobFilter, states?: readonly State[]): Promise<Search> {
    const search = await searchOf(this.#ago, filter, states)
    const { dispatchedSince: since, dispatchedUntil: until } = search.fields
    if (search.table === 'job' || (since === undefined && until === undefined)) return search
    // Pages are read by id, so that times of dispatch are turned into bounds of ids first.
    const params = [search.table, since ?? '-infinity', until ?? 'infinity']
    const [row] = await this.#sql.run<{ first: string | null; last: string | null }>(
      'operations/find_dispatched_ids',
      params,
    )
    return { ...search, fields: { ...search.fields, firstId: row?.first ?? noId, lastId: row?.last ?? noId } }
  }

  readonly #ago = async (seconds: number): Promise<string> => {
    const [row] = await this.#sql.run<{ at: string }>('fleet/time_ago', [seconds])
    return row?.at ?? ''
  }

  /** Calls a SQL function that returns the ids of the jobs that it changed. */
  async #ids(name: FunctionName, args: readonly unknown[]): Promise<string[]> {
    const rows = await this.#sql.call<Record<string, string>>(name, args)
    return rows.map((row) => row[name] as string)
  }
}

/** Returns how many jobs a portion has at a rate, and how long the next one waits for each of them: some 5 portions a second. */
function paceOf(rate: Rate | undefined): { most: number; eachMs: number } {
  if (rate === undefined) return { most: portion, eachMs: 0 }
  const { units, windowUs } = parseRate(rate)
  const eachMs = windowUs / 1_000 / units
  return { most: Math.min(portion, Math.max(1, Math.floor(200 / eachMs))), eachMs }
}
