// PostgreSQL with pg_stat_statements, for measures of the server itself. It costs some speed, so no rates are measured here.
import pg from 'pg'
import { start as startPlain } from './postgres.mjs'

export async function start() {
  const server = await startPlain(undefined, { shared_preload_libraries: 'pg_stat_statements' })
  return {
    ...server,
    about: `${server.about}, pg_stat_statements`,
    async place() {
      const place = await server.place()
      const client = new pg.Client(place.adminUrl)
      await client.connect()
      await client.query('create extension pg_stat_statements')
      await client.end()
      return place
    },
  }
}
