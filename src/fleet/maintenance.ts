/** Maintenance, done by one worker for the fleet: creates history partitions ahead, deletes what has expired. */
import { codeOf } from '../core/errors.ts'
import { checkFields } from '../core/fields.ts'
import type { Duration } from '../core/rate.ts'
import type { Row } from '../db/db.ts'
import type { Store } from '../db/store.ts'
import { ledgerUs } from '../limits/limit.ts'
import { type RetentionInForce, type RetentionSettings, isPruneTime, keepMs } from './retention.ts'

const minuteMs = 60_000
const hourMs = 3_600_000
/**
 * Time for maintenance in one round, in ms, since the worker also sends heartbeats in it; the rest is done in the next.
 */
const roundMs = 500
const pruneMs = 5 * minuteMs
/** How often leases that takers left behind are released, in ms: jobs wait for them. */
const tidyMs = 2_000
/** Ids of lanes and buckets are hashes, from the smallest bigint on. */
const leastId = '-9223372036854775808'

/** Chores that run only at the configured time of day. */
const offPeak = new Set([
  'summarize_partitions',
  'drop_expired_partition',
  'delete_late_jobs',
  'delete_old_ledger',
  'delete_old_usage',
  'delete_old_events',
  'retire_buckets',
])

/** Options of `prune`. */
export interface PruneOptions {
  /** Keep jobs that are done or cancelled for this long after their end; 0 to 36,500 days. Default: `retention.done`. */
  keepDone?: Duration | undefined
  /** The same for jobs that failed. Default: `retention.failed`. */
  keepFailed?: Duration | undefined
  /** Only report what would be deleted; default false. */
  dryRun?: boolean | undefined
}

/**
 * The number of rows that were, or would be, deleted. Beyond 10,000 rows of a partition, and 100,000 other rows of a dry run, figures are
 * estimates or lower bounds.
 */
export interface Pruned {
  /** Partitions of history, one for each day, with their rows and bytes on disk. */
  partitions: { name: string; rows: number; bytes: number }[]
  /** Jobs that finished after the partition of their day had been dropped. */
  late: number
  /** Expired idempotency keys. */
  keys: number
  /** Rows of the ledger that no proof needs any more. */
  ledger: number
  /** Buckets of keys that were not used for a week; a dry run does not count them. */
  buckets?: number
}

/**
 * One recurring task, done in portions: each is a call of its function, and a transaction of its own, so that no lock outlives it.
 */
interface Chore {
  name:
    | 'expire_holders'
    | 'delete_read_arrivals'
    | 'recount_waiting'
    | 'delete_idempotency_keys'
    | 'delete_learned_costs'
    | 'delete_lanes'
    | 'create_partitions'
    | 'summarize_partitions'
    | 'drop_expired_partition'
    | 'delete_late_jobs'
    | 'delete_old_ledger'
    | 'delete_old_usage'
    | 'delete_old_events'
    | 'retire_buckets'
  everyMs: number
  dueMs: number
  /** Returns the arguments of the next portion. */
  params(last: unknown, keep: RetentionInForce): unknown[]
  /** What the last portion returned: if there may be more, it is truthy. */
  last: unknown
}

/** Runs maintenance when it is due. Many workers may call it; the store lets one at a time do each part. */
export class Maintenance {
  readonly #store: Store
  readonly #retention: RetentionSettings
  readonly #chores: Chore[]
  readonly #capUs: () => number | null
  #hasPublished = false
  #hasWarned = false

