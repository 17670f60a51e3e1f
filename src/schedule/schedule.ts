/** Schedules: a task, an input, and when. Defining one stores nothing; the worker that gets it stores it. */
import { UsageError } from '../core/errors.ts'
import { checkFields, present } from '../core/fields.ts'
import { encodePayload } from '../core/payload.ts'
import { type Duration, durationMs } from '../core/rate.ts'
import type { SendOptions } from '../tasks/send-options.ts'
import type { AnyTask, Task } from '../tasks/task.ts'
import { bad, instants, newest, type Timing, timingOf, type When } from './timing.ts'

/** How a schedule is defined; see the fields. Give one of `cron` and `every`. */
export interface ScheduleOptions<Input> extends Pick<SendOptions<NoInfer<Input>>, 'priority' | 'queue' | 'tags'> {
  task: Task<Input>
  /** The input of each job, or a function that makes it from the job's instant. Checked when a worker starts, too. */
  input: NoInfer<Input | ((at: Date) => Input)> // one NoInfer: TypeScript 5.4 accepts no object in a union of two
  /**
   * Five fields (minute, hour, day, month, weekday), or six with seconds first; also `@daily` and the like. When day and
   * weekday are both given, a day that matches either is enough. On days when clocks change, a named hour comes once; if
   * the clocks skip it, right after the gap. An hour of `*` follows elapsed time: 23 or 25 times.
   */
  cron?: string | undefined
  /** IANA time zone in which `cron` is read; default `UTC`. */
  zone?: string | undefined
  /** 1 s to 366 days, counted from 1970 in UTC: `'10s'` is due at :00, :10, :20, … */
  every?: Duration | undefined
  /**
   * How to treat instants that no worker could send within a minute (none was alive, the store was away):
   * `last` (default) sends the newest of them, unless a later instant is due now; `all` sends each of the newest 1,000;
   * `none` sends none. Instants that are not sent are recorded as missed.
   */
  catchUp?: 'none' | 'last' | 'all' | undefined
  /** `skip`: an instant is not sent, and recorded as skipped, while the previous instant's job is unfinished. Default `allow`. */
  overlap?: 'allow' | 'skip' | undefined
  /** Delays each job by a random time up to this, so that not all schedules of a night start at once; at most 24 h, default 0. */
  jitter?: Duration | undefined
}

/** A defined schedule. */
export interface Schedule {
  readonly name: string
  readonly task: AnyTask
  readonly timing: Timing
  readonly catchUp: 'none' | 'last' | 'all'
  readonly overlap: 'allow' | 'skip'
  readonly jitterMs: number
  /** The options with which each job is sent. */
  readonly options: Pick<SendOptions<never>, 'priority' | 'queue' | 'tags'>
  /** The definition as JSON, as it is stored and shown. */
  readonly spec: ScheduleSpec
  /** The input of one instant's job. */
  inputAt(at: Date): unknown
}

/** A definition as it is stored; see the options of `schedule`. */
export interface ScheduleSpec extends When {
  catchUp: Schedule['catchUp']
  overlap: Schedule['overlap']
  jitterMs: number
  /** Absent when a function makes the input. */
  input?: unknown
}

const jitterMsMax = 86_400_000
/** An instant that has been due for longer than this is missed. */
export const graceMs = 60_000
const catchUpMax = 1_000
const timingFields = ['cron', 'zone', 'every', 'catchUp', 'overlap', 'jitter']
const scheduleFields = ['task', 'input', ...timingFields, 'priority', 'queue', 'tags']
/** What these are called in BullMQ, graphile-worker, pg-boss and Celery beat. */
const wordsOfOthers = {
  pattern: '`cron`',
  crontab: '`cron`',
  schedule: '`cron`, or `every`',
  tz: '`zone`',
  timezone: '`zone`',
  data: '`input`',
  payload: '`input`',
  kwargs: '`input`',
}

/**
 * Defines a schedule. Export it from your tasks file, or give it to `sluice.work(tasks, { schedules })`.
 * @param name unique, stored; 1 to 80 of a-z, A-Z, 0-9, `.`, `_`, `-`, `:`
 * @throws UsageError SLUICE_BAD_SCHEDULE; SLUICE_INVALID_INPUT, SLUICE_BAD_PAYLOAD for an input that its task would reject
 */
