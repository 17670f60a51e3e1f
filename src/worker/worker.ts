/** A worker: claims jobs, runs their handlers in this process, and is a good member of the fleet. */
import { type Agent } from 'undici'
import type { Clock } from '../core/clock.ts'
import { AttemptError, UsageError } from '../core/errors.ts'
import type { Db } from '../db/db.ts'
import { Claims, WorkerLostError } from '../dispatch/claim.ts'
import { Dispatcher, Pace } from '../dispatch/dispatch.ts'
import { Finisher } from '../dispatch/finish.ts'
import { beatMs, Membership } from '../dispatch/membership.ts'
import type { AnyTask, Log } from '../dispatch/task.ts'
import { statements } from '../generated/sql.ts'
import { createAgent } from '../http/fetch.ts'
import { warmClient } from '../http/warm.ts'
import { Attempt } from './attempt.ts'
import { Heartbeat } from './heartbeat.ts'
import { Housekeeping } from './housekeeping.ts'
import { Slots } from './slots.ts'

/** What a worker needs; see the fields. */
export interface WorkerOptions {
  db: Db
  clock: Clock
  schema: string
  inSchema(sql: string): string
  log: Log
  tasks: readonly AnyTask[]
  /** Undefined: every queue. */
  queues: readonly string[] | undefined
  /** Attempts at once; 1 to 10,000. */
  concurrency: number
  version: string
  /** Where the heartbeat's thread connects; undefined: this thread beats (embedded engine). */
  beatUrl: string | undefined
}

/** How often in a row `once` goes round again for jobs that all came back uncalled. */
const vainRoundsMax = 10

/** Half of a grant's life, and how often a busy machine is given time before the worker claims all the same. */
const warmMs = 50
const warmTriesMax = 12

/** One worker in this process. */
export class Worker {
  readonly #options: WorkerOptions
  readonly #claims: Claims
  readonly #finisher: Finisher
  readonly #slots: Slots
  readonly #member: Membership
  readonly #dispatcher: Dispatcher
  readonly #agent: Agent
  readonly #end = new AbortController()
  #heartbeat: Heartbeat | undefined
  #rounds: Promise<unknown> | undefined
  #unlisten: (() => Promise<void>) | undefined
  #stopping: Promise<void> | undefined

