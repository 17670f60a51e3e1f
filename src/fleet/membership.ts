/**
 * A worker's place in the fleet: it registers, sends heartbeats, watches the other workers, and finds claims of its own
 * that it does not know. When a worker has sent no heartbeat for 10 s, the others give it up: its jobs go back, and its
 * claims no longer match.
 */
import { hostname } from 'node:os'
import type { Store } from '../db/store.ts'
import { type Claimer, isTransient } from '../claim/claim.ts'
import type { ClaimedJob } from '../claim/claimed-job.ts'
import type { JobKey } from '../claim/outlet.ts'
import type { StoreEpoch, EpochCheck } from '../claim/definitions/clock.ts'

/** The entry of a worker about itself. */
export interface Member {
  queues: readonly string[] | undefined
  tasks: readonly string[]
  /** For each of its tasks, the queue of jobs that name none. */
  homes: readonly string[]
  /** For each task, whether it may not be retried in doubt, and its `onFailed` task. */
  once: readonly boolean[]
  onFailed: readonly (string | null)[]
  /** For each task: the present name of the task that had this one before, or null. */
  currently: readonly (string | null)[]
  /** For each task, whether Celery workers execute it. */
  remote: readonly boolean[]
  slots: number
  /** True if workers elsewhere execute the jobs that it claims, in stints. */
  hasStints(): boolean
  version: string
  /** Labels that limits may use as keys. */
  labels: Readonly<Record<string, string>>
}

/** How often a worker sends a heartbeat and checks whether a worker watches the fleet, in ms. */
export const beatMs = 2_000
/** After how many ms without a beat another dispatcher may have taken over the jobs, and ended the stints (fleet/take_over_workers.sql). */
const silentMs = 4_000
/** After how many ms a worker is lost, and after how many more without a rescue the log reports it. */
const lostMs = 10_000
const quietMs = 10_000
/** How often a worker that signs off tries again if it had to wait for a lock for two seconds. */
const signOffTries = 3

/** Result of a round; see the fields. */
export interface RoundResult {
  /** This worker's id, if it was given up. */
  lost?: string
  /** This worker leads the fleet: it does the common work. */
  leads: boolean
  /** Other workers watch the fleet, and there are enough of them: without jobs in hand it may leave out a round. */
  mayRest: boolean
  /** Ids of its older claims in the store. */
  claims: readonly string[]
}

/** A look at the heartbeats of all workers: what `fleet/watch_workers.sql` returned, or the error with which it failed. */
interface Look {
  lost: string | null
  still_us: string | null
  rescued: boolean
  error?: unknown
}

/** Jobs that were begun, until that is recorded. */
interface Begun {
  readonly jobs: readonly JobKey[]
  recorded(held: ReadonlySet<string>): void
}

/** One worker's membership. */
export class Membership {
  readonly #store: Store
  readonly #member: Member
  readonly #epoch: StoreEpoch
  #entering: Promise<Claimer> | undefined
  #worker: string | undefined
  /** True if it led the fleet in its last round. */
  #isLeading = false
  /** True until its first round: until then perhaps nobody leads the fleet. */
  #isNew = true
  /** The limiter's time of the last round of this registration, in microseconds. */
  #roundUs: string | null = null
  /** The stints that the store knows of this registration. */
  #stints = new Set<string>()
  /** When it was last known, or recorded, that the store has these stints, in monotonic ms. */
  #stintsMs = 0
  readonly #begun = new Set<Begun>()
  #isReporting = false
  /** Since when looks have failed, in monotonic ms; undefined: the last one did not. */
  #failingMs: number | undefined
  /** The lost workers that the log already reports; undefined: that looks fail. */
  readonly #reported = new Set<string | undefined>()
  /** The stuck handlers and slots that were last recorded, and for which registration. */
  #recordedLoad = { worker: '', stuck: 0, slots: 0 }

  constructor(store: Store, member: Member, epoch: StoreEpoch) {
    this.#store = store
    this.#member = member
    this.#epoch = epoch
  }

