/** A Sluice for tests: a store in memory, whose clock only the test moves, and access to what was sent. */
import { inspect } from 'node:util'
import { type Clock, systemClock } from '../core/clock.ts'
import { SluiceError, StoreError, UsageError } from '../core/errors.ts'
import { checkFields } from '../core/fields.ts'
import { type Duration, durationMs } from '../core/rate.ts'
import { inSchema, type Sql, sqlOn } from '../db/store.ts'
import type { ResultOf } from '../core/result.ts'
import type { CloudEvent } from '../events/envelope.ts'
import type { Event } from '../events/event.ts'
import { tasksIn, type Work } from '../events/groups.ts'
import type { EventHandler } from '../events/handler.ts'
import type { SluiceOptions } from '../options.ts'
import { chosenSluice, useSluice } from '../default-sluice.ts'
import { Sluice } from '../sluice.ts'
import type { Job } from '../operations/jobs.ts'
import { waitFor } from '../operations/wait.ts'
import type { Schedule } from '../schedule/schedule.ts'
import type { Task } from '../tasks/task.ts'
import { type Move, runAhead } from './advance.ts'
import { type DeliverOptions, eventsOf } from './events.ts'
import { type Limited, type Named, type Refused, reportsOf, type Sent } from './reports.ts'
import { refuseFakeTimers, Runs } from './runs.ts'

/** How to open a test Sluice. */
export interface TestOptions extends Pick<SluiceOptions, 'rules' | 'routes' | 'log'> {
  /**
   * Tasks, and handlers of events, that `drain` runs. `task.send` of any task, and `event.emit`, go to this store until
   * `close`.
   */
  tasks: readonly Work[]
  /** Schedules, which send their jobs at the instants of the kit's clock; default none. */
  schedules?: readonly Schedule[] | undefined
  /** The service of the handlers; default `test`. */
  service?: string | undefined
  /** The clock's first time; default: now. */
  start?: Date | undefined
  /** `memory:` (default), a directory, or a server's URL (then give a schema that only the test uses). */
  store?: string | undefined
  /** Schema in the database; default `sluice`. */
  schema?: string | undefined
  /** Private addresses that `ctx.fetch` may call. Default: this machine, `127.0.0.0/8` and `::1`. */
  allowPrivate?: readonly string[] | undefined
  /**
   * How long, in real time, `drain` and the like wait for a handler to end, and `waitFor` for a job; then they reject. Default
   * '10s'.
   */
  timeout?: Duration | undefined
}

/** A Sluice for tests. Made by {@link testSluice}. */
export interface TestSluice {
  /** The Sluice of the test, with everything that the kit does not have. */
  readonly sluice: Sluice
  /** The store's clock, which stands still unless the test moves it. Limits, delays and backoffs follow it. */
  readonly clock: {
    now(): Promise<Date>
    advance(by: Duration): Promise<void>
    set(to: Date): Promise<void>
  }
  /** Lists the inputs that were sent to a task, oldest first, whether or not the jobs have ended. */
  sent<Input>(task: Task<Input>): Promise<Sent<Input>[]>
  sent<Input = unknown>(task: Named): Promise<Input[]>
  /**
   * Lists the jobs of a task that a limit holds back now, oldest first: the limit, the key, and no start before when.
   * Run `drain` first: which jobs have to wait is decided when they might start.
   */
  limited<Input>(task: Task<Input>): Promise<Limited<Sent<Input>>[]>
  limited<Input = unknown>(task: Named): Promise<Limited<Input>[]>
  /**
   * Lists the jobs of a task whose last attempt failed, was refused by the vendor, or ended them in failure, oldest first.
   * `scheduled`: it will be tried again.
   */
  refused<Input>(task: Task<Input>): Promise<Refused<Sent<Input>>[]>
  refused<Input = unknown>(task: Named): Promise<Refused<Input>[]>
  /** Lists the events of a type that were emitted, with their envelopes, oldest first. */
  emitted<Data, Read>(event: Event<Data, Read>): Promise<CloudEvent<Data>[]>
  emitted<Data = unknown>(event: Named): Promise<CloudEvent<Data>[]>
  /**
   * Delivers a payload to one handler, without emitting an event, and runs it; resolves to the record of the delivery's job:
   * `done`, `scheduled` for a retry, or `failed`.
   */
  deliver(handler: EventHandler, payload: unknown, options?: DeliverOptions): Promise<Job>
  /**
   * Runs every job that may start at the clock's time, and the jobs that those send; resolves to how many ran. With
   * `advance: true` it then moves the clock to the next instant at which a limit, a delay or a retry lets a job start, and so
   * on until none is left, for 31 days of the clock at most. With a span, as `'1min'`, it does so within the span, at the
   * instants of schedules too, and the clock shows its end afterwards.
   * @throws StoreError SLUICE_WAIT_TIMEOUT for a handler that does not end; its job goes back
   */
  drain(options?: { advance?: boolean | Duration }): Promise<number>
  /**
   * As `drain({ advance: true })`, and at the instants of schedules too, until the function returns something true; the clock then
   * shows when that was.
   * @throws UsageError SLUICE_BAD_OPTION when no job is left that time lets start, and it is still not true
   */
  runUntil(isTrue: () => unknown): Promise<number>
  /**
   * Resolves to the job's record once it is done, failed or cancelled.
   * @throws StoreError SLUICE_WAIT_TIMEOUT when it is not, after the kit's `timeout`; UsageError SLUICE_NO_SUCH_JOB
   */
  waitFor<Id extends string>(id: Id): Promise<Job<ResultOf<Id>>>
  /**
   * Closes the store. `task.send` then goes where it went before.
   * @throws StoreError SLUICE_WAIT_TIMEOUT, when all is closed, for a handler that had not ended
   */
  close(): Promise<void>
  /** Closes it at the end of a block: `await using t = await testSluice(…)`. @throws as `close` */
  [Symbol.asyncDispose](): Promise<void>
}