export function schedule<Input>(name: string, options: ScheduleOptions<Input>): Schedule {
  const what = `schedule "${name}"`
  if (typeof name !== 'string' || !/^[A-Za-z0-9._:-]{1,80}$/.test(name))
    throw bad(what, 'its name must be 1 to 80 of a-z, A-Z, 0-9, ".", "_", "-", ":"')
  checkFields('SLUICE_BAD_SCHEDULE', what, options, scheduleFields, wordsOfOthers)
  const { cron, zone, every, input, catchUp = 'last', overlap = 'allow' } = options
  const task = options.task as AnyTask
  if (typeof task?.run !== 'function') throw bad(what, 'needs `task`, made by task(…)')
  const timing = timingOf({ cron, zone, every }, what)
  if (!['none', 'last', 'all'].includes(catchUp)) throw bad(what, "`catchUp` must be 'none', 'last' or 'all'")
  if (!['allow', 'skip'].includes(overlap)) throw bad(what, "`overlap` must be 'allow' or 'skip'")
  const jitterMs = durationMs(options.jitter ?? 0)
  if (jitterMs > jitterMsMax) throw bad(what, '`jitter` must be 24 h at most')
  const { priority, queue, tags = [] } = options
  if (!Array.isArray(tags) || tags.length > 17) throw bad(what, '`tags` must be a list of up to 17 texts')
  const isGiven = typeof input !== 'function'
  const text = isGiven ? checkInput(what, task, input) : 'null'
  return {
    name,
    task,
    timing,
    catchUp,
    overlap,
    jitterMs,
    options: { tags, ...present({ priority, queue }) },
    spec: {
      ...(cron === undefined ? { every } : { cron, zone: zone ?? 'UTC' }),
      catchUp,
      overlap,
      jitterMs,
      ...(isGiven ? { input: JSON.parse(text) as unknown } : {}),
    },
    inputAt: isGiven ? () => JSON.parse(text) as unknown : (at) => (input as (at: Date) => unknown)(at),
  }
}

/** Checks an input and returns its JSON. An asynchronous schema is applied when a worker starts. */
function checkInput(what: string, task: AnyTask, input: unknown): string {
  const text = encodePayload(input, `input of ${what}`)
  const checked = task.schema['~standard'].validate(JSON.parse(text))
  if ('then' in checked) {
    checked.catch(() => {})
    return text
  }
  if (checked.issues === undefined) return text
  const issues = checked.issues.slice(0, 5).map((issue) => issue.message)
  throw new UsageError(
    'SLUICE_INVALID_INPUT',
    `input of ${what} does not fit the schema of task "${task.name}": ${issues.join('; ')}`,
  )
}

/** The decision about the instants that are due. */
export interface Plan {
  /** Instants to send, in order. */
  due: number[]
  /** The newest of the instants that are left out; the oldest is the store's next instant. Undefined: none is. */
  missedMs: number | undefined
  /** The first instant that is not due yet. */
  nextMs: number
}

/**
 * Plans what to do at `nowMs`. `nextMs`: the first instant that no worker has handled. It counts as an instant even if the
 * timing no longer has it: the process that stored it may know other rules of the time zone.
 */
export function planOf(of: Pick<Schedule, 'timing' | 'catchUp'>, nextMs: number, nowMs: number): Plan {
  const { catchUp } = of
  const timing = { after: (ms: number) => (ms < nextMs ? nextMs : of.timing.after(ms)) }
  const inTimeMs = Math.max(nextMs, nowMs - graceMs)
  const inTime = instants(timing, inTimeMs - 1, nowMs, Infinity)
  const most = catchUp === 'all' ? catchUpMax : catchUp === 'last' && inTime.length === 0 ? 1 : 0
  const due = [...newest(timing, nextMs - 1, inTimeMs - 1, most), ...inTime]
  const [missedMs] = newest(timing, nextMs - 1, (due[0] ?? nowMs + 1) - 1, 1)
  return { due, missedMs, nextMs: timing.after(nowMs) }
}

/** Splits a plan into plans of at most `most` instants. Each begins at the `nextMs` of the one before. */
export function* splitPlan({ due, missedMs, nextMs }: Plan, most: number): Generator<Plan> {
  yield { due: due.slice(0, most), missedMs, nextMs: due[most] ?? nextMs }
  for (let at = most; at < due.length; at += most)
    yield { due: due.slice(at, at + most), missedMs: undefined, nextMs: due[at + most] ?? nextMs }
}

const prefix = { schedule: 'schedule:', instant: 'scheduled-for:' }

/** Returns a job's tags, which name its schedule and its instant. */
export function tagsOf(of: Pick<Schedule, 'name' | 'options'>, at: Date): string[] {
  return [...(of.options.tags ?? []), `${prefix.schedule}${of.name}`, `${prefix.instant}${at.toISOString()}`]
}

/** Returns the instant that a job was scheduled for; undefined if no schedule sent it. In a handler: `scheduledFor(ctx.job)`. */
export function scheduledFor(job: { readonly tags: readonly string[] | null }): Date | undefined {
  const tag = job.tags?.find((each) => each.startsWith(prefix.instant))
  return tag === undefined ? undefined : new Date(tag.slice(prefix.instant.length))
}