  constructor(options: WorkerOptions) {
    const { db, clock, schema, inSchema, tasks, queues, concurrency, version, log } = options
    if (!Number.isInteger(concurrency) || concurrency < 1 || concurrency > 10_000) {
      throw new UsageError(
        'SLUICE_BAD_OPTION',
        `concurrency is ${concurrency}; it must be a whole number from 1 to 10,000`,
      )
    }
    const byName = new Map(tasks.map((task) => [task.name, task]))
    if (byName.size !== tasks.length) throw new UsageError('SLUICE_BAD_TASK', 'two tasks have the same name')
    this.#options = options
    this.#agent = createAgent()
    this.#claims = new Claims(db, clock, schema)
    this.#finisher = new Finisher(db, clock, schema)
    const around = { db, clock, schema, agent: this.#agent, log }
    this.#slots = new Slots(
      concurrency,
      this.#finisher,
      (job) => new Attempt(job, byName.get(job.task) as AnyTask, around),
      () => this.#dispatcher.wake(),
    )
    this.#member = new Membership(db, clock, schema, inSchema, {
      queues,
      tasks: [...byName.keys()],
      slots: concurrency,
      version,
    })
    this.#dispatcher = new Dispatcher({
      claims: this.#claims,
      outlet: this.#slots,
      clock,
      slots: concurrency,
      who: () => this.#enter(),
      lost: (id) => this.#lost(id),
      failed: (error) => log.error('dispatch failed; it goes on', { error: String(error) }),
    })
  }

  /** Attempts under way. */
  get running(): number {
    return this.#slots.running
  }

  /** Registers and begins to claim. */
  async start(): Promise<void> {
    const { db, schema } = this.#options
    this.#beginRounds()
    this.#unlisten = await db.listen(`${schema}.wake`, (queues) => {
      const mine = this.#options.queues
      if (queues === '*' || mine === undefined || queues.split(',').some((queue) => mine.includes(queue)))
        this.#dispatcher.wake()
    })
    await this.#warm()
    this.#dispatcher.start()
  }

  /**
   * Makes everything ready that a first grant would otherwise wait for, and lets a machine that is too busy to use grants
   * in time (many processes starting at once) calm down first: a claim for nothing should take half a grant's life at most.
   */
  async #warm(): Promise<void> {
    const { clock } = this.#options
    await warmClient(this.#agent)
    for (let tries = 0; tries < warmTriesMax; tries++) {
      const sinceMs = clock.monotonicMs()
      const who = await this.#enter()
      try {
        await this.#claims.warm(who, this.#end.signal)
      } catch (error) {
        // Stopped for so long while starting that it was given up already: it registers anew.
        if (!(error instanceof WorkerLostError)) throw error
        this.#lost(who.worker)
      }
      if (clock.monotonicMs() - sinceMs <= warmMs) return
      // The first is slow in any case: it plans. Each further wait is longer, and of a random length.
      if (tries > 0) await clock.sleep(clock.random() * 200 * tries, this.#end.signal)
    }
  }

  /**
   * Claims what is allowed now, runs it, and resolves to how many jobs that were; up to `max`.
   * Any number of processes may do this at once, and as often as they like.
   */
  async once(max: number, signal?: AbortSignal): Promise<number> {
    this.#beginRounds()
    await this.#warm()
    const before = this.#slots.returned
    const pace = new Pace(this.#slots, this.#options.concurrency)
    let claimed = 0
    const ran = () => claimed - (this.#slots.returned - before)
    // Jobs whose grants grew old have room again at once; but a machine too busy to use them is given time first.
    for (let vain = 0; vain < vainRoundsMax; vain++) {
      const [returnedBefore, ranBefore] = [this.#slots.returned, ran()]
      while (ran() < max && !signal?.aborted) {
        const count = await this.#claimOnce(Math.min(max - ran(), pace.most()))
        if (count === 0) break
        claimed += count
        pace.claimed(count)
      }
      await this.#idle()
      if (this.#slots.returned === returnedBefore || signal?.aborted) break
      if (ran() > ranBefore) vain = 0
      else await this.#options.clock.sleep(this.#options.clock.random() * Math.min(2_000, 100 * 2 ** vain), signal)
    }
    await this.stop()
    return ran()
  }

  /** Claims and starts up to `want` jobs; resolves to how many. */
  async #claimOnce(want: number): Promise<number> {
    for (;;) {
      await this.#slots.freed(1, this.#end.signal)
      const who = await this.#enter()
      const { jobs, again } = await this.#claims.claim(who, Math.min(want, this.#slots.free()), false, this.#end.signal)
      this.#slots.start(jobs)
      if (jobs.length > 0 || !again) return jobs.length
      await this.#options.clock.sleep(2 + this.#options.clock.random() * 3)
    }
  }

  /** Resolves when no attempt is under way and every ending is written. */
  async #idle(): Promise<void> {
    while (this.#slots.running > 0) await this.#slots.freed(this.#options.concurrency, new AbortController().signal)
    await this.#finisher.settled()
  }

  /** Stops claiming, waits for the attempts under way, and signs off. */
  stop(): Promise<void> {
    this.#stopping ??= (async () => {
      await this.#dispatcher.stop()
      await this.#unlisten?.()
      await this.#idle()
      this.#end.abort()
      await this.#rounds
      await this.#heartbeat?.stop()
      await this.#member.leave()
      await this.#agent.close()
    })()
    return this.#stopping
  }

  /** Stops at once: attempts under way are told by their signal, and their jobs go back to be tried elsewhere. */
  async abort(): Promise<void> {
    const reason = new AttemptError('SLUICE_SHUTDOWN', 'the worker was told to stop at once', { retryable: true })
    const stopping = this.stop()
    this.#slots.abandon(reason)
    await stopping
  }

  async #enter() {
    const who = await this.#member.who()
    this.#heartbeat?.beatFor(who.worker)
    return who
  }

  #lost(worker: string): void {
    // Told twice, by the heartbeat's thread and by a claim: the second time is about the past.
    if (!this.#member.lost(worker)) return
    this.#options.log.warn('this worker was given up as lost (stopped for more than 10 s?); it registers anew')
    this.#heartbeat?.beatFor(undefined)
    this.#slots.abandon(
      new AttemptError('SLUICE_WORKER_LOST', 'this worker was given up as lost; its jobs were handed to others', {
        retryable: true,
      }),
    )
  }

  #beginRounds(): void {
    const { beatUrl, inSchema, log } = this.#options
    if (this.#rounds !== undefined) return
    if (beatUrl !== undefined) {
      const sql = inSchema(statements['dispatch/beat'] as string)
      this.#heartbeat = new Heartbeat({ url: beatUrl, sql, beatMs, lost: (id) => this.#lost(id) })
    }
    const { db, clock, schema } = this.#options
    const housekeeping = new Housekeeping(db, clock, schema)
    const round = async () => {
      const lost = beatUrl === undefined ? await this.#member.beat() : undefined
      if (lost !== undefined) this.#lost(lost)
      if ((await this.#member.watch()).length > 0) this.#dispatcher.wake()
      await this.#adopt()
      await housekeeping.run()
    }
    this.#rounds = this.#member.everyBeat(round, this.#end.signal, (error) =>
      log.debug('a round of housekeeping failed', { error: String(error) }),
    )
  }

  /** Takes up claims of ours that we do not know of: their request reached the store after we had stopped waiting. */
  async #adopt(): Promise<void> {
    const who = await this.#enter()
    const orphans = await this.#member.orphans((claim) => this.#finisher.has(claim) || this.#claims.asking(claim))
    for (const id of orphans) {
      const { jobs } = await this.#claims.claim(who, 1, false, this.#end.signal, id).catch((error: unknown) => {
        if (error instanceof WorkerLostError) return { jobs: [] }
        throw error
      })
      this.#slots.start(jobs)
    }
  }
}