/** The kits that are open, and the Sluice that was chosen before each. */
const open = new Set<{ sluice: Sluice; before: Sluice | undefined }>()
const ownFields = ['tasks', 'schedules', 'service', 'start', 'store', 'schema', 'allowPrivate', 'timeout']
const fields = [...ownFields, 'rules', 'routes', 'log']

/** Without this, `drain` would run nothing, and a test that expects nothing would pass. @throws UsageError */
function checkOptions(options: TestOptions): void {
  checkFields('SLUICE_BAD_OPTION', '`testSluice`', options, fields)
  tasksIn(options.tasks)
  if (options.start !== undefined) dateOf(options.start)
  if (!Array.isArray(options.schedules ?? []))
    throw new UsageError('SLUICE_BAD_SCHEDULE', '`schedules` must be a list of what schedule(…) returned')
}

/** Makes a kit's Sluice the one of `task.send`. The returned function goes back to the one before. */
function choose(sluice: Sluice): () => void {
  const own = { sluice, before: chosenSluice() }
  open.add(own)
  useSluice(sluice)
  return () => {
    open.delete(own)
    // Another kit may have been opened meanwhile, and must not go back to this one.
    for (const other of open) if (other.before === sluice) other.before = own.before
    if (chosenSluice() === sluice) useSluice(own.before)
  }
}

/**
 * Opens a Sluice for tests.
 * @example
 * const t = await testSluice({ tasks: [syncContact] })
 * await syncContact.send({ accountId: 'a', contactId: '1' })
 * await t.drain()
 * await t.close()
 */
export async function testSluice(options: TestOptions): Promise<TestSluice> {
  checkOptions(options)
  refuseFakeTimers()
  const schema = options.schema ?? 'sluice'
  const { rules = [], routes = {}, log, service = 'test', allowPrivate = ['127.0.0.0/8', '::1'] } = options
  const { tasks, schedules = [] } = options
  const timeoutMs = timeoutOf(options)
  const clock = new MovedClock()
  const sluice = await Sluice.open({
    store: options.store ?? 'memory:',
    redis: '',
    schema,
    rules,
    routes,
    service,
    allowPrivate,
    clock: clock.moved,
    log,
  })
  const sql = sqlOn(sluice.db, schema)
  const runs = new Runs(sluice, schedules, timeoutMs)
  const move = await orClose(sluice, freeze(sluice, sql, clock, options))
  await orClose(sluice, runs.begin(tasks))
  const unchoose = choose(sluice)
  const run = () => runs.run(tasks)
  const stage = { sluice, sql, run, move, schedules: schedules.map(({ name }) => name) }
  const runAll = async () => {
    for (let ran = 0; ;) {
      const more = await run()
      if (more === 0) return ran
      ran += more
    }
  }
  const close = async () => {
    unchoose()
    await runs.close(() => sluice.close())
  }
  return {
    sluice,
    clock: {
      now: async () => (await sql.query<{ at: Date }>('select at from sluice.test_clock'))[0]?.at as Date,
      advance: (by) => move('o.at + make_interval(secs => $1::double precision / 1000)', durationMs(by)),
      set: async (to) => move('$1', dateOf(to)),
    },
    ...reportsOf(sluice, sql),
    ...eventsOf({ sluice, sql, clock: clock.moved, runs, work: tasks, service }),
    async drain(how = {}) {
      checkFields('SLUICE_BAD_OPTION', '`drain`', how, ['advance'])
      const { advance = false } = how
      return advance === false ? runAll() : (await runAhead(stage, advance)).ran
    },
    async runUntil(isTrue) {
      if (typeof isTrue !== 'function') throw new UsageError('SLUICE_BAD_OPTION', 'runUntil needs a function')
      const { ran, isEnough } = await runAhead(stage, true, isTrue)
      if (isEnough) return ran
      const text = 'runUntil: its condition is not true, and nothing is left that time lets start'
      throw new UsageError('SLUICE_BAD_OPTION', text)
    },
    // By the real clock: the test may move its own meanwhile.
    waitFor: (id) =>
      waitFor(sluice.jobs, systemClock, id, { timeout: timeoutMs }).catch((error) =>
        throwWhatRuns(sluice, tasks, id, error),
      ),
    close,
    [Symbol.asyncDispose]: close,
  }
}

