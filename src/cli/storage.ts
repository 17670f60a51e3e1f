/** Sizes of the store's tables, and checks for what keeps dead rows from being cleaned: for `sluice doctor` and `sluice status`. */
import type { Sql } from '../db/store.ts'
import { ok, warn, type Finding } from './finding.ts'
import { joinLines } from './failure.ts'
import { size, span } from './output.ts'
import { textOfError } from '../core/errors.ts'

/** The store to check. */
export interface StorageAt {
  sql: Sql
  schema: string
  /** The store is the embedded engine, which vacuums by itself and has no other sessions. */
  isEmbedded: boolean
}

/** The size of a table. */
export interface TableSize {
  table: string
  /** Live rows, by the server's statistics. */
  rows: number
  /** Dead rows: changed or deleted, and not vacuumed yet. */
  dead: number
  /** Size with indexes. */
  bytes: number
  /** Time since the last vacuum; null: none yet. */
  vacuumedMs: number | null
  /** Autovacuum is switched off for the table. */
  isOff: boolean
}

const heldMinutes = 5
/** The bound for holders whose age is known only in transactions, not in minutes. */
const heldXids = 100_000
const deadMost = 100_000
const vacuumLateMs = 600_000
/** PostgreSQL begins to freeze rows at 200 million transactions, and rejects commands at 2,100 million. */
const ageWarn = 600e6
const ageFail = 1_500e6

interface Holder {
  who: string
  how: string
  ms: number | null
  xids: number
  cure: string
}

/** Queries for what holds an old snapshot. Each reads only what any role may read; fields that are hidden from it are null. */
const holders = {
  sessions: `select 'pid ' || pid as who, coalesce(nullif(application_name, '') || ', ', '') || coalesce(state, 'state hidden') as how,
      (extract(epoch from at.now - xact_start) * 1000)::float8 as ms, greatest(age(backend_xmin), age(backend_xid), 0)::float8 as xids,
      format('select pg_terminate_backend(%s)', pid) as cure
    from (select sluice.now() as now offset 0) at, pg_stat_activity
    where (backend_xmin is not null or backend_xid is not null) and pid <> pg_backend_pid() and datname = current_database()
      and backend_type is distinct from 'autovacuum worker'`,
  'prepared transactions': `select 'prepared transaction ' || gid as who, 'of ' || owner as how,
      (extract(epoch from at.now - prepared) * 1000)::float8 as ms, age(transaction)::float8 as xids, format('rollback prepared %L', gid) as cure
    from (select sluice.now() as now offset 0) at, pg_prepared_xacts where database = current_database()`,
  'replication slots': `select 'replication slot ' || slot_name as who, case when active then 'in use' else 'not in use' end as how,
      null::float8 as ms, age(xmin)::float8 as xids, format('select pg_drop_replication_slot(%L)', slot_name) as cure
    from pg_replication_slots where xmin is not null`,
  standbys: `select 'standby ' || coalesce(nullif(application_name, ''), 'pid ' || pid) as who, 'by hot_standby_feedback' as how,
      null::float8 as ms, age(backend_xmin)::float8 as xids, 'end the long query on that standby' as cure
    from pg_stat_replication where backend_xmin is not null`,
}

/** Checks for old snapshots that keep dead rows: of sessions, prepared transactions, replication slots, standbys. */
export async function snapshots({ sql, isEmbedded }: StorageAt): Promise<Finding | undefined> {
  if (!(await has(sql, 'job'))) return undefined
  const all: Holder[] = []
  const unseen: string[] = []
  for (const [kind, text] of isEmbedded ? [] : Object.entries(holders)) {
    try {
      all.push(...(await sql.query<Holder>(text)))
    } catch (error) {
      unseen.push(`${kind} could not be read (${joinLines(textOfError(error))})`)
    }
  }
  const old = all
    .filter(({ ms, xids }) => (ms === null ? xids >= heldXids : ms > heldMinutes * 60_000))
    .sort((a, b) => b.xids - a.xids)
  if (await hidesSessions(sql))
    unseen.push('times of sessions of other roles are hidden: `grant pg_read_all_stats to` this role')
  const note = unseen.map((text) => `; ${text}`).join('')
  if (old.length === 0) return ok(`no snapshot is older than ${heldMinutes} min${note}`)
  const list = old
    .slice(0, 5)
    .map(({ who, how, ms, xids }) => `${who} (${how}, ${ms === null ? `${xids} transactions ago` : span(ms)})`)
  return warn(
    `old snapshots keep dead rows from being cleaned, so tables grow and dispatch may slow down: ${list.join(', ')}; end them, the first by \`${old[0]?.cure}\`${note}`,
  )
}

