/** Compares the connections that the processes of the store may open with what the server allows, for `sluice doctor`. */
import { ok, warn, type Finding } from './finding.ts'
import { many } from './output.ts'
import { has, type StorageAt } from './storage.ts'

/** How many a process of one worker opens at most (docs/deploying.md). */
const perProcess = 18

/** Counts what the server, the database and the role allow, and what others use; undefined: the engine is embedded. */
export async function connections({ sql, isEmbedded }: StorageAt): Promise<Finding | undefined> {
  if (isEmbedded) return undefined
  const processes = (await has(sql, 'worker'))
    ? 'select count(distinct (host, pid))::int from sluice.worker'
    : 'select 0'
  const [row] = await sql.query<{ most: number; others: number; processes: number }>(
    `select least(
        current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,
        (select nullif(datconnlimit, -1) from pg_database where datname = current_database()),
        (select nullif(rolconnlimit, -1) from pg_roles where rolname = current_user)) as most,
      (select count(*) from pg_stat_activity
        where datid is not null and coalesce(backend_type, 'client backend') = 'client backend'
          and coalesce(application_name, '') not like 'sluice%')::int as others,
      (${processes}) as processes`,
  )
  const { most = 0, others = 0, processes: count = 0 } = row ?? {}
  const text = `the server accepts ${many(most, 'connection')}; ${many(count, 'program')} with workers may open ${count * perProcess}, other programs have ${others}`
  if (count * perProcess + others < most) return ok(text)
  return warn(`${text}: raise max_connections, lower \`connections\`, or use a pooler (docs/deploying.md)`)
}
