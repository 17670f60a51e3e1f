// A replica of a service: records what its handler gets in a table, until it is killed.
import pg from 'pg'
import { event, Sluice } from '../../dist/index.js'

const [url, service] = process.argv.slice(2)
const pool = new pg.Pool({ connectionString: url, max: 5 })
const sluice = await Sluice.open({ store: url, service })
const record = event('fleet.number').on(
  async ({ n }, { redelivered }) =>
    void (await pool.query('insert into handled (service, n, redelivered) values ($1, $2, $3)', [
      service,
      n,
      redelivered,
    ])),
  { name: 'record' },
)
await sluice.work([record], { concurrency: 10 })
process.stdout.write('ready\n')
