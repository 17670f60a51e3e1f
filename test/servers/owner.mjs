// A process that owns a PostgreSQL, tells where it is, and waits to be killed or, at any message, to end by itself.
import { startPostgres } from '../../scripts/postgres.mjs'

const { pid, dir, url } = await startPostgres()
process.on('message', () => process.exit(0))
process.send({ pid, dir, url })