/** Resolves as this step does; closes the store if it fails. */
async function orClose<T>(sluice: Sluice, step: Promise<T>): Promise<T> {
  try {
    return await step
  } catch (error) {
    await sluice.close()
    throw error
  }
}

/** Has the store's clock stand still from its first time on. Returns what moves it. */
async function freeze(sluice: Sluice, sql: Sql, clock: MovedClock, { schema, start }: TestOptions): Promise<Move> {
  const frozen = `create table if not exists sluice.test_clock (at timestamptz not null); delete from sluice.test_clock;
    create or replace function sluice.now() returns timestamptz language sql volatile as 'select at from sluice.test_clock';
    update sluice.epoch set watched = false`
  await sluice.db.script(inSchema(frozen, schema ?? 'sluice'))
  const first = `insert into sluice.test_clock values (coalesce($1::timestamptz, clock_timestamp()))
    returning extract(epoch from at - clock_timestamp())::float8 * 1000 as ms`
  const [begun] = await sql.query<{ ms: number }>(first, [start === undefined ? null : dateOf(start)])
  if (start !== undefined) clock.begin(begun?.ms ?? 0)
  return async (to, value) => {
    const moved = `update sluice.test_clock n set at = ${to} from sluice.test_clock o
      returning extract(epoch from n.at - o.at)::float8 * 1000 as ms`
    const [row] = await sql.query<{ ms: number }>(moved, [value])
    clock.move(row?.ms ?? 0)
  }
}

/** @throws the error of `waitFor`; its time-out with what a test can do */
async function throwWhatRuns(sluice: Sluice, work: readonly Work[], id: string, error: unknown): Promise<never> {
  if (!SluiceError.is(error) || error.code !== 'SLUICE_WAIT_TIMEOUT') throw error
  const job = await sluice.jobs.get(id)
  const own = sluice.events
    .tasksOf(work)
    .flatMap(({ name, formerly = [], onFailed }) => [name, ...formerly, onFailed?.name])
  const todo = own.includes(job?.task)
    ? 'in a test, jobs run only while `t.drain()` or `t.runUntil()` does, so call that first'
    : `its task "${job?.task}" is not among those of the kit, which runs no other: testSluice({ tasks: [${job?.task}, …] })`
  const text = `job ${id} has not ended: ${todo}; \`t.sluice.why('${id}')\` lists what the job waits for`
  throw new StoreError('SLUICE_WAIT_TIMEOUT', text, { cause: error })
}

/** @throws UsageError SLUICE_BAD_OPTION, SLUICE_BAD_DURATION */
function timeoutOf({ timeout = '10s' }: TestOptions): number {
  const ms = durationMs(timeout)
  if (ms > 0) return ms
  throw new UsageError('SLUICE_BAD_OPTION', '`timeout` is 0: no handler would have time to end')
}

/** @throws UsageError SLUICE_BAD_OPTION */
function dateOf(given: Date): Date {
  const date = new Date(given)
  if (!Number.isNaN(date.getTime())) return date
  throw new UsageError('SLUICE_BAD_OPTION', `${inspect(given)} is no time: give the kit's clock a Date`)
}

/** This process's clock, and how far the test has moved the store's on: events and log lines then have its times. */
class MovedClock {
  #ms = 0
  #wallMs = 0
  readonly moved: Clock = {
    ...systemClock,
    monotonicMs: () => systemClock.monotonicMs() + this.#ms,
    isMoved: true,
    bootMs: () => this.#ms,
    wallMs: () => systemClock.wallMs() + this.#wallMs,
  }

  /** Sets the time at which the test begins. */
  begin(ms: number): void {
    this.#wallMs = ms
  }

  /** Moves it on, or sets its time back; what only goes on stays where it is then. */
  move(ms: number): void {
    this.#wallMs += ms
    this.#ms += Math.max(0, ms)
  }
}