async function hidesSessions(sql: Sql): Promise<boolean> {
  const [row] = await sql.query<{ is: boolean }>(
    `select exists (select 1 from pg_stat_activity where datname = current_database() and state is null
       and (backend_xmin is not null or backend_xid is not null)) as is`,
  )
  return row?.is ?? false
}

/** Returns whether the store has this table; its schema may be missing, or out of date. */
export async function has(sql: Sql, table: string): Promise<boolean> {
  const [row] = await sql.query<{ is: boolean }>(`select to_regclass('sluice.${table}') is not null as is`)
  return row?.is ?? false
}

/** Reads the sizes of the schema's tables, the largest first; partitions of history are added up. */
export async function tableSizes({ sql, schema }: StorageAt): Promise<TableSize[]> {
  return sql.query<TableSize & Record<string, unknown>>(
    `select regexp_replace(c.relname, '_\\d{8}$', '') as table, sum(greatest(coalesce(s.n_live_tup, 0), c.reltuples, 0))::float8 as rows,
         sum(coalesce(s.n_dead_tup, 0))::float8 as dead, sum(pg_total_relation_size(c.oid))::float8 as bytes,
         (extract(epoch from at.now - max(greatest(s.last_vacuum, s.last_autovacuum))) * 1000)::float8 as "vacuumedMs",
         bool_or(coalesce('autovacuum_enabled=false' = any (c.reloptions) or 'autovacuum_enabled=off' = any (c.reloptions), false)) as "isOff"
       from (select sluice.now() as now offset 0) at, pg_class c left join pg_stat_all_tables s on s.relid = c.oid
       where c.relnamespace = to_regnamespace($1) and c.relkind = 'r' group by 1, at.now order by bytes desc, 1`,
    [schema],
  )
}

/** Checks for tables with more dead rows than live ones that were not vacuumed for a while, and why. */
export async function bloat(at: StorageAt): Promise<Finding | undefined> {
  const { sql, schema, isEmbedded } = at
  if (!(await has(sql, 'job'))) return undefined
  const tables = await tableSizes(at)
  const total = size(tables.reduce((sum, { bytes }) => sum + bytes, 0))
  const [set] = await sql.query<{ on: boolean }>(
    `select current_setting('autovacuum') = 'on' and current_setting('track_counts') = 'on' as on`,
  )
  const off = tables.filter((one) => one.isOff).map((one) => one.table)
  if (!isEmbedded && set?.on === false)
    return warn(`autovacuum (or track_counts) is off on this server, so tables only grow (now ${total}): switch it on`)
  if (!isEmbedded && off.length > 0)
    return warn(
      `autovacuum is off for ${off.join(', ')}; \`alter table ${schema}.${off[0]} reset (autovacuum_enabled)\``,
    )
  const dead = tables.filter(
    (one) => one.dead >= deadMost && one.dead > one.rows && (one.vacuumedMs ?? Infinity) > vacuumLateMs,
  )
  if (dead.length === 0) return ok(`tables and indexes take ${total}; dead rows are cleaned up`)
  const list = dead.map(({ table, rows, dead: count, vacuumedMs }) => {
    const since = vacuumedMs === null ? 'not vacuumed yet' : `vacuumed ${span(vacuumedMs)} ago`
    return `${table} (${count} dead, ${rows} live, ${since})`
  })
  return warn(
    `dead rows pile up in ${list.join(', ')}: end old snapshots (see that check), then run \`vacuum ${schema}.${dead[0]?.table}\` to reuse the space`,
  )
}

/** Checks how far this database is from transaction id wraparound. */
export async function wraparound({ sql, isEmbedded }: StorageAt): Promise<Finding | undefined> {
  const [row] = await sql.query<{ age: number; multi: number }>(
    `select age(datfrozenxid)::float8 as age, mxid_age(datminmxid)::float8 as multi from pg_database where datname = current_database()`,
  )
  const age = Math.max(row?.age ?? 0, row?.multi ?? 0)
  const text = `the oldest row is ${Math.round(age / 1e6)} of 2,100 million transactions old`
  if (age < ageWarn) return ok(text)
  const cure = isEmbedded ? '' : ' end old snapshots, check that autovacuum is on, and'
  return {
    status: age > ageFail ? 'fail' : 'warn',
    text: `${text}; at the limit PostgreSQL rejects all commands:${cure} run \`vacuum (freeze)\` in this database as its owner`,
  }
}
