/** A Sluice for tests: a store in memory, whose clock only the test moves, and access to what was sent. */
import { type Clock, systemClock } from '../core/clock.ts'
import { UsageError } from '../core/errors.ts'
import { checkFields } from '../core/fields.ts'
import { type Duration, durationMs } from '../core/rate.ts'
import { inSchema, sqlOn } from '../db/store.ts'
import type { CloudEvent } from '../events/envelope.ts'
import { tasksIn, type Work } from '../events/groups.ts'
import type { EventHandler } from '../events/handler.ts'
import type { SluiceOptions } from '../options.ts'
import { useSluice } from '../default-sluice.ts'
import { Sluice } from '../sluice.ts'
import type { Job } from '../operations/jobs.ts'
import { type Move, runAhead } from './advance.ts'
import { type DeliverOptions, eventsOf } from './events.ts'
import { type Limited, type Refused, reportsOf } from './reports.ts'

/** How to open a test Sluice. */
export interface TestOptions extends Pick<SluiceOptions, 'rules' | 'routes' | 'log'> {
  /**
   * Tasks, and handlers of events, that `drain` runs. `task.send` of any task, and `event.emit`, go to this store until
   * `close`.
   */
  tasks: readonly Work[]
  /** The service of the handlers; default `test`. */
  service?: string
  /** The clock's first time; default: now. */
  start?: Date
  /** `memory:` (default), a directory, or a server's URL (then give a schema that only the test uses). */
  store?: string
  /** Schema in the database; default `sluice`. */
  schema?: string
  /** Private addresses that `ctx.fetch` may call. Default: this machine, `127.0.0.0/8` and `::1`. */
  allowPrivate?: readonly string[]
}

/** A Sluice for tests. Made by {@link testSluice}. */
export interface TestSluice {
  readonly sluice: Sluice
  /** The store's clock, which stands still unless the test moves it. Limits, delays and backoffs follow it. */
  readonly clock: {
    now(): Promise<Date>
    advance(by: Duration): Promise<void>
    set(to: Date): Promise<void>
  }
  /** Lists the inputs that were sent to a task, oldest first, whether or not the jobs have ended. */
  sent<Input = unknown>(task: { readonly name: string }): Promise<Input[]>
  /**
   * Lists the jobs of a task that a limit holds back now, oldest first: the limit, the key, and no start before when.
   * Run `drain` first: which jobs have to wait is decided when they might start.
   */
  limited<Input = unknown>(task: { readonly name: string }): Promise<Limited<Input>[]>
  /**
   * Lists the jobs of a task whose last attempt failed, was refused by the vendor, or ended them in failure, oldest first.
   * `scheduled`: it will be tried again.
   */
  refused<Input = unknown>(task: { readonly name: string }): Promise<Refused<Input>[]>
  /** Lists the events of a type that were emitted, with their envelopes, oldest first. */
  emitted<Data = unknown>(event: { readonly name: string }): Promise<CloudEvent<Data>[]>
  /**
   * Delivers a payload to one handler, without emitting an event, and runs it; resolves to the record of the delivery's job:
   * `done`, `scheduled` for a retry, or `failed`.
   */
  deliver(handler: EventHandler, payload: unknown, options?: DeliverOptions): Promise<Job>
  /**
   * Runs every job that may start at the clock's time, and the jobs that those send; resolves to how many ran. With
   * `advance: true` it then moves the clock to the next instant at which a limit, a delay or a retry lets a job start, and so
   * on until none is left, for 31 days of the clock at most. With a span, as `'1min'`, it does so within the span, and the clock
   * shows its end afterwards.
   */
  drain(options?: { advance?: boolean | Duration }): Promise<number>
  /**
   * As `drain({ advance: true })`, until the function returns something true; the clock then shows when that was.
   * @throws UsageError SLUICE_BAD_OPTION when no job is left that time lets start, and it is still not true
   */
  runUntil(isTrue: () => unknown): Promise<number>
  /** Resolves to the job's record once it is done, failed or cancelled. */
  waitFor(id: string): Promise<Job>
  /** Closes the store. `task.send` then goes to the default store again. */
  close(): Promise<void>
}

const fields = ['tasks', 'service', 'start', 'store', 'schema', 'allowPrivate', 'rules', 'routes', 'log']

/** Without this, `drain` would run nothing, and a test that expects nothing would pass. @throws UsageError */
function checkOptions(options: TestOptions): void {
  checkFields('SLUICE_BAD_OPTION', '`testSluice`', options, fields)
  tasksIn(options.tasks)
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
  const schema = options.schema ?? 'sluice'
  const { rules = [], routes = {}, log, service = 'test', allowPrivate = ['127.0.0.0/8', '::1'] } = options
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
    ...(log === undefined ? {} : { log }),
  })
  const { db } = sluice
  const sql = sqlOn(db, schema)
  const frozen = `create table if not exists sluice.test_clock (at timestamptz not null); delete from sluice.test_clock;
    create or replace function sluice.now() returns timestamptz language sql volatile as 'select at from sluice.test_clock';
    update sluice.epoch set watched = false`
  await db.script(inSchema(frozen, schema))
  const start = `insert into sluice.test_clock values (coalesce($1::timestamptz, clock_timestamp()))
    returning extract(epoch from at - clock_timestamp())::float8 * 1000 as ms`
  const [begun] = await sql.query<{ ms: number }>(start, [options.start ?? null])
  if (options.start !== undefined) clock.begin(begun?.ms ?? 0)
  useSluice(sluice)
  const move: Move = async (to, value) => {
    const moved = `update sluice.test_clock n set at = ${to} from sluice.test_clock o
      returning extract(epoch from n.at - o.at)::float8 * 1000 as ms`
    const [row] = await sql.query<{ ms: number }>(moved, [value])
    clock.move(row?.ms ?? 0)
  }
  // It may end early: with too many handlers that do not stop, or when grants grow old again and again.
  const run = () => sluice.dispatchOnce(options.tasks)
  const runAll = async () => {
    for (let ran = 0; ;) {
      const more = await run()
      if (more === 0) return ran
      ran += more
    }
  }
  return {
    sluice,
    clock: {
      now: async () => (await sql.query<{ at: Date }>('select at from sluice.test_clock'))[0]?.at as Date,
      advance: (by) => move('o.at + make_interval(secs => $1::double precision / 1000)', durationMs(by)),
      set: (to) => move('$1', to),
    },
    ...reportsOf(sluice, sql),
    ...eventsOf(sluice, sql, options.tasks, service),
    async drain(how = {}) {
      checkFields('SLUICE_BAD_OPTION', '`drain`', how, ['advance'])
      const { advance = false } = how
      return advance === false ? runAll() : (await runAhead({ sluice, sql, run, move }, advance, () => false)).ran
    },
    async runUntil(isTrue) {
      const { ran, isEnough } = await runAhead({ sluice, sql, run, move }, true, isTrue)
      if (isEnough) return ran
      const text = 'runUntil: its condition is not true, and there is no job left that time lets start'
      throw new UsageError('SLUICE_BAD_OPTION', text)
    },
    waitFor: (id) => sluice.waitFor(id),
    async close() {
      useSluice(undefined)
      await sluice.close()
    },
  }
}

/** This process's clock, and how far the test has moved the store's on: events and log lines then have its times. */
class MovedClock {
  #ms = 0
  #wallMs = 0
  readonly moved: Clock = {
    ...systemClock,
    monotonicMs: () => systemClock.monotonicMs() + this.#ms,
    bootMs: () => systemClock.bootMs() + this.#ms,
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
