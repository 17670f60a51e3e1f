/** Pools of connections to a server, and how each connection is prepared. */
import type pg from 'pg'
import { UsageError } from '../core/errors.ts'
import { checkedSocket } from './connection-error.ts'
import { driver } from './driver.ts'
import type { ServerSession } from './late-requests.ts'

/** Connections through a pooler that switches server sessions: what is prepared or set on them affects other clients. */
export const pooled = new WeakSet<pg.ClientBase>()
/** The server's sessions of the other connections. */
export const sessions = new WeakMap<pg.ClientBase, ServerSession>()

const settleSql = `select pid, case when pid = $1 then set_config('default_transaction_isolation', 'read committed', false)
    else current_setting('default_transaction_isolation') end as level,
  case when pid = $1 then (select extract(epoch from a.backend_start)::text from pg_stat_get_activity($1) a) end as since,
  case when pid = $1 then set_config('tcp_user_timeout', '10000', false) end,
  case when pid = $1 then set_config('jit', 'off', false) end,
  case when pid = $1 then set_config('idle_in_transaction_session_timeout', '60000', false) end,
  case when pid = $1 and current_setting('application_name') = '' then set_config('application_name', 'sluice', false) end
  from pg_backend_pid() pid`

/**
 * Prepares a new connection: transactions at read committed, whatever the role's or the database's default is (at other
 * levels a claim would decide by a snapshot from before it waited), no compilation of statements (it took longer than all else of
 * `verify`), timeouts for what a stopped process leaves open, and a name.
 * Uses statements, because poolers reject start-up options; does nothing through a pooler, where it would affect others.
 * @throws UsageError SLUICE_BAD_ISOLATION when a pooler's connections begin transactions at another level.
 */
export async function settle(client: pg.ClientBase): Promise<void> {
  // A pooler invents this number; the embedded engine's owner, whose one backend is configured already, leaves it at 0.
  const { processID } = client as unknown as { processID: number }
  const query = { text: settleSql, values: [processID], query_timeout: 5_000 }
  const { rows } = await client.query<{ level: string; pid: number; since: string | null }>(query)
  const { pid, since } = rows[0] ?? {}
  if (processID !== 0 && pid !== processID) pooled.add(client)
  if (pid === processID && since) sessions.set(client, { pid, since })
  if (rows[0]?.level !== 'read committed')
    throw new UsageError(
      'SLUICE_BAD_ISOLATION',
      `the pooler's connections begin transactions at ${rows[0]?.level}, and Sluice needs read committed: connect to the server itself, or with a role for which you ran \`alter role … set default_transaction_isolation = 'read committed'\``,
    )
}

/** Makes a pool of connections, each of them prepared; connects only for the first statement. */
export function makePool(url: string, max: number): pg.Pool {
  const pool = new driver.Pool({
    connectionString: url,
    stream: checkedSocket,
    max,
    connectionTimeoutMillis: 5_000,
    idleTimeoutMillis: 60_000,
    // A script that only sends ends when it is done, not only after its connections have been idle for long.
    allowExitOnIdle: true,
    keepAlive: true,
    keepAliveInitialDelayMillis: 5_000,
    verify: (client, done) => void settle(client).then(() => done(), done),
  })
  // An idle connection that breaks is replaced at the next use; without a handler it would end the process.
  pool.on('error', () => {})
  // The same for a connection in use: the query in progress reports the error.
  pool.on('connect', (client) => void client.on('error', () => {}))
  return pool
}
