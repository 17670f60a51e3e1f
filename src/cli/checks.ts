/** The checks of `sluice doctor`. Each checks one thing, and returns undefined where it does not apply. */
import { systemClock } from '../core/clock.ts'
import { lackInWords, pending } from '../db/migrate.ts'
import type { Opened } from '../db/open.ts'
import { type Sql, sqlOn } from '../db/store.ts'
import { redactText } from '../core/redact.ts'
import { hasKeys, type LimitLine } from '../operations/limit-line.ts'
import { Limits } from '../operations/limits.ts'
import type { PgliteDb } from '../db/pglite.ts'
import { abandoned, unattended } from './backlog.ts'
import { channels, connections, redisClients } from './connections.ts'
import { restores, steps } from './epoch.ts'
import { fail, ok, warn, type Finding } from './finding.ts'
import { fleet } from './fleet.ts'
import { lanes } from './lanes.ts'
import { many, span } from './output.ts'
import { parked } from './parked.ts'
import { redisServer, shared } from './shared.ts'
import { stock } from './stock.ts'
import { bloat, has, snapshots, type StorageAt, wraparound } from './storage.ts'
import { zones } from './zones.ts'
import { driver } from '../db/driver.ts'

/** The parameter of a check. */
interface Place {
  store: Opened
  schema: string
  /** URL of the Redis in which limits are shared; undefined: none. */
  redis?: string | undefined
  /** URL of the RabbitMQ of a fleet; undefined: none is known. */
  amqp?: string | undefined
}

/** One check; undefined: it does not apply. */
export type Check = (place: Place) => Promise<Finding | undefined>

/** What a check looks at. */
type At = Place & StorageAt

const serverLeast = 130_000
const skewWarnMs = 1_000
/** Ids made more than a day off the store's clock are rejected; a clock that is an hour off is broken already. */
const skewFailMs = 3_600_000
const beatWaitMs = 5_000
const listenWaitMs = 5_000

/** Checks that the store answers. @throws StoreError SLUICE_STORE_UNREACHABLE */
export async function connection({ db, owner }: Opened, name: string): Promise<Finding> {
  const start = systemClock.monotonicMs()
  await db.query('select 1')
  const how = owner ? ' (embedded, owned by this process)' : ''
  return ok(`${name} answers in ${span(systemClock.monotonicMs() - start)}${how}`)
}

/** The checks after the connection, by name. */
export const checks = placed({
  server,
  disk,
  schema,
  partitions,
  parked,
  zones,
  snapshots,
  bloat,
  wraparound,
  limits,
  redis: ({ redis }) => redisServer(redis),
  clients: (at) => redisClients(at, at.redis),
  shared,
  fleet: (at) => fleet(at, at.amqp),
  channels: ({ amqp }) => channels(amqp),
  stock: (at) => stock(at, at.amqp),
  clock,
  steps,
  restores,
  pooler,
  // A pooler opens as many as it is configured to.
  connections: async (at) => (at.store.url === at.store.directUrl ? connections(at) : undefined),
  listen,
  workers,
  handlers,
  labels,
  abandoned,
})

/** The checks of `sluice doctor --deep`, by name: they read whole tables. */
export const deepChecks = placed({ waiting: lanes })

function placed(all: Record<string, (at: At) => Promise<Finding | undefined>>): Record<string, Check> {
  const atOf = (place: Place): At => {
    const { store, schema: name } = place
    return { ...place, sql: sqlOn(store.db, name), isEmbedded: store.embedded }
  }
  return Object.fromEntries(Object.entries(all).map(([name, check]) => [name, (place: Place) => check(atOf(place))]))
}

async function server({ store: { db } }: Place): Promise<Finding> {
  const [row] = await db.query<{ number: number; version: string; read_only: string }>(
    `select current_setting('server_version_num')::int as number, current_setting('server_version') as version,
      current_setting('transaction_read_only') as read_only`,
  )
  const flaw =
    (row?.number ?? 0) < serverLeast
      ? '; 13 or later is needed'
      : row?.read_only === 'on'
        ? ', read-only: is this a replica? Workers and senders need the primary server'
        : ''
  return { status: flaw === '' ? 'ok' : 'fail', text: `PostgreSQL ${row?.version}${flaw}` }
}

