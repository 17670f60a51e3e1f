/** Claims jobs: the one call in which limits are decided, charged, and jobs handed out (claim_jobs.sql). */
import { type Span, StoreClock } from '../core/clock.ts'
import { StoreError, codeOf } from '../core/errors.ts'
import { newId } from '../core/hash.ts'
import { userName } from '../core/parked.ts'
import { reach } from '../core/test-points.ts'
import { retryPauseMs } from '../core/retry.ts'
import type { Store } from '../db/store.ts'
import type { KeptSlot } from '../store/send.ts'
import { type ClaimedJob, decodeJobs } from './claimed-job.ts'
import { decidedBetween, setInstants } from './decision-times.ts'
import { fetchInputs } from './job-inputs.ts'
import { isDataError } from './parking/parked.ts'

/** The answer to a claim. */
export interface Claimed {
  jobs: ClaimedJob[]
  /** Something was in the way: the next claim should follow at once. */
  again: boolean
  /** In how many ms from now to claim again; undefined: only when something arrives. */
  wakeMs: number | undefined
}

/** A registered worker, and what it claims. */
export interface Claimer {
  worker: string
  /** undefined: every queue. */
  queues: readonly string[] | undefined
  tasks: readonly string[]
}

/** A reply of `claim_jobs.sql`, whose header lists what it can mean. */
interface Answer {
  outcome: 'unchecked' | 'repeated' | 'decided'
  now_us: string
  waited_us: string
  wake_us: string | null
  again: boolean
  since: string | null
  jobs: string | null
  redis_epoch: string | null
  on_trial: boolean | null
  instants: string[] | null
  took_us: string | null
  wake: string[] | null
  stale: string[] | null
  announced: boolean | null
  due: boolean | null
}

/** The further effects of a claim; see the fields. */
export interface ClaimMode {
  /** Register as idle when there is less to do than wanted, or when jobs are granted ahead of time. */
  idle: boolean
  /** How many jobs to get at most, at least as many as are wanted now, some with an instant up to 200 ms later; 0: none. */
  ahead: number
}

/** A claim, which is sent until it is answered. */
interface OpenClaim {
  readonly id: string
  readonly claimer: Claimer
  readonly want: number
  readonly mode: ClaimMode
  /** When it was first sent, in monotonic ms. */
  firstMs: number | undefined
}

/** The answer to a send that may have claimed its job. */
interface OfferAnswer {
  now_us: string | null
  jobs: string | null
  redis_epoch: string | null
}

/** The job was only sent. */
const notClaimed: OfferAnswer = { now_us: null, jobs: null, redis_epoch: null }

/**
 * How long claims rely on an earlier claim's result that nothing is due before a time. After that a claim reads
 * everything that is due again, because rows with an older time may have been written later: by a transaction that
 * stayed open, or after a step of the clock.
 */
const trustMs = 10_000

const parkedMessage =
  'workers skip these from now on, because the database could not compute with their data; `sluice status` has the commands that release them'
/**
 * After how many tries the log reports that claims fail: some 2 s, and more if each waits for a lock. Or after how many ms, because one
 * try may wait for a connection for 15 s.
 */
const quietTries = 8
const quietMs = 12_000

/** How soon, at the earliest, to look again for data that make claims fail, after looks that found none. */
const searchPauseMs = 5_000

/** Thrown by `claim` when the worker was given up as lost: it has to register anew, and its jobs are no longer its own. */
export class WorkerLostError extends Error {}

/** Sends claims, and repeats each until there is an answer. */
export class Claims {
  /** For how many ms a claim is repeated while the store is away, or too busy. */
  patienceMs = Infinity
  readonly #store: Store
  readonly #open = new Set<string>()
  readonly #storeClock: StoreClock
  /** The time before which nothing is due, for the classes of these tasks. */
  readonly #since = new WeakMap<readonly string[], { us: string; fromMs: number }>()
  /** The time since which the store is reported as unreachable, in monotonic ms. */
  #awayMs: number | undefined
  /** Receives the names of what was parked, because its data made claims fail. */
  onParked: (names: readonly string[], error: unknown) => void = (names, error) =>
    this.#store.log.error(parkedMessage, { names: names.map(userName), err: error })
  #emptySearches = 0
  #noSearchUntilMs = -Infinity
  /** Jobs that are due return to their lanes; the next claim waits for that. */
  #promotion: Promise<unknown> | undefined
  /** The last claim found only lanes that are blocked: the next looks at more of them. */
  #looksFurther = false

