/**
 * Fires schedules. Every process that has a schedule's code tries to; the first one sends an instant's job and advances
 * the schedule, in one statement. Only the store's clock decides when an instant is due.
 */
import { codeOf, StoreError, UsageError, textOfError } from '../core/errors.ts'
import { payloadBytesMax, statementCharsMax } from '../core/payload.ts'
import { reach } from '../core/test-points.ts'
import type { Store } from '../db/store.ts'
import { admit } from '../tasks/admit.ts'
import type { Rulebook } from '../tasks/rule.ts'
import { type NewJob, Outbox } from '../store/send.ts'
import { graceMs, type Plan, planOf, type Schedule, splitPlan, tagsOf } from './schedule.ts'
import { readStored, type StoredSchedule } from './stored.ts'
import { bad } from './timing.ts'

/** Parameters of `ScheduleRunner`; see the fields. */
export interface ScheduleRunnerOptions {
  store: Store
  schedules: readonly Schedule[]
  rulebook: Rulebook
}

/** The longest sleep between two reads of the store, because its clock may step, or a schedule may be resumed. */
const lookMs = 10_000
/** The pause after a failure to make a schedule's jobs, and after an error of the store. */
const stumbleMs = 5_000
const awayMs = 1_000
/** How long making the job of an instant may take. */
const makeMs = 10_000
/** Schedules that are defined, or fired, at one time. A program may have one for each tenant, and statements wait for a connection for seconds only. */
const schedulesAtOnce = 20
/** Jobs of one schedule that are made, and sent in one statement: also if each has the largest input. */
const jobsAtOnce = Math.floor(statementCharsMax / payloadBytesMax)
/** Each process wakes up to this much after the instant, at random, so that mostly one of them fires and the rest find it done. */
const spreadMs = 30

/** The schedules that one worker fires. */
export class ScheduleRunner {
  readonly #options: ScheduleRunnerOptions
  readonly #outbox: Outbox
  readonly #schedules: readonly Schedule[]
  readonly #stumbled = new Map<string, { untilMs: number; message: string }>()
  #running: Promise<void> | undefined
  #isDefined = false

  /** @throws UsageError SLUICE_BAD_SCHEDULE when two have one name */
  constructor(options: ScheduleRunnerOptions) {
    this.#options = options
    this.#schedules = [...new Set(options.schedules)]
    this.#outbox = new Outbox(options.store)
    const names = this.#schedules.map(({ name }) => name)
    const twice = names.find((name, i) => names.indexOf(name) !== i)
    if (twice !== undefined) throw bad(`schedule "${twice}"`, 'is defined twice; give one of them another name')
  }