  /** @param capUs the latest time that the store's clock may show, in microseconds since 1970; null: unknown */
  constructor(store: Store, retention: RetentionSettings, capUs: () => number | null = () => null) {
    const { clock } = store
    this.#store = store
    this.#retention = retention
    this.#capUs = capUs
    type Params = Chore['params']
    const chore = (name: Chore['name'], everyMs: number, params: Params = () => []): Chore => ({
      name,
      everyMs,
      // The first run comes soon after the start, at a different time in each worker of a fleet.
      dueMs: clock.monotonicMs() + clock.random() * Math.min(everyMs, minuteMs),
      params,
      last: undefined,
    })
    const kept: Params = (_, { doneMs, failedMs }) => [doneMs, failedMs, capUs()]
    this.#chores = [
      chore('expire_holders', tidyMs, () => [capUs()]),
      chore('delete_read_arrivals', minuteMs),
      chore('recount_waiting', minuteMs),
      chore('delete_idempotency_keys', minuteMs, () => [capUs()]),
      chore('delete_learned_costs', hourMs),
      chore('delete_lanes', hourMs, (last) => [last ?? leastId]),
      chore('create_partitions', hourMs),
      chore('summarize_partitions', hourMs, (last, { doneMs, failedMs }) => [doneMs, failedMs, last, capUs()]),
      chore('drop_expired_partition', hourMs, kept),
      chore('delete_late_jobs', hourMs, kept),
      chore('delete_old_ledger', hourMs, (last) => [ledgerUs, last ?? 0]),
      chore('delete_old_usage', hourMs, (_, { usageMs }) => [usageMs, capUs()]),
      chore('delete_old_events', hourMs, (_, { eventsMs }) => [eventsMs, capUs()]),
      // After the ledger's old rows: a bucket is deleted when its newest row is the only one left.
      chore('retire_buckets', hourMs, (last) => [ledgerUs, capUs(), last ?? leastId]),
    ]
  }

  /** Publishes this process's settings, once, soon after its start: the last process that publishes wins. */
  async publish(): Promise<void> {
    if (this.#hasPublished) return
    await this.#retention.publish()
    this.#hasPublished = true
  }

  /** Does the work that is due; what is left after half a second continues in the next round. */
  async run(): Promise<void> {
    const beganMs = this.#store.clock.monotonicMs()
    const due = this.#chores.filter((chore) => chore.dueMs <= beganMs)
    if (due.length === 0) return
    const keep = await this.#retention.inForce()
    const isOffPeak = isPruneTime(keep.prune, this.#store.clock.wallMs())
    for (const chore of due) {
      // Also if it fails: the next rounds do the others meanwhile.
      chore.dueMs = beganMs + Math.min(minuteMs, 5 * chore.everyMs)
      if (offPeak.has(chore.name) && !isOffPeak) continue
      await this.#work(chore, keep, beganMs + roundMs).catch((error: unknown) => this.#warnOfRole(error))
      chore.dueMs = chore.last ? beganMs : beganMs + chore.everyMs
    }
  }

  /** Does all work, at any time of day, for five minutes at most. @throws UsageError SLUICE_BAD_OPTION */
  async prune(options: PruneOptions): Promise<Pruned> {
    checkFields('SLUICE_BAD_OPTION', '`prune`', options, ['keepDone', 'keepFailed', 'dryRun'])
    const { keepDone, keepFailed, dryRun = false } = options
    const keep = { ...(await this.#retention.inForce()) }
    if (keepDone !== undefined) keep.doneMs = keepMs('keepDone', keepDone)
    if (keepFailed !== undefined) keep.failedMs = keepMs('keepFailed', keepFailed)
    if (dryRun) return this.#countExpired(keep)
    const untilMs = this.#store.clock.monotonicMs() + pruneMs
    const results = new Map<string, Row[]>()
    for (const chore of this.#chores) results.set(chore.name, await this.#work(chore, keep, untilMs))
    const gone = (name: Chore['name']) =>
      (results.get(name) ?? []).reduce((sum, row) => sum + Number(row['gone'] ?? 0), 0)
    const partitions = (results.get('drop_expired_partition') ?? []).filter((row) => row['more'])
    return {
      partitions: partitions.map((row) => ({
        name: String(row['more']),
        rows: Number(row['rows']),
        bytes: Number(row['bytes']),
      })),
      late: gone('delete_late_jobs'),
      keys: gone('delete_idempotency_keys'),
      ledger: gone('delete_old_ledger'),
      buckets: gone('retire_buckets'),
    }
  }

  /** Only the owner of the tables of history creates and drops them; a worker's role need not be that. */
  #warnOfRole(error: unknown): void {
    if (codeOf(error) !== '42501') throw error
    if (this.#hasWarned) return
    this.#hasWarned = true
    this.#store.log.warn(
      "this worker's role may not do all of the maintenance, which creates and drops tables of history: run `sluice prune` daily as the owner of the schema, or a worker as the owner",
      { err: error },
    )
  }

  async #countExpired({ doneMs, failedMs }: RetentionInForce): Promise<Pruned> {
    const [row = {}] = await this.#store.call('count_expired', [doneMs, failedMs, ledgerUs, this.#capUs()])
    const partitions = row['partitions'] as Pruned['partitions']
    return { partitions, late: Number(row['late']), keys: Number(row['keys']), ledger: Number(row['ledger']) }
  }

  /**
   * Does at least one portion of a chore, so that none starves behind the others; resolves to the result of each portion.
   */
  async #work(chore: Chore, keep: RetentionInForce, untilMs: number): Promise<Row[]> {
    const answers: Row[] = []
    do {
      const [answer = {}] = await this.#store.call(chore.name, chore.params(chore.last, keep))
      // A function with a single value returns that.
      chore.last = answer[chore.name] ?? answer['more']
      answers.push(answer)
    } while (chore.last && this.#store.clock.monotonicMs() < untilMs)
    return answers
  }
}
