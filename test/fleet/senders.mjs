// One worker process of a fleet that sends messages for clients, each from numbers of its own (graphile/worker#118):
// `node senders.mjs '{"store","vendor","concurrency"}'`. Runs the built code; the test takes its definitions from here.
import { limit, Sluice, task } from '../../dist/index.js'

const anything = { '~standard': { version: 1, vendor: 'test', validate: (value) => ({ value }) } }
const transit = '1s'
let vendor = ''

/** The three limits; turns go by client. */
export const message = task('message', {
  input: anything,
  fair: 'client',
  limits: [
    limit('total', { rate: '3000/min', transit }),
    limit('client', { rate: '1000/min', by: 'client', transit }),
    limit('number', { rate: '6/s', by: 'number', transit: '250ms' }),
  ],
  allowPrivate: ['127.0.0.1'],
  retry: { attempts: 20, base: 50, max: 500 },
  async run({ client, number }, { fetch, job }) {
    const headers = { 'x-client': client, 'x-number': number, 'idempotency-key': job.id }
    const response = await fetch(`${vendor}/${job.id}`, { headers })
    await response.text()
    if (!response.ok) throw new Error(`the vendor said ${response.status}`)
  },
})

if (process.argv[2]) {
  const options = JSON.parse(process.argv[2])
  vendor = options.vendor
  const sluice = await Sluice.open({ store: options.store })
  const worker = await sluice.work([message], { concurrency: options.concurrency })
  process.stdout.write('ready\n')
  process.once('SIGTERM', () => void worker.stop().then(() => sluice.close()))
}
