/** Moves the clock of a test from one instant at which a job may start to the next. */
import { type Duration, durationMs } from '../core/rate.ts'
import type { Sql } from '../db/store.ts'
import type { Sluice } from '../sluice.ts'

/** Sets the test's clock to an expression of SQL, in which `o.at` is the clock's time and `$1` the value. */
export type Move = (to: string, value: unknown) => Promise<void>

/** The parts of a kit that moving uses. */
export interface Stage {
  readonly sluice: Sluice
  readonly sql: Sql
  /** Runs what may start now; resolves to how many jobs that were. It may end early, and has run all only when it ran none. */
  run(): Promise<number>
  readonly move: Move
  /** The names of the schedules that `run` fires. */
  readonly schedules: readonly string[]
}

/** How far the clock moves at most: a month, which is the longest period of a quota. */
const spanMaxMs = 31 * 86_400_000
const at = 'to_timestamp($1::numeric / 1000)'

/**
 * Runs jobs and moves the clock, until nothing has a next instant within the span, or `isEnough`. Schedules have one always: with
 * neither a span nor `isEnough` they only fire while jobs wait.
 * @param span true: 31 days; else the clock shows its end afterwards
 */
export async function runAhead(
  { sluice, sql, run, move, schedules }: Stage,
  span: true | Duration,
  isEnough?: () => unknown,
): Promise<{ ran: number; isEnough: boolean }> {
  const isBounded = span !== true || isEnough !== undefined
  const endMs = (await nowMs(sql)) + (span === true ? spanMaxMs : durationMs(span))
  for (let ran = 0; ;) {
    const more = await run()
    ran += more
    if (await isEnough?.()) return { ran, isEnough: true }
    const job = await nextMs(sluice, sql)
    const scheduled = isBounded || job !== undefined ? await nextScheduledMs(sql, schedules) : undefined
    const next = Math.min(job ?? Infinity, scheduled ?? Infinity)
    // Jobs that were left run at the next instant: to make sure at each that there are none costs as much as to run them.
    if (next <= endMs) await move(at, next)
    else if (more === 0) {
      if (span !== true) await move(at, endMs)
      return { ran, isEnough: false }
    }
  }
}

async function nowMs(sql: Sql): Promise<number> {
  const [row] = await sql.query<{ ms: string }>('select extract(epoch from sluice.now()) * 1000 as ms')
  return Number(row?.ms)
}

/** Returns when the next of the schedules fires. Undefined: none will. */
async function nextScheduledMs(sql: Sql, schedules: readonly string[]): Promise<number | undefined> {
  if (schedules.length === 0) return undefined
  const [row] = await sql.query<{ ms: string | null }>(
    `select extract(epoch from min(s.next_at)) * 1000 as ms from sluice.schedule s
     where s.name = any ($1::text[]) and s.paused_at is null and s.next_at > sluice.now()`,
    [schedules],
  )
  return row === undefined || row.ms === null ? undefined : Number(row.ms)
}

/** Returns when the next job may start: it is due, a limit has room, or its queue or task opens. Undefined: never by time. */
async function nextMs(sluice: Sluice, sql: Sql): Promise<number | undefined> {
  const [row] = await sql.query<{ ms: string | null }>(
    `select extract(epoch from min(n.at)) * 1000 as ms from (
       select j.due_at as at from sluice.job j where j.claim is null and j.due_at < 'infinity'
       union all
       select sluice.now() + (l.due - engine.limiter_now_us()) * interval '1 microsecond'
       from (select distinct on (class, id) due from sluice.list where id <> 0 order by class, id, v desc) l
     ) n where n.at > sluice.now()`,
  )
  if (row !== undefined && row.ms !== null) return Number(row.ms)
  const fromMs = await nowMs(sql)
  const waiting = await sql.query<{ id: string }>('select id from sluice.job where claim is null order by id limit 100')
  const times = await Promise.all(waiting.map(async ({ id }) => (await sluice.why(id))?.notBefore?.getTime() ?? 0))
  return times.filter((ms) => ms > fromMs).toSorted((a, b) => a - b)[0]
}
