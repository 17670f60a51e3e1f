// PostgreSQL: durable, defaults but for max_connections; each sample gets a database of its own.
import { randomBytes } from 'node:crypto'
import pg from 'pg'
import { startPostgres } from '../../scripts/postgres.mjs'

const standard = { max_connections: 400 }

/** What samples are told of the server, and how to end it; `more` settings only where a scenario needs them. */
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
    /** A fresh database, after a checkpoint, so that nobody pays for what the one before wrote. */
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
