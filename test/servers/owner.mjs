// A process that owns a PostgreSQL, sends its address, and waits for a kill or, at any message, ends by itself.
import { startPostgres } from '../../scripts/postgres.mjs'

const { pid, dir, url } = await startPostgres()
process.on('message', () => process.exit(0))
process.send({ pid, dir, url })