  /**
   * Stores the definitions, and checks that their jobs can be made.
   * @throws UsageError SLUICE_INVALID_INPUT, SLUICE_MISSING_KEY, … as `send` does
   */
  async define(): Promise<void> {
    if (this.#isDefined) return
    await this.#forEach((schedule) => this.#define(schedule, true))
    this.#isDefined = true
  }

  /** Does something with each schedule, some at one time. After an error it rejects when nothing is under way any more. */
  async #forEach(act: (schedule: Schedule) => Promise<void>): Promise<void> {
    const left = [...this.#schedules]
    const actOnNext = async () => {
      for (let next = left.shift(); next !== undefined; next = left.shift()) await act(next)
    }
    const ends = Array.from({ length: schedulesAtOnce }, actOnNext)
    await Promise.allSettled(ends)
    await Promise.all(ends)
  }

  /** Fires due schedules until `signal` is aborted. */
  start(signal: AbortSignal): void {
    if (this.#schedules.length > 0) this.#running ??= this.#run(signal)
  }

  /** Resolves when the loop has ended, after its signal was aborted. */
  async waitUntilStopped(): Promise<void> {
    await this.#running
  }

  /**
   * Fires due schedules, until `signal` is aborted, and resolves to how long to sleep, in ms.
   * @throws StoreError when the store is away
   */
  async fire(signal?: AbortSignal): Promise<number> {
    if (this.#schedules.length === 0) return lookMs
    const names = this.#schedules.map(({ name }) => name)
    const { nowMs, stored } = await readStored(this.#options.store, names)
    let waitMs = lookMs
    await this.#forEach(async (schedule) => {
      const entry = stored.get(schedule.name)
      if (signal?.aborted || entry === undefined || entry.paused) return
      const stumbled = (this.#stumbled.get(schedule.name)?.untilMs ?? 0) - this.#options.store.clock.monotonicMs()
      const ownMs = stumbled > 0 ? stumbled : await this.#look(schedule, entry, nowMs, signal)
      waitMs = Math.min(waitMs, ownMs)
    })
    return waitMs
  }

  async #run(signal: AbortSignal): Promise<void> {
    const { clock, log } = this.#options.store
    while (!signal.aborted) {
      const waitMs = await this.fire(signal).catch((error: unknown) => {
        log.debug('schedules could not be read', { err: error })
        return awayMs
      })
      await clock.sleep(waitMs + clock.random() * spreadMs, signal, false)
    }
  }

  /** Fires one schedule if it is due; resolves to how long to sleep until it is due next, in ms. */
  async #look(schedule: Schedule, entry: StoredSchedule, nowMs: number, signal?: AbortSignal): Promise<number> {
    const leftMs = entry.nextMs - nowMs
    const isOurs = entry.timing === schedule.timing.text
    if (leftMs > 0) return isOurs ? leftMs : lookMs
    try {
      if (isOurs) {
        const plan = planOf(schedule, entry.nextMs, nowMs)
        let fromMs = entry.nextMs
        for (const part of splitPlan(plan, schedule.overlap === 'skip' ? Infinity : jobsAtOnce)) {
          if (signal?.aborted || !(await this.#send(schedule, fromMs, part))) break
          fromMs = part.nextMs
        }
        this.#stumbled.delete(schedule.name)
        return 0
      }
      // Another process stored another timing and fires it, unless no such process is alive.
      if (leftMs < -graceMs) await this.#define(schedule, false)
      return lookMs
    } catch (error) {
      if (error instanceof StoreError) throw error
      // Another transaction has locked it, mostly a process that fires it.
      if (codeOf(error) === '55P03' && leftMs >= -graceMs) return awayMs
      await this.#stumble(schedule.name, error)
      return stumbleMs
    }
  }

  /** Records why a schedule cannot be fired. Its instants stay due: another process may be able to, or this one later. */
  async #stumble(name: string, error: unknown): Promise<void> {
    const { store } = this.#options
    const message = textOfError(error)
    const known = this.#stumbled.get(name)?.message === message
    this.#stumbled.set(name, { untilMs: store.clock.monotonicMs() + stumbleMs, message })
    if (known) return
    store.log.error(`the job of schedule "${name}" is due and cannot be sent; trying again until it can`, {
      error: message,
    })
    const text = message.replaceAll('\u0000', '').slice(0, 2_000).toWellFormed()
    await store.run('schedule/record_failure', [name, text])
  }

  /**
   * Stores one definition. If its timing is unchanged, the next instant stays, unless it has not come and is none any more
   * because Node brought other rules of the time zone. Else it is the first instant of the new timing after the last one
   * that was handled, but not earlier than an overdue instant of the old timing.
   */
  async #define(schedule: Schedule, isChecked: boolean): Promise<void> {
    const { store } = this.#options
    const { name, task, timing, spec } = schedule
    for (;;) {
      const { nowMs, stored } = await readStored(store, [name])
      const entry = stored.get(name)
      const isSame = entry?.timing === timing.text
      const stays = isSame && (entry.nextMs <= nowMs || timing.after(entry.nextMs - 1) === entry.nextMs)
      const sinceMs = entry && !entry.paused ? Math.min(nowMs, entry.nextMs - 1) : nowMs
      const nextMs = stays ? entry.nextMs : timing.after(Math.max(sinceMs, entry?.lastMs ?? -Infinity))
      if (isChecked) await this.#job(schedule, nextMs)
      const read = [entry?.nextMs ?? null, entry?.lastMs ?? null]
      const params = [name, task.name, timing.text, JSON.stringify(spec), nextMs, ...read]
      // No row comes back if the schedule was fired or defined meanwhile.
      if ((await store.run('schedule/define_schedule', params)).length > 0) return
    }
  }

  /** Carries out a plan from the instant `fromMs` on, in one statement. Resolves to false if another process was first. */
  async #send(schedule: Schedule, fromMs: number, { due, missedMs, nextMs }: Plan): Promise<boolean> {
    const { store } = this.#options
    const { name, timing, overlap } = schedule
    const isAlone = overlap === 'skip'
    const jobs = await Promise.all((isAlone ? due.slice(0, 1) : due).map((ms) => this.#job(schedule, ms)))
    await reach('schedule.fire', jobs)
    const ids = jobs.map((job) => job.id)
    const own = [name, timing.text, fromMs, nextMs, due, ids, missedMs ?? null, isAlone]
    const fire = (from: number) =>
      `engine.fire_schedule(${own.map((_, i) => `$${from + i + 1}`).join(',')}) f (outcome)`
    // One statement, so that no lock is held across a round trip, and a crash leaves both changes or neither.
    let outcome = ''
    const query = async <R>(send: string, params: readonly unknown[] = []) => {
      const text = `select f.outcome, array(${send} where f.outcome = 'sent') as ids from ${fire(params.length)}`
      const rows = await store.query<R>(text, [...params, ...own])
      outcome = String((rows[0] as { outcome?: string } | undefined)?.outcome)
      return rows
    }
    const kept = jobs.filter(({ discard }) => discard === null)
    if (kept.length === 0) {
      const [row] = await store.call<{ fire_schedule: string }>('fire_schedule', own)
      outcome = row?.fire_schedule ?? ''
    } else await this.#outbox.write(store.on({ query }), kept)
    // Discarded jobs are not part of that statement: the process that fired records them afterwards.
    for (const job of jobs) if (job.discard !== null && outcome === 'sent') await this.#outbox.write(store, [job])
    await reach('schedule.fired', jobs)
    return outcome !== 'passed'
  }

  /** Makes the job of one instant. */
  async #job(schedule: Schedule, ms: number): Promise<NewJob> {
    const { store, rulebook } = this.#options
    const { clock } = store
    const { task, options, jitterMs } = schedule
    const at = new Date(ms)
    const delay = Math.floor(clock.random() * jitterMs)
    const make = async () => {
      const tags = tagsOf(schedule, at)
      const how = { ...options, tags, ...(delay > 0 ? { delay } : {}) }
      return admit(task, await schedule.inputAt(at), how, clock, rulebook)
    }
    let cancel = () => {}
    // An input function that never returns must not hold up other schedules.
    const late = new Promise<never>((_, reject) => {
      const fail = () =>
        reject(new UsageError('SLUICE_BAD_SCHEDULE', `its job was not made within ${makeMs / 1_000} s`))
      cancel = clock.after(makeMs, fail)
    })
    try {
      return await Promise.race([make(), late])
    } catch (error) {
      const message = `schedule "${schedule.name}": ${textOfError(error)}`
      throw new UsageError(error instanceof UsageError ? error.code : 'SLUICE_BAD_SCHEDULE', message, { cause: error })
    } finally {
      cancel()
    }
  }
}
