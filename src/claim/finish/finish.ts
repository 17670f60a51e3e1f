/**
 * Records ended attempts in batches (claim/finish/finish_attempts.sql). One statement records all attempts that ended
 * while the previous one ran, or within a short time if nobody needs their ends sooner.
 */
import { codeOf, StoreError } from '../../core/errors.ts'
import { countForStatement } from '../../core/payload.ts'
import { retryPauseMs } from '../../core/retry.ts'
import type { Store } from '../../db/store.ts'
import type { Beginning } from '../begins.ts'
import type { ClaimedJob } from '../claimed-job.ts'
import { encodeReport, type Executor } from './attempt-report.ts'
import { chargedBuckets, type Ending, isRefused, paramsOf, replaceOutcomes, resultLength } from './batch.ts'
import type { Outcome } from './outcome.ts'
import { isDataError, parkBuckets } from '../parking/parked.ts'

/** When ends may wait for others; see `gatherMs`. */
export interface Gathering {
  /** Returns how many attempts run at once: as many ends wait at most. */
  slots(): number
  /** Returns true if the end of this job's attempt must be recorded at once. */
  isPressing(job: ClaimedJob): boolean
}

const batchMax = 1000
/**
 * How long, in ms, the first of several successes waits for the others while further jobs are in hand. Under a limit the attempts
 * of a process end some ms apart, and a statement with its commit for each is much of what a job costs. Ends that wait
 * when the process is killed are lost, and their jobs run again, so the wait is short.
 */
const gatherMs = 50
/** Tries after which it is logged that outcomes cannot be recorded: some 2 s. */
const quietTries = 8
/** How often it is looked whether another client still has jobs locked whose ends wait for that, in ms. */
const lockedMs = 1_000

/** Collects outcomes and records them; retries for as long as the store is unavailable, because the work is done. */
export class Finisher {
  readonly #store: Store
  readonly #executor: (() => Executor) | undefined
  readonly #gathering: Gathering | undefined
  /** For each claim, how many of its jobs are in hand. */
  readonly #jobsOf = new Map<string, number>()
  #patience = { ms: Infinity, fromMs: 0 }
  #hasGivenUp = false
  #waiting: Ending[] = []
  #flushing: Promise<void> | undefined
  /** Jobs whose ends are still to come. */
  #inHand = 0
  /** When the first of the waiting ends was reported. */
  #sinceMs = 0
  /** One of the waiting ends must be recorded at once. */
  #isPressing = false
  /** The ends of jobs that another client has locked: they wait apart, so that they delay no others. */
  readonly #locked = new Set<Ending>()
  #unlocking: Promise<void> | undefined
  /** How many callers wait for everything to be recorded. */
  #waitingCallers = 0
  #isWriting = false
  /** Ends the gathering under way. */
  #endGathering = (): void => {}

  /** Returns jobs that begin soon: the next statement records that together with the ends. */
  takeBeginning: () => Beginning | undefined = () => undefined

  /**
   * @param executor returns where attempts run if their outlet does not report that
   * @param gathering default: each end is recorded as soon as possible
   */
  constructor(store: Store, executor?: () => Executor, gathering?: Gathering) {
    this.#store = store
    this.#executor = executor
    this.#gathering = gathering
  }

  /** Outcomes that are not recorded yet. */
  get backlog(): number {
    return this.#waiting.length + this.#locked.size
  }

  /** True if outcomes were given up. Their jobs still belong to this worker, though their calls were made. */
  get hasGivenUp(): boolean {
    return this.#hasGivenUp
  }

  /**
   * Sets for how many ms at a time the store may be unavailable from now on; outcomes that are not recorded by then are
   * given up.
   */
  waitAtMost(ms: number): void {
    this.#patience = { ms, fromMs: this.#store.clock.monotonicMs() }
  }

  /** Registers claimed jobs, so that a claim's row is deleted when its last job has ended. */
  registerJobs(jobs: readonly ClaimedJob[]): void {
    this.#inHand += jobs.length
    for (const job of jobs) this.#jobsOf.set(job.claim, (this.#jobsOf.get(job.claim) ?? 0) + 1)
  }

  /** Registers a job of a claim of another worker, which has the claim's row: it is never deleted here. */
  registerInherited(job: ClaimedJob): void {
    this.#inHand++
    this.#jobsOf.set(job.claim, Infinity)
  }

  /** True for a claim with jobs in hand. */
  has(claim: string): boolean {
    return this.#jobsOf.has(claim)
  }