  /**
   * Registers this worker if it is not registered; resolves to its identity for claims.
   * @param stints the stints in which workers elsewhere may begin jobs claimed from now on
   */
  async registerClaimer(stints: readonly string[] = []): Promise<Claimer> {
    this.#entering ??= this.#enter().catch((error: unknown) => {
      this.#entering = undefined
      throw error
    })
    const who = await this.#entering
    if (stints.length === 0) return who
    const nowMs = this.#store.clock.monotonicMs()
    if (nowMs - this.#stintsMs > silentMs || stints.some((stint) => !this.#stints.has(stint))) {
      await this.#store.run('fleet/record_stints', [who.worker, stints])
      // If this worker has registered again meanwhile, the store knows no stints of the new registration.
      if (who.worker === this.#worker) [this.#stints, this.#stintsMs] = [new Set(stints), nowMs]
    }
    return who
  }

  /** The id of this registration; undefined before the first one, and while it is renewed. */
  get id(): string | undefined {
    return this.#worker
  }

  /** True if this worker reports events that concern the fleet, because it does, or may do, the fleet's common work. */
  get reportsForFleet(): boolean {
    return this.#isLeading || this.#isNew
  }

  /**
   * Returns whether a notification wakes this worker: it names queues, all (`*`), or the worker's id (`@`;
   * `store/wake_workers_for_room.sql`). Grants that are called back (`!`) wake it when they have gone back.
   */
  isCalled(payload: string): boolean {
    const { queues } = this.#member
    if (payload.startsWith('@')) return payload === `@${this.#worker}`
    if (payload.startsWith('!')) return false
    return payload === '*' || queues === undefined || payload.split(',').some((queue) => queues.includes(queue))
  }

  /** Drops this registration, so that the next claim registers again. Returns false if `worker` is no longer this one. */
  dropRegistration(worker: string): boolean {
    if (worker !== this.#worker) return false
    this.#worker = undefined
    this.#entering = undefined
    return true
  }

  /** Sends a heartbeat and checks the store; registers again if necessary, unless `isLeaving`. */
  async runRound(isLeaving: boolean): Promise<RoundResult> {
    if (isLeaving && this.#entering === undefined) return { leads: true, mayRest: false, claims: [] }
    const { worker } = await this.registerClaimer()
    type Answer = EpochCheck & {
      alive: boolean
      leads: boolean
      rest: boolean
      orphans: string[]
      stints: string[] | null
    }
    const send = (known: readonly unknown[]) =>
      this.#store.call<Answer>('run_worker_round', [worker, this.#isLeading, this.#roundUs, ...known])
    const sentMs = this.#store.clock.monotonicMs()
    const answer = await this.#epoch.checkBy(send)
    const { alive = false, leads = true, rest = false, orphans = [], stints } = answer ?? {}
    // Another dispatcher may have ended them while this one was silent: then they are recorded again.
    if (stints && worker === this.#worker) [this.#stints, this.#stintsMs] = [new Set(stints), sentMs]
    this.#roundUs = answer?.now_us ?? null
    this.#isLeading = leads
    this.#isNew = false
    return { ...(alive ? {} : { lost: worker }), leads, mayRest: rest, claims: orphans }
  }

  /** Sends a heartbeat in the name of a lost worker, so that nobody gives it up: its jobs go on, and are in hand here. */
  async beatFor(worker: string): Promise<void> {
    await this.#store.run('fleet/count_heartbeat', [worker])
  }

  /** Records in the store how many handlers of this worker are stuck, and its slots, if that has changed. */
  async recordLoad(stuck: number, slots: number): Promise<void> {
    const worker = this.#worker ?? ''
    const known = this.#recordedLoad.worker === worker ? this.#recordedLoad : { stuck: 0, slots: this.#member.slots }
    if (worker === '' || (stuck === known.stuck && slots === known.slots)) return
    await this.#store.run('fleet/record_load', [worker, stuck, slots])
    this.#recordedLoad = { worker, stuck, slots }
  }

  /**
   * Records which jobs have begun, in one statement for all that are reported at one time; resolves when they are recorded, to the
   * ids of the claims that the store still has. While the store is away, or another transaction has locked a claim, they wait for
   * the next beat or the next report.
   */
  begun(jobs: readonly JobKey[]): Promise<ReadonlySet<string>> {
    return new Promise((resolve) => {
      this.#begun.add({ jobs, recorded: resolve })
      void this.recordBegun()
    })
  }

  /** Records the jobs that it could not record before. */
  async recordBegun(): Promise<void> {
    while (this.#begun.size > 0 && !this.#isReporting) {
      this.#isReporting = true
      const reported = [...this.#begun]
      const jobs = reported.flatMap((one) => one.jobs)
      try {
        const args = [jobs.map(({ claim }) => claim), jobs.map(({ seq }) => seq)]
        const rows = await this.#store.call<{ claim: string; locked: boolean }>('record_begun', args)
        const held = new Set(rows.map((row) => row.claim))
        const locked = new Set(rows.flatMap((row) => (row.locked ? [row.claim] : [])))
        for (const one of reported) {
          if (one.jobs.some(({ claim }) => locked.has(claim))) continue
          this.#begun.delete(one)
          one.recorded(held)
        }
        if (locked.size > 0 && [...this.#begun].every((one) => reported.includes(one))) return
      } catch {
        return
      } finally {
        this.#isReporting = false
      }
    }
  }

  /**
   * Records that a worker of the fleet begins no more jobs in this stint; `begun`: the jobs that it has begun; `known`: as
   * in fleet/end_stint.sql.
   */
  async left(stint: string, begun: readonly JobKey[], known?: readonly string[]): Promise<void> {
    try {
      const [claims, seqs] = [begun.map(({ claim }) => claim), begun.map(({ seq }) => seq)]
      await this.#store.call('end_stint', [stint, claims, seqs, known ?? null])
    } finally {
      this.#stints.delete(stint)
    }
  }

  /** Wakes idle workers for work whose notification was missed. */
  async wakeForMissedWork(): Promise<void> {
    await this.#store.call('wake_for_missed_work')
  }

  /** Checks all heartbeats and gives up the workers whose heartbeats stopped. Returns the ids of those. */
  async watch(): Promise<string[]> {
    const all: string[] = []
    for (;;) {
      const look = await this.#look()
      if (!look.rescued) {
        this.#reportNotRescued(look)
        return all
      }
      all.push(String(look.lost))
    }
  }

  /** Looks at the heartbeats once, and gives up one lost worker. */
  async #look(): Promise<Look> {
    try {
      const [look] = await this.#store.call<Look>('watch_workers')
      this.#failingMs = undefined
      this.#reported.delete(undefined)
      return look as Look
    } catch (error) {
      if (!isTransient(error)) throw error
      this.#failingMs ??= this.#store.clock.monotonicMs()
      return { lost: null, still_us: null, rescued: false, error }
    }
  }

  /**
   * Reports once that a lost worker is not given up: not at once, because the next look may succeed. Each process of a
   * fleet makes some of the looks, so the instant at which the worker was lost decides.
   */
  #reportNotRescued({ lost, still_us: stillUs, error }: Look): void {
    const who = lost ?? undefined
    if (who === undefined && error === undefined) return
    const failingMs = this.#store.clock.monotonicMs() - (this.#failingMs ?? Infinity)
    const forMs = who === undefined ? failingMs : Number(stillUs) / 1_000 - lostMs
    if (forMs < quietMs || this.#reported.has(who)) return
    this.#reported.add(who)
    this.#store.log.error(
      'a lost worker cannot be given up, because the database is busy or another client has locked one of its jobs; trying again until it can',
      who === undefined ? { err: error } : { worker: who },
    )
  }

  /**
   * Fails jobs that have expired, that cost more than their limits hold, or that will expire before their limits have room:
   * claims only pass over them. Resolves to how many jobs it dealt with.
   */
  async endOverdue(): Promise<number> {
    const portion = 500
    // A heartbeat must not wait long; the next round continues.
    const untilMs = this.#store.clock.monotonicMs() + 500
    let all = 0
    for (let ended = portion; ended >= portion && this.#store.clock.monotonicMs() < untilMs;) {
      const [row] = await this.#store.call<{ expire_overdue_jobs: number }>('expire_overdue_jobs')
      ended = row?.expire_overdue_jobs ?? 0
      all += ended
    }
    return all
  }

  /** Returns the jobs among these that no longer belong to their claim. */
  async lostJobs(jobs: readonly ClaimedJob[]): Promise<ClaimedJob[]> {
    if (jobs.length === 0) return []
    const params = [jobs.map((job) => job.id), jobs.map((job) => job.claim)]
    const rows = await this.#store.run<{ ix: number }>('fleet/read_lost_jobs', params)
    return rows.flatMap(({ ix }) => jobs[ix - 1] ?? [])
  }

  /**
   * Deletes this worker from the idle workers, so that it is not notified: it claims no more, and may be busy with its
   * jobs for long.
   */
  async stopIdling(): Promise<void> {
    if (this.#worker !== undefined) await this.#store.run('fleet/delete_idle_worker', [this.#worker])
  }

  /** Deletes this worker's registration; its unfinished jobs go back uncalled. */
  async signOff(): Promise<void> {
    const entering = this.#entering
    this.#entering = undefined
    if (entering === undefined) return
    const { worker } = await entering
    for (let tries = 0; ; tries++) {
      try {
        return void (await this.#store.call('rescue_worker', [worker, null, 'shutdown']))
      } catch (error) {
        if (!isTransient(error) || tries === signOffTries) throw error
      }
    }
  }

  async #enter(): Promise<Claimer> {
    const { queues, tasks, homes, once, onFailed, currently, remote, slots, version, labels, hasStints } = this.#member
    await this.#epoch.check()
    await this.#store.run('tasks/record_tasks', [tasks, homes, once, onFailed, currently, remote])
    const [row] = await this.#store.run<{ id: string }>('fleet/insert_worker', [
      hostname(),
      process.pid,
      version,
      queues ?? null,
      tasks,
      slots,
      labels,
      hasStints() ? [] : null,
    ])
    this.#stints = new Set()
    this.#roundUs = null
    this.#worker = row?.id
    return { worker: row?.id ?? '', queues, tasks }
  }
}
