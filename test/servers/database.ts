import { randomUUID } from 'node:crypto'
import pg from 'pg'
import { inject } from 'vitest'
import type { PostgresUrls } from './postgres.ts'

/** An empty database that nobody else uses. */
export interface FreshDatabase extends PostgresUrls {
  /** Drops it, ending whoever is still connected. Optional: the run's server is removed with everything in it. */
  drop: () => Promise<void>
}

let server: Promise<PostgresUrls> | undefined

/** Creates an empty database on the run's server, for one test file or one test. Both URLs name this database. */
export async function freshDatabase(): Promise<FreshDatabase> {
  server ??= askDoor()
  const { url, adminUrl } = await server
  const name = `test_${randomUUID().replaceAll('-', '')}`
  const owner = decodeURIComponent(new URL(url).username)
  await run(adminUrl, `CREATE DATABASE ${name} OWNER ${pg.escapeIdentifier(owner)} TEMPLATE template0`)
  return {
    url: withDatabase(url, name),
    adminUrl: withDatabase(adminUrl, name),
    drop: () => run(adminUrl, `DROP DATABASE IF EXISTS ${name} WITH (FORCE)`),
  }
}

async function askDoor(): Promise<PostgresUrls> {
  const response = await fetch(inject('postgresDoor'))
  if (!response.ok) throw new Error(await response.text())
  return (await response.json()) as PostgresUrls
}

function withDatabase(url: string, name: string): string {
  const changed = new URL(url)
  changed.pathname = `/${name}`
  return changed.href
}

async function run(url: string, sql: string): Promise<void> {
  const client = new pg.Client(url)
  await client.connect()
  try {
    await client.query(sql)
  } finally {
    await client.end()
  }
}
