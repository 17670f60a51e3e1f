/** The table of learned costs in `sluice limits show`. */
import { redactText } from '../core/redact.ts'
import { percent } from '../core/figures.ts'
import type { Sql } from '../db/store.ts'

/** The use of one route's jobs, as fractions of the declared cost. */
export interface LearnedRoute {
  task: string
  /** The value of the field that `learn` names; '': it names none. */
  value: string
  /** How many jobs were measured, of the last 128. */
  jobs: number
  /** Half of the jobs used at most this; the next two: nine of ten jobs, and all jobs. */
  half: number
  nineOfTen: number
  all: number
}

const routesMax = 64

/** Reads the routes of a limit, the most recently used first. */
export async function learnedRoutes(sql: Sql, name: string): Promise<LearnedRoute[]> {
  const text = `select l.task, l.value, cardinality(l.ratios) as jobs, q.at
    from sluice.learned l cross join lateral
      (select percentile_disc(array[0.5, 0.9, 1]) within group (order by r) as at from unnest(l.ratios) r) q
    where l.lim = $1 order by l.seen_at desc, l.task, l.value limit ${routesMax}`
  const rows = await sql.query<{ task: string; value: string; jobs: number; at: number[] }>(text, [name])
  return rows.map(({ at, ...route }) => {
    const [half = 0, nineOfTen = 0, all = 0] = at.map((thousandths) => thousandths / 1_000)
    return { ...route, half, nineOfTen, all }
  })
}

/** Makes the table of learned costs. */
export function learnedTable(routes: readonly LearnedRoute[]): string[][] {
  return [
    ['TASK', 'LEARNED FOR', 'JOBS', 'P50 OF COST', 'P90', 'MAX'],
    ...routes.map(({ task, value, jobs, half, nineOfTen, all }) => [
      task,
      redactText(value),
      `${jobs}`,
      ...[half, nineOfTen, all].map(percent),
    ]),
  ]
}