  constructor(store: Store, storeClock = new StoreClock()) {
    this.#store = store
    this.#storeClock = storeClock
  }

  /**
   * Claims up to `want` jobs. After a lost reply it is repeated with the same id, so that jobs handed out by the first
   * try are adopted: nobody else would take them from a worker that lives.
   */
  async claim(claimer: Claimer, want: number, mode: ClaimMode, signal: AbortSignal): Promise<Claimed> {
    const open: OpenClaim = { id: newId(), claimer, want, mode, firstMs: undefined }
    this.#open.add(open.id)
    try {
      return await this.#repeatUntilAnswered(open, signal, async (sentMs) => {
        open.firstMs ??= sentMs
        const claimed = await this.#request(open, sentMs)
        await reach('claim.received', claimed)
        return claimed
      })
    } finally {
      this.#closeSoon(open.id)
    }
  }

  /** Forgets that the claim is open a little later, when its jobs are certainly in hand. */
  #closeSoon(id: string): void {
    void this.#store.clock.sleep(1_000, undefined, false).then(() => this.#open.delete(id))
  }

  /**
   * The claim of a job that is being sent: the statement that records it claims it too, if its limits allow that.
   * @param input JSON text of the job's input, which the answer leaves out
   * @param take receives the answer's jobs, none or one
   */
  offer(claimer: Claimer, input: string, take: (jobs: ClaimedJob[]) => void): KeptSlot {
    const id = newId()
    const sentMs = this.#store.clock.monotonicMs()
    this.#open.add(id)
    return {
      params: [id, claimer.worker, this.#storeClock.cap(sentMs)],
      take: (row) => {
        this.#closeSoon(id)
        const { now_us: nowUs, jobs: text, redis_epoch: epoch } = (row ?? notClaimed) as unknown as OfferAnswer
        if (nowUs !== null) this.#storeClock.recordReading(Number(nowUs), [sentMs, this.#store.clock.monotonicMs()])
        const jobs = decodeJobs(text, id, sentMs)
        for (const job of jobs) {
          job.input = JSON.parse(input)
          if (epoch !== null) job.epoch = epoch
        }
        take(jobs)
      },
    }
  }

  /** Has the store plan everything that a claim runs: a first claim is slow, and its grants would age. */
  async planStatements(claimer: Claimer, signal: AbortSignal): Promise<void> {
    await this.#repeatUntilAnswered({ id: newId(), claimer, want: 0 }, signal, (sentMs) =>
      this.#store.call('plan_claim_statements', [claimer.worker, this.#storeClock.cap(sentMs)]),
    )
  }

  /** Returns the jobs of a claim that this process does not know. Its grants are taken to be too old to use. */
  async adopt(id: string): Promise<ClaimedJob[]> {
    return this.#readJobs((await this.#read(id)).jobs, id, -Infinity)
  }

  /** Reads the jobs of a claim that was made before. */
  async #read(id: string): Promise<Pick<Answer, 'jobs' | 'instants'>> {
    const [row] = await this.#store.call<Pick<Answer, 'jobs' | 'instants'>>('adopt_claim', [id])
    return row ?? { jobs: null, instants: null }
  }

  /** True while a claim of this id waits for its answer. */
  isOpen(id: string): boolean {
    return this.#open.has(id)
  }

  async #repeatUntilAnswered<T>(
    open: Pick<OpenClaim, 'id' | 'claimer' | 'want'>,
    signal: AbortSignal,
    request: (sentMs: number) => Promise<T>,
  ): Promise<T> {
    const begunMs = this.#store.clock.monotonicMs()
    let isQuiet = true
    for (let tries = 0; ; tries++) {
      await this.#promotion
      const sentMs = this.#store.clock.monotonicMs()
      try {
        await reach('claim.sent', open.id)
        const answer = await request(sentMs)
        this.#reportAnswering()
        return answer
      } catch (error) {
        if (codeOf(error) === 'SLW01') throw new WorkerLostError('given up as lost')
        if (isDataError(error) && !isOwnDouble(error) && (await this.#park(open, error))) continue
        if (!(error instanceof StoreError) && !isTransient(error) && !isOwnDouble(error)) throw error
        const forMs = this.#store.clock.monotonicMs() - begunMs
        if (signal.aborted || forMs > this.patienceMs) throw giveUpError(error)
        if (isQuiet && (tries === quietTries || forMs > quietMs)) {
          isQuiet = false
          this.#reportFailing(error, begunMs)
        }
        await this.#store.clock.sleep(retryPauseMs(tries, this.#store.clock.random()), signal)
      }
    }
  }

  /** Sends a claim, does what its answer requests, and resolves to what was claimed. */
  async #request(open: OpenClaim, sentMs: number): Promise<Claimed> {
    const { tasks } = open.claimer
    const { clock } = this.#store
    const since = this.#readTrustedTime(tasks, sentMs)
    const row = await this.#send(open, since, sentMs)
    const answeredMs = clock.monotonicMs()
    if (row.announced === true) {
      const made = this.#store.call('create_announced_classes')
      if (row.jobs === null) {
        await made
        return this.#request(open, clock.monotonicMs())
      }
      // Grants would grow old meanwhile. If it fails, the next claim finds what is left.
      void made.catch(() => undefined)
    }
    if (row.stale !== null) await this.#store.call('renew_buckets', [row.stale, this.#storeClock.cap(answeredMs)])
    this.#looksFurther = row.again && row.jobs === null && row.stale === null
    const isDue = row.due === true && (await this.#promoteDue(row, since))
    if (row.wake !== null) void this.#wake(row.wake)
    const again = row.again || isDue
    if (row.jobs === '') Object.assign(row, await this.#read(open.id))
    if (row.since !== null) this.#since.set(tasks, { us: row.since, fromMs: this.#since.get(tasks)?.fromMs ?? sentMs })
    const decided = this.#storeClock.recordReading(Number(row.now_us), decidedBetween(row, sentMs, answeredMs))
    const jobs = await this.#readGranted(open, row, decided)
    // The time counts from the decision: what was done since then is over.
    const wakeMs = Math.max(0, Number(row.wake_us) / 1_000 - (clock.monotonicMs() - decided[1]))
    return { jobs, again, wakeMs: row.wake_us === null || again ? undefined : wakeMs }
  }

  /** Sends a claim once. */
  async #send({ id, claimer, want, mode }: OpenClaim, since: string | null, sentMs: number): Promise<Answer> {
    const [row] = await this.#store.call<Answer>('claim_jobs', [
      id,
      claimer.worker,
      claimer.tasks,
      want,
      this.#storeClock.cap(sentMs),
      mode.idle,
      since,
      this.#looksFurther,
      mode.ahead,
    ])
    if (row === undefined) throw new StoreError('SLUICE_STORE_UNREACHABLE', 'a claim was answered without a row')
    if (row.outcome === 'unchecked') {
      await this.#store.call('check_epoch', [null, null, null])
      // The next try finds it checked, unless this connection leads to another server, as amid a failover.
      throw new StoreError('SLUICE_STORE_UNREACHABLE', 'the server has started since it was last checked')
    }
    return row
  }

  /** Reads the jobs of an answer, with the times of their grants. */
  async #readGranted({ id, firstMs = -Infinity }: OpenClaim, row: Answer, decided: Span): Promise<ClaimedJob[]> {
    // Handed out by an earlier request: its grants are as old as that.
    const isRepeated = row.outcome === 'repeated'
    const grantedMs = isRepeated ? firstMs : decided[0]
    const jobs = await this.#readJobs(row.jobs, id, grantedMs)
    if (row.instants !== null) setInstants(jobs, row.instants, Number(row.now_us), grantedMs, decided)
    if (row.redis_epoch !== null) for (const job of jobs) job.epoch = row.redis_epoch
    // A repeated claim does not show it: accepting buckets that were not refused does nothing.
    if (row.on_trial === true || isRepeated) for (const job of jobs) job.isTrial = true
    return jobs
  }

  /**
   * Finds the data that make claims fail, and parks them. Resolves to false if another try is not worth it, because two
   * searches found nothing.
   */
  async #park({ claimer, want }: Pick<OpenClaim, 'claimer' | 'want'>, error: unknown): Promise<boolean> {
    const { clock, log } = this.#store
    if (clock.monotonicMs() < this.#noSearchUntilMs) return false
    try {
      const params = [claimer.worker, claimer.tasks, want, this.#storeClock.cap(clock.monotonicMs())]
      const [row] = await this.#store.call<{ park_culprits: string[] }>('park_culprits', params)
      const names = row?.park_culprits ?? []
      if (names.length > 0) {
        this.onParked(names, error)
        return true
      }
      // Another worker may have parked the data meanwhile, or somebody has repaired them.
      if (++this.#emptySearches < 2) return true
      this.#noSearchUntilMs = clock.monotonicMs() + searchPauseMs
      return false
    } catch (failure) {
      this.#noSearchUntilMs = clock.monotonicMs() + searchPauseMs
      log.error('it could not be found out with whose data the database cannot compute', { err: failure })
      return false
    }
  }

  /** Reports an error that has come back for some seconds; the claim goes on trying. */
  #reportFailing(error: unknown, sinceMs: number): void {
    const { report } = this.#store
    if (!(error instanceof StoreError))
      report.log.error('no jobs can be fetched from the database; trying again until they can', { err: error })
    else if (this.#awayMs === undefined) {
      this.#awayMs = sinceMs
      report.emit('connection', { to: 'store', isLost: true, error })
    }
  }

  #reportAnswering(): void {
    this.#emptySearches = 0
    if (this.#awayMs === undefined) return
    const forMs = this.#store.clock.monotonicMs() - this.#awayMs
    this.#awayMs = undefined
    this.#store.report.emit('connection', { to: 'store', isLost: false, forMs })
  }

  /** Returns the time before which nothing is due, by an earlier answer; null: the store has to look at all of the past. */
  #readTrustedTime(tasks: readonly string[], nowMs: number): string | null {
    const since = this.#since.get(tasks)
    if (since !== undefined && nowMs - since.fromMs <= trustMs) return since.us
    this.#since.delete(tasks)
    return null
  }

  async #readJobs(text: string | null, claim: string, grantedMs: number): Promise<ClaimedJob[]> {
    const jobs = decodeJobs(text, claim, grantedMs)
    await fetchInputs(this.#store, jobs, claim)
    return jobs
  }

  /** Wakes a worker for what a claim has left, which may be jobs that are due. The claim's own jobs begin meanwhile. */
  async #wake(classes: readonly string[]): Promise<void> {
    await this.#promotion
    // If it fails, a round finds what is left within 2 s.
    await this.#store.call('wake_workers', [classes, 1]).catch(() => undefined)
  }

  /**
   * Returns scheduled jobs that are due to their lanes. Resolves to true if the next claim may find some. The grants of
   * jobs that the claim has got would grow old meanwhile: then the next claim waits for it.
   */
  async #promoteDue({ now_us: nowUs, jobs }: Answer, since: string | null): Promise<boolean> {
    const promotion = this.#store.call<{ promote_due_jobs: number }>('promote_due_jobs', [nowUs, since ?? '-1'])
    if (jobs === null) return (await promotion).some(({ promote_due_jobs: count }) => count > 0)
    // If it fails, the next claim finds them due.
    this.#promotion = promotion.catch(() => undefined)
    return true
  }
}

/** Returns the error of a claim that is not repeated: always an error of the store, whatever the cause. */
function giveUpError(error: unknown): StoreError {
  if (error instanceof StoreError) return error
  const text = `no jobs could be fetched from the database, because it is busy: ${(error as Error).message}`
  return new StoreError('SLUICE_STORE_UNREACHABLE', text, { cause: error })
}

/** Deadlock, serialisation, lock time-out, resources used up (a full disk): rolled back whole, worth repeating as it is. */
export function isTransient(error: unknown): boolean {
  return /^(40...|53...|55P03|57014)$/.test(String(codeOf(error)))
}

/** Our own earlier request with this id was still under way, and is carried out now: the next try gets its jobs. */
function isOwnDouble(error: unknown): boolean {
  const { code, constraint } = error as { code?: unknown; constraint?: unknown }
  return code === '23505' && constraint === 'claim_pkey'
}
