import { randomUUID } from 'node:crypto'
import { inject } from 'vitest'
import type pg from 'pg'
import type { Queryable } from '../../src/db/db.ts'
import type { PostgresUrls } from './postgres.ts'
import { atEnd } from '../ends.ts'
import { createDatabase, dropDatabase, dropUnused, type RunUrls } from './template.ts'

/** A database that nobody else uses. */
export interface FreshDatabase extends PostgresUrls {
  /** Drops it, ending whoever is still connected. Optional: one that nobody uses goes at the end of the test file. */
  drop: () => Promise<void>
}

/** A session of its own, as the functions of the engine take one. */
export const queryable = (client: pg.Client): Queryable => ({
  query: async (sql, params = []) => (await client.query(sql, [...params])).rows as never,
})

let server: Promise<RunUrls> | undefined

/**
 * Creates a database on the run's server, for one test file or one test, with this release's schema `sluice` and nothing
 * in its tables. Both URLs name this database.
 */
export async function freshDatabase(): Promise<FreshDatabase> {
  server ??= askDoor()
  const run = await server
  return create(run, run.template)
}

/** Creates a database on the run's server that has no schema of ours. Both URLs name this database. */
export async function emptyDatabase(): Promise<FreshDatabase> {
  server ??= askDoor()
  return create(await server, 'template0')
}

async function create(run: RunUrls, template: string): Promise<FreshDatabase> {
  const name = `test_${randomUUID().replaceAll('-', '')}`
  // With hundreds of databases the server would do nothing but vacuum them in turn. A failed test may have left connections,
  // which fail the whole run when they are ended, so such a database stays.
  atEnd(() => dropUnused(run.adminUrl, name))
  return { ...(await createDatabase(run, name, template)), drop: () => dropDatabase(run.adminUrl, name) }
}

async function askDoor(): Promise<RunUrls> {
  const response = await fetch(`${inject('serverDoor')}/postgres`)
  if (!response.ok) throw new Error(await response.text())
  return (await response.json()) as RunUrls
}
