// The program that cron would start: claims the allowed jobs, runs them, exits. `node once.mjs '{"store","schema","vendor"}'`.
import { limit, Sluice, task } from '../../dist/index.js'

const { store, schema, vendor } = JSON.parse(process.argv[2])
const anything = { '~standard': { version: 1, vendor: 'test', validate: (value) => ({ value }) } }
const call = task('once', {
  input: anything,
  limits: [limit('hourly', { rate: '600/h' })],
  async run(_input, { fetch, job }) {
    await (await fetch(vendor, { headers: { 'idempotency-key': job.id } })).text()
  },
})
const sluice = await Sluice.open({ store, schema, connections: 2 })
process.stdout.write(`${await sluice.dispatchOnce([call])}\n`)
await sluice.close()
