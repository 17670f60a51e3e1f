/** Finds the rate of a limit that is `adaptive`: from what the ledger shows, in versions of its definition. */
import { amount } from '../../core/money.ts'
import { currentUser } from '../../core/user.ts'
import type { Sql } from '../../db/store.ts'
import { adaptRate, type Found } from '../../limits/adaptive.ts'
import { limit as limitOf, type Limit, type LimitOptions } from '../../limits/limit.ts'
import { applyChanges } from '../../limits/numbers.ts'
import type { Rule } from '../../limits/rule.ts'
import { columnsOf, numbersOnly } from './columns.ts'

interface Row {
  version: number
  source: string
  spec: { rules: Rule[]; adaptive?: Partial<Found> }
  age_us: number
  used: number
  is_refused: boolean
  accepted: number | null
}

/**
 * Looks at the last window of a limit, and puts another rate in force if that calls for it. Any number of processes may
 * call it: a change is made once. Does nothing while an operator's numbers are in force.
 */
export async function adapt(sql: Sql, limit: Limit): Promise<void> {
  const rule = limit.rules.find(({ kind }) => kind === 'rate')
  if (limit.adaptive === undefined || rule === undefined) return
  const { windowUs } = rule
  const [row] = await sql.run<Row>('limits/definitions/read_adaptive_limit', [limit.name, windowUs])
  const units = row?.spec.rules.find(({ kind }) => kind === 'rate')?.units
  if (row === undefined || units === undefined || (row.source !== 'code' && row.source !== 'found')) return
  const { used, is_refused: isRefused } = row
  const age = { windows: row.age_us / windowUs, minutes: row.age_us / 60_000_000 }
  const course = { units, ...age, used, accepted: row.accepted ?? undefined, isRefused }
  const next = adaptRate(course, { ...(row.source === 'found' ? row.spec.adaptive : {}), ...limit.adaptive })
  if (next === undefined) return
  const { units: rate, ...found } = next
  const text = `${amount(rate, limit.currency)}${rule.rate.slice(rule.rate.indexOf('/'))}` as `${number}/s`
  const numbers = applyChanges(limit.numbers, { rate: text })
  // Without a cost it could not be in money.
  const made = limitOf(limit.name, { ...numbers, cost: 1 } as LimitOptions)
  const why =
    rate > units
      ? `${used} in a window were accepted`
      : row.accepted === null
        ? 'its bounds have changed'
        : `the vendor refused a request after ${row.accepted} in its window`
  const spec = JSON.stringify({ ...numbersOnly(made), adaptive: found })
  const params = [
    limit.name,
    row.version,
    'found',
    null,
    null,
    spec,
    JSON.stringify(columnsOf(made)),
    currentUser(),
    why,
  ]
  await sql.call('adapt_limit', params)
}