  /**
   * Records the end of an attempt; resolves to false when the store rejected it, because the job was rescued meanwhile.
   */
  end(job: ClaimedJob, outcome: Outcome): Promise<boolean> {
    return new Promise((resolve) => {
      // Now, however long the store takes to record it.
      const nowMs = this.#store.clock.monotonicMs()
      const { claimedMs = job.grantedMs } = job
      const beganMs = 'tookMs' in outcome ? nowMs - outcome.tookMs - claimedMs : undefined
      const beganUs = beganMs === undefined || !Number.isFinite(beganMs) ? undefined : Math.round(beganMs * 1_000)
      const report = encodeReport(job, outcome, this.#executor?.())
      this.#inHand--
      if (this.#waiting.push({ job, outcome, beganUs, report, resolve }) === 1) this.#sinceMs = nowMs
      if (!this.#mayWait(job, outcome)) this.#hasten()
      this.#flushing ??= this.#flush()
    })
  }

  /** Records the ends that wait for others now. Returns false if none wait, or a statement is under way. */
  recordNow(): boolean {
    if (this.#waiting.length === 0 || this.#isWriting) return false
    this.#hasten()
    return true
  }

  /** Ends a claim without jobs: all were cancelled before the worker had them in hand. */
  async endEmpty(claim: string): Promise<void> {
    await this.#write([], [claim])
  }

  /** Resolves when all outcomes so far are recorded. */
  async waitUntilRecorded(): Promise<void> {
    this.#waitingCallers++
    this.#hasten()
    while ((this.#flushing ?? this.#unlocking) !== undefined) await (this.#flushing ?? this.#unlocking)
    this.#waitingCallers--
  }

  /** True for a success of a job that was granted ahead, so that no place waits for its end, while other jobs are in hand. */
  #mayWait(job: ClaimedJob, { kind }: Outcome): boolean {
    const gathering = this.#gathering
    if (gathering === undefined || this.#waitingCallers > 0 || this.#inHand <= 0) return false
    if (kind !== 'done' || job.decidedMs === undefined || gathering.isPressing(job)) return false
    return this.#waiting.length <= gathering.slots()
  }

  #hasten(): void {
    this.#isPressing = true
    this.#endGathering()
  }

  /** Resolves when the waiting ends are to be recorded: at once if one of them is pressing. */
  #waitForMore(): Promise<void> | undefined {
    const { clock } = this.#store
    const leftMs = this.#sinceMs + gatherMs - clock.monotonicMs()
    if (this.#isPressing || leftMs <= 0) return undefined
    return new Promise((resolve) => {
      const cancel = clock.after(leftMs, resolve)
      this.#endGathering = () => {
        cancel()
        resolve()
      }
    })
  }

  async #flush(): Promise<void> {
    await Promise.resolve()
    while (this.#waiting.length > 0) {
      await this.#waitForMore()
      const most = countForStatement(this.#waiting, batchMax, resultLength)
      // Jobs are locked in this order (docs/architecture.md, "Locks").
      const batch = this.#waiting.splice(0, most).toSorted((a, b) => a.job.seq - b.job.seq)
      this.#isPressing = this.#waiting.length > 0
      this.#isWriting = true
      const rejected = await this.#write(batch, this.#countEnds(batch), this.takeBeginning())
      this.#isWriting = false
      this.#resolveEnds(batch, new Set(rejected))
    }
    // In the same step as the last look at what waits: an end that follows from one of these begins another flush.
    this.#flushing = undefined
  }

  /** Counts ends that are being recorded; returns the claims that have nothing else in hand. */
  #countEnds(batch: readonly Ending[]): string[] {
    for (const { job } of batch) this.#jobsOf.set(job.claim, (this.#jobsOf.get(job.claim) ?? 1) - 1)
    return [...new Set(batch.map(({ job }) => job.claim))].filter((claim) => (this.#jobsOf.get(claim) ?? 0) <= 0)
  }

  /** Resolves ends that are recorded, and forgets their claims: not earlier, because those would look like unknown ones. */
  #resolveEnds(batch: readonly Ending[], rejected: ReadonlySet<number>): void {
    const over = batch.filter((ending) => !this.#locked.has(ending))
    for (const { job } of over) if (this.#jobsOf.get(job.claim) === 0) this.#jobsOf.delete(job.claim)
    for (const ending of over) ending.resolve(!rejected.has(ending.job.seq))
  }

  /** Keeps ends back until their jobs are free. */
  #keepBack(locked: readonly Ending[]): void {
    for (const ending of locked) {
      this.#locked.add(ending)
      this.#jobsOf.set(ending.job.claim, (this.#jobsOf.get(ending.job.claim) ?? 0) + 1)
    }
    this.#unlocking ??= this.#unlock().finally(() => (this.#unlocking = undefined))
  }

  /** Records ends that were kept back as soon as their jobs are free. */
  async #unlock(): Promise<void> {
    const { clock } = this.#store
    const sinceMs = clock.monotonicMs()
    while (this.#locked.size > 0) {
      await clock.sleep(lockedMs)
      const all = [...this.#locked]
      const isOver = this.#isOver(sinceMs, all.length, new Error('another client has locked the jobs'))
      const still = isOver ? [] : await this.#findLocked(all).catch(() => all)
      const free = all.filter((ending) => !still.includes(ending))
      for (const ending of free) this.#locked.delete(ending)
      if (isOver) for (const ending of free) ending.resolve(false)
      else if (free.length > 0) {
        this.#waiting.push(...free)
        this.#hasten()
        this.#flushing ??= this.#flush()
      }
    }
  }

  /** Returns the ends whose jobs another client has locked. */
  async #findLocked(batch: readonly Ending[]): Promise<Ending[]> {
    const rows = await this.#store.run<{ id: string }>('claim/finish/find_locked_jobs', [
      batch.map(({ job }) => job.id),
    ])
    const locked = new Set(rows.map(({ id }) => id))
    return batch.filter(({ job }) => locked.has(job.id))
  }

  /**
   * @param ended claims with nothing left in hand after this batch: only their rows may be deleted, because a rescue
   * finds jobs by the rows of their claims
   * @param beginning jobs that begin soon, which the first try records, too
   */
  async #write(batch: Ending[], ended: readonly string[], beginning?: Beginning): Promise<number[]> {
    const { clock } = this.#store
    const params = paramsOf(batch, ended)
    let isUnknown = false
    let refusals = 0
    let sinceMs: number | undefined
    for (let tries = 0; ; tries++) {
      try {
        const row = await this.#send(params, tries === 0 ? beginning : undefined)
        // After a lost reply the first try may have been carried out: then there is nothing left to accept, which is
        // correct.
        return isUnknown ? [] : (row?.finish_attempts ?? []).map(Number)
      } catch (error) {
        if (tries === 0) beginning?.failed()
        // A bucket with bad data is no fault of the attempts that used it.
        if (isDataError(error) && (await parkBuckets(this.#store, batch.flatMap(chargedBuckets)))) continue
        const written = await this.#writeInParts(batch, ended, error)
        if (written !== undefined) return written
        // A result that the store rejects must not keep the job running for ever. The second replacement contains nothing
        // of the attempt; a store that rejects even that has reasons of its own, as for all other errors.
        if (isRefused(error) && refusals < 2) replaceOutcomes(batch, params, refusals++ === 0 ? error : undefined)
        else {
          sinceMs ??= clock.monotonicMs()
          if (this.#isOver(sinceMs, batch.length, error)) return batch.map((ending) => ending.job.seq)
          if (tries === quietTries) this.#reportFailing(batch.length, error)
        }
        isUnknown ||= error instanceof StoreError
        await clock.sleep(retryPauseMs(tries, clock.random()))
      }
    }
  }

  /**
   * Records the ends apart that caused an error: keeps back those of locked jobs, or records each by itself if the store rejects
   * one of them. Resolves as `#write`; to undefined if the error concerns the batch as a whole.
   */
  async #writeInParts(batch: Ending[], ended: readonly string[], error: unknown): Promise<number[] | undefined> {
    if (codeOf(error) === '55P03') {
      const locked = await this.#findLocked(batch).catch((): Ending[] => [])
      this.#keepBack(locked)
      const rest = batch.filter((ending) => !locked.includes(ending))
      const free = ended.filter((claim) => !locked.some(({ job }) => job.claim === claim))
      if (locked.length > 0) return rest.length + free.length === 0 ? [] : this.#write(rest, free)
    }
    if (!isRefused(error) || batch.length <= 1) return undefined
    const rejected = (await Promise.all(batch.map((ending) => this.#write([ending], [])))).flat()
    // A rescue finds a job whose outcome was given up by the row of its claim.
    const over = ended.filter((claim) => (this.#jobsOf.get(claim) ?? 0) <= 0)
    if (over.length > 0 && !this.#hasGivenUp) await this.#write([], over)
    return rejected
  }

  #reportFailing(attempts: number, error: unknown): void {
    const text = 'the ends of attempts cannot be recorded; trying again until they can'
    this.#store.log.error(text, { attempts, err: error })
  }

  async #send(params: unknown[], beginning: Beginning | undefined): Promise<{ finish_attempts: string[] } | undefined> {
    type Row = { finish_attempts: string[]; held: string[]; locked: string[] }
    if (beginning === undefined) return (await this.#store.call<Row>('finish_attempts', params))[0]
    const begun = [beginning.jobs.map(({ claim }) => claim), beginning.jobs.map(({ seq }) => seq)]
    const [row] = await this.#store.run<Row>('claim/finish/finish_and_begin', [...params, ...begun])
    beginning.recorded(new Set(row?.held), new Set(row?.locked))
    return row
  }

  /** Returns true when it is time to give up on a store that has failed since `sinceMs`. */
  #isOver(sinceMs: number, attempts: number, error: unknown): boolean {
    const { ms, fromMs } = this.#patience
    if (!this.#hasGivenUp && this.#store.clock.monotonicMs() - Math.max(sinceMs, fromMs) < ms) return false
    this.#hasGivenUp = true
    this.#store.log.error(
      'ended attempts could not be recorded, because the store is unavailable; their jobs will run again, marked `ambiguous`',
      { attempts, err: error },
    )
    return true
  }
}
