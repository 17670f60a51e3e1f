/**
 * A worker's place in the fleet: it registers, beats, watches the others, and finds claims of its own that it does not know.
 * A worker whose beat stands still for 10 s is given up by the others: its jobs go back, its claims no longer match.
 */
import { hostname } from 'node:os'
import { reach } from '../core/probe.ts'
import type { Store } from '../db/store.ts'
import type { Claimer } from '../claim/claim.ts'
import type { Handout } from '../claim/claimed-job.ts'
import type { Epoch, Look } from '../claim/definitions/clock.ts'

/** What a worker says of itself. */
export interface Member {
  queues: readonly string[] | undefined
  tasks: readonly string[]
  /** For each of its tasks the queue where jobs go that name none. */
  homes: readonly string[]
  /** For each whether it may not be tried again in doubt, and the task that hears of its failures. */
  once: readonly boolean[]
  onFailed: readonly (string | null)[]
  slots: number
  version: string
  /** What limits may go by. */
  labels: Readonly<Record<string, string>>
}

/** How often a worker gives a sign of life and looks whether somebody looks at the others, in ms. */
export const beatMs = 2_000

/** What a worker hears in a round; see the fields. */
export interface Heard {
  /** This worker's id, when it was given up. */
  lost?: string
  /** It is this worker's turn to do what one of the fleet does for all. */
  isTurn: boolean
  /** Others look at the fleet, and there are enough of them: without anything in hand it may leave out a round. */
  mayRest: boolean
  /** Ids of its older claims, as the store knows them. */
  claims: readonly string[]
}

/** One worker's membership. */
export class Membership {
  readonly #store: Store
  readonly #member: Member
  readonly #epoch: Epoch
  #entering: Promise<Claimer> | undefined
  #worker: string | undefined
  /** It had the turn in its last round. */
  #isLeading = false
  /** What the store was last told, and for which registration. */
  #told = { worker: '', stuck: 0 }

  constructor(store: Store, member: Member, epoch: Epoch) {
    this.#store = store
    this.#member = member
    this.#epoch = epoch
  }

  /** Registers when not registered; resolves to who claims. */
  who(): Promise<Claimer> {
    this.#entering ??= this.#enter().catch((error: unknown) => {
      this.#entering = undefined
      throw error
    })
    return this.#entering
  }

  /** The id of this registration; undefined before the first, and while it is made anew. */
  get id(): string | undefined {
    return this.#worker
  }

  /** Whether a notification calls this worker: to some queues, or all (`*`), or by its id (`@`; summon.sql). */
  isCalled(told: string): boolean {
    const { queues } = this.#member
    if (told.startsWith('@')) return told === `@${this.#worker}`
    return told === '*' || queues === undefined || told.split(',').some((queue) => queues.includes(queue))
  }

  /** Forgets this registration, so that the next claim registers anew. False: it is not ours any more, so nothing is lost. */
  lost(worker: string): boolean {
    if (worker !== this.#worker) return false
    this.#worker = undefined
    this.#entering = undefined
    return true
  }

  /** One sign of life, and a look at the store; registers anew when that is due, unless `isLeaving`. */
  async round(isLeaving: boolean): Promise<Heard> {
    if (isLeaving && this.#entering === undefined) return { isTurn: true, mayRest: false, claims: [] }
    const { worker } = await this.who()
    type Answer = Look & { alive: boolean; turn: boolean; rest: boolean; orphans: string[] }
    const ask = (known: readonly unknown[]) => this.#store.call<Answer>('round', [worker, this.#isLeading, ...known])
    const { alive = false, turn = true, rest = false, orphans = [] } = (await this.#epoch.lookBy(ask)) ?? {}
    this.#isLeading = turn
    return { ...(alive ? {} : { lost: worker }), isTurn: turn, mayRest: rest, claims: orphans }
  }

  /** Tells the store how many handlers of this worker are stuck, when that has changed. */
  async tellStuck(stuck: number): Promise<void> {
    const worker = this.#worker ?? ''
    const known = this.#told.worker === worker ? this.#told.stuck : 0
    if (worker === '' || stuck === known) return
    await this.#store.run('fleet/stuck', [worker, stuck])
    this.#told = { worker, stuck }
  }

  /** Calls idle workers to what nobody told them of. */
  async stir(): Promise<void> {
    await this.#store.call('stir')
  }

  /** Looks at all beats and gives up those that stood still. Returns the workers given up. */
  async watch(): Promise<string[]> {
    const all: string[] = []
    for (;;) {
      const [row] = await this.#store.call<{ watch: string[] }>('watch')
      const lost = row?.watch ?? []
      if (lost.length === 0) return all
      await reach('rescue.done', lost)
      all.push(...lost)
    }
  }

  /**
   * Ends waiting jobs whose time to begin is over, or will be before their limits have room: a claim that is denied by a
   * limit never meets them. Resolves to how many.
   */
  async endOverdue(): Promise<number> {
    const portion = 500
    // A beat must not wait long; the next round goes on.
    const untilMs = this.#store.clock.monotonicMs() + 500
    let all = 0
    for (let ended = portion; ended >= portion && this.#store.clock.monotonicMs() < untilMs;) {
      const [row] = await this.#store.call<{ overdue: number }>('overdue', [null])
      ended = row?.overdue ?? 0
      all += ended
    }
    return all
  }

  /** Ids of those jobs that are not in the hands of their claim any more. */
  async taken(jobs: readonly Pick<Handout, 'id' | 'claim'>[]): Promise<Set<string>> {
    if (jobs.length === 0) return new Set()
    const params = [jobs.map((job) => job.id), jobs.map((job) => job.claim)]
    const rows = await this.#store.run<{ id: string }>('fleet/taken', params)
    return new Set(rows.map((row) => row.id))
  }

  /** Claims no more: nobody is to call this worker, which may be busy for long with what it has. */
  async retreat(): Promise<void> {
    if (this.#worker !== undefined) await this.#store.run('fleet/retreat', [this.#worker])
  }

  /** Signs off; unfinished jobs go back uncalled. */
  async leave(): Promise<void> {
    const entering = this.#entering
    this.#entering = undefined
    if (entering === undefined) return
    const { worker } = await entering
    await this.#store.call('leave', [worker])
  }

  /** Runs `round` every beat until stopped; errors go to `failed` and the next round comes all the same. */
  async everyBeat(round: () => Promise<void>, signal: AbortSignal, failed: (error: unknown) => void): Promise<void> {
    while (!signal.aborted) {
      await this.#store.clock.sleep(beatMs, signal, false)
      if (signal.aborted) return
      await round().catch(failed)
    }
  }

  async #enter(): Promise<Claimer> {
    const { queues, tasks, homes, once, onFailed, slots, version, labels } = this.#member
    await this.#epoch.look()
    await this.#store.run('tasks/known', [tasks, homes, once, onFailed])
    const [row] = await this.#store.run<{ id: string }>('fleet/register', [
      hostname(),
      process.pid,
      version,
      queues ?? null,
      tasks,
      slots,
      labels,
    ])
    this.#worker = row?.id
    return { worker: row?.id ?? '', queues, tasks }
  }
}
