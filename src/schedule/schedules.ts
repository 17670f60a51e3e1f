/** The users' view of schedules: list, history, trigger, pause, resume, remove. */
import { dateOf } from '../db/db.ts'
import { UsageError } from '../core/errors.ts'
import { checkMax } from '../core/fields.ts'
import type { Sql } from '../db/store.ts'
import type { Sender } from '../tasks/task.ts'
import { graceMs, type Schedule, type ScheduleSpec, tagsOf } from './schedule.ts'
import { readStored } from './stored.ts'
import { instants, type Timing, timingOf } from './timing.ts'

/** The outcome of an instant, or of all instants from `at` to `until`. */
export interface Firing {
  at: Date
  until: Date
  /** `skipped`: the previous instant's job was unfinished; `missed`: no worker could send it in time, and it was left out. */
  outcome: 'sent' | 'skipped' | 'missed'
  /** The job's id; null unless sent. */
  job: string | null
}

/** A stored schedule. Times are by the store's clock. */
export interface ScheduleLine extends ScheduleSpec {
  name: string
  task: string
  /** The next five instants; the first is in the past when it is overdue; empty while paused. */
  next: Date[]
  last: Firing | null
  /** `overdue`: due for more than a minute, because no worker with its code is alive, or because of `error`. */
  state: 'active' | 'overdue' | 'paused'
  pausedAt: Date | null
  definedAt: Date
  /** Why its jobs cannot be made; null: no error. */
  error: string | null
}

interface Row {
  name: string
  task: string
  spec: ScheduleSpec
  next_ms: number
  paused_ms: number | null
  defined_ms: number
  error: string | null
  now_ms: number
  last_ms: number | null
  last_until_ms: number
  last_outcome: Firing['outcome']
  last_job: string | null
}

const nextMax = 5

/** The stored schedules of one database. */
export class Schedules {
  readonly #sql: Sql
  readonly #sender: Sender

  constructor(sql: Sql, sender: Sender) {
    this.#sql = sql
    this.#sender = sender
  }

  /** Lists all schedules, by name. */
  async list(): Promise<ScheduleLine[]> {
    return (await this.#sql.run<Row>('schedule/read_schedules')).map(lineOf)
  }

  /**
   * Lists the outcomes of a schedule's newest instants, newest first; the last 1,000 are kept. `max`: 1 to 1,000, default 20.
   * @throws UsageError SLUICE_BAD_OPTION
   */
  async history(name: string, { max = 20 }: { max?: number } = {}): Promise<Firing[]> {
    const rows = await this.#sql.run<FiringRow>('schedule/read_firings', [name, checkMax(max, 1_000)])
    return rows.map((row) => firingOf(row.at_ms, row.until_ms, row))
  }

  /**
   * Sends a job of a schedule now, in addition to the jobs of its instants; `overlap` does not apply. The job has the tag
   * `triggered`, and the present time as its instant. Resolves to its id.
   */
  async trigger(schedule: Schedule): Promise<string> {
    if (typeof (schedule as Partial<Schedule> | undefined)?.inputAt !== 'function')
      throw new UsageError(
        'SLUICE_BAD_SCHEDULE',
        '`trigger` takes what schedule(…) returned and no name, because the input is in the code',
      )
    const at = new Date((await readStored(this.#sql, [])).nowMs)
    const tags = [...tagsOf(schedule, at), 'triggered']
    return this.#sender.send(schedule.task, await schedule.inputAt(at), { ...schedule.options, tags })
  }

  /** Pauses a schedule: its instants pass without a job until it is resumed. Resolves to false if there is no such schedule. */
  async pause(name: string): Promise<boolean> {
    return (await this.#sql.run('schedule/pause_schedule', [name])).length > 0
  }

  /**
   * Resumes a paused schedule with its next instant from now; those within the pause are left out. A worker notices within
   * 10 s. Resolves to false if there is no such schedule, or it is not paused.
   */
  async resume(name: string): Promise<boolean> {
    for (;;) {
      const { nowMs, stored } = await readStored(this.#sql, [name])
      const known = stored.get(name)
      if (known === undefined || !known.paused) return false
      const { timing, spec, lastMs } = known
      const params = [name, timing, timingIn(name, spec).after(Math.max(nowMs, lastMs ?? 0)), lastMs]
      if ((await this.#sql.run('schedule/resume_schedule', params)).length > 0) return true
    }
  }

  /**
   * Deletes a schedule; jobs that it sent stay. A worker that has it in its code stores it again when it starts. Resolves
   * to false if there is no such schedule.
   */
  async remove(name: string): Promise<boolean> {
    return (await this.#sql.run('schedule/delete_schedule', [name])).length > 0
  }
}

function timingIn(name: string, spec: ScheduleSpec): Timing {
  return timingOf(spec, `schedule "${name}"`)
}

type FiringRow = Pick<Firing, 'outcome' | 'job'> & { at_ms: number; until_ms: number }

function firingOf(atMs: number, untilMs: number, { outcome, job }: Pick<Firing, 'outcome' | 'job'>): Firing {
  return { at: new Date(atMs), until: new Date(untilMs), outcome, job }
}

function lineOf(row: Row): ScheduleLine {
  const { name, task, spec, next_ms: nextMs, last_ms: lastMs, last_outcome: outcome, last_job: job } = row
  const pausedAt = dateOf(row.paused_ms)
  const isOverdue = row.now_ms - nextMs > graceMs
  return {
    name,
    task,
    ...spec,
    next: pausedAt === null ? upcoming(name, spec, nextMs) : [],
    last: lastMs === null ? null : firingOf(lastMs, row.last_until_ms, { outcome, job }),
    state: pausedAt !== null ? 'paused' : isOverdue ? 'overdue' : 'active',
    pausedAt,
    definedAt: new Date(row.defined_ms),
    error: row.error,
  }
}

function upcoming(name: string, spec: ScheduleSpec, nextMs: number): Date[] {
  const further = instants(timingIn(name, spec), nextMs, Infinity, nextMax - 1)
  return [nextMs, ...further].map((ms) => new Date(ms))
}
