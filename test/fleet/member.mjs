// One worker process of a test fleet: `node member.mjs '{"store","schema","vendor","concurrency"}'`. Runs the built code.
import { limit, Sluice, task } from '../../dist/index.js'

const { store, schema, vendor, concurrency } = JSON.parse(process.argv[2])
const anything = { '~standard': { version: 1, vendor: 'test', validate: (value) => ({ value }) } }
const fleetLimit = limit('fleet', { rate: '160/4s', transit: '1s' })
const keyLimit = limit('fleet-key', { rate: '80/4s', by: 'key', transit: '1s' })

const call = task('call', {
  input: anything,
  limits: [fleetLimit, keyLimit],
  retry: { attempts: 5, base: 50, max: 500 },
  async run({ key }, { fetch, attempt, job, ambiguous }) {
    const headers = { 'x-key': key, 'idempotency-key': job.id, 'x-sluice-attempt': `${attempt}${ambiguous ? '?' : ''}` }
    const response = await fetch(`${vendor}/${job.id}`, { headers })
    await response.text()
    if (!response.ok) throw new Error(`the vendor said ${response.status}`)
  },
})

const sluice = await Sluice.open({ store, schema })
const worker = await sluice.work([call], { concurrency })
process.stdout.write('ready\n')
process.once('SIGTERM', () => void worker.stop().then(() => sluice.close()))
