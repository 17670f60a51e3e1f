/** Databases on the run's server: for its global set-up, and for the tests. */
import { tmpdir } from 'node:os'
import pg from 'pg'
import type { PostgresUrls } from './postgres.ts'

/** The run's server, and the name of a database there that has this release's schema, for others to be copied from. */
export interface RunUrls extends PostgresUrls {
  template: string
}

/** Creates a database as a copy of `template`. Both URLs that it resolves to name the new database. */
export async function createDatabase(server: PostgresUrls, name: string, template: string): Promise<PostgresUrls> {
  const owner = decodeURIComponent(new URL(server.url).username)
  const admin = connectionTo(server.adminUrl)
  const { rows } = await admin.query<{ is: boolean }>(
    `select current_setting('server_version_num')::int >= 150000 as is`,
  )
  // The older way, which is cheaper where a checkpoint need not wait for a disk, and copies what a first connection would compute.
  const byFiles = rows[0]?.is && tmpdir().startsWith('/dev/shm/') ? 'STRATEGY file_copy' : ''
  await admin.query(`CREATE DATABASE ${name} OWNER ${pg.escapeIdentifier(owner)} TEMPLATE ${template} ${byFiles}`)
  return { url: withDatabase(server.url, name), adminUrl: withDatabase(server.adminUrl, name) }
}

/** Drops a database, ending whoever is still connected. */
export async function dropDatabase(adminUrl: string, name: string): Promise<void> {
  await connectionTo(adminUrl).query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`)
}

/** Drops a database. @throws if somebody is still connected after five seconds */
export async function dropUnused(adminUrl: string, name: string): Promise<void> {
  await connectionTo(adminUrl).query(`DROP DATABASE IF EXISTS ${name}`)
}

function withDatabase(url: string, name: string): string {
  const changed = new URL(url)
  changed.pathname = `/${name}`
  return changed.href
}

/** A connection to each server, which stays open: to start and end one takes as much of a core as to drop a database. */
const connections = new Map<string, pg.Pool>()

function connectionTo(url: string): pg.Pool {
  const known = connections.get(url)
  if (known !== undefined) return known
  const pool = new pg.Pool({ connectionString: url, max: 1, idleTimeoutMillis: 0, allowExitOnIdle: true })
  // The run's end stops the server.
  pool.on('error', () => {})
  connections.set(url, pool)
  return pool
}