async function disk({ store: { db } }: Place): Promise<Finding> {
  if (db.kind === 'pglite') {
    const embedded = db as PgliteDb
    const before = embedded.syncs()
    await db.query(`select pg_logical_emit_message(true, 'sluice', 'doctor')`)
    if (embedded.syncs() > before) return ok('a commit is on the disk before it returns')
    return fail('a commit returned before it was on the disk: a crash of the machine may lose it')
  }
  const [row] = await db.query<{ sync: string; commit: string }>(
    `select current_setting('fsync') as sync, current_setting('synchronous_commit') as commit`,
  )
  if (row?.sync !== 'on') return fail('fsync is off: a crash of the machine may destroy the database')
  if (row.commit === 'off') return warn('synchronous_commit is off: a crash may lose the last acknowledged jobs')
  return ok(`fsync is on, synchronous_commit ${row.commit}`)
}

async function schema({ store: { db }, schema: name }: Place): Promise<Finding> {
  const steps = await pending(db, name)
  if (steps.length === 0) return ok(`schema ${name} is up to date`)
  const names = steps.map((step) => step.name)
  return fail(lackInWords(name, names))
}

async function partitions({ sql, schema: name }: At): Promise<Finding | undefined> {
  if (!(await has(sql, 'done'))) return undefined
  const rows = await sql.query<{ missing: string; days: number }>(
    `select t || to_char(clock_timestamp() at time zone 'UTC' + d * interval '1 day', '_YYYYMMDD') as missing, d as days
     from unnest(array['done', 'failed']) t, generate_series(0, 1) d
     where to_regclass($1 || '.' || t || to_char(clock_timestamp() at time zone 'UTC' + d * interval '1 day', '_YYYYMMDD')) is null`,
    [name],
  )
  if (rows.length === 0) return ok('history has partitions for today and tomorrow')
  const text = `history lacks partitions ${rows.map((row) => row.missing).join(', ')}; start a worker, or run \`sluice prune\` daily, which creates them too`
  return { status: rows.some((row) => row.days === 0) ? 'fail' : 'warn', text }
}

async function clock({ store: { db } }: Place): Promise<Finding> {
  const before = systemClock.wallMs()
  const [row] = await db.query<{ ms: number }>(`select (extract(epoch from clock_timestamp()) * 1000)::float8 as ms`)
  const after = systemClock.wallMs()
  const store = row?.ms ?? 0
  // The store read its clock between our two readings: only a difference beyond these is certain.
  const skewMs = Math.max(0, before - store, store - after)
  const text = `the store's clock and this machine's differ by ${span(skewMs)}`
  if (skewMs > skewFailMs) return fail(`${text}; ids made here may be rejected: set the clocks`)
  return {
    status: skewMs > skewWarnMs ? 'warn' : 'ok',
    text: skewMs > skewWarnMs ? `${text}; limits still hold, but times shown here are off` : text,
  }
}

/** Returns whether a pooler is between here and the server: then the session that answers is not the one that was opened. */
async function isPooled(url: string): Promise<boolean> {
  const client = new driver.Client({ connectionString: url, connectionTimeoutMillis: 5_000, query_timeout: 5_000 })
  client.on('error', () => {})
  await client.connect()
  try {
    const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid')
    return rows[0]?.pid !== (client as unknown as { processID: number }).processID
  } finally {
    await client.end()
  }
}

async function pooler({ store: { url, directUrl, embedded } }: Place): Promise<Finding | undefined> {
  if (url === undefined || directUrl === undefined || embedded) return undefined
  if (url !== directUrl && (await isPooled(directUrl)))
    return warn('SLUICE_LISTEN_URL leads to a pooler, too; it must lead to the server itself')
  if (!(await isPooled(url))) return ok('connections lead to the server itself')
  if (url !== directUrl) return ok('connections go through a pooler, LISTEN goes to the server itself')
  return warn(
    'connections go through a pooler; in transaction mode it drops notifications, so workers only poll (1.5 s): set SLUICE_LISTEN_URL (or `listenUrl`) to the server itself',
  )
}

async function listen({ store: { db }, schema: name }: Place): Promise<Finding> {
  const channel = `${name}.doctor`
  let hasArrived = false
  const unlisten = await db.listen(channel, () => (hasArrived = true))
  // The first notification may come before LISTEN is in force.
  await waitUntil(async () => {
    await db.query('select pg_notify($1, $2)', [channel, ''])
    return hasArrived
  }, listenWaitMs)
  await unlisten()
  if (hasArrived) return ok('notifications arrive')
  return warn(
    'notifications do not arrive, so workers only poll (1.5 s); behind a pooler set SLUICE_LISTEN_URL to the server itself',
  )
}

