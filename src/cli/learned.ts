/** What `sluice limits show` tells of learned costs. */
import { redactText } from '../core/redact.ts'
import type { Sql } from '../db/store.ts'

/** What jobs of one route have used, as parts of the declared cost: at most so much half of them, nine of ten, all. */
export interface LearnedRoute {
  task: string
  /** Of the field that `learn` names; '': of none. */
  value: string
  /** Jobs that this is known of, of the last 128. */
  jobs: number
  half: number
  nineOfTen: number
  all: number
}

const routesMax = 64

/** The routes of a limit, those used last first. */
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

/** A table for people. */
export function learnedTable(routes: readonly LearnedRoute[]): string[][] {
  const percent = (part: number) => `${Number((part * 100).toFixed(1))} %`
  return [
    ['TASK', 'LEARNED OF', 'JOBS', 'HALF USE AT MOST', '9 OF 10', 'ALL'],
    ...routes.map(({ task, value, jobs, half, nineOfTen, all }) => [
      task,
      redactText(value),
      `${jobs}`,
      ...[half, nineOfTen, all].map(percent),
    ]),
  ]
}
