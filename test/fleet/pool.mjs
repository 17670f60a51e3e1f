// One worker process: `node pool.mjs '{"store","vendor","host"}'`. Runs the built code.
import { label, limit, Sluice, task } from '../../dist/index.js'

const { store, vendor, host } = JSON.parse(process.argv[2])
const anything = { '~standard': { version: 1, vendor: 'test', validate: (value) => ({ value }) } }
const account = limit('account', {
  rate: '20/2s',
  transit: '1s',
  pool: ['a', 'b', 'c'].map((key) => ({ key, baseUrl: vendor, headers: { 'x-key': key } })),
})
const machine = limit('machine', { rate: '40/2s', transit: '1s', by: label('host') })

const call = task('call', {
  input: anything,
  limits: [account, machine],
  async run(_, { fetch, job, labels }) {
    const response = await fetch(`/${job.id}`, { headers: { 'x-host': labels.host, 'idempotency-key': job.id } })
    await response.text()
    if (!response.ok) throw new Error(`the vendor said ${response.status}`)
  },
})

const sluice = await Sluice.open({ store, allowPrivate: ['127.0.0.1'] })
const worker = await sluice.work([call], { concurrency: 8, labels: { host } })
process.stdout.write('ready\n')
process.once('SIGTERM', () => void worker.stop().then(() => sluice.close()))