async function limits({ sql }: At): Promise<Finding | undefined> {
  if (!(await has(sql, 'limit_source'))) return undefined
  const all = new Limits(sql, systemClock)
  const lines = await all.list()
  const own: LimitLine[] = []
  for (const line of lines.filter(hasKeys))
    for (const { key } of line.keyNumbers) own.push(await all.show(line.name, { key }))
  const unsafe = [...lines, ...own].flatMap(({ name: limit, key, guarantee: { warning } }) =>
    warning === undefined ? [] : [`${limit}${key === undefined ? '' : ` key ${redactText(key)}`}: ${warning}`],
  )
  if (unsafe.length > 0) return warn(`${unsafe.join('; ')}; see \`sluice limits show\``)
  const over = lines.filter(({ source }) => source !== 'code').map(({ name: limit, source }) => `${limit} ${source}`)
  const changed = over.length === 0 ? '' : `; overridden: ${over.join(', ')}`
  return ok(`no limit is looser than the \`vendor\` limit that it states${changed}`)
}

interface Worker {
  id: string
  beat: string
  slots: number
  who: string
}

/** Reads the workers that are registered, and which of them send no heartbeat for as long as that is awaited. */
export async function lookAtWorkers(sql: Sql): Promise<{ all: Worker[]; silent: Worker[] }> {
  const look = () =>
    sql.query<Worker & Record<string, unknown>>(
      `select id, beat, slots, host || ':' || pid as who from sluice.worker order by id`,
    )
  const all: Worker[] = await look()
  let silent = all
  await waitUntil(async () => {
    const now = new Map((await look()).map((row) => [row.id, row.beat]))
    // A worker that ended meanwhile is not silent.
    silent = silent.filter((row) => now.get(row.id) === row.beat)
    return silent.length === 0
  }, beatWaitMs)
  return { all, silent }
}

async function workers(at: At): Promise<Finding | undefined> {
  const { sql } = at
  if (!(await has(sql, 'worker'))) return undefined
  const { all: first, silent } = await lookAtWorkers(sql)
  if (first.length === 0) return unattended(at)
  const all = `${many(first.length, 'worker')} with ${many(
    first.reduce((sum, row) => sum + row.slots, 0),
    'slot',
  )}`
  if (silent.length === 0) return ok(`${all}: heartbeats arrive`)
  return warn(
    `of ${all}, ${silent.map((row) => row.who).join(', ')} sent no heartbeat for ${span(beatWaitMs)}; other workers take their jobs after 10 s`,
  )
}

async function handlers({ sql }: At): Promise<Finding | undefined> {
  if (!(await has(sql, 'worker'))) return undefined
  // Through JSON, because a schema that is out of date lacks the column; another check reports that.
  const rows = await sql.query<{ who: string; stuck: number; slots: number }>(
    `select w.host || ':' || w.pid as who, s.n as stuck, w.slots from sluice.worker w
       cross join lateral (select (to_jsonb(w) ->> 'stuck')::int as n) s where s.n > 0 order by w.id`,
  )
  if (rows.length === 0) return ok('no handler is stuck')
  const list = rows.map(({ who, stuck, slots }) => `${who} (${stuck}${stuck >= slots ? ', takes no more jobs' : ''})`)
  return warn(
    `handlers still run though their attempts have ended: ${list.join(', ')}; the workers' logs name task and job; restart these workers, and make the handlers stop on \`signal\``,
  )
}

/** Checks for limits by a label that no worker has: their jobs wait for ever. */
async function labels({ sql }: At): Promise<Finding | undefined> {
  if (!(await has(sql, 'class'))) return undefined
  // Through JSON, because a schema that is out of date lacks the columns; another check reports that.
  const rows = await sql.query<{ task: string; queue: string; label: string }>(
    `select distinct c.task, c.queue, split_part(l.limit, '@', 2) as label
       from sluice.class c cross join lateral jsonb_array_elements_text(nullif(to_jsonb(c) -> 'labels', 'null')) l ("limit")
       where (exists (select 1 from sluice.lane l where l.class = c.id and l.list is not null) or exists (select 1 from sluice.arrival a where a.class = c.id))
         and not exists (select 1 from sluice.worker w where (w.queues is null or c.queue = any (w.queues)) and c.task = any (w.tasks)
                         and to_jsonb(w) -> 'labels' ? split_part(l.limit, '@', 2))`,
  )
  if (rows.length === 0) return ok('no job waits for a label that no worker has')
  const list = rows.map(({ task, queue, label }) => `${label} (task ${task}, queue ${queue})`)
  return warn(
    `jobs wait for a worker with the label ${list.join(', ')}; start one: \`sluice work --label <name>=<value>\``,
  )
}

async function waitUntil(isTrue: () => Promise<boolean>, waitMs: number): Promise<void> {
  const end = systemClock.monotonicMs() + waitMs
  while (!(await isTrue()) && systemClock.monotonicMs() < end) await systemClock.sleep(100)
}
