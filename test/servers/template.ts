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
  await run(server.adminUrl, async (client) => {
    const { rows } = await client.query<{ is: boolean }>(
      `select current_setting('server_version_num')::int >= 150000 as is`,
    )
    // The older way, which is cheaper where a checkpoint need not wait for a disk, and copies what a first connection would compute.
    const byFiles = rows[0]?.is && tmpdir().startsWith('/dev/shm/') ? 'STRATEGY file_copy' : ''
    await client.query(`CREATE DATABASE ${name} OWNER ${pg.escapeIdentifier(owner)} TEMPLATE ${template} ${byFiles}`)
  })
  return { url: withDatabase(server.url, name), adminUrl: withDatabase(server.adminUrl, name) }
}

/** Drops a database, ending whoever is still connected. */
export function dropDatabase(adminUrl: string, name: string): Promise<void> {
  return run(adminUrl, (client) => client.query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`))
}

/** Drops a database. @throws if somebody is still connected after five seconds */
export function dropUnused(adminUrl: string, name: string): Promise<void> {
  return run(adminUrl, (client) => client.query(`DROP DATABASE IF EXISTS ${name}`))
}

function withDatabase(url: string, name: string): string {
  const changed = new URL(url)
  changed.pathname = `/${name}`
  return changed.href
}

async function run(url: string, body: (client: pg.Client) => Promise<unknown>): Promise<void> {
  const client = new pg.Client(url)
  await client.connect()
  try {
    await body(client)
  } finally {
    await client.end()
  }
}
