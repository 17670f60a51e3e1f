/** Check for gates whose time zone the server does not know any more: they stay closed. */
import { fail, ok, type Finding } from './finding.ts'
import { has, type StorageAt } from './storage.ts'

/** Checks the time zones of all gates; undefined: the store has no table of gates. */
export async function zones({ sql }: StorageAt): Promise<Finding | undefined> {
  if (!(await has(sql, 'gate'))) return undefined
  const rows = await sql.query<{ name: string; zone: string }>(
    `select name, zone from sluice.gate g where zone is not null
     and not exists (select 1 from pg_timezone_names z where lower(z.name) = lower(g.zone)) order by name`,
  )
  if (rows.length === 0) return ok('the server knows the time zones of all opening hours')
  const list = rows.map(({ name, zone }) => `${name} (${zone})`).join(', ')
  return fail(
    `jobs do not start, because the server does not know the time zone of their opening hours: ${list}; update its time zone data, or give the rule another`,
  )
}
