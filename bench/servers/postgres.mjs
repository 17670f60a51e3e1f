// PostgreSQL: durable, with default settings except max_connections; each sample gets its own database.
import { randomBytes } from 'node:crypto'
import pg from 'pg'
import { startPostgres } from '../../scripts/postgres.mjs'

const standard = { max_connections: 400 }

/** Starts the server; returns what samples need and how to end it. `more`: settings that only some scenarios need. */
export async function start(_options, more = {}) {
  const settings = { ...standard, ...more }
  const server = await startPostgres({ settings })
  const client = new pg.Client(server.adminUrl)
  client.on('error', () => {})
  await client.connect()
  const { rows } = await client.query('select version() as version')
  const version = /^PostgreSQL [\d.]+/.exec(rows[0].version)[0]
  return {
    pid: server.pid,
    about: `${version}, fsync=on, synchronous_commit=on, max_connections=${settings.max_connections}, else defaults`,
    /** Creates a new database after a checkpoint, so that no sample pays for writes of the previous one. */
    async place() {
      const name = `bench_${randomBytes(6).toString('hex')}`
      await client.query(`create database ${name} owner sluice template template0`)
      await client.query('checkpoint')
      const at = (url) => url.replace(/[^/]*$/, name)
      return {
        url: at(server.url),
        adminUrl: at(server.adminUrl),
        remove: () => client.query(`drop database ${name} with (force)`),
      }
    },
    async close() {
      await client.end()
      await server.close()
    },
  }
}
